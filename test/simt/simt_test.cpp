// Tests the emulator: correct kernels give correct results for every seed, and kernels that lack a barrier give wrong ones.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cuda/block/twice.cuh"
#include "simt/simt_test.hpp"

namespace {

using namespace simt_test;

// --- correct kernels -------------------------------------------------------------------------------------------------------------------

struct sum_arguments {
  const float* in;
  float* out;
  int per_block;
};

// Each block sums per_block numbers: by shuffles in each warp, then over the warps in shared memory.
__global__ void sum_kernel(sum_arguments of) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < of.per_block; i += static_cast<int>(blockDim.x)) {
    sum += arch::load_streaming(of.in + static_cast<std::int64_t>(blockIdx.x) * of.per_block + i);
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(k_all, sum, distance);
  auto& partial = arch::shared_object<float[32], struct partial_sums>();
  if (arch::lane() == 0) partial[arch::warp()] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) all += partial[w];
    arch::store_streaming(of.out + blockIdx.x, all);
  }
}

TEST(simt, sums) {
  constexpr int k_blocks = 5;
  std::vector<float> in(k_blocks * 3000);
  std::iota(in.begin(), in.end(), 0.0f);
  for (const unsigned threads : {32u, 96u, 256u, 1024u}) {
    for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
      std::vector<float> out(k_blocks, -1);
      const sum_arguments of{in.data(), out.data(), 3000};
      simt::launch(k_blocks, threads, 1, 0, {.seed = seed, .alive_from_start = static_cast<std::int64_t>(seed % 4)},
                   [&] { sum_kernel(of); });
      // The rounding error of sums of 3000 numbers below 15000 is at most a few multiples of 4.
      for (int b = 0; b < k_blocks; ++b) EXPECT_NEAR(out[static_cast<std::size_t>(b)], 3000.0 * (3000.0 * b + 1499.5), 40.0);
    }
  }
}

// Blocks draw tickets until none are left. If they run one after the other, the first block draws all; if they interleave, they share them.
TEST(simt, blocks_side_by_side_share_tickets) {
  constexpr unsigned k_tickets = 40;
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    for (const std::int64_t together : {1, 4}) {
      std::uint32_t next = 0;
      std::vector<unsigned> owner(k_tickets, ~0u);
      simt::launch(8, 64, 1, 0, {.seed = seed, .alive_from_start = together}, [&] {
        auto& ticket = arch::shared_object<std::uint32_t, struct drawn>();
        for (;;) {
          if (threadIdx.x == 0) ticket = atomicAdd(&next, 1u);
          __syncthreads();
          if (ticket >= k_tickets) break;
          if (threadIdx.x == 63) owner[ticket] = blockIdx.x;
          __syncthreads();
        }
      });
      std::ranges::sort(owner);
      const auto distinct = std::ranges::unique(owner).begin() - owner.begin();
      EXPECT_LT(owner.front(), 8u);
      EXPECT_EQ(distinct == 1, together == 1) << distinct;
    }
  }
}

// Each block of 32 × 8 threads processes a 32 × 32 tile; the grid covers the matrix.
__global__ void transpose_kernel(const double* in, double* out, int n) {
  auto* tile = reinterpret_cast<double*>(arch::shared_memory());
  const int row = static_cast<int>(blockIdx.y) * 32;
  const int column = static_cast<int>(blockIdx.x) * 32;
  for (unsigned y = threadIdx.y; y < 32; y += blockDim.y) tile[y * 32 + (threadIdx.x ^ y)] = in[(row + y) * n + column + threadIdx.x];
  __syncthreads();
  for (unsigned y = threadIdx.y; y < 32; y += blockDim.y)
    out[(column + y) * n + row + threadIdx.x] = tile[threadIdx.x * 32 + (threadIdx.x ^ y)];
}

TEST(simt, transposes) {
  constexpr int n = 96;
  std::vector<double> in(n * n);
  std::iota(in.begin(), in.end(), 0.0);
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    std::vector<double> out(n * n, -1);
    simt::launch({n / 32, n / 32}, {32, 8}, 1, 32 * 32 * sizeof(double), {.seed = seed},
                 [&] { transpose_kernel(in.data(), out.data(), n); });
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) ASSERT_EQ(out[static_cast<std::size_t>(j * n + i)], in[static_cast<std::size_t>(i * n + j)]);
    }
  }
}

