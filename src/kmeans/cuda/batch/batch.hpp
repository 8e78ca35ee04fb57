// Arguments of the kernel of small fits, which computes each fit with one block; and functions that its host side shares.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "abft/seal.hpp"
#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_batch_threads = 512;
inline constexpr int k_batch_group = 8;    // centroids, or candidates, whose distances a thread computes at a time
inline constexpr int k_batch_trials = 24;  // most candidates of k-means++ per step: more than 2 + ⌊ln k⌋

enum class batch_init : std::int32_t { plus_plus, random, given };

// The result of one fit by one block.
struct batch_result {
  double inertia;
  std::uint64_t hash;  // Σ batch_term over centroids, labels and the other fields
  std::int32_t iterations;
  std::int32_t stopped;  // kmeans::stop_reason
  std::int32_t status;   // 1: a point, weight or centroid is invalid, and nothing was fitted; 2: an enqueued fit is uncorrectable
  std::int32_t unused;
};

// Returns the hash term of a word of a result; `position`: of the word among all words of the result. The hash is the sum of the terms. The
// centroids come first, row by row, then the labels, then the scalars of batch_result.
BALLAST_HD constexpr std::uint64_t batch_term(std::uint64_t word, std::int64_t position) {
  return abft::hash_term(word, static_cast<std::uint64_t>(position));
}
BALLAST_HD constexpr std::uint64_t batch_scalars(std::uint64_t inertia, std::int32_t iterations, std::int32_t stopped, std::int32_t status,
                                                 std::int64_t position) {
  const auto word = [](std::int32_t value) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(value)); };
  return batch_term(inertia, position) + batch_term(word(iterations), position + 1) + batch_term(word(stopped), position + 2) +
         batch_term(word(status), position + 3);
}

// The memory for the results of verified fits. Null: not stored.
template <class T>
struct batch_destination {
  T* centroids;  // element f of row fit · k + j: centroids[(fit * k + j) * row_stride + f * column_stride]
  std::int64_t row_stride, column_stride;
  std::int32_t* labels;  // m per fit
};

// The argument of a batch kernel. It has many members because one launch computes whole fits: initialization, iterations, checks and
// results.
template <class T>
struct batch_arguments {
  const T* points;  // element (i, f) of fit b: points[b * stride + i * row_stride + f * column_stride]
  std::int64_t stride, row_stride, column_stride;
  const T* weights;    // m per fit; null: all 1
  const T* centroids;  // batch_init::given: element f of row fit · k + j, with the strides below
  std::int64_t centroid_stride, centroid_column_stride;
  const std::int32_t* fits;  // the fits of this launch, by index; null: all
  unsigned char* scratch;    // batch_scratch::bytes per block
  T* made;                   // k × n per fit of the launch, stored by the first of its blocks
  std::uint32_t* labels;     // m, likewise
  batch_result* results;     // one per block
  std::int64_t items;        // number of blocks if one launch did all fits of the call
  int replicas;              // blocks per fit: 1, or 2 that must agree
  int m, n, k;
  int chunks;  // chunks of batch_layout_of
  int trials;
  batch_init init;
  int runs, max_iter;
  double tol;
  std::uint64_t seed;
  // Only of enqueued fits, which the device verifies and stores. tickets: one per fit, 0 before and after the kernel.
  std::uint32_t* tickets;
  std::uint32_t* open;  // one per fit: 1 if the next launch computes it again. Written by every launch
  batch_destination<T> to;
  ballast::cuda::event_ring* events;
  int number, repeats;  // this computation, from 0; and how many more there may be (abft::attempts)
};

// The layout of a block's dynamic shared memory, in bytes from its start.
struct batch_layout {
  int pitch;        // padded number of centroids, a multiple of k_batch_group: the numbers per feature
  int trial_pitch;  // the same for candidates
  std::int64_t shift, centroids, work, bytes;
};

// The part of shared memory with a fixed size.
struct batch_memory {
  double part[k_batch_threads];        // sums over one range of rows each
  double whole[k_batch_threads / 32];  // sums over the ranges of a warp
  double partial[k_batch_threads / 32 * k_batch_group];
  double left[k_batch_trials];  // the potential with each candidate
  std::int32_t rows[k_batch_trials];
};

// `work` serves one purpose at a time: ranges of the features; candidates; a shuffle; sums of the clusters in `chunks` parts; centroids
// without shift.
template <class T>
BALLAST_HD constexpr batch_layout batch_layout_of(int n, int k, int trials, int chunks) {
  constexpr auto round = [](std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; };
  const auto size = static_cast<std::int64_t>(sizeof(T));
  batch_layout made{};
  made.pitch = static_cast<int>(round(k, k_batch_group));
  made.trial_pitch = static_cast<int>(round(trials, k_batch_group));
  const std::int64_t uses[] = {8 * std::int64_t{n + 2} * k * chunks, 16 * std::int64_t{n}, size * n * made.trial_pitch,
                               size * n * made.pitch, 12 * std::int64_t{k}};
  std::int64_t most = 0;
  for (const std::int64_t each : uses) most = each > most ? each : most;
  made.centroids = round(sizeof(batch_memory), 64);
  made.work = made.centroids + round(size * n * made.pitch, 64);
  made.shift = made.work + round(most, 64);
  made.bytes = made.shift + round(size * n, 64);
  return made;
}

// The layout of a block's global memory, in bytes from its start: the points by features, the distance of each point to its nearest
// centroid so far, labels, and the centroids of a run in the units of the points.
struct batch_scratch {
  std::int64_t rows;  // padded number of points: the numbers per feature
  std::int64_t closest, labels, centroids, bytes;
};
template <class T>
BALLAST_HD constexpr batch_scratch batch_scratch_of(int m, int n, int k) {
  constexpr auto round = [](std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; };
  const auto size = static_cast<std::int64_t>(sizeof(T));
  batch_scratch made{};
  made.rows = round(m, 32);
  made.closest = size * made.rows * n;
  made.labels = made.closest + size * made.rows;
  made.centroids = made.labels + 4 * made.rows;
  made.bytes = made.centroids + round(size * k * n, 256);
  return made;
}

}  // namespace ballast::kmeans::cuda
