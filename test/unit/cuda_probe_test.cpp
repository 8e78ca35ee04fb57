// The probe kernel from its source to its numbers: on the emulator everywhere, and by compiler, driver and device where there is one.
#include "cuda/device/probe.cuh"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/device/device.hpp"
#include "simt/launch.hpp"

namespace ballast::cuda {
namespace {

constexpr std::int64_t k_count = 100'003;
constexpr std::int64_t k_blocks = 7;

std::vector<float> ramp() {
  std::vector<float> values(k_count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// Sums of integers below 2^53: exact in any order.
void expect_probed(const std::vector<float>& in, const std::vector<float>& out, const std::vector<double>& sums, float factor) {
  for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], factor * in[i]) << i;
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0), factor * 0.5 * k_count * (k_count + 1));
}

TEST(cuda_probe, copies_and_sums_on_the_emulator) {
  const std::vector<float> in = ramp();
  std::vector<float> out(in.size());
  std::vector<double> sums(k_blocks);
  const probe_argument argument{in.data(), out.data(), sums.data(), k_count};
  simt::launch({k_blocks, 1, 1}, {256, 1, 1}, 1, 0, {}, [&] { probe_kernel<probe_policy{}>(argument); });
  expect_probed(in, out, sums, 1);
  simt::launch({k_blocks, 1, 1}, {64, 1, 1}, 1, 0, {}, [&] { probe_kernel<probe_policy{.threads = 64, .doubled = true}>(argument); });
  expect_probed(in, out, sums, 2);
}

constexpr std::int64_t k_cases = 100;

// Expects values that every case must have, beside being the same on host and device.
void expect_sound(const abft_case& seen, std::int64_t i) {
  EXPECT_EQ(seen.values[4], static_cast<double>(i % 8)) << "located";
  EXPECT_EQ(static_cast<int>(seen.values[6]), static_cast<int>(abft::outcome::open));
  EXPECT_EQ(static_cast<int>(seen.values[7]), static_cast<int>(abft::outcome::recomputed));
}

TEST(cuda_probe, abft_gives_the_same_on_the_emulator_as_on_the_host) {
  std::vector<abft_case> out(k_cases);
  const abft_argument argument{out.data(), k_cases};
  simt::launch({2, 1, 1}, {64, 1, 1}, 1, 0, {}, [&] { abft_kernel<64>(argument); });
  for (std::int64_t i = 0; i < k_cases; ++i) {
    const abft_case expected = abft_case_of(i);
    const abft_case& seen = out[static_cast<std::size_t>(i)];
    EXPECT_EQ(std::memcmp(&seen, &expected, sizeof seen), 0) << i;
    expect_sound(seen, i);
  }
}

// Square roots are exact on both; logarithms of the device may be off by a few units in the last place.
TEST(cuda_probe, abft_gives_the_same_on_the_device_as_on_the_host) {
  if (const std::string why = why_unavailable(); !why.empty()) GTEST_SKIP() << why;
  const auto on = current_device();
  const device_buffer to(on, k_cases * static_cast<std::int64_t>(sizeof(abft_case)));
  const abft_argument argument{static_cast<abft_case*>(to.data()), k_cases};
  const kernel& probe = on->load({.header = "cuda/device/probe.cuh", .expression = "ballast::cuda::abft_kernel<64>", .threads = 64});
  on->launch(probe, 2, &argument, sizeof argument, nullptr);
  std::vector<abft_case> out(k_cases);
  on->copy(out.data(), to.data(), to.bytes(), nullptr);
  on->synchronize(nullptr);
  for (std::int64_t i = 0; i < k_cases; ++i) {
    const abft_case expected = abft_case_of(i);
    const abft_case& seen = out[static_cast<std::size_t>(i)];
    for (int v = 0; v < 9; ++v)
      EXPECT_NEAR(seen.values[v], expected.values[v], 1e-14 * std::abs(expected.values[v]) + 1e-15) << i << " " << v;
    expect_sound(seen, i);
  }
}

TEST(cuda_probe, copies_and_sums_on_the_device) {
  if (const std::string why = why_unavailable(); !why.empty()) GTEST_SKIP() << why;
  const auto on = current_device();
  const std::vector<float> in = ramp();
  const auto bytes = static_cast<std::int64_t>(in.size() * sizeof(float));
  const device_buffer from(on, bytes), to(on, bytes), sums(on, k_blocks * static_cast<std::int64_t>(sizeof(double)));
  EXPECT_TRUE(on->accessible(from.data()));
  EXPECT_FALSE(on->accessible(in.data()));
  on->copy(from.data(), in.data(), bytes, nullptr);
  on->zero(to.data(), bytes, nullptr);
  const probe_argument argument{static_cast<const float*>(from.data()), static_cast<float*>(to.data()), static_cast<double*>(sums.data()),
                                k_count};
  for (const bool doubled : {false, true}) {
    const kernel& probe = on->load({.header = "cuda/device/probe.cuh",
                                    .expression = doubled ? "ballast::cuda::probe_kernel<ballast::cuda::probe_policy{.doubled = true}>"
                                                          : "ballast::cuda::probe_kernel<ballast::cuda::probe_policy{}>",
                                    .threads = 256});
    EXPECT_GE(on->resident_blocks(probe), on->about().multiprocessors);
    on->launch(probe, k_blocks, &argument, sizeof argument, nullptr);
    std::vector<float> out(in.size());
    std::vector<double> partial(k_blocks);
    on->copy(out.data(), to.data(), bytes, nullptr);
    on->copy(partial.data(), sums.data(), sums.bytes(), nullptr);
    on->synchronize(nullptr);
    expect_probed(in, out, partial, doubled ? 2 : 1);
  }
}

}  // namespace
}  // namespace ballast::cuda