// Computes inclusive prefix sums over a block whose last warp is not full.
__global__ void scan_kernel(const int* in, int* out) {
  auto& warps = arch::shared_object<int[32], struct warp_sums>();
  const int lane = arch::lane();
  const unsigned there = blockDim.x - 32 * static_cast<unsigned>(arch::warp());
  const unsigned mask = there >= 32 ? k_all : (1u << there) - 1;
  int sum = in[threadIdx.x];
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(mask, sum, distance);
    if (lane >= static_cast<int>(distance)) sum += before;
  }
  if (lane == 31) warps[arch::warp()] = sum;
  __syncthreads();
  for (int w = 0; w < arch::warp(); ++w) sum += warps[w];
  out[threadIdx.x] = sum;
}

TEST(simt, scans) {
  for (const unsigned threads : {1u, 31u, 100u, 1000u}) {
    std::vector<int> in(threads);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * i % 17);
    for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
      std::vector<int> out(threads, -1);
      simt::launch(1, threads, 1, 0, {.seed = seed}, [&] { scan_kernel(in.data(), out.data()); });
      std::vector<int> expected(threads);
      std::partial_sum(in.begin(), in.end(), expected.begin());
      ASSERT_EQ(out, expected);
    }
  }
}

TEST(simt, indices_cover_grid_and_block) {
  std::vector<int> seen(3 * 4 * 2 * 5 * 3 * 2, 0);
  simt::launch({3, 4, 2}, {5, 3, 2}, 1, 0, {}, [&] {
    EXPECT_EQ(gridDim.y, 4u);
    EXPECT_EQ(blockDim.z, 2u);
    const unsigned block = blockIdx.x + 3 * (blockIdx.y + 4 * blockIdx.z);
    const unsigned thread = threadIdx.x + 5 * (threadIdx.y + 3 * threadIdx.z);
    EXPECT_EQ(arch::lane(), static_cast<int>(thread % 32));
    ++seen[block * 30 + thread];
  });
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST(simt, shuffles_votes_and_reductions) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    simt::launch(1, 64, 1, 0, {.seed = seed}, [] {
      const int lane = arch::lane();
      EXPECT_EQ(__shfl_sync(k_all, lane * 3, 7), 21);
      EXPECT_EQ(__shfl_sync(k_all, lane, 1, 8), lane / 8 * 8 + 1);
      EXPECT_EQ(__shfl_xor_sync(k_all, 0.5 * lane, 5), 0.5 * (lane ^ 5));
      EXPECT_EQ(__shfl_up_sync(k_all, lane, 3u, 16), lane % 16 < 3 ? lane : lane - 3);
      EXPECT_EQ(__shfl_down_sync(k_all, static_cast<float>(lane), 4u), static_cast<float>(lane < 28 ? lane + 4 : lane));
      EXPECT_EQ(__shfl_sync(k_all, static_cast<long long>(lane) << 40, 2), 2LL << 40);
      EXPECT_EQ(__ballot_sync(k_all, lane % 3 == 0), 0x49249249u);
      EXPECT_EQ(__any_sync(k_all, lane == 31), 1);
      EXPECT_EQ(__any_sync(k_all, 0), 0);
      EXPECT_EQ(__all_sync(k_all, lane < 32), 1);
      EXPECT_EQ(__all_sync(k_all, lane < 31), 0);
      EXPECT_EQ(__reduce_add_sync(k_all, lane), 496);
      EXPECT_EQ(__reduce_max_sync(k_all, 5 - lane), 5);
      EXPECT_EQ(__reduce_min_sync(k_all, 5 - lane), -26);
      EXPECT_EQ(__reduce_or_sync(k_all, 1u << lane), k_all);
      // The two halves of a warp act independently, with different numbers of operations.
      if (lane < 16) {
        EXPECT_EQ(__shfl_xor_sync(0x0000ffffu, lane, 15), 15 - lane);
        EXPECT_EQ(__reduce_add_sync(0x0000ffffu, 1u), 16u);
      } else {
        EXPECT_EQ(__shfl_xor_sync(0xffff0000u, lane, 1), lane ^ 1);
      }
      __syncwarp();
      EXPECT_EQ(__syncthreads_count(threadIdx.x % 2 == 0), 32);
      EXPECT_EQ(__syncthreads_or(threadIdx.x == 63), 1);
      EXPECT_EQ(__syncthreads_and(threadIdx.x != 5), 0);
      EXPECT_EQ(__syncthreads_and(1), 1);
    });
  }
}

// A mask may contain lanes that the block does not have.
TEST(simt, blocks_of_less_than_a_warp) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    simt::launch(1, 40, 1, 0, {.seed = seed}, [] {
      const unsigned there = threadIdx.x < 32 ? k_all : 0xffu;
      __syncwarp();
      EXPECT_EQ(__shfl_xor_sync(k_all, arch::lane(), 5), arch::lane() ^ 5);
      EXPECT_EQ(__ballot_sync(k_all, 1), there);
      EXPECT_EQ(__all_sync(k_all, 1), 1);
      EXPECT_EQ(__reduce_add_sync(k_all, 1u), static_cast<unsigned>(__popc(there)));
    });
  }
}

