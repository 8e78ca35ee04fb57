// run::host_staging and cuda::residence_of, with device memory of the emulator.
#include <gtest/gtest.h>
#include <algorithm>

#include <cstring>
#include <numeric>
#include <vector>

#include <ballast/error.hpp>

#include "cuda/device.hpp"
#include "cuda/residence.hpp"
#include "run/staging.hpp"
#include "simt/emulated_device.hpp"

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

TEST_F(staging, what_is_only_read_is_not_copied_back) {
  const cuda::device_buffer there(device_, 64);
  device_->zero(there.data(), 64, nullptr);
  host_staging staged(nullptr);
  const std::span<std::int32_t> here = staged.read(std::span(static_cast<std::int32_t*>(there.data()), 16));
  std::ranges::fill(here, 7);
  staged.commit();
  EXPECT_EQ(*static_cast<std::int32_t*>(there.data()), 0);
}

TEST(residence, memory_is_the_hosts_where_no_driver_is_loaded) {
  int here = 0;
  EXPECT_EQ(cuda::residence_of(&here), cuda::residence::host);
}

}  // namespace
}  // namespace ballast::run
