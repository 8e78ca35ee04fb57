// First centroids of a small fit: random points, or greedy k-means++.
// Layer: backend "cuda" of K-Means, device code. batch_fit.cuh declares and documents these members.
#pragma once

#include "kmeans/cuda/batch/batch_fit.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ void batch_fit<T, Enqueued, Injector>::choose_first(std::uint64_t run) {
  const std::uint64_t seed = a.seed + static_cast<std::uint64_t>(fit), stream = run * k_streams;
  switch (a.init) {
    case batch_init::plus_plus: draw_plus_plus(seed, stream); break;
    case batch_init::random: draw_different(seed, stream); break;
    case batch_init::given: {
      for (int e = thread; e < k * n; e += k_batch_threads) {
        const T inner = given_centroid(e / n, e % n) * scale - shift[e % n];
        centroid[e % n * pitch + e / n] = inner < -k_far<T> ? -k_far<T> : inner > k_far<T> ? k_far<T> : inner;
      }
      break;
    }
  }
  // Padding columns are computed as well.
  for (int e = thread; e < n * (pitch - k); e += k_batch_threads) centroid[e / (pitch - k) * pitch + k + e % (pitch - k)] = 0;
  for (int i = thread; i < m; i += k_batch_threads) label[i] = 0xffffffffu;
  __syncthreads();  // the centroids are stored
}

template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ void batch_fit<T, Enqueued, Injector>::draw_different(std::uint64_t seed, std::uint64_t stream) {
  auto* const key = reinterpret_cast<std::int32_t*>(work);
  std::int32_t *const kept = key + k, *const drawn = key + 2 * k;
  const auto counts = [&](int i) { return weight_of(i) > 0 ? 1.0 : 0.0; };
  const int positive = static_cast<int>(sum_ranges(counts));
  if (thread == 0) {
    int touched = 0;
    const auto at = [&](int i) {
      for (int e = touched; e-- > 0;) {
        if (key[e] == i) return static_cast<int>(kept[e]);
      }
      return i;
    };
    for (int j = 0; j < k && j < positive; ++j) {
      const int other = j + static_cast<int>(core::random_bits(seed, stream + k_stream_pick, static_cast<std::uint64_t>(j)) %
                                             static_cast<std::uint64_t>(positive - j));
      const int there = at(other), own = at(j);
      drawn[j] = there;
      key[touched] = other;
      kept[touched++] = own;
    }
  }
  __syncthreads();  // the shuffle is done
  for (int j = 0; j < k && j < positive; ++j) take_row(j, weight == nullptr ? drawn[j] : row_at(drawn[j], counts));
  if (k <= positive) return;
  const auto others = [&](int i) { return weight_of(i) > 0 ? 0.0 : 1.0; };
  __syncthreads();  // the ranges have been read
  sum_ranges(others);
  for (int j = positive; j < k; ++j) take_row(j, row_at(j - positive, others));
}

template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ void batch_fit<T, Enqueued, Injector>::draw_plus_plus(std::uint64_t seed, std::uint64_t stream) {
  const auto weights = [&](int i) { return weight_of(i); };
  const auto potentials = [&](int i) { return weight_of(i) * static_cast<double>(closest[i]); };
  T* const candidate = reinterpret_cast<T*>(work);
  const double total = sum_ranges(weights);
  const int start = row_at(core::random_uniform(seed, stream + k_stream_pick, 0) * total, weights);
  __syncthreads();  // the ranges have been read
  take_row(0, start < 0 ? 0 : start);
  for (int f = thread; f < n; f += k_batch_threads) candidate[f * trial_pitch] = x[f * rows + (start < 0 ? 0 : start)];
  __syncthreads();  // the centroid is stored
  double potential = keep_closest(candidate, true, potentials);
  for (int j = 1; j < k; ++j) {
    if (thread < a.trials) {
      const double draw = core::random_uniform(seed, stream + k_stream_candidates, static_cast<std::uint64_t>(j * a.trials + thread));
      int row = potential > 0 ? row_at(draw * potential, potentials) : -1;
      if (row < 0) {
        row = static_cast<int>(draw * static_cast<double>(m));
        row = row < m - 1 ? row : m - 1;
      }
      shared->rows[thread] = row;
    }
    __syncthreads();  // the rows are drawn, and the previous candidates have been read
    for (int e = thread; e < n * trial_pitch; e += k_batch_threads) {
      const int f = e / trial_pitch, t = e % trial_pitch;
      candidate[e] = t < a.trials ? x[f * rows + shared->rows[t]] : T(0);
    }
    __syncthreads();  // the candidates are stored
    try_candidates(candidate);
    int best = 0;
    double least = abft::k_largest<double>;
    for (int t = 0; t < a.trials; ++t) {
      if (shared->left[t] < least) {
        least = shared->left[t];
        best = t;
      }
    }
    take_row(j, shared->rows[best]);
    potential = keep_closest(candidate + best, false, potentials);
  }
}

template <class T, bool Enqueued, class Injector>
template <class Value>
__device__ __forceinline__ double batch_fit<T, Enqueued, Injector>::keep_closest(const T* one, bool first, Value&& potentials) {
  for (int i = thread; i < m; i += k_batch_threads) {
    T square = 0;
    each(
        0, n, 1, [&](int f) { return x[f * rows + i]; },
        [&](int f, T value) {
          const T off = value - one[f * trial_pitch];
          square += off * off;
        });
    closest[i] = !first && closest[i] < square ? closest[i] : square;
  }
  __syncthreads();  // `closest` is stored
  return sum_ranges(potentials);
}

template <class T, bool Enqueued, class Injector>
__device__ __forceinline__ void batch_fit<T, Enqueued, Injector>::try_candidates(const T* candidate) {
  for (int first = 0; first < a.trials; first += k_batch_group) {
    double left[k_batch_group] = {};
    for (int i = thread; i < m; i += k_batch_threads) {
      T made[k_batch_group];
      distances(i, candidate + first, trial_pitch, made);
      strike<k_batch_group>(site::product, k_seeding, k_phases, i, m, made);
      const double w = weight_of(i);
      const T own = closest[i];
      for (int q = 0; q < k_batch_group; ++q) left[q] += w * static_cast<double>(made[q] < own ? made[q] : own);
    }
    const double all = ballast::cuda::add_block<k_batch_threads>(left, shared->partial);
    if (thread < k_batch_group) shared->left[first + thread] = all;
    __syncthreads();  // the potentials are stored
  }
}

}  // namespace ballast::kmeans::cuda
