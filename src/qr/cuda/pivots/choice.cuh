// The choice of the pivots for a QR with column pivoting, and its check on R.
// Layer: backend "cuda" of QR, device code. docs/design/qr-pivoting.md.
// Source: P. Businger, G. Golub, 1965 (the rule); N. Higham, Accuracy and Stability of Numerical Algorithms, 10.3 (Cholesky with pivoting).
#pragma once

#include <cmath>

#include "cuda/arch/arch.cuh"
#include "cuda/block/launch.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/number.cuh"
#include "qr/cuda/panel/panel.cuh"
#include "qr/cuda/pivots/choice_args.hpp"
#include "qr/sites.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr::cuda {

// A column that may be the next pivot, and the largest square with which a remaining column began.
struct pivot_candidate {
  double size;  // 4^exponent times the square of its norm; −1: there is no column
  double first;
  int row;
};
inline constexpr pivot_candidate k_no_candidate{-1, 0, 0x7fffffff};

__device__ __forceinline__ void take_better(pivot_candidate& a, const pivot_candidate& b) {
  if (b.size > a.size || (b.size == a.size && b.row < a.row)) {
    a.size = b.size;
    a.row = b.row;
  }
  a.first = b.first > a.first ? b.first : a.first;
}

// Joins the candidates of `Lanes` neighbouring lanes; all of them get the result.
template <int Lanes>
__device__ __forceinline__ void join_candidates(pivot_candidate& own) {
#pragma unroll
  for (int distance = 1; distance < Lanes; distance *= 2) {
    const pivot_candidate other{__shfl_xor_sync(0xffffffffu, own.size, distance), __shfl_xor_sync(0xffffffffu, own.first, distance),
                                __shfl_xor_sync(0xffffffffu, own.row, distance)};
    take_better(own, other);
  }
}

template <class Wide, int Blocks, int Threads>
struct choice_memory {
  double sizes[2][Blocks];  // the candidates of the blocks, for two exchanges
  double firsts[2][Blocks];
  int rows[2][Blocks];
  pivot_candidate several[Threads / 32];
  Wide z[k_choice_block];  // the conjugate row of the pivot in L
};

// Sends the best column of the candidates of this block's threads to all blocks.
template <class Wide, int Blocks, int Threads>
__device__ __forceinline__ void send_candidate(choice_memory<Wide, Blocks, Threads>& own, int half, int rank, pivot_candidate best) {
  constexpr int warps = Threads / 32;
  const int lane = arch::lane(), warp = arch::warp();
  join_candidates<32>(best);
  if (lane == 0) own.several[warp] = best;
  __syncthreads();  // the candidates of the warps are complete
  if (warp == 0) {
    best = lane < warps ? own.several[lane] : k_no_candidate;
    join_candidates<warps>(best);
    best = {__shfl_sync(0xffffffffu, best.size, 0), __shfl_sync(0xffffffffu, best.first, 0), __shfl_sync(0xffffffffu, best.row, 0)};
    if (lane < Blocks) {
      if constexpr (Blocks == 1) {
        own.sizes[half][0] = best.size;
        own.firsts[half][0] = best.first;
        own.rows[half][0] = best.row;
      } else {
        arch::store_remote(&own.sizes[half][rank], static_cast<unsigned>(lane), best.size);
        arch::store_remote(&own.firsts[half][rank], static_cast<unsigned>(lane), best.first);
        arch::store_remote(&own.rows[half][rank], static_cast<unsigned>(lane), best.row);
      }
    }
  }
  sync_cluster<Blocks>();  // all blocks have sent
}

