// The functions of cuda/arch: their scalar twins do what they say, and NVRTC takes them for every architecture.
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/embedded.hpp"
#include "cuda/nvrtc.hpp"
#include "simt/emulated_device.hpp"
#include "simt/instructions.cuh"

namespace {

using namespace ballast;
using namespace simt_test;

constexpr std::uint64_t k_seeds = 30;

template <class T>
T number(int i);
template <>
float number<float>(int i) {
  return static_cast<float>(i);
}
template <>
double number<double>(int i) {
  return i;
}
template <>
float2 number<float2>(int i) {
  return {static_cast<float>(i), -0.5f};
}
template <>
double2 number<double2>(int i) {
  return {0.25, static_cast<double>(i)};
}
template <>
float4 number<float4>(int i) {
  return {1, static_cast<float>(i), 3, static_cast<float>(-i)};
}

template <class T>
std::vector<T> numbers(int count, int first = 0) {
  std::vector<T> all;
  for (int i = 0; i < count; ++i) all.push_back(number<T>(first + i));
  return all;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
class instructions_of : public testing::Test {};
using types = testing::Types<float, float2, float4, double, double2>;
TYPED_TEST_SUITE(instructions_of, types);

TYPED_TEST(instructions_of, hinted_copies) {
  const auto in = numbers<TypeParam>(3 * 4 * 32);
  std::vector<TypeParam> out(in.size());
  simt::launch(3, 32, 1, 0, {}, [&] { hinted_copy_kernel<TypeParam>({in.data(), out.data()}); });
  EXPECT_TRUE(same(out, in));
}

TYPED_TEST(instructions_of, asynchronous_copies) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    auto in = numbers<TypeParam>(96, 1);
    std::vector<TypeParam> out(96);
    simt::launch(1, 96, 1, 96 * sizeof(TypeParam), {.seed = seed}, [&] { async_copy_kernel<TypeParam>({in.data(), out.data(), 10}); });
    for (std::size_t i = 0; i < 10; ++i) in[86 + i] = TypeParam{};
    std::rotate(in.begin(), in.begin() + 1, in.end());
    ASSERT_TRUE(same(out, in));
  }
}

TYPED_TEST(instructions_of, cluster_loads_and_stores) {
  const auto in = numbers<TypeParam>(12 * 32);
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    for (const bool push : {false, true}) {
      std::vector<TypeParam> out(in.size());
      simt::launch(12, 32, 4, 32 * sizeof(TypeParam), {.seed = seed}, [&] {
        if (push) {
          push_kernel<TypeParam>({in.data(), out.data()});
        } else {
          ring_kernel<TypeParam, 0>({in.data(), out.data()});
        }
      });
      for (int block = 0; block < 12; ++block) {
        const int from = block / 4 * 4 + (block + 1) % 4;
        const auto expected = numbers<TypeParam>(32, from * 32);
        const auto got = std::vector<TypeParam>(out.begin() + block * 32, out.begin() + (block + 1) * 32);
        ASSERT_TRUE(same(got, expected)) << push << " " << seed;
      }
    }
  }
}

TEST(instructions, a_missing_cluster_barrier_shows) {
  const auto in = numbers<double>(8 * 64);
  for (const bool before : {true, false}) {
    int caught = 0;
    for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
      std::vector<double> out(in.size());
      try {
        simt::launch(8, 64, 4, 64 * 8, {.seed = seed}, [&] {
          if (before) {
            ring_kernel<double, 1>({in.data(), out.data()});
          } else {
            ring_kernel<double, 2>({in.data(), out.data()});
          }
        });
      } catch (const simt::error& error) {
        EXPECT_NE(std::string(error.what()).find(before ? "has not started" : "has ended"), std::string::npos) << error.what();
        ++caught;
      }
    }
    EXPECT_GT(caught, static_cast<int>(k_seeds / 2)) << before;
  }
}

