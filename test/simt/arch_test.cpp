// Tests the functions of cuda/arch: their scalar twins give the right results, the emulator detects misuse, and NVRTC compiles them for
// every architecture.
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/arch/checks.cuh"
#include "cuda/jit/embedded.hpp"
#include "cuda/jit/nvrtc.hpp"
#include "simt/arch_checks.hpp"
#include "simt/emulated_device.hpp"

namespace {

using namespace ballast;
using namespace ballast::arch::checks;

constexpr std::uint64_t k_arch_seeds = 30;
constexpr int k_every = static_cast<int>(k_arch_seeds);

TEST(arch, twins_do_what_the_instructions_do) {
  for (const int major : {8, 9}) {
    const auto checks = arch_checks::all(major);
    EXPECT_GE(checks.size(), 15u);
    for (std::uint64_t seed = 0; seed < k_arch_seeds; ++seed) {
      simt::emulated_device on(simt::emulated_capabilities(4, major), seed);
      for (const auto& check : checks) EXPECT_EQ(check.run(on, on.load(check.request)), "") << check.request.expression << " " << seed;
    }
  }
}

TEST(arch, a_missing_cluster_barrier_shows) {
  std::vector<double> in(8 * 64);
  std::iota(in.begin(), in.end(), 0.0);
  for (const bool before : {true, false}) {
    int caught = 0;
    for (std::uint64_t seed = 0; seed < k_arch_seeds; ++seed) {
      std::vector<double> out(in.size());
      const copy_argument of{in.data(), out.data()};
      try {
        simt::launch(8, 64, 4, 64 * 8, {.seed = seed}, [&] { before ? ring_kernel<double, 1>(of) : ring_kernel<double, 2>(of); });
      } catch (const simt::error& error) {
        EXPECT_NE(std::string(error.what()).find(before ? "has not started" : "has ended"), std::string::npos) << error.what();
        ++caught;
      }
    }
    EXPECT_GT(caught, k_every / 2) << before;
  }
}

// Returns the number of seeds for which the kernel gives the expected result and no error.
int right_seeds(unsigned threads, std::int64_t shared, std::vector<float>& out, const std::vector<float>& expected,
                const std::function<void()>& kernel) {
  int right = 0;
  for (std::uint64_t seed = 0; seed < k_arch_seeds; ++seed) {
    out.assign(expected.size(), -1);
    try {
      simt::launch(1, threads, 1, shared, {.seed = seed}, kernel);
    } catch (const simt::error&) {
      continue;
    }
    right += out == expected ? 1 : 0;
  }
  return right;
}

TEST(arch, a_missing_wait_for_a_bulk_copy_shows) {
  std::vector<float> in(5 * 256);
  std::iota(in.begin(), in.end(), 1.0f);
  std::vector<float> expected;
  for (const float x : in) expected.push_back(2 * x);
  std::vector<float> out(in.size());
  const copy_argument of{in.data(), out.data(), 0, 5};
  EXPECT_EQ(right_seeds(64, 1024 + 8, out, expected, [&] { bulk_kernel<0>(of); }), k_every);
  EXPECT_LT(right_seeds(64, 1024 + 8, out, expected, [&] { bulk_kernel<1>(of); }), k_every / 4);
  EXPECT_LT(right_seeds(64, 1024 + 8, out, expected, [&] { bulk_kernel<2>(of); }), k_every / 4);
}

TEST(arch, a_missing_wait_for_a_product_shows) {
  const std::vector<float> a(64 * 64, 1);
  const std::vector<float> b(8 * 64, 2);
  const std::vector<float> expected(64 * 8, 128);
  std::vector<float> d(expected.size());
  const product_argument of{a.data(), b.data(), d.data()};
  constexpr auto k_swizzle = arch::swizzle::bytes_128;
  EXPECT_EQ(right_seeds(128, 8 * 128, d, expected, [&] { wgmma_product_kernel<8, 64, k_swizzle, 0>(of); }), k_every);
  // The emulator sometimes performs the first product of a group at once; the others wait.
  EXPECT_EQ(right_seeds(128, 8 * 128, d, expected, [&] { wgmma_product_kernel<8, 64, k_swizzle, 1>(of); }), 0);
  EXPECT_LT(right_seeds(128, 8 * 128, d, expected, [&] { wgmma_product_kernel<8, 64, k_swizzle, 2>(of); }), k_every / 4);
}

TEST(arch, products_need_whole_warps_and_warpgroups) {
  EXPECT_THROW(simt::launch(1, 96, 1, 72 * 128, {},
                            [] {
                              float d[4] = {};
                              const auto operand = arch::describe(arch::shared_memory(), 1024, arch::swizzle::bytes_128);
                              const std::uint32_t a[4] = {};
                              arch::wgmma_m64k16_f16<8>(d, a, operand);
                            }),
               simt::error);
  EXPECT_THROW(simt::launch(1, 16, 1, 0, {},
                            [] {
                              double d[2] = {};
                              arch::mma_m8n8k4_f64(d, 1, 1);
                            }),
               simt::error);
}

TEST(arch, tf32_rounds_to_nearest_away_from_zero) {
  const auto rounded = [](float value) { return __uint_as_float(arch::to_tf32(value)); };
  EXPECT_EQ(rounded(1.0f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1p-11f), 1.0f + 0x1p-10f);
  EXPECT_EQ(rounded(-1.0f - 0x1p-11f), -1.0f - 0x1p-10f);
  EXPECT_EQ(rounded(1.0f + 0x1p-11f - 0x1p-20f), 1.0f);
  EXPECT_EQ(rounded(2.0f - 0x1p-23f), 2.0f);
  EXPECT_TRUE(std::isinf(rounded(INFINITY)));
  EXPECT_TRUE(std::isnan(rounded(NAN)));
}

TEST(arch, halves_are_rounded_to_nearest_even) {
  const auto rounded = [](float value) { return arch::from_half(arch::to_halves(value, 1)); };
  for (const float same : {0.0f, -0.0f, 1.0f, -1.5f, 65504.0f, 0x1p-14f, 0x1p-24f, -0x3p-24f, 1.0f + 0x1p-10f, 2.0f - 0x1p-10f})
    EXPECT_EQ(rounded(same), same);
  EXPECT_EQ(arch::to_halves(1.0f, -2.0f), 0xc0003c00u);
  EXPECT_EQ(rounded(1.0f + 0x1p-11f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x3p-11f), 1.0f + 0x1p-9f);
  EXPECT_EQ(rounded(-1.0f - 0x1p-11f - 0x1p-20f), -1.0f - 0x1p-10f);
  EXPECT_EQ(rounded(2.0f - 0x1p-12f), 2.0f);
  EXPECT_EQ(rounded(0x1p-14f - 0x1p-26f), 0x1p-14f);
  EXPECT_EQ(rounded(0x1p-25f), 0.0f);
  EXPECT_EQ(rounded(0x3p-25f), 0x1p-23f);
  EXPECT_EQ(rounded(65519.0f), 65504.0f);
  EXPECT_TRUE(std::isinf(rounded(65520.0f)));
  EXPECT_EQ(rounded(-INFINITY), -INFINITY);
  EXPECT_TRUE(std::isnan(rounded(NAN)));
  EXPECT_TRUE(std::isnan(rounded(-NAN)));
}

// If NVRTC is installed: the assembler accepts the PTX of every function, and none has register spills or a stack.
TEST(arch, compiles_by_nvrtc) {
  const cuda::nvrtc::compiler* compiler = cuda::nvrtc::find(1000);
  if (compiler == nullptr) GTEST_SKIP() << cuda::nvrtc::why_not_found(1000);
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    // Kernels that sm_80 cannot run must still compile for it: they trap.
    for (const auto& check : arch_checks::all(9)) {
      const auto made = compiler->compile(check.request.header, check.request.expression, architecture, cuda::embedded_sources());
      EXPECT_FALSE(made.image.empty()) << check.request.expression;
      EXPECT_EQ(made.uses.spills, 0) << check.request.expression << " " << architecture;
      EXPECT_EQ(made.uses.stack, 0) << check.request.expression << " " << architecture;
    }
  }
}

}  // namespace