// One cluster of thread blocks. Each block has a slab of rows of G and L. For each pivot a block sends its best column to all others; after
// one barrier of the cluster all blocks know the pivot. The pivot's column of G then gets the products with the pivots before it, for the
// rows of the slab, which also gives the norms that remain.
// Thread mapping: `parts` lanes share a row, and divide the pivots before among them.
// Barriers: of the cluster, after the candidates are sent; of the block, after z is written, and after the candidates of the warps are.
template <class Wide, int Blocks, int Threads, class Injector>
__global__ void __launch_bounds__(Threads, 1)
    choose_kernel(const __grid_constant__ ballast::cuda::kernel_launch<choice_arguments<Wide>, Injector> given) {
  const choice_arguments<Wide>& a = given.arguments;
  auto& own = arch::shared_object<choice_memory<Wide, Blocks, Threads>, struct choice_of_pivots>();
  const int lane = arch::lane(), warp = arch::warp();
  const int rank = Blocks == 1 ? 0 : static_cast<int>(arch::cluster_rank());
  const std::int64_t n = a.n, first = rank * a.slab;
  const int count = static_cast<int>(first >= n ? 0 : n - first < a.slab ? n - first : a.slab);
  int parts = 32;
  while (parts > 1 && Threads / parts < a.slab) parts /= 2;
  const int across = 32 / parts, part = lane / across;  // rows of a warp at a time
  const int begin = warp * across + lane % across, step = Threads / parts;
  const bool over = a.state[1] != 0;

  // Looks at a column that remains.
  const auto consider = [&](pivot_candidate& best, int k, std::int64_t i, double size, double initial) {
    given.strike(ballast::cuda::index<1>{}, site::column_norm,
                 {a.chosen + a.before + k, a.steps, 0, 1, static_cast<int>(i), static_cast<int>(n)}, &size);
    take_better(best, {size, initial, static_cast<int>(i)});
  };

  sync_cluster<Blocks>();  // all blocks have started, so that they can be sent to, and have read the state
  {
    pivot_candidate best = k_no_candidate;
    for (std::int64_t i = first + threadIdx.x; i < first + count; i += Threads) {
      if (a.rest[i] != k_taken) consider(best, 0, i, a.rest[i] * a.scale[i], a.initial[i]);
    }
    send_candidate(own, 0, rank, best);
  }
  // Regardless of the numbers all threads take part in all barriers, so that no fault lets them part.
  bool goes_on = !over;
  int made = 0;
  for (int k = 0; k < a.count; ++k) {
    const int half = k % 2;
    pivot_candidate best =
        lane < Blocks ? pivot_candidate{own.sizes[half][lane], own.firsts[half][lane], own.rows[half][lane]} : k_no_candidate;
    join_candidates<32>(best);
    const bool begins = a.before + k == 0;
    goes_on = goes_on && best.size > -1 && (begins || (best.size > 0 && best.size >= thresholds::k_least_rest * best.first));
    const auto row = static_cast<std::uint32_t>(best.row);
    std::int64_t pivot = goes_on && row < n ? row : 0;  // a struck number must not become an address
    if constexpr (Injector::enabled) {
      if (goes_on && rank == 0 && threadIdx.x == 0) {
        auto word = static_cast<std::uint64_t>(pivot);
        given.strike(ballast::cuda::index<1>{}, site::pivot, {a.chosen + a.before + k, a.steps, 0, 1, 0, 1}, &word);
        if (word >= static_cast<std::uint64_t>(n) || a.rest[word] == k_taken) {
          for (word = 0; a.rest[word] == k_taken;) ++word;
        }
        a.order[a.before + k] = static_cast<std::int32_t>(word);
      }
      sync_cluster<Blocks>();  // the pivot is stored
      if (goes_on) pivot = a.order[a.before + k];
    } else {
      if (goes_on && rank == 0 && threadIdx.x == 0) a.order[a.before + k] = static_cast<std::int32_t>(pivot);
    }
    for (int t = static_cast<int>(threadIdx.x); goes_on && t < k; t += Threads) own.z[t] = conjugate_of(a.L[pivot + t * n]);
    // `scale` is a power of two, so that the square comes back as it was.
    double square = goes_on ? best.size / a.scale[pivot] : 0;
    if constexpr (Injector::enabled) {
      if (goes_on) square = a.rest[pivot];  // the size may have been struck
      sync_cluster<Blocks>();               // z is complete, and all blocks have read the square
    } else {
      __syncthreads();  // z is complete
    }
    const double inverse = square > 0 ? 1 / sqrt(square) : 0;
    best = k_no_candidate;
    const Wide* const column = a.G + pivot * n + first;
    for (int base = 0; base < count; base += step) {
      const int r = base + begin;
      Wide sum = 0.0;
      const double rest = r < count && goes_on ? a.rest[first + r] : k_taken;
      double scale = 0, initial = 0;
      if (rest != k_taken) {
        scale = a.scale[first + r];
        initial = a.initial[first + r];
        if (part == 0) sum = column[r];
        const Wide* const row = a.L + first + r;
#pragma unroll 8
        for (int t = part; t < k; t += parts) sum = minus_product(sum, row[t * n], own.z[t]);
      }
      for (int distance = across; distance < 32; distance *= 2) sum = sum + __shfl_xor_sync(0xffffffffu, sum, distance);
      if (r >= count || part != 0) continue;
      const Wide l = rest == k_taken ? Wide(0.0) : times_real(sum, inverse);
      a.L[first + r + k * n] = l;
      if (rest == k_taken) continue;
      const bool chosen = first + r == pivot;
      const double left = rest - square_of(l);
      a.rest[first + r] = chosen ? k_taken : left;
      if (!chosen) consider(best, k + 1, first + r, left * scale, initial);
    }
    made += goes_on ? 1 : 0;
    send_candidate(own, half ^ 1, rank, best);
  }
  if (rank == 0 && threadIdx.x == 0) {
    if (!over) a.state[0] = static_cast<std::int32_t>(a.before + made);
    if (made < a.count) a.state[1] = 1;
  }
  // The last barrier in send_candidate(): no block exits while others may still send to it.
}

