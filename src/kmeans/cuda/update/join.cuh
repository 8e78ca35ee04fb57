// The sums of a pass over all devices of a group, without the host: each device offers its words with a seal, and every device adds them.
// Layer: backend "cuda" of K-Means, device code. Source: docs/design/distributed.md, "Devices".
//
// Two kernels, with a block for each chunk of 1,024 words. Their streams are ordered by events. The seal of a chunk is two sums over its
// words, weighted by their numbers, and the number of the join: wrong bits, places and stale words differ from it.
#pragma once

#include "cuda/arch/arch.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/launch.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/layout/join.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_join_words = k_join_chunk / k_join_threads;  // the words of a thread

// Adds this block's words to two sums; thread s < 2 returns sum s with the stamp. Shared memory: two numbers of each warp, which may be
// used again after another barrier.
__device__ __forceinline__ unsigned long long seal_of_chunk(const std::uint64_t (&word)[k_join_words], std::int64_t first,
                                                            unsigned long long stamp) {
  unsigned long long sums[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < k_join_words; ++j) {
    const auto place = static_cast<unsigned long long>(2 * (first + j * k_join_threads) + 1);
    sums[0] += word[j] * (0x9e3779b97f4a7c15ull * place);
    sums[1] += (word[j] ^ word[j] >> 31) * (0xd6e8feb86659fd93ull * place);
  }
  const unsigned long long made =
      ballast::cuda::add_block<k_join_threads>(sums, reinterpret_cast<unsigned long long*>(arch::shared_memory()));
  return made + stamp * (threadIdx.x == 0 ? 0xbf58476d1ce4e5b9ull : 0x94d049bb133111ebull);
}

template <class Injector>
__global__ void __launch_bounds__(k_join_threads)
    join_offer_kernel(const __grid_constant__ ballast::cuda::kernel_launch<join_offer_arguments, Injector> given) {
  const join_offer_arguments& a = given.arguments;
  if (a.state->reason != 0) return;
  const std::int64_t all = a.ends[2], chunk = blockIdx.x;
  const std::int64_t first = chunk * k_join_chunk + threadIdx.x;
  std::uint64_t word[k_join_words];
#pragma unroll
  for (int j = 0; j < k_join_words; ++j) {
    const std::int64_t i = first + j * k_join_threads;
    word[j] = 0;
    if (i < all) word[j] = i < a.ends[0] ? a.parts[0][i] : i < a.ends[1] ? a.parts[1][i - a.ends[0]] : a.parts[2][i - a.ends[1]];
  }
  const unsigned long long seal = seal_of_chunk(word, first, a.stamp);
  given.strike(ballast::cuda::index<k_join_words>{}, site::total,
               inject::device_position{chunk, gridDim.x, 1, 2, static_cast<int>(threadIdx.x), k_join_threads}, word);
#pragma unroll
  for (int j = 0; j < k_join_words; ++j) {
    const std::int64_t i = first + j * k_join_threads;
    if (i < all) a.to[i] = word[j];
  }
  if (threadIdx.x < 2) a.to[all + 2 * chunk + threadIdx.x] = seal;
}

template <class Injector>
__global__ void __launch_bounds__(k_join_threads)
    join_add_kernel(const __grid_constant__ ballast::cuda::kernel_launch<join_add_arguments, Injector> given) {
  const join_add_arguments& a = given.arguments;
  if (a.state->reason != 0) return;
  const std::int64_t chunk = blockIdx.x;
  const std::int64_t first = chunk * k_join_chunk + threadIdx.x;
  unsigned long long sum[k_join_words] = {};
  for (int p = 0; p < a.devices; ++p) {
    const volatile unsigned long long* const from = a.offers[p];
    std::uint64_t word[k_join_words];
    // A chunk that differs from its seal is loaded again. The sums over all points show one that stays wrong, as any wrong sum.
    for (int attempt = 0;; ++attempt) {
#pragma unroll
      for (int j = 0; j < k_join_words; ++j) {
        const std::int64_t i = first + j * k_join_threads;
        word[j] = i < a.words ? from[i] : 0;
      }
      given.strike(ballast::cuda::index<k_join_words>{}, site::total,
                   inject::device_position{chunk, gridDim.x, 0, 2, static_cast<int>(threadIdx.x), k_join_threads}, word);
      if (!a.check) break;
      const unsigned long long seal = seal_of_chunk(word, first, a.stamp);
      const bool differs = threadIdx.x < 2 && seal != from[a.words + 2 * chunk + threadIdx.x];
      const bool wrong = __syncthreads_or(differs ? 1 : 0) != 0;
      if (!wrong && attempt == 0) break;
      if (wrong && attempt < a.repeats) continue;
      if (threadIdx.x == 0 && (!wrong || a.repeats == 0))
        ballast::cuda::write_outcome(given, *a.events, wrong ? abft::outcome::uncorrectable : abft::outcome::recomputed, abft::finding{}, p,
                                     1, static_cast<std::uint32_t>(check::join));
      break;
    }
#pragma unroll
    for (int j = 0; j < k_join_words; ++j) sum[j] += word[j];
  }
#pragma unroll
  for (int j = 0; j < k_join_words; ++j) {
    const std::int64_t i = first + j * k_join_threads;
    if (i < a.words) a.to[i] = sum[j];
  }
}

}  // namespace ballast::kmeans::cuda