TEST(simt, atomics) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    int integer = 0;
    unsigned long long wide = 0;
    float single = 0;
    double real = 0;
    double by_exchange = 0;
    int largest = -1;
    unsigned bits = 0;
    simt::launch(3, 64, 1, 0, {.seed = seed, .alive_from_start = 3}, [&] {
      atomicAdd(&integer, 2);
      atomicAdd(&wide, 1ull << 33);
      atomicAdd(&single, 0.5f);
      atomicAdd(&real, 0.25);
      atomicMax(&largest, static_cast<int>(blockIdx.x * 64 + threadIdx.x));
      atomicOr(&bits, 1u << (threadIdx.x % 32));
      auto* at = reinterpret_cast<unsigned long long*>(&by_exchange);
      unsigned long long seen = *at;
      for (;;) {
        const auto sum = std::bit_cast<unsigned long long>(std::bit_cast<double>(seen) + 1.0);
        const unsigned long long before = atomicCAS(at, seen, sum);
        if (before == seen) break;
        seen = before;
      }
    });
    EXPECT_EQ(integer, 2 * 192);
    EXPECT_EQ(wide, 192ull << 33);
    EXPECT_EQ(single, 96.0f);
    EXPECT_EQ(real, 48.0);
    EXPECT_EQ(by_exchange, 192.0);
    EXPECT_EQ(largest, 191);
    EXPECT_EQ(bits, k_all);
  }
}

TEST(simt, groups_of_warps_have_their_own_barriers) {
  // Group g performs g + 1 rotations of its 64 numbers.
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    std::vector<int> out(192, -1);
    simt::launch(1, 192, 1, 192 * sizeof(int), {.seed = seed}, [&] {
      auto* memory = reinterpret_cast<int*>(arch::shared_memory());
      const int group = static_cast<int>(threadIdx.x) / 64;
      const unsigned own = threadIdx.x % 64;
      int value = static_cast<int>(own);
      for (int i = 0; i <= group; ++i) {
        memory[group * 64 + static_cast<int>(own)] = value;
        arch::group_barrier(1 + group, 64);
        value = memory[group * 64 + static_cast<int>((own + 1) % 64)];
        arch::group_barrier(4 + group, 64);
      }
      out[threadIdx.x] = value;
    });
    for (int i = 0; i < 192; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)], (i % 64 + 1 + i / 64) % 64);
  }
  EXPECT_TRUE(has(failure_of(1, 64, [] { arch::group_barrier(1, 48); }), {"whole warps", "48"}));
  EXPECT_TRUE(has(failure_of(1, 64, [] { arch::group_barrier(1, threadIdx.x < 32 ? 32 : 64); }, {.seed = 3}), {"barrier"}));
  EXPECT_TRUE(has(failure_of(1, 128,
                             [] {
                               if (threadIdx.x < 64) arch::group_barrier(1, 96);
                             }),
                  {"barrier"}));
}

// --- ordering --------------------------------------------------------------------------------------------------------------------------

// Each thread reads the number of the next thread through shared memory. Without one of the barriers if `broken` is 1 or 2.
__global__ void rotate_kernel(int* out, int rounds, int broken) {
  auto* memory = reinterpret_cast<int*>(arch::shared_memory());
  int value = static_cast<int>(threadIdx.x);
  for (int i = 0; i < rounds; ++i) {
    memory[threadIdx.x] = value;
    if (broken != 1) __syncthreads();
    value = memory[(threadIdx.x + 1) % blockDim.x];
    if (broken != 2) __syncthreads();
  }
  out[threadIdx.x] = value;
}

TEST(simt, a_missing_block_barrier_shows) {
  for (const int broken : {0, 1, 2}) {
    const int right = right_seeds([&](std::uint64_t seed) {
      std::vector<int> out(128, -1);
      simt::launch(1, 128, 1, 128 * sizeof(int), {.seed = seed}, [&] { rotate_kernel(out.data(), 3, broken); });
      for (int i = 0; i < 128; ++i) {
        if (out[static_cast<std::size_t>(i)] != (i + 3) % 128) return false;
      }
      return true;
    });
    EXPECT_EQ(right, broken == 0 ? static_cast<int>(k_seeds) : 0) << broken;
  }
}