// One thread block for k_threads rows of a column.
template <class S>
__global__ void __launch_bounds__(k_threads) gather_kernel(const __grid_constant__ gather_arguments<S> a) {
  const std::int64_t slabs = (a.rows + k_threads - 1) / k_threads, j = blockIdx.x / slabs;
  const std::int64_t i = blockIdx.x % slabs * k_threads + threadIdx.x;
  if (i >= a.rows) return;
  const std::int64_t row = a.row_list != nullptr ? a.row_list[i] : i, column = a.column_list != nullptr ? a.column_list[j] : j;
  wide_of<S> x = widened(a.from[row + column * a.ld]);
  if (a.shifts != nullptr && a.shifts[j] != 0) x = shifted_number(x, -a.shifts[j]);
  a.to[i + j * a.ldt] = x;
}

// One warp for each column.
template <class S>
__global__ void __launch_bounds__(k_threads) measure_pivots_kernel(const __grid_constant__ measure_pivots_arguments<S> a) {
  const int lane = arch::lane();
  const std::int64_t j = std::int64_t{blockIdx.x} * (k_threads / 32) + arch::warp();
  if (j >= a.n) return;
  const auto bounded = [](int e) { return e < -1000 ? -1000 : e > 1000 ? 1000 : e; };
  const std::int64_t stored = j + 1 < a.steps ? j + 1 : a.steps;
  const int e = bounded(a.sizes[j].exponent);
  const double scale = std::ldexp(1.0, -e), own = std::ldexp(a.sizes[j].norm, a.sizes[j].exponent - e);
  double below = 0, residual = 0, threshold = 1;
  const auto keep_worse = [&](double r, double t) {
    if (residual == residual && !(r * threshold <= residual * t)) {
      residual = r;
      threshold = t;
    }
  };
  for (std::int64_t base = (stored - 1) / 32 * 32; base >= 0; base -= 32) {
    const std::int64_t k = base + lane;
    double sum = k < stored ? square_of(times_real(widened(a.R[k + j * a.ld]), scale)) : 0;
    for (int distance = 1; distance < 32; distance *= 2) {
      const double later = __shfl_sync(0xffffffffu, sum, lane + distance < 32 ? lane + distance : lane);
      if (lane + distance < 32) sum += later;
    }
    sum += below;
    below = __shfl_sync(0xffffffffu, sum, 0);
    if (k >= stored || k == j) continue;
    const double pivot = magnitude(times_real(widened(a.R[k + k * a.ld]), scale));
    if (sum <= pivot * pivot) continue;
    const int apart = a.sizes[k].exponent - e;
    const double other = std::ldexp(a.sizes[k].norm, apart < 1000 ? apart : 1000);
    keep_worse(sqrt(sum) - pivot, thresholds::pivot<real_of<S>>(pivot, own + other, a.reals));
  }
  for (int distance = 1; distance < 32; distance *= 2) {
    const double r = __shfl_xor_sync(0xffffffffu, residual, distance), t = __shfl_xor_sync(0xffffffffu, threshold, distance);
    keep_worse(r, t);
  }
  if (lane == 0) a.to[j] = {residual, threshold};
}

}  // namespace ballast::qr::cuda
