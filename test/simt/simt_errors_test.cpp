// Tests that the emulator detects operations that are not allowed, with the thread and its place.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "simt/simt_test.hpp"

namespace {

using namespace simt_test;

TEST(simt, a_thread_that_returns_while_others_wait_is_an_error) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    const std::string what = failure_of(4, 64,
                                        [] {
                                          if (threadIdx.x == 40 && blockIdx.x == 2) return;
                                          __syncthreads();
                                        },
                                        {.seed = seed});
    EXPECT_TRUE(has(what, {"of block 2", "returned", "barrier", "simt_errors_test.cpp:"})) << seed;
  }
}

TEST(simt, two_barriers_at_once_are_an_error) {
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    const std::string what = failure_of(1, 64,
                                        [] {
                                          if (threadIdx.x < 32) {
                                            __syncthreads();
                                          } else {
                                            __syncthreads();
                                          }
                                        },
                                        {.seed = seed});
    EXPECT_TRUE(has(what, {"waits at this barrier while", "simt_errors_test.cpp:"}));
  }
}

TEST(simt, a_warp_operation_without_all_lanes_is_an_error) {
  const auto lane_returns = [] {
    if (arch::lane() != 3) __shfl_xor_sync(k_all, 1, 1);
  };
  const auto not_in_own_mask = [] { __shfl_sync(0x0000ffffu, 1, 0); };
  const auto other_masks = [] { __shfl_sync(arch::lane() < 16 ? k_all : 0xffff8000u, 1, 20); };
  const auto other_places = [] {
    if (arch::lane() < 16) {
      __syncwarp();
    } else {
      __syncwarp();
    }
  };
  const auto lane_waits_elsewhere = [] {
    if (arch::lane() == 3) __syncthreads();
    __ballot_sync(k_all, 1);
  };
  const auto from_outside = [] {
    if (arch::lane() < 16) __shfl_sync(0x0000ffffu, 1, 20);
  };
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    EXPECT_TRUE(has(failure_of(1, 32, lane_returns, {.seed = seed}), {"return", "simt_errors_test.cpp:"}));
    EXPECT_TRUE(has(failure_of(1, 32, not_in_own_mask, {.seed = seed}), {"not in its own mask"}));
    EXPECT_TRUE(has(failure_of(1, 32, other_masks, {.seed = seed}), {"mask"}));
    EXPECT_TRUE(has(failure_of(1, 32, other_places, {.seed = seed}), {"another warp operation"}));
    EXPECT_TRUE(has(failure_of(1, 32, lane_waits_elsewhere, {.seed = seed}), {"deadlock", "block barrier", "warp operation"}));
    EXPECT_TRUE(has(failure_of(1, 32, from_outside, {.seed = seed}), {"reads from lane 20"}));
    EXPECT_TRUE(has(failure_of(1, 24, [] { __shfl_sync(k_all, 1, 24); }, {.seed = seed}), {"reads from lane 24"}));
  }
}

TEST(simt, misaligned_accesses_are_errors) {
  alignas(16) float memory[8] = {};
  EXPECT_TRUE(has(failure_of(1, 1, [&] { arch::load_streaming(reinterpret_cast<const float2*>(memory + 1)); }), {"multiple of 8"}));
  EXPECT_TRUE(has(failure_of(1, 1, [&] { arch::store_keep(reinterpret_cast<float4*>(memory + 2), float4{}); }), {"multiple of 16"}));
  EXPECT_TRUE(has(failure_of(
                      1, 1, [&] { arch::copy_async<16>(arch::shared_memory(), memory + 1); }, {}, 1, 16),
                  {"multiple of 16"}));
}

TEST(simt, launches_of_impossible_shape_are_errors) {
  const auto nothing = [] {};
  EXPECT_TRUE(has(failure_of(1, 1025, nothing), {"1 to 1024 threads", "1025"}));
  EXPECT_TRUE(has(failure_of(0, 32, nothing), {"grid"}));
  EXPECT_TRUE(has(failure_of(3, 32, nothing, {}, 2), {"cluster"}));
  EXPECT_TRUE(has(failure_of(1, 32, nothing, {}, 1, 300000), {"shared memory"}));
}

TEST(simt, a_kernel_that_throws_unwinds_all_threads) {
  struct counted {
    int& alive;
    explicit counted(int& count) : alive(count) { ++alive; }
    ~counted() { --alive; }
  };
  for (std::uint64_t seed = 0; seed < k_seeds; ++seed) {
    int alive = 0;
    EXPECT_THROW(simt::launch(4, 64, 1, 0, {.seed = seed, .alive_from_start = 4},
                              [&] {
                                const counted here(alive);
                                __syncthreads();
                                if (blockIdx.x == 3 && threadIdx.x == 7) throw std::domain_error("seven");
                                __syncthreads();
                              }),
                 std::domain_error);
    EXPECT_EQ(alive, 0);
  }
}

TEST(simt, nobody_can_go_on) {
  std::uint32_t flag = 0;
  EXPECT_TRUE(has(failure_of(1, 32,
                             [&] {
                               if (threadIdx.x == 0) {
                                 while (arch::load_acquire(&flag) == 0) arch::spin_wait();
                               }
                               __syncthreads();
                             }),
                  {"deadlock", "block barrier", "memory that nobody writes"}));
}

TEST(simt, an_mbarrier_must_be_initialised) {
  const auto uninitialised = [] { arch::arrive(reinterpret_cast<arch::mbarrier*>(arch::shared_memory())); };
  EXPECT_TRUE(has(failure_of(1, 1, uninitialised, {}, 1, 8), {"not an initialised mbarrier", "simt_errors_test.cpp:"}));
  const auto too_many = [] {
    auto* barrier = reinterpret_cast<arch::mbarrier*>(arch::shared_memory());
    arch::init_mbarrier(barrier, 2);
    arch::arrive(barrier);
    arch::wait(barrier, 0);
  };
  EXPECT_TRUE(has(failure_of(1, 1, too_many, {}, 1, 8), {"deadlock"}));
}

TEST(simt, cluster_barriers_come_in_pairs) {
  EXPECT_TRUE(has(failure_of(
                      2, 32, [] { arch::cluster_wait(); }, {}, 2),
                  {"without having arrived"}));
  EXPECT_TRUE(has(failure_of(
                      2, 32, [] { arch::cluster_arrive(); }, {}, 2),
                  {"between arrival and wait"}));
  EXPECT_TRUE(has(failure_of(
                      2, 32,
                      [] {
                        arch::cluster_arrive();
                        arch::cluster_arrive();
                      },
                      {}, 2),
                  {"a second time"}));
  int elsewhere = 0;
  EXPECT_TRUE(has(failure_of(
                      2, 32,
                      [&] {
                        arch::cluster_sync();
                        arch::map_shared(&elsewhere, 1);
                      },
                      {}, 2),
                  {"not in the shared memory"}));
}

}  // namespace
