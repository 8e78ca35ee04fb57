// The emulator: right kernels give right results for every seed, wrong ones are caught.
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/arch/arch.cuh"
#include "simt/launch.hpp"

namespace {

using namespace ballast;

constexpr std::uint64_t k_seeds = 20;

struct sum_arguments {
  const float* in;
  float* out;
  int per_block;
};

// A block sums per_block numbers: shuffles in each warp, then the warps' sums through shared memory.
__global__ void sum_kernel(sum_arguments of) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < of.per_block; i += static_cast<int>(blockDim.x)) {
    sum += arch::load_streaming(of.in + static_cast<std::int64_t>(blockIdx.x) * of.per_block + i);
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  auto& partial = arch::shared_object<float[32], struct partial_sums>();
  if (arch::lane() == 0) partial[arch::warp()] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) all += partial[w];
    arch::store_streaming(of.out + blockIdx.x, all);
  }
}

TEST(simt, sums_by_shuffles_and_shared_memory) {
  constexpr int k_blocks = 5;
  for (const unsigned threads : {32u, 96u, 256u, 1024u}) {
    std::vector<float> in(k_blocks * 3000);
    std::iota(in.begin(), in.end(), 0.0f);
    for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
      std::vector<float> out(k_blocks, -1);
      const sum_arguments of{in.data(), out.data(), 3000};
      simt::launch(k_blocks, threads, 1, 0, {.seed = seed}, [&] { sum_kernel(of); });
      for (int b = 0; b < k_blocks; ++b) EXPECT_NEAR(out[static_cast<std::size_t>(b)], 3000.0 * (3000.0 * b + 1499.5), 40.0);
    }
  }
}

// The next thread's number, through dynamic shared memory; without its barrier if `broken`.
void rotate_kernel(int* out, bool broken) {
  auto* memory = reinterpret_cast<int*>(arch::shared_memory());
  memory[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (!broken) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = memory[(threadIdx.x + 1) % blockDim.x];
}

TEST(simt, a_missing_barrier_changes_results) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    for (const bool broken : {false, true}) {
      std::vector<int> out(4 * 128, -1);
      simt::launch(4, 128, 1, 128 * sizeof(int), {.seed = seed}, [&] { rotate_kernel(out.data(), broken); });
      bool right = true;
      for (int i = 0; i < 4 * 128; ++i) right = right && out[static_cast<std::size_t>(i)] == (i + 1) % 128;
      EXPECT_EQ(right, !broken) << seed;
    }
  }
}

}  // namespace
