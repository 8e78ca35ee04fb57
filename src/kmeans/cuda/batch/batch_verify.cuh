// Enqueued fits: the second block of a pair to finish verifies the fit without the host, repairs it, and stores it.
// Layer: backend "cuda" of K-Means, device code. batch_fit.cuh declares these members.
// The first block stores its result in batch_arguments::made and labels, the second only its hash. The block that finishes last reads that
// result again, hashes it, and compares. If the hashes differ, this block computes the fit again, up to batch_arguments::repeats times, as
// the first block does; a result is right if its hash is that of an earlier computation. Only a right result reaches its destination. A
// fault in one thread's comparison counts as a failure, because all threads vote.
#pragma once

#include "abft/attempt.hpp"
#include "cuda/arch/atomic.cuh"
#include "cuda/block/event_writer.cuh"
#include "kmeans/cuda/batch/batch_fit.cuh"

namespace ballast::kmeans::cuda {

// Returns whether this block is the last of its pair. If so, it sees the writes of the other. Called by all threads.
template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ bool batch_fit<T, Enqueued, Injector>::is_last_of_pair() {
  __syncthreads();  // the result of this block is stored
  bool last = false;
  if (thread == 0) {
    last = arch::atomic_add_acq_rel(a.tickets + local, 1) + 1 == static_cast<unsigned>(a.replicas);
    if (last) a.tickets[local] = 0;
  }
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
__device__ __forceinline__ bool batch_fit<T, Enqueued, Injector>::settle() {
  batch_result* const stored = a.results + local * a.replicas;
  if (a.replicas == 1) {
    __syncthreads();  // the result is stored
    if (stored[0].status == 0) commit();
    return true;
  }
  if (number_ == 0) {
    if (!is_last_of_pair()) return true;
    if (thread == 0) shared->hashes[0] = stored[1].hash;
  }
  __syncthreads();  // the result and the hash are stored
  const batch_result scalars = stored[0];
  const std::uint64_t own = hash_stored(scalars);
  bool same = false;
  for (int c = 0; c <= number_; ++c) same = same || own == shared->hashes[c];
  std::uint32_t word = same ? abft::k_pass : abft::k_fail;
  strike<1>(site::kmeans_comparison, 0, 1, thread, k_batch_threads, &word);
  const bool fails = __syncthreads_or(word != abft::k_pass ? 1 : 0) != 0;
  const bool last = !fails || number_ >= a.repeats;
  if (fails && !last && thread == 0) shared->hashes[number_ + 1] = own;
  if (!fails && scalars.status == 0) commit();
  if (last && thread == 0) {
    // The host reads the scalars from both places, which must agree. 2: uncorrectable.
    batch_result both = scalars;
    if (fails) both.status = 2;
    stored[0] = stored[1] = both;
    if (fails || number_ > 0)
      ballast::cuda::write_outcome(given_, *a.events, fails ? abft::outcome::uncorrectable : abft::outcome::recomputed, abft::finding{},
                                   fit);
  }
  return last;
}

}  // namespace ballast::kmeans::cuda