TEST(simt, a_missing_warp_barrier_shows) {
  for (const bool broken : {false, true}) {
    const int right = right_seeds([&](std::uint64_t seed) {
      bool all = true;
      simt::launch(1, 64, 1, 64 * sizeof(int), {.seed = seed}, [&] {
        auto* memory = reinterpret_cast<int*>(arch::shared_memory());
        memory[threadIdx.x] = static_cast<int>(threadIdx.x);
        if (!broken) __syncwarp();
        all = all && memory[threadIdx.x ^ 1] == static_cast<int>(threadIdx.x ^ 1);
      });
      return all;
    });
    EXPECT_EQ(right, broken ? 0 : static_cast<int>(k_seeds));
  }
}

TEST(simt, the_same_seed_gives_the_same_order) {
  const auto order = [](std::uint64_t seed) {
    std::vector<unsigned> threads;
    simt::launch(3, 64, 1, 0, {.seed = seed}, [&] {
      threads.push_back(blockIdx.x * 64 + threadIdx.x);
      __syncthreads();
      threads.push_back(blockIdx.x * 64 + threadIdx.x);
    });
    return threads;
  };
  EXPECT_EQ(order(5), order(5));
  EXPECT_NE(order(5), order(6));
}

// --- shared memory ---------------------------------------------------------------------------------------------------------------------

TEST(simt, shared_memory_is_poisoned_before_each_block) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    simt::launch(6, 32, 1, 32 * 8 + 2, {.seed = seed, .alive_from_start = 2}, [] {
      auto* memory = reinterpret_cast<double*>(arch::shared_memory());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 1024, 0u);
      auto& object = arch::shared_object<float[32], struct poisoned>();
      EXPECT_TRUE(std::isnan(memory[threadIdx.x]));
      EXPECT_TRUE(std::isnan(object[threadIdx.x]));
      __syncthreads();
      memory[threadIdx.x] = 1;
      object[threadIdx.x] = 1;
    });
  }
}

TEST(simt, shared_objects_differ_by_type_and_tag) {
  simt::launch(2, 32, 2, 0, {.seed = 2}, [] {
    auto& a = arch::shared_object<int, struct first>();
    auto& b = arch::shared_object<int, struct second>();
    auto& c = arch::shared_object<float, struct first>();
    EXPECT_NE(&a, &b);
    EXPECT_NE(static_cast<void*>(&a), static_cast<void*>(&c));
    EXPECT_EQ(&a, (&arch::shared_object<int, struct first>()));
    if (threadIdx.x == 0) a = static_cast<int>(blockIdx.x);
    __syncthreads();
    EXPECT_EQ(a, static_cast<int>(blockIdx.x));
    __syncthreads();
  });
}

#if defined(__SANITIZE_ADDRESS__)
using simt_death = testing::Test;
TEST(simt_death, accesses_outside_shared_memory_are_caught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write_at = [](std::int64_t offset) {
    simt::launch(1, 32, 1, 100, {}, [&] { const_cast<volatile unsigned char&>(arch::shared_memory()[offset]) = 1; });
  };
  write_at(99);
  EXPECT_DEATH(write_at(100), "AddressSanitizer");
  EXPECT_DEATH(write_at(-1), "AddressSanitizer");
  EXPECT_DEATH(simt::launch(1, 32, 1, 0, {},
                            [] {
                              volatile int* object = arch::shared_object<int[8], struct small>();
                              object[8 + threadIdx.x / 32] = 1;
                            }),
               "AddressSanitizer");
}
#endif

// --- blocks that wait for blocks ---------------------------------------------------------------------------------------------------------

// Every block waits for all blocks.
TEST(simt, a_grid_barrier_needs_all_blocks_alive) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    std::uint32_t arrived = 0;
    std::vector<std::uint32_t> seen(8, 0);
    const auto kernel = [&] {
      if (threadIdx.x == 0) {
        arch::atomic_add_release(&arrived, 1);
        while (arch::load_acquire(&arrived) < gridDim.x) arch::spin_wait();
      }
      __syncthreads();
      if (threadIdx.x == 0) seen[blockIdx.x] = arrived;
    };
    EXPECT_EQ(failure_of(8, 64, kernel, {.seed = seed, .resident_blocks = 8}), "");
    EXPECT_EQ(seen, std::vector<std::uint32_t>(8, 8));
    arrived = 0;
    EXPECT_TRUE(has(failure_of(8, 64, kernel, {.seed = seed, .resident_blocks = 7}), {"deadlock"}));
  }
}