TEST(instructions, bulk_copies) {
  const auto in = numbers<float>(5 * 256, 1);
  for (const int broken : {0, 1, 2}) {
    int right = 0;
    for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
      std::vector<float> out(in.size());
      const bulk_argument of{in.data(), out.data(), 5};
      try {
        simt::launch(1, 64, 1, 1024 + 8, {.seed = seed}, [&] {
          if (broken == 0) bulk_kernel<0>(of);
          if (broken == 1) bulk_kernel<1>(of);
          if (broken == 2) bulk_kernel<2>(of);
        });
      } catch (const simt::error&) {
        EXPECT_NE(broken, 0);
        continue;
      }
      bool all = true;
      for (std::size_t i = 0; i < in.size(); ++i) all = all && out[i] == 2 * in[i];
      right += all ? 1 : 0;
    }
    if (broken == 0) {
      EXPECT_EQ(right, static_cast<int>(k_seeds));
    } else {
      EXPECT_LT(right, static_cast<int>(k_seeds / 4)) << broken;
    }
  }
}

TEST(instructions, threads_know_where_they_are) {
  std::vector<std::uint32_t> warps(6);
  std::vector<std::uint64_t> times(18, ~std::uint64_t{0});
  simt::launch(6, 256, 1, 0, {.alive_from_start = 6, .multiprocessors = 4}, [&] { thread_kernel({warps.data(), times.data()}); });
  for (std::size_t b = 0; b < 6; ++b) {
    EXPECT_EQ(warps[b], 28u);
    EXPECT_GT(times[3 * b], 0u);
    EXPECT_GE(times[3 * b + 1], times[3 * b]);
    EXPECT_LT(times[3 * b + 2], 4u);
  }
}

// Blocks of a persistent kernel that wait for each other, with fewer alive at once than there are.
TEST(instructions, blocks_wait_for_earlier_blocks) {
  std::uint64_t expected = 0;
  for (std::uint64_t b = 0; b < 40; ++b) expected = 3 * expected + b;
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    std::uint32_t tickets = 0;
    std::uint32_t done = 0;
    std::vector<std::uint32_t> started(40);
    std::uint64_t sum = 0;
    simt::launch(40, 64, 1, 0, {.seed = seed, .resident_blocks = 1 + static_cast<std::int64_t>(seed % 5), .alive_from_start = 3}, [&] {
      chain_kernel({&tickets, &done, started.data(), &sum});
    });
    EXPECT_EQ(sum, expected);
    EXPECT_EQ(started, std::vector<std::uint32_t>(40, 1));
  }
}

TEST(instructions, tf32_rounds_to_nearest_away_from_zero) {
  simt::launch(1, 1, 1, 0, {}, [] {
    const auto rounded = [](float value) { return __uint_as_float(arch::to_tf32(value)); };
    EXPECT_EQ(rounded(1.0f), 1.0f);
    EXPECT_EQ(rounded(1.0f + 0x1p-11f), 1.0f + 0x1p-10f);
    EXPECT_EQ(rounded(-1.0f - 0x1p-11f), -1.0f - 0x1p-10f);
    EXPECT_EQ(rounded(1.0f + 0x1p-11f - 0x1p-20f), 1.0f);
    EXPECT_EQ(rounded(2.0f - 0x1p-23f), 2.0f);
    EXPECT_TRUE(std::isinf(rounded(INFINITY)));
    EXPECT_TRUE(std::isnan(rounded(NAN)));
  });
}

TEST(instructions, products_of_a_warp) {
  // Small integers: every product and sum is exact in TF32 and float.
  std::vector<float> a(16 * 8);
  std::vector<float> b(8 * 8);
  std::vector<float> d(16 * 8);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 23) - 11;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 19) - 9;
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = static_cast<float>(i);
  auto expected = d;
  for (std::size_t r = 0; r < 16; ++r) {
    for (std::size_t c = 0; c < 8; ++c) {
      for (std::size_t k = 0; k < 8; ++k) expected[r * 8 + c] += a[r * 8 + k] * b[k * 8 + c];
    }
  }
  simt::launch(1, 32, 1, 0, {}, [&] { tf32_product_kernel({a.data(), b.data(), d.data()}); });
  EXPECT_EQ(d, expected);

  std::vector<double> da(a.begin(), a.begin() + 32);
  std::vector<double> db(b.begin(), b.begin() + 32);
  std::vector<double> dd(64, 0.5);
  std::vector<double> dexpected(64, 0.5);
  for (std::size_t r = 0; r < 8; ++r) {
    for (std::size_t c = 0; c < 8; ++c) {
      for (std::size_t k = 0; k < 4; ++k) dexpected[r * 8 + c] += da[r * 4 + k] * db[k * 8 + c];
    }
  }
  simt::launch(1, 32, 1, 0, {}, [&] { f64_product_kernel({da.data(), db.data(), dd.data()}); });
  EXPECT_EQ(dd, dexpected);
  EXPECT_THROW(simt::launch(1, 16, 1, 0, {}, [&] { f64_product_kernel({da.data(), db.data(), dd.data()}); }), simt::error);
}

