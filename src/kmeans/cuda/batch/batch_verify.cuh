// Enqueued fits: the second block of a pair to finish verifies the fit without the host, and stores it.
// Layer: backend "cuda" of K-Means, device code. batch_fit.cuh declares these members.
// The first block stores its result in batch_arguments::made and labels, the second only its hash. The block that finishes last reads that
// result again, hashes it, and compares. If the hashes differ, the next launch computes the fit again, by two blocks that may run on other
// multiprocessors; for all other fits it returns at once. Only a verified result reaches its destination. A fault in one thread's
// comparison counts as a failure, because all threads vote.
#pragma once

#include "abft/attempt.hpp"
#include "cuda/arch/atomic.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/twice.cuh"
#include "kmeans/cuda/batch/batch_fit.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Returns whether this block is the last of its pair. If so, it sees the writes of the other. Called by all threads.
template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ bool batch_fit<T, Enqueued, Injector>::is_last_of_pair() {
  __syncthreads();  // the result of this block is stored
  const bool last = thread == 0 && ballast::cuda::arrives_last(a.tickets + local, static_cast<unsigned>(a.replicas));
  return __syncthreads_or(last ? 1 : 0) != 0;
}

// Returns the hash of the stored result of this fit with these scalars.
template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ std::uint64_t batch_fit<T, Enqueued, Injector>::hash_stored(const batch_result& scalars) {
  std::uint64_t own = 0;
  if (scalars.status == 0) {
    for (int e = thread; e < n * k; e += k_batch_threads) own += batch_term(ballast::cuda::bits(a.made[local * n * k + e]), e);
    for (int i = thread; i < m; i += k_batch_threads) own += batch_term(a.labels[local * m + i], std::int64_t{k} * n + i);
  }
  return over_block(own, [](std::uint64_t p, std::uint64_t q) { return p + q; }) + scalars_of(scalars);
}

template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ void batch_fit<T, Enqueued, Injector>::commit() {
  if (a.to.centroids != nullptr) {
    for (int e = thread; e < n * k; e += k_batch_threads)
      a.to.centroids[(fit * k + e / n) * a.to.row_stride + e % n * a.to.column_stride] = a.made[local * n * k + e];
  }
  if (a.to.labels != nullptr) {
    for (int i = thread; i < m; i += k_batch_threads) a.to.labels[fit * m + i] = static_cast<std::int32_t>(a.labels[local * m + i]);
  }
}

template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ void batch_fit<T, Enqueued, Injector>::settle() {
  batch_result* const stored = a.results + local * a.replicas;
  if (a.replicas == 1) {
    __syncthreads();  // the result is stored
    if (stored[0].status == 0) commit();
    return;
  }
  if (!is_last_of_pair()) return;
  const batch_result scalars = stored[0];
  std::uint32_t word = hash_stored(scalars) == stored[1].hash ? abft::k_pass : abft::k_fail;
  given_.strike(ballast::cuda::index<1>{}, site::comparison, {fit, a.items / a.replicas, 0, 1, thread, k_batch_threads}, &word);
  const bool fails = __syncthreads_or(word != abft::k_pass ? 1 : 0) != 0;
  if (!fails && scalars.status == 0) commit();
  if (thread != 0) return;
  const bool last = !fails || a.number >= a.repeats;
  a.open[local] = last ? 0 : 1;
  if (!last) return;
  // The host reads the scalars from both places, which must agree. 2: uncorrectable.
  batch_result both = scalars;
  if (fails) both.status = 2;
  stored[0] = stored[1] = both;
  if (fails || a.number > 0)
    ballast::cuda::write_outcome(given_, *a.events, fails ? abft::outcome::uncorrectable : abft::outcome::recomputed, abft::finding{}, fit);
}

}  // namespace ballast::kmeans::cuda