// Has more threads than guard pages are possible.
TEST(simt, a_grid_barrier_of_a_whole_device) {
  std::uint32_t arrived = 0;
  simt::launch(132, 256, 1, 0, {.resident_blocks = 132}, [&] {
    __syncthreads();
    if (threadIdx.x == 0) {
      arch::atomic_add_release(&arrived, 1);
      while (arch::load_acquire(&arrived) < gridDim.x) arch::spin_wait();
    }
    __syncthreads();
  });
  EXPECT_EQ(arrived, 132u);
}

// The last block to finish sums the parts of all blocks. `ordered`: each block stores its part before it counts itself as finished.
TEST(simt, the_last_block_sees_what_all_wrote) {
  for (const bool ordered : {true, false}) {
    const int right = right_seeds([&](std::uint64_t seed) {
      std::vector<int> parts(6, 0);
      std::uint32_t count = 0;
      int sum = -1;
      simt::launch(6, 32, 1, 0, {.seed = seed, .alive_from_start = 6}, [&] {
        if (threadIdx.x != 0) return;
        if (ordered) arch::store_keep(&parts[blockIdx.x], 1);
        const bool last = arch::atomic_add_acq_rel(&count, 1) == gridDim.x - 1;
        if (last) {
          sum = 0;
          for (unsigned b = 0; b < gridDim.x; ++b) sum += arch::load_keep(&parts[b]);
        }
        arch::fence_gpu();
        arch::prefetch_l2(&parts[0]);
        if (!ordered) arch::store_keep(&parts[blockIdx.x], 1);
      });
      return sum == 6;
    });
    EXPECT_EQ(right, ordered ? static_cast<int>(k_seeds) : 0);
  }
}

// A number that was wrong in one of the calls is made again, whichever call that was.
TEST(simt, a_number_is_made_until_two_agree) {
  for (int wrong = 0; wrong < 3; ++wrong) {
    int calls = 0;
    const double made = cuda::made_twice([&] { return calls++ == wrong ? -1.0 : 2.0; });
    EXPECT_EQ(made, 2.0) << wrong;
    EXPECT_EQ(calls, wrong == 2 ? 2 : 4) << wrong;
  }
}

// --- asynchronous copies -----------------------------------------------------------------------------------------------------------------

// Sums tiles through two buffers: the next tile is loaded while the current one is summed. `broken`: 1 waits for one group too few; 2 lacks
// the barrier before a buffer is filled again.
__global__ void pipeline_kernel(const float* in, float* out, int tiles, int broken) {
  auto* buffers = reinterpret_cast<float*>(arch::shared_memory());
  const auto fetch = [&](int tile) {
    if (tile < tiles) arch::copy_async<16>(buffers + (tile % 2) * 128 + 4 * threadIdx.x, in + tile * 128 + 4 * threadIdx.x);
    arch::commit_async();
  };
  float sum = 0;
  fetch(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fetch(tile + 1);
    if (broken == 1) {
      arch::wait_async<2>();
    } else {
      arch::wait_async<1>();
    }
    __syncthreads();
    for (int i = 0; i < 4; ++i) sum += buffers[(tile % 2) * 128 + i * 32 + static_cast<int>(threadIdx.x)];
    if (broken != 2) __syncthreads();
  }
  arch::wait_async<0>();
  out[threadIdx.x] = sum;
}

TEST(simt, asynchronous_copies_are_seen_after_the_wait_only) {
  std::vector<float> in(6 * 128);
  std::iota(in.begin(), in.end(), 0.0f);
  for (const int broken : {0, 1, 2}) {
    const int right = right_seeds([&](std::uint64_t seed) {
      std::vector<float> out(32, -1);
      simt::launch(1, 32, 1, 2 * 128 * 4, {.seed = seed}, [&] { pipeline_kernel(in.data(), out.data(), 6, broken); });
      for (std::size_t t = 0; t < 32; ++t) {
        float expected = 0;
        for (std::size_t i = t; i < in.size(); i += 32) expected += in[i];
        if (out[t] != expected) return false;
      }
      return true;
    });
    EXPECT_EQ(right, broken == 0 ? static_cast<int>(k_seeds) : 0) << broken;
  }
}

TEST(simt, asynchronous_copies_fill_with_zeros) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    const float in[2] = {1, 2};
    simt::launch(1, 1, 1, 16, {.seed = seed}, [&] {
      auto* memory = reinterpret_cast<float*>(arch::shared_memory());
      arch::copy_async<4>(memory, in, false);
      arch::copy_async<8>(memory + 2, reinterpret_cast<const float2*>(in));
      arch::commit_async();
      arch::wait_async<0>();
      EXPECT_EQ(memory[0], 0);
      EXPECT_TRUE(std::isnan(memory[1]));
      EXPECT_EQ(memory[2], 1);
      EXPECT_EQ(memory[3], 2);
    });
  }
}

}  // namespace