// How many seeds give right products of a warpgroup.
template <int N, int K, arch::swizzle Swizzle, int Broken = 0>
int right_products() {
  std::vector<float> a(64 * K);
  std::vector<float> b(N * K);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 23) - 11;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 19) - 9;
  std::vector<float> expected(64 * N);
  for (std::size_t r = 0; r < 64; ++r) {
    for (std::size_t c = 0; c < N; ++c) {
      for (std::size_t k = 0; k < K; ++k) expected[r * N + c] += a[r * K + k] * b[c * K + k];
    }
  }
  int right = 0;
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    std::vector<float> d(64 * N, -1);
    simt::launch(1, 128, 1, (64 + N) * 4 * K, {.seed = seed}, [&] {
      wgmma_product_kernel<N, K, Swizzle, Broken>({a.data(), b.data(), d.data()});
    });
    right += d == expected ? 1 : 0;
  }
  return right;
}

TEST(instructions, products_of_a_warpgroup) {
  constexpr int k_every = static_cast<int>(k_seeds);
  EXPECT_EQ((right_products<8, 32, arch::swizzle::bytes_128>()), k_every);
  EXPECT_EQ((right_products<16, 16, arch::swizzle::bytes_64>()), k_every);
  EXPECT_EQ((right_products<32, 8, arch::swizzle::bytes_32>()), k_every);
  EXPECT_EQ((right_products<64, 24, arch::swizzle::none>()), k_every);
  EXPECT_EQ((right_products<128, 32, arch::swizzle::bytes_128>()), k_every);
  EXPECT_EQ((right_products<256, 8, arch::swizzle::none>()), k_every);
  EXPECT_EQ((right_products<8, 32, arch::swizzle::bytes_128, 1>()), 0);
  EXPECT_LT((right_products<8, 32, arch::swizzle::bytes_128, 2>()), k_every / 2);
}

// With a toolkit at hand: every function is PTX that the assembler takes, and none needs memory of its own.
TEST(instructions, compile_by_nvrtc) {
  const cuda::nvrtc::compiler* compiler = cuda::nvrtc::find(1000);
  if (compiler == nullptr) GTEST_SKIP() << cuda::nvrtc::why_not_found(1000);
  std::ifstream file(BALLAST_TEST_DIR "/simt/instructions.cuh");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty());
  const auto embedded = cuda::embedded_sources();
  std::vector<cuda::nvrtc::source> sources(embedded.begin(), embedded.end());
  sources.push_back({"simt/instructions.cuh", text.c_str()});

  std::vector<std::string> kernels{"thread_kernel", "chain_kernel", "bulk_kernel<0>", "tf32_product_kernel", "f64_product_kernel"};
  for (const std::string type : {"float", "float2", "float4", "double", "double2"}) {
    for (const std::string kernel : {"hinted_copy_kernel<", "async_copy_kernel<", "push_kernel<"}) kernels.push_back(kernel + type + ">");
    kernels.push_back("ring_kernel<" + type + ", 0>");
  }
  for (const std::string shape :
       {"8, 32, ballast::arch::swizzle::bytes_128", "16, 16, ballast::arch::swizzle::bytes_64", "32, 8, ballast::arch::swizzle::bytes_32",
        "64, 24, ballast::arch::swizzle::none", "128, 32, ballast::arch::swizzle::bytes_128", "256, 8, ballast::arch::swizzle::none"}) {
    kernels.push_back("wgmma_product_kernel<" + shape + ", 0>");
  }
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    for (const auto& kernel : kernels) {
      const auto made = compiler->compile("simt/instructions.cuh", "simt_test::" + kernel, architecture, sources);
      EXPECT_FALSE(made.image.empty()) << kernel;
      EXPECT_EQ(made.uses.spills, 0) << kernel << " " << architecture;
      EXPECT_EQ(made.uses.stack, 0) << kernel << " " << architecture;
    }
  }
}

}  // namespace
