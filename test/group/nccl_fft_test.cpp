// Transforms on ranks over NCCL, a device of the emulator each: the definition in extended precision, faults of the blocks between devices.
// Layer: backend tests.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft_group.hpp>

#include "group/devices_fft_cases.hpp"
#include "group/fake_nccl.hpp"

namespace ballast::fft {
namespace {

using namespace on_groups;
using test::nccl_fault;

struct found {
  long double error = 0, size = 0, error_back = 0, size_back = 0;
  std::uint64_t detected = 0, uncorrectable = 0;
  double relative() const { return std::sqrt(static_cast<double>(error / size)); }
  double relative_back() const { return std::sqrt(static_cast<double>(error_back / size_back)); }
};

// Transforms complex data on three ranks and back; operands on each rank's device.
found transform_on_ranks(const scene& what, protection level) {
  const auto x = random_numbers<float>(what);
  const auto expected = transform_of(x, what.shape);
  std::vector<found> parts(3);
  const auto ends = test::run_nccl_ranks(3, {.resend_after = 0.02, .patience = 30}, [&](int r, const group& own) {
    found& made = parts[static_cast<std::size_t>(r)];
    const group_plan<float> plan(what.shape, {.threads = 1, .protection = level, .group = own}, what.how);
    const auto device = own.internal()->link->device();
    std::vector<std::complex<float>> in(static_cast<std::size_t>(plan.data().size())),
        out(static_cast<std::size_t>(plan.spectrum().size()));
    each_element(plan.data(), [&](std::size_t e, const auto& at) { in[e] = x[number_of(what, plan.shape(), at, false)]; });
    const auto bytes = [](const auto& of) { return static_cast<std::int64_t>(of.size() * 8); };
    const cuda::device_buffer from(device, bytes(in)), to(device, bytes(out));
    device->copy(from.data(), in.data(), bytes(in), nullptr);
    const std::span there_in(static_cast<std::complex<float>*>(from.data()), in.size());
    const std::span there_out(static_cast<std::complex<float>*>(to.data()), out.size());
    const call kept{.throw_on_uncorrectable = false};
    report seen = plan.forward(std::span<const std::complex<float>>(there_in), there_out, kept);
    device->copy(out.data(), to.data(), bytes(out), nullptr);
    seen.merge(plan.inverse(std::span<const std::complex<float>>(there_out), there_in, kept));
    std::vector<std::complex<float>> back(in.size());
    device->copy(back.data(), from.data(), bytes(in), nullptr);
    EXPECT_EQ(seen.backend, backend::cuda);
    if (what.shape.size() > 1) EXPECT_EQ(own.internal()->road, wire::road::link);
    each_element(plan.spectrum(), [&](std::size_t e, const auto& at) {
      const std::size_t number = number_of(what, plan.shape(), at, true);
      made.error += std::norm(static_cast<extended>(out[e]) - expected[number]);
      made.size += std::norm(expected[number]);
    });
    for (std::size_t e = 0; e < in.size(); ++e) {
      made.error_back += std::norm(static_cast<extended>(back[e]) - static_cast<extended>(in[e]));
      made.size_back += std::norm(static_cast<extended>(in[e]));
    }
    made.detected = seen.detected;
    made.uncorrectable = seen.uncorrectable;
  });
  for (const std::exception_ptr& each : ends)
    if (each) std::rethrow_exception(each);
  found all = parts[0];
  for (std::size_t r = 1; r < 3; ++r) {
    all.error += parts[r].error, all.size += parts[r].size;
    all.error_back += parts[r].error_back, all.size_back += parts[r].size_back;
  }
  return all;
}

const scene k_slabs = {"slabs", {8, 12, 8}, {}};
constexpr double k_limit = 4 * 0x1p-24 * 4;

class nccl_fft : public testing::Test {
 protected:
  test::nccl_devices devices_{3};
};

TEST_F(nccl_fft, definition_and_inverse) {
  for (const scene& what : {k_slabs, scene{"pencils", {8, 8, 12}, {.division = division::pencils, .order = result_order::natural}}}) {
    test::begin_fake_nccl();
    const found made = transform_on_ranks(what, protection::correct);
    EXPECT_LE(made.relative(), k_limit) << what;
    EXPECT_LE(made.relative_back(), 2 * k_limit) << what;
    EXPECT_EQ(made.detected, 0U) << what;
  }
}

// Blocks between devices are longer than slots would be short: only they are struck.
TEST_F(nccl_fft, exchanges_damaged_blocks_again) {
  std::uint64_t struck = 0, detected = 0;
  double worst_off = 0;
  for (const nccl_fault each : {nccl_fault::bit, nccl_fault::swapped, nccl_fault::stale, nccl_fault::half}) {
    for (std::uint64_t number = 0; number < 24; number += 3) {
      const std::vector<test::nccl_strike> strikes = {{each, static_cast<int>(number % 2), number, 1, 31 + 64 * number}};
      test::begin_fake_nccl(strikes);
      const found made = transform_on_ranks(k_slabs, protection::correct);
      EXPECT_LE(made.relative(), k_limit) << static_cast<int>(each) << " at " << number;
      EXPECT_LE(made.relative_back(), 2 * k_limit) << static_cast<int>(each) << " at " << number;
      EXPECT_EQ(made.uncorrectable, 0U);
      struck += test::struck_nccl();
      detected += made.detected;
      test::begin_fake_nccl(strikes);
      try {
        const found off = transform_on_ranks(k_slabs, protection::off);
        worst_off = std::max({worst_off, off.relative(), off.relative_back()});
      } catch (const error&) {  // a message without protection
      }
    }
  }
  EXPECT_GT(struck, 20U);
  EXPECT_GT(detected, 4U);
  EXPECT_GT(worst_off, 100 * k_limit);
}

}  // namespace
}  // namespace ballast::fft
