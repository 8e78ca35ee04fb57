// The work of applying Q other than products: VᵀV and T of wide blocks of reflectors, all at once; op(Q)ᵀa and the sums of its check.
// Layer: backend "cuda" of QR, device code. applier.cpp has the order of the launches.
// T is computed by halves: first T of k_inner columns, column by column, then T12 = −T1 (V1ᵀV2 T2) for 32, 64, … columns of T1. The check
// uses neither: it has its own Gram matrices, of k_inner columns. All sums are in double and in an order that depends on the shape alone.
// Source: R. Schreiber, C. Van Loan, 1989 (T); E. Elmroth, F. Gustavson, 2000 (T by halves).
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/checks/checks.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/number.cuh"
#include "qr/cuda/layout/real_blocks.cuh"
#include "qr/cuda/panel/panel.cuh"

namespace ballast::qr::cuda {

// Block k of the reflectors, which are in blocks of `width` columns.
template <class S>
struct reflector_block {
  reflectors<S> h;
  __device__ __forceinline__ reflector_block(const wide_arguments<S>& a, std::int64_t k) {
    const std::int64_t first = k * a.width, left = a.count - first;
    h = {a.V + first * (a.ldv + 1), a.ldv, a.rows - first, static_cast<int>(left < a.width ? left : a.width), a.T + first * a.width, 0};
    h.ldt = h.width;
  }
};

// Computes G's tiles of 64 × 64 on and above the diagonal, one for each thread block and chunk of rows; the tiles of the first block of
// reflectors come first, since it has the most rows. 16 rows at a time are in shared memory by columns, with a stride free of bank
// conflicts. While they are multiplied, the next rows are loaded into registers. Warp (r, c) of 2 × 4 has 32 rows and 16 columns of the
// tile.
template <class S>
__device__ __forceinline__ void real_wide_gram(const wide_arguments<S>& a) {
  constexpr int strip = 16, stride = strip + 4, each = k_wide_tile * strip / k_threads;
  auto& left = arch::shared_object<double[k_wide_tile * stride], struct gram_left>();
  auto& right = arch::shared_object<double[k_wide_tile * stride], struct gram_right>();
  const int tiles = wide_tiles(a.width), pairs = tiles * (tiles + 1) / 2;
  const std::int64_t chunk = blockIdx.x % a.chunks, k = blockIdx.x / a.chunks / pairs;
  int row_tile = 0, rest = static_cast<int>(blockIdx.x / a.chunks % pairs);
  for (; rest >= tiles - row_tile; ++row_tile) rest -= tiles - row_tile;
  const reflectors<S> h = reflector_block<S>(a, k).h;
  const int top = row_tile * k_wide_tile, first = (row_tile + rest) * k_wide_tile;
  if (first >= h.width) return;
  const int warp = arch::warp(), lane = arch::lane(), g = lane / 4, t = lane % 4;
  const int above = warp / 4 * 32, column = warp % 4 * 16;
  // True for a part below the diagonal, or outside the matrix.
  const bool idle = (rest == 0 && above > column + 15) || first + column >= h.width;
  double x[each], y[each];
  const auto load = [&](std::int64_t begin) {
    ballast::cuda::unrolled<each>([&](auto q) {
      constexpr int n = decltype(q)::value;
      const int e = static_cast<int>(threadIdx.x) + n * k_threads, c = e / strip;
      const std::int64_t i = begin + e % strip;
      x[n] = i < h.rows && top + c < h.width ? element(h.V[i + (top + c) * h.ldv], i, top + c) : 0;
      y[n] = rest != 0 && i < h.rows && first + c < h.width ? element(h.V[i + (first + c) * h.ldv], i, first + c) : 0;
    });
  };
  double sum[4][2][2] = {};
  const std::int64_t rows = ((h.rows + a.chunks - 1) / a.chunks + strip - 1) / strip * strip, last = (chunk + 1) * rows;
  const std::int64_t end = last < h.rows ? last : h.rows;
  // The columns to the right have zeros above their own rows.
  std::int64_t begin = chunk * rows > first ? chunk * rows : first;
  load(begin);
  const double* const B = rest == 0 ? left : right;
  for (; begin < end; begin += strip) {
    ballast::cuda::unrolled<each>([&](auto q) {
      constexpr int n = decltype(q)::value;
      const int e = static_cast<int>(threadIdx.x) + n * k_threads, to = e / strip * stride + e % strip;
      left[to] = x[n];
      if (rest != 0) right[to] = y[n];
    });
    __syncthreads();  // the rows are in shared memory
    load(begin + strip);
    for (int i = 0; i < strip && !idle; i += 4) {
      double u[4], v[2];
      ballast::cuda::unrolled<4>([&](auto r) { u[decltype(r)::value] = left[(above + 8 * decltype(r)::value + g) * stride + i + t]; });
      ballast::cuda::unrolled<2>([&](auto c) { v[decltype(c)::value] = B[(column + 8 * decltype(c)::value + g) * stride + i + t]; });
      ballast::cuda::unrolled<4>([&](auto r) {
        if (top + above + 8 * decltype(r)::value >= h.width) return;
        ballast::cuda::unrolled<2>([&](auto c) {
          arch::mma_m8n8k4_f64(sum[decltype(r)::value][decltype(c)::value], u[decltype(r)::value], v[decltype(c)::value]);
        });
      });
    }
    __syncthreads();  // the rows have been read
  }
  if (idle) return;
  const std::int64_t panels = (a.count + a.width - 1) / a.width;
  double* const G = a.G + (chunk * panels + k) * a.width * a.width;
  ballast::cuda::unrolled<4>([&](auto r) {
    ballast::cuda::unrolled<2>([&](auto c) {
      for (int q = 0; q < 2; ++q) {
        const int i = top + above + 8 * decltype(r)::value + g, j = first + column + 8 * decltype(c)::value + 2 * t + q;
        if (i < j && j < h.width) G[i + static_cast<std::int64_t>(j) * h.width] = sum[decltype(r)::value][decltype(c)::value][q];
      }
    });
  });
}

// The same tiles for complex numbers, by multiplications and additions: thread (r, c) of 16 × 16 has rows r + 16 i, columns c + 16 l.
template <class S>
__device__ __forceinline__ void complex_wide_gram(const wide_arguments<S>& a) {
  using wide = wide_of<S>;
  constexpr int strip = 8, stride = strip + 1, side = 16, own = k_wide_tile / side;
  auto& left = arch::shared_object<wide[k_wide_tile * stride], struct complex_gram_left>();
  auto& right = arch::shared_object<wide[k_wide_tile * stride], struct complex_gram_right>();
  const int tiles = wide_tiles(a.width), pairs = tiles * (tiles + 1) / 2;
  const std::int64_t chunk = blockIdx.x % a.chunks, k = blockIdx.x / a.chunks / pairs;
  int row_tile = 0, rest = static_cast<int>(blockIdx.x / a.chunks % pairs);
  for (; rest >= tiles - row_tile; ++row_tile) rest -= tiles - row_tile;
  const reflectors<S> h = reflector_block<S>(a, k).h;
  const int top = row_tile * k_wide_tile, first = (row_tile + rest) * k_wide_tile, thread = static_cast<int>(threadIdx.x);
  if (first >= h.width) return;
  const int r = thread / side, c = thread % side;
  const std::int64_t rows = ((h.rows + a.chunks - 1) / a.chunks + strip - 1) / strip * strip, last = (chunk + 1) * rows;
  const std::int64_t end = last < h.rows ? last : h.rows;
  wide sum[own][own] = {};
  // The columns to the right have zeros above their own rows.
  for (std::int64_t begin = chunk * rows > first ? chunk * rows : first; begin < end; begin += strip) {
    __syncthreads();  // the rows before have been read
    for (int e = thread; e < k_wide_tile * strip; e += k_threads) {
      const int l = e / strip, to = l * stride + e % strip;
      const std::int64_t i = begin + e % strip;
      left[to] = i < end && top + l < h.width ? element(h.V[i + (top + l) * h.ldv], i, top + l) : wide(0.0);
      right[to] = i < end && first + l < h.width ? element(h.V[i + (first + l) * h.ldv], i, first + l) : wide(0.0);
    }
    __syncthreads();  // the rows are in shared memory
    for (int i = 0; i < strip; ++i) {
      wide u[own], v[own];
      ballast::cuda::unrolled<own>([&](auto q) {
        u[decltype(q)::value] = left[(r + side * decltype(q)::value) * stride + i];
        v[decltype(q)::value] = right[(c + side * decltype(q)::value) * stride + i];
      });
      ballast::cuda::unrolled<own>([&](auto p) {
        ballast::cuda::unrolled<own>([&](auto q) {
          wide& to = sum[decltype(p)::value][decltype(q)::value];
          to = plus_conjugate_product(to, u[decltype(p)::value], v[decltype(q)::value]);
        });
      });
    }
  }
  const std::int64_t panels = (a.count + a.width - 1) / a.width;
  wide* const G = a.G + (chunk * panels + k) * a.width * a.width;
  ballast::cuda::unrolled<own>([&](auto p) {
    ballast::cuda::unrolled<own>([&](auto q) {
      const int i = top + r + side * decltype(p)::value, j = first + c + side * decltype(q)::value;
      if (i < j && j < h.width) G[i + static_cast<std::int64_t>(j) * h.width] = sum[decltype(p)::value][decltype(q)::value];
    });
  });
}

template <class S>
__global__ void __launch_bounds__(k_threads) wide_gram_kernel(const __grid_constant__ wide_arguments<S> a) {
  if constexpr (is_complex<S>)
    complex_wide_gram<S>(a);
  else
    real_wide_gram<S>(a);
}

// Writes zeros, and T of k_inner columns on the diagonal: column j is −τ_j T G_j above the diagonal, τ_j on it. A warp for each k_inner
// columns, of which it zeroes all rows. Lane i has the rows i, i + 32, … to zero, row i of the part, and row i of G.
template <class S>
__global__ void __launch_bounds__(k_threads) wide_parts_kernel(const __grid_constant__ wide_arguments<S> a) {
  const int parts = (a.width + k_inner - 1) / k_inner, lane = arch::lane();
  const std::int64_t each = std::int64_t{blockIdx.x} * (k_threads / 32) + arch::warp(), k = each / parts;
  const int first = static_cast<int>(each % parts) * k_inner;
  if (k * a.width >= a.count) return;
  const reflectors<S> h = reflector_block<S>(a, k).h;
  const int w = h.width - first < k_inner ? h.width - first : k_inner;
  if (w <= 0) return;
  S* const T = a.T + k * a.width * a.width + static_cast<std::int64_t>(first) * h.width;
  using wide = wide_of<S>;
  const wide* const G = a.G + k * a.width * a.width + static_cast<std::int64_t>(first) * h.width + first;
  for (int j = 0; j < w; ++j) {
    for (int i = lane; i < h.width; i += 32) T[i + static_cast<std::int64_t>(j) * h.width] = S(0);
  }
  wide row[k_inner];
  const wide own = lane < w ? widened(a.tau[k * a.width + first + lane]) : wide(0.0);
  if constexpr (is_complex<S>) {
    // Each column of G is loaded when it is used: the registers hold one row of complex numbers, not two.
    ballast::cuda::unrolled<k_inner>([&](auto q) {
      constexpr int j = decltype(q)::value;
      const wide g = j < w && lane < j ? G[lane + static_cast<std::int64_t>(j) * h.width] : wide(0.0),
                 tau = __shfl_sync(0xffffffffu, own, j);
      wide sum = 0.0;
      ballast::cuda::unrolled<j>(
          [&](auto l) { sum = plus_product(sum, row[decltype(l)::value], __shfl_sync(0xffffffffu, g, decltype(l)::value)); });
      row[j] = lane < j ? widened(narrowed<S>(negative_of(tau * sum))) : lane == j ? tau : wide(0.0);
      if (j < w && lane <= j) T[first + lane + static_cast<std::int64_t>(j) * h.width] = narrowed<S>(row[j]);
    });
    return;
  } else {
    double g[k_inner];
    ballast::cuda::unrolled<k_inner>([&](auto q) {
      constexpr int j = decltype(q)::value;
      g[j] = j < w && lane < j ? G[lane + static_cast<std::int64_t>(j) * h.width] : 0;
    });
    ballast::cuda::unrolled<k_inner>([&](auto q) {
      constexpr int j = decltype(q)::value;
      double sum = 0;
      ballast::cuda::unrolled<j>([&](auto l) { sum += row[decltype(l)::value] * __shfl_sync(0xffffffffu, g[j], decltype(l)::value); });
      const double tau = __shfl_sync(0xffffffffu, own, j);
      row[j] = lane < j ? static_cast<double>(static_cast<S>(-tau * sum)) : lane == j ? tau : 0;
      if (j < w && lane <= j) T[first + lane + static_cast<std::int64_t>(j) * h.width] = static_cast<S>(row[j]);
    });
  }
}

// Computes T12 for a strip of its columns: V1ᵀV2 T2, then −T1 times that. Thread i has row i of the strip, and `Columns` columns; the strip
// has `half` rows.
template <class S, int Columns>
__device__ __forceinline__ void join_strip(const reflectors<S>& h, const wide_of<S>* G, S* T, int first, int half, int c0, int columns,
                                           wide_of<S> (&strip)[wide_most<S> / 2 * k_wide_strip]) {
  using wide = wide_of<S>;
  const int thread = static_cast<int>(threadIdx.x), i = thread % half, own = thread / half * Columns;
  const std::int64_t ld = h.width;
  const int deep = c0 + columns;  // rows of T2 that these columns have
  for (int e = thread; e < deep * k_wide_strip; e += k_threads) {
    const int l = e % deep, c = e / deep;
    strip[c * half + l] = c < columns ? widened(T[first + half + l + (first + half + c0 + c) * ld]) : wide(0.0);
  }
  __syncthreads();  // T2's columns are in shared memory
  wide sum[Columns] = {};
  const auto add = [&](wide x, int l) {
    ballast::cuda::unrolled<Columns>([&](auto c) {
      wide& to = sum[decltype(c)::value];
      to = plus_product(to, x, strip[(own + decltype(c)::value) * half + l]);
    });
  };
  for (int l = 0; l < deep; ++l) {
    add(G[first + i + (first + half + l) * ld], l);
  }
  __syncthreads();  // T2's columns have been read
  ballast::cuda::unrolled<Columns>([&](auto c) {
    strip[(own + decltype(c)::value) * half + i] = sum[decltype(c)::value];
    sum[decltype(c)::value] = 0;
  });
  __syncthreads();  // V1ᵀV2 T2 is complete
  for (int l = i / 32 * 32; l < half; ++l) {
    add(widened(T[first + i + (first + l) * ld]), l);
  }
  ballast::cuda::unrolled<Columns>([&](auto c) {
    const int column = own + decltype(c)::value;
    if (column < columns) T[first + i + (first + half + c0 + column) * ld] = narrowed<S>(negative_of(sum[decltype(c)::value]));
  });
}

// One thread block for each block of reflectors, pair of halves and strip of columns.
template <class S>
__global__ void __launch_bounds__(k_threads, 2) wide_join_kernel(const __grid_constant__ wide_arguments<S> a) {
  auto& strip = arch::shared_object<wide_of<S>[wide_most<S> / 2 * k_wide_strip], struct joined_strip>();
  const int half = a.half, pairs = wide_pairs(a.width, half), strips = half / k_wide_strip;
  const std::int64_t k = blockIdx.x / (pairs * strips);
  const int rest = static_cast<int>(blockIdx.x % (pairs * strips));
  const int first = rest / strips * 2 * half, c0 = rest % strips * k_wide_strip;
  const reflectors<S> h = reflector_block<S>(a, k).h;
  const int left = h.width - first - half - c0, columns = left < k_wide_strip ? left : k_wide_strip;
  if (columns <= 0) return;
  const wide_of<S>* const G = a.G + k * a.width * a.width;
  S* const T = a.T + k * a.width * a.width;
  static_assert(k_wide_strip == 16 && k_threads == 256 && k_wide_most == 512);
  if (half == 32) {
    join_strip<S, 2>(h, G, T, first, half, c0, columns, strip);
  } else if (half == 64) {
    join_strip<S, 4>(h, G, T, first, half, c0, columns, strip);
  } else if (half == 128) {
    join_strip<S, 8>(h, G, T, first, half, c0, columns, strip);
  } else if constexpr (wide_most<S> == k_wide_most) {
    join_strip<S, 16>(h, G, T, first, half, c0, columns, strip);
  }
}

// ---------------------------------------------------------------------------------------------------------------------- the check

// Sums of a group of k_inner reflectors in tiles of 8 × 8, by rows: VᵀV on and above the diagonal, then Vᵀ times the vectors.
inline constexpr int k_chain_tiles = k_inner / 8;
inline constexpr int k_chain_gram = k_chain_tiles * (k_chain_tiles + 1) / 2;
static_assert(k_chain_sums == 64 * (k_chain_gram + k_chain_tiles) && k_vectors <= 8 && k_inner == 32);

template <int Threads>
struct chain_memory {
  double sums[2][k_chain_sums];  // sums of the thread block, for two exchanges: other blocks read them
  double all[k_chain_sums];
  double parts[Threads / 32][k_chain_sums];  // sums of the warps
  double z[k_inner][k_vectors];
};
struct tall_chain_memory {
  double all[k_chain_sums];
  double parts[k_tall_chain_threads / 32][k_chain_sums];
  double z[k_inner][k_vectors];
};

// The rows of a warp: 8 from `first` on, 8 that begin `stride` later, and so on.
struct chain_rows {
  std::int64_t first, stride;
};

// A group that is applied to the vectors, and one whose sums are computed: their first columns; −1: none.
struct chain_step {
  std::int64_t applied = -1, summed = -1;
};

// z of the applied group, as the right factor of a product, and the sums of a warp.
inline constexpr int k_chain_steps = k_inner / 4;
using chain_factor = double[k_chain_steps];
using chain_sum = double[k_chain_gram + k_chain_tiles][2];

// Complex reflectors are real ones by twos (real_blocks.cuh), a vector of m complex numbers is one of 2 m reals: columns and rows of reals.
template <class S>
__device__ __forceinline__ std::int64_t chain_groups(const chain_arguments<S>& a) {
  return (k_reals<S> * a.count + k_inner - 1) / k_inner;
}
// The first column of group s of an order.
template <class S>
__device__ std::int64_t chain_column(const chain_arguments<S>& a, std::int64_t s) {
  return (a.last_first ? chain_groups(a) - 1 - s : s) * k_inner;
}

// Element (i, j) of V, with its ones and zeros.
template <class S>
__device__ __forceinline__ real_of<S> chain_element(const chain_arguments<S>& a, std::int64_t i, std::int64_t j) {
  constexpr int reals = static_cast<int>(k_reals<S>);
  const std::int64_t row = i / reals, column = j / reals;
  if (row >= a.rows || column >= a.count || row < column) return 0;
  if (row == column) return i == j ? 1 : 0;
  return of_block<reals>(components(a.V + row + column * a.ldv), static_cast<int>(i % reals), static_cast<int>(j % reals));
}

// One pass over the rows of a warp: y ← y − V z with the applied group, then the sums of the other one. A warp processes 8 rows at a time:
// to apply, they are the rows of a product (lane 4 g + t: row g of y, vectors 2 t and 2 t + 1); to sum, they are its inner dimension. It
// loads its next rows before it computes with these.
template <class S>
__device__ void chain_pass(const chain_arguments<S>& a, const chain_rows& rows, const chain_step& step, const chain_factor& factor,
                           chain_sum& sum) {
  const int lane = arch::lane(), g = lane / 4, t = lane % 4;
  const bool applies = step.applied >= 0, adds = step.summed >= 0;
  const std::int64_t count = k_reals<S> * a.rows;
  using real = real_of<S>;
  double* const vectors = components(a.y);
  const auto v = [&a](std::int64_t i, std::int64_t j) { return chain_element(a, i, j); };
  struct rows_of_warp {
    double y[2];
    real before[k_chain_steps], next[2][k_chain_tiles];
  };
  const auto load = [&](std::int64_t i, rows_of_warp& to) {
    for (int q = 0; q < 2; ++q) to.y[q] = i + g < count && 2 * t < k_vectors ? vectors[i + g + (2 * t + q) * count] : 0;
    ballast::cuda::unrolled<k_chain_steps>(
        [&](auto c) { to.before[decltype(c)::value] = applies ? v(i + g, step.applied + 4 * decltype(c)::value + t) : real(0); });
    ballast::cuda::unrolled<2>([&](auto h) {
      ballast::cuda::unrolled<k_chain_tiles>([&](auto c) {
        constexpr int half = decltype(h)::value, tile = decltype(c)::value;
        to.next[half][tile] = adds ? v(i + 4 * half + t, step.summed + 8 * tile + g) : real(0);
      });
    });
  };
  // Skips the rows above both groups.
  const std::int64_t low = !adds ? step.applied : !applies || step.summed < step.applied ? step.summed : step.applied;
  const std::int64_t skipped = low > rows.first ? (low - rows.first) / rows.stride : 0;
  rows_of_warp now, ahead;
  std::int64_t i = rows.first + skipped * rows.stride;
  if (i < count) load(i, ahead);
  for (; i < count; i += rows.stride) {
    now = ahead;
    if (i + rows.stride < count) load(i + rows.stride, ahead);
    double* const y = now.y;
    if (applies) {
      double lost[2] = {};
      ballast::cuda::unrolled<k_chain_steps>(
          [&](auto c) { arch::mma_m8n8k4_f64(lost, static_cast<double>(now.before[decltype(c)::value]), factor[decltype(c)::value]); });
      for (int q = 0; q < 2; ++q) {
        y[q] -= lost[q];
        if (i + g < count && 2 * t < k_vectors) vectors[i + g + (2 * t + q) * count] = y[q];
      }
    }
    if (!adds) continue;
    ballast::cuda::unrolled<2>([&](auto half) {
      constexpr int h = decltype(half)::value;
      double x[k_chain_tiles];
      ballast::cuda::unrolled<k_chain_tiles>([&](auto c) { x[decltype(c)::value] = static_cast<double>(now.next[h][decltype(c)::value]); });
      const int from = (4 * h + t) * 4 + g / 2;
      const double even = __shfl_sync(0xffffffffu, y[0], from % 32), odd = __shfl_sync(0xffffffffu, y[1], from % 32);
      const double vector = g >= k_vectors ? 0 : g % 2 == 0 ? even : odd;
      ballast::cuda::unrolled<k_chain_tiles>([&](auto r) {
        constexpr int row = decltype(r)::value;
        ballast::cuda::unrolled<k_chain_tiles, row>(
            [&](auto c) { arch::mma_m8n8k4_f64(sum[upper_tile(k_chain_tiles, row, decltype(c)::value)], x[row], x[decltype(c)::value]); });
        arch::mma_m8n8k4_f64(sum[k_chain_gram + row], x[row], vector);
      });
    });
  }
}

// Adds the sums of the warps of a block: calls add(e, sum) for each sum e by one thread.
template <int Threads, class Add>
__device__ void add_warps(const chain_sum& sum, double (&parts)[Threads / 32][k_chain_sums], Add&& add) {
  const int warp = arch::warp(), lane = arch::lane();
  ballast::cuda::unrolled<k_chain_gram + k_chain_tiles>([&](auto e) {
    for (int q = 0; q < 2; ++q) parts[warp][64 * decltype(e)::value + 2 * lane + q] = sum[decltype(e)::value][q];
  });
  __syncthreads();  // the sums of the warps are stored
  for (int e = static_cast<int>(threadIdx.x); e < k_chain_sums; e += Threads) {
    double all = 0;
    ballast::cuda::unrolled<Threads / 32>([&](auto w) { all += parts[decltype(w)::value][e]; });
    add(e, all);
  }
}

// z of a group, one warp for each vector: z_j = τ_j (v_jᴴy − Σ v_jᴴv_l z_l) over the l applied before j. `all` has the sums. Qᴴ a applies
// H_jᴴ, with conj(τ_j), and Q a H_j: complex op(Q)ᴴ is Q where the last reflector comes first.
template <class S>
__device__ void solve_group(const chain_arguments<S>& a, std::int64_t column, const double (&all)[k_chain_sums],
                            double (&z)[k_inner][k_vectors], chain_factor& factor) {
  const int warp = arch::warp(), lane = arch::lane(), g = lane / 4, t = lane % 4;
  if (warp < k_vectors) {
    constexpr int reals = static_cast<int>(k_reals<S>);
    const std::int64_t left = reals * a.count - column;
    const int w = left < k_inner ? static_cast<int>(left) : k_inner;
    double tau = lane < w ? static_cast<double>(components(a.tau)[column + lane]) : 0;
    if (is_complex<S> && lane % 2 == 1 && !a.last_first) tau = -tau;
    double u = all[64 * (k_chain_gram + lane / 8) + lane % 8 * 8 + warp];
    const auto lose = [&](int j, double made) {
      const int near = lane < j ? lane : j, far = lane < j ? j : lane;
      if (lane == j) z[j][warp] = made;
      u -= all[64 * upper_tile(k_chain_tiles, near / 8, far / 8) + near % 8 * 8 + far % 8] * made;
    };
    for (int e = 0; e < w; e += reals) {
      const int j = a.last_first ? w - reals - e : e;
      if constexpr (reals == 1) {
        lose(j, __shfl_sync(0xffffffffu, tau * u, j));
      } else {
        const double of[2] = {__shfl_sync(0xffffffffu, u, j), __shfl_sync(0xffffffffu, u, j + 1)},
                     by[2] = {__shfl_sync(0xffffffffu, tau, j), __shfl_sync(0xffffffffu, tau, j + 1)};
        lose(j, by[0] * of[0] - by[1] * of[1]);
        lose(j + 1, by[0] * of[1] + by[1] * of[0]);
      }
    }
    if (lane >= w) z[lane][warp] = 0;
  }
  __syncthreads();  // z is stored
  ballast::cuda::unrolled<k_chain_steps>(
      [&](auto c) { factor[decltype(c)::value] = g < k_vectors ? z[4 * decltype(c)::value + t][g] : 0; });
}

// y ← H_n … H_1 y or H_1 … H_n y for the vectors y, by groups of k_inner reflectors. Each group takes one pass over the rows and one
// exchange between the blocks of a cluster: the pass applies the previous group and accumulates the sums of the next one. A warp has the
// same rows in every group, so that y needs no barrier; the rows of all warps interleave, so that the last groups, which have few rows,
// keep all warps busy.
template <class S, int Blocks, int Threads>
__device__ __forceinline__ void chain_of_groups(const chain_arguments<S>& a) {
  constexpr int warps = Threads / 32;
  static_assert(sizeof(chain_memory<Threads>) == chain_bytes(Threads) && warps >= k_vectors);
  auto& own = *reinterpret_cast<chain_memory<Threads>*>(arch::shared_memory());
  const int rank = Blocks == 1 ? 0 : static_cast<int>(arch::cluster_rank());
  const std::int64_t groups = chain_groups(a);
  const chain_rows rows{8 * (rank * warps + arch::warp()), std::int64_t{8} * Blocks * warps};
  sync_cluster<Blocks>();  // all blocks have started, so that they can be read from
  chain_step step;
  chain_factor factor = {};
  for (std::int64_t s = 0; s <= groups; ++s) {
    step.summed = s < groups ? chain_column(a, s) : -1;
    chain_sum sum = {};
    chain_pass(a, rows, step, factor, sum);
    if (s == groups) break;
    const int half = static_cast<int>(s & 1);
    add_warps<Threads>(sum, own.parts, [&](int e, double all) {
      own.sums[half][e] = all;
      if constexpr (Blocks == 1) own.all[e] = all;
    });
    sync_cluster<Blocks>();  // the sums of the blocks are stored
    if constexpr (Blocks > 1) {
      for (int e = static_cast<int>(threadIdx.x); e < k_chain_sums; e += Threads) {
        double of[Blocks], all = 0;
        ballast::cuda::unrolled<Blocks>([&](auto r) {
          constexpr int other = decltype(r)::value;
          of[other] = arch::load_remote(&own.sums[half][e], static_cast<unsigned>(other));
        });
        ballast::cuda::unrolled<Blocks>([&](auto r) { all += of[decltype(r)::value]; });
        own.all[e] = all;
      }
      __syncthreads();  // the total sums are stored
    }
    solve_group(a, step.summed, own.all, own.z, factor);
    step.applied = step.summed;
  }
  sync_cluster<Blocks>();  // no block exits while others may still read from it
}

// The same for complex numbers beside products with many columns: one reflector after the other, a block for each vector, in less time than
// a cluster takes for groups (docs/notebook/qr-cuda.md). A thread has the same rows for every reflector, so that y needs no barrier.
template <class S, int Threads>
__device__ __forceinline__ void chain_of_reflectors(const chain_arguments<S>& a) {
  using wide = wide_of<S>;
  constexpr int warps = Threads / 32;
  auto& several = arch::shared_object<wide[2][warps], struct chain_of_reflectors_sums>();
  wide* const y = a.y + std::int64_t{blockIdx.x} * a.rows;
  for (std::int64_t step = 0; step < a.count; ++step) {
    const std::int64_t j = a.last_first ? a.count - 1 - step : step;
    const S* const v = a.V + j * a.ldv;
    const std::int64_t begin = j / Threads * Threads + static_cast<int>(threadIdx.x);
    wide sum[1] = {};
#pragma unroll 4
    for (std::int64_t i = begin; i < a.rows; i += Threads) {
      if (i >= j) sum[0] = plus_conjugate_product(sum[0], i == j ? wide(1.0) : widened(v[i]), y[i]);
    }
    ballast::cuda::add_lanes<Threads, 32, 1>(all_components(sum));
    wide* const own = several[step % 2];  // the barrier of the next step separates its two uses
    if (arch::lane() == 0) own[arch::warp()] = sum[0];
    __syncthreads();  // the sums of the warps are stored
    wide all = own[0];
    for (int w = 1; w < warps; ++w) all += own[w];
    const wide factor = conjugated_if(!a.last_first, widened(a.tau[j])) * all;  // Q applies H_j, and Qᴴ its conjugate transpose
#pragma unroll 4
    for (std::int64_t i = begin; i < a.rows; i += Threads) {
      if (i >= j) y[i] = minus_product(y[i], i == j ? wide(1.0) : widened(v[i]), factor);
    }
  }
}

template <class S, int Blocks, int Threads>
__global__ void __launch_bounds__(Threads, 1) chain_kernel(const __grid_constant__ chain_arguments<S> a) {
  if constexpr (is_complex<S>)
    chain_of_reflectors<S, Threads>(a);
  else
    chain_of_groups<S, Blocks, Threads>(a);
}

// The same for tall V: one pass of all multiprocessors for each launch, between which fold_kernel adds the sums of the blocks.
template <class S>
__global__ void __launch_bounds__(k_tall_chain_threads, 2) tall_chain_kernel(const __grid_constant__ tall_chain_arguments<S> a) {
  constexpr int warps = k_tall_chain_threads / 32;
  static_assert(sizeof(tall_chain_memory) == tall_chain_bytes());
  auto& own = *reinterpret_cast<tall_chain_memory*>(arch::shared_memory());
  const chain_arguments<S>& chain = a.chain;
  const std::int64_t groups = chain_groups(chain);
  chain_step step;
  chain_factor factor = {};
  if (a.step > 0) {
    for (int e = static_cast<int>(threadIdx.x); e < k_chain_sums; e += k_tall_chain_threads) own.all[e] = a.sums[e];
    __syncthreads();  // the total sums are there
    step.applied = chain_column(chain, a.step - 1);
    solve_group(chain, step.applied, own.all, own.z, factor);
  }
  if (a.step < groups) step.summed = chain_column(chain, a.step);
  chain_sum sum = {};
  const std::int64_t first = 8 * (std::int64_t{blockIdx.x} * warps + arch::warp());
  chain_pass(chain, {first, std::int64_t{8} * gridDim.x * warps}, step, factor, sum);
  if (step.summed < 0) return;
  double* const parts = a.parts + std::int64_t{blockIdx.x} * k_chain_sums;
  add_warps<k_tall_chain_threads>(sum, own.parts, [&](int e, double all) { parts[e] = all; });
}

// One thread block for each k_dot_columns columns and chunk of rows: computes Σ_i b(i, q) conj(x(i, j)) for all vectors.
template <class S>
__global__ void __launch_bounds__(k_threads) dots_kernel(const __grid_constant__ dots_arguments<S> a) {
  using wide = wide_of<S>;
  constexpr int count = k_dot_columns * k_vectors;
  auto& several = arch::shared_object<double[k_reals<S> * count * (k_threads / 32)], struct dotted_sums>();
  const std::int64_t chunk = blockIdx.x % a.chunks, first = blockIdx.x / a.chunks * k_dot_columns;
  const std::int64_t left = a.columns - first;
  const int there = left < k_dot_columns ? static_cast<int>(left) : k_dot_columns;
  const int thread = static_cast<int>(threadIdx.x);
  if (a.X == nullptr) {
    // A column of the identity selects one number of each vector.
    if (thread < count && thread % k_dot_columns < there) {
      const std::int64_t j = first + thread % k_dot_columns, q = thread / k_dot_columns;
      a.to[j + q * a.columns] = a.first + j < a.rows ? a.b[a.first + j + q * a.ldb] : wide(0.0);
    }
    return;
  }
  wide sum[count] = {};
  int shift[k_dot_columns];
  for (int c = 0; c < k_dot_columns; ++c) shift[c] = a.shifts != nullptr && c < there ? a.shifts[first + c] : 0;
  const std::int64_t each = (a.rows + a.chunks - 1) / a.chunks, begin = chunk * each;
  const std::int64_t end = begin + each < a.rows ? begin + each : a.rows;
  for (std::int64_t i = begin + thread; i < end; i += k_threads) {
    wide b[k_vectors], x[k_dot_columns];
    ballast::cuda::unrolled<k_dot_columns>([&](auto c) {
      constexpr int own = decltype(c)::value;
      S read = own < there ? a.X[i * a.row_stride + (first + own) * a.column_stride] : S(0);
      if (shift[own] != 0) read = shifted_number(read, shift[own]);
      x[own] = conjugated_if(a.conjugated, widened(read));
    });
    ballast::cuda::unrolled<k_vectors>([&](auto q) { b[decltype(q)::value] = a.b[i + decltype(q)::value * a.ldb]; });
    ballast::cuda::unrolled<count>([&](auto e) {
      wide& to = sum[decltype(e)::value];
      to = plus_conjugate_product(to, x[decltype(e)::value % k_dot_columns], b[decltype(e)::value / k_dot_columns]);
    });
  }
  constexpr int parts = static_cast<int>(k_reals<S>);
  const double all = ballast::cuda::add_block<k_threads>(all_components(sum), several);
  const int at = thread / parts;
  if (thread < parts * count && at % k_dot_columns < there)
    components(
        a.to)[parts * (chunk * a.columns * k_vectors + first + at % k_dot_columns + at / k_dot_columns * a.columns) + thread % parts] = all;
}

}  // namespace ballast::qr::cuda
