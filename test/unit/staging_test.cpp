// run::host_staging and cuda::residence_of, with device memory of the emulator.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <ballast/ballast.hpp>

#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "run/staging.hpp"
#include "simt/emulated_device.hpp"
#include "support/fft_data.hpp"

namespace ballast::run {
namespace {

class staging : public testing::Test {
 protected:
  void SetUp() override { cuda::override_device(device_); }
  void TearDown() override { cuda::override_device(nullptr); }
  std::shared_ptr<simt::emulated_device> device_ = std::make_shared<simt::emulated_device>();
};

TEST_F(staging, host_operands_are_used_where_they_lie) {
  std::vector<double> here(12);
  host_staging staged(nullptr);
  EXPECT_EQ(staged.write(row_major(here.data(), 3, 4)).data, here.data());
  EXPECT_EQ(staged.read(std::span<const double>(here)).data(), here.data());
  staged.commit();
}

TEST_F(staging, device_operands_are_copied_there_and_back_whole) {
  // A transposed block with gaps, walked backwards along its rows: the view's first element is not its lowest address.
  std::vector<float> start(100);
  std::iota(start.begin(), start.end(), 0.0f);
  const cuda::device_buffer there(device_, 400);
  device_->copy(there.data(), start.data(), 400, nullptr);
  const matrix_view<float> operand{static_cast<float*>(there.data()) + 90, 5, 4, -20, 2};
  EXPECT_EQ(cuda::residence_of(operand.data), cuda::residence::device);
  host_staging staged(nullptr);
  const matrix_view<float> here = staged.write(operand);
  EXPECT_NE(here.data, operand.data);
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(here(i, j), static_cast<float>(90 - 20 * i + 2 * j));
      here(i, j) = -1;
    }
  }
  std::vector<float> seen(100);
  device_->copy(seen.data(), there.data(), 400, nullptr);
  EXPECT_EQ(seen, start) << "nothing is written before commit";
  staged.commit();
  device_->copy(seen.data(), there.data(), 400, nullptr);
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) start[static_cast<std::size_t>(90 - 20 * i + 2 * j)] = -1;
  }
  EXPECT_EQ(seen, start) << "and what lies between the elements is as before";
}

TEST_F(staging, what_is_overwritten_comes_back_and_gaps_are_as_before) {
  std::vector<float> start(60);
  std::iota(start.begin(), start.end(), 0.0f);
  const cuda::device_buffer there(device_, 240);
  for (const std::int64_t stride : {6, 7, 0}) {  // dense, with gaps, by columns
    device_->copy(there.data(), start.data(), 240, nullptr);
    const matrix_view<float> operand{static_cast<float*>(there.data()) + 2, 5, 6, stride == 0 ? 1 : stride, stride == 0 ? 5 : 1};
    host_staging staged(nullptr);
    const matrix_view<float> here = staged.overwrite(operand);
    EXPECT_NE(here.data, operand.data);
    std::vector<float> expected = start;
    for (std::int64_t i = 0; i < 5; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) {
        here(i, j) = static_cast<float>(-1 - i);
        expected[static_cast<std::size_t>(2 + i * operand.row_stride + j * operand.column_stride)] = static_cast<float>(-1 - i);
      }
    }
    std::vector<float> seen(60);
    device_->copy(seen.data(), there.data(), 240, nullptr);
    EXPECT_EQ(seen, start) << "nothing is written before commit";
    staged.commit();
    device_->copy(seen.data(), there.data(), 240, nullptr);
    EXPECT_EQ(seen, expected) << stride;
  }
}

TEST_F(staging, what_is_only_read_is_not_copied_back) {
  const cuda::device_buffer there(device_, 64);
  device_->zero(there.data(), 64, nullptr);
  host_staging staged(nullptr);
  const std::span<std::int32_t> here = staged.read(std::span(static_cast<std::int32_t*>(there.data()), 16));
  std::ranges::fill(here, 7);
  staged.commit();
  EXPECT_EQ(*static_cast<std::int32_t*>(there.data()), 0);
}

TEST_F(staging, operands_on_a_device_that_are_not_aligned_are_refused_before_a_kernel_runs) {
  const cuda::device_buffer there(device_, 4096);
  auto* const bytes = static_cast<unsigned char*>(there.data());
  const auto refusal = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const invalid_argument_error& seen) {
      return seen.what();
    }
    return "no invalid_argument_error";
  };
  const auto check = [&](const fft::problem& what, fft::direction way, std::int64_t in, std::int64_t out, const char* message) {
    const fft::plan plan(what, {.backend = backend::cuda});
    const auto enqueue = [&]<class T>() { (void)test::enqueue<T>(plan, fft::resolve(what), way, bytes + in, bytes + 2048 + out); };
    EXPECT_EQ(refusal([&] {
                if (what.precision == precision::f32) {
                  enqueue.template operator()<float>();
                } else {
                  enqueue.template operator()<double>();
                }
              }),
              message);
  };
  check({.shape = {64}}, fft::direction::forward, 4, 0,
        "in: expected device memory at a multiple of 8 bytes, an element's size, got an address 4 bytes behind one");
  check({.shape = {64}}, fft::direction::forward, 0, 4,
        "out: expected device memory at a multiple of 8 bytes, an element's size, got an address 4 bytes behind one");
  check({.precision = precision::f64, .shape = {64}}, fft::direction::inverse, 8, 0,
        "in: expected device memory at a multiple of 16 bytes, an element's size, got an address 8 bytes behind one");
  check({.kind = fft::kind::r2c, .shape = {64}}, fft::direction::forward, 4, 4,
        "out: expected device memory at a multiple of 8 bytes, an element's size, got an address 4 bytes behind one");
  // The call that waits, in place.
  const fft::plan plan({.shape = {64}}, {.backend = backend::cuda});
  const std::span<std::complex<float>> shifted(reinterpret_cast<std::complex<float>*>(bytes + 4), 64);
  EXPECT_EQ(refusal([&] { (void)plan.forward(shifted, shifted); }),
            "in: expected device memory at a multiple of 8 bytes, an element's size, got an address 4 bytes behind one");
}

TEST(residence, memory_is_the_hosts_where_no_driver_is_loaded) {
  int here = 0;
  EXPECT_EQ(cuda::residence_of(&here), cuda::residence::host);
}

}  // namespace
}  // namespace ballast::run
