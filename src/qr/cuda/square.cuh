// The square matrices of a tall panel, each by one block: Cholesky factor of a Gram matrix, LU that makes reflectors of orthonormal
// columns, and T. See tall.cuh for the passes over the rows. Layer: backend "cuda" of QR, device code. A matrix lies in shared memory by
// columns. It is taken by strips of 16 columns: one warp eliminates the 16 × 16 block on the diagonal in registers, threads substitute the
// rows below and the columns right of it, and products of 8 × 8 tiles take it from what is left. The warp of the diagonal goes ahead: it
// eliminates the next block while the others are at the products. All arithmetic is in double, and in an order that depends on the shape
// alone. Source: as tall.cuh; blocked elimination as in G. Golub, C. Van Loan, Matrix Computations, 2013, §3.2.
#pragma once

#include <cmath>

#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/arguments.hpp"

namespace ballast::qr::cuda {

using ballast::cuda::unrolled;

// A matrix of up to k_most_wide columns in shared memory, its width rounded up to strips, and `more` columns, a multiple of 8, of as many
// rows behind it. Columns are width + 4 numbers apart: no bank serves more than two lanes of a tile.
struct square {
  double* data;
  int width;
  int more = 0;

  __device__ __forceinline__ double& operator()(int i, int l) const { return data[i + l * (width + 4)]; }
  __device__ __forceinline__ int columns() const { return width + more; }
  // The memory behind it.
  __device__ __forceinline__ double* end() const { return data + columns() * (width + 4); }
  // Columns and rows behind `own` are 0 but for the diagonal.
  __device__ __forceinline__ void pad(int own, double diagonal) const {
    const int i = static_cast<int>(threadIdx.x) % k_most_wide;
#pragma unroll 1
    for (int l = static_cast<int>(threadIdx.x) / k_most_wide; l < width && i < width; l += k_square_threads / k_most_wide) {
      if (i >= own || l >= own) (*this)(i, l) = i == l ? diagonal : 0;
    }
  }
};

__device__ __forceinline__ square square_of(int width) {
  return {reinterpret_cast<double*>(arch::shared_memory()), (width + k_strip - 1) / k_strip * k_strip};
}

// body(i, l, load(i, l)) for each element of a w × w matrix. Loads are taken together: one after the other they would wait for each other's
// memory.
template <class Load, class Body>
__device__ __forceinline__ void each_element(int w, Load load, Body body) {
  constexpr int parts = k_square_threads / k_most_wide, together = 8;
  const int i = static_cast<int>(threadIdx.x) % k_most_wide;
  if (i >= w) return;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) / k_most_wide; first < w; first += together * parts) {
    double x[together];
    unrolled<together>([&](auto q) {
      const int l = first + decltype(q)::value * parts;
      x[decltype(q)::value] = l < w ? load(i, l) : 0;
    });
    unrolled<together>([&](auto q) {
      const int l = first + decltype(q)::value * parts;
      if (l < w) body(i, l, x[decltype(q)::value]);
    });
  }
}

// By a warp: d = the 8 × 8 tile at (row, column) of the product of a(i, k) and b(k, l), `from` ≤ k < to; multiples of 4. Lane 4 g + t gets
// row g and columns 2 t, 2 t + 1.
template <class A, class B>
__device__ __forceinline__ void tile_product(double (&d)[2], int row, int column, int from, int to, A a, B b) {
  const int g = arch::lane() / 4, t = arch::lane() % 4;
  constexpr int together = 4;
#pragma unroll 1
  for (int first = from; first < to; first += 4 * together) {
    double x[together], y[together];
    unrolled<together>([&](auto q) {
      const int k = first + 4 * decltype(q)::value;
      x[decltype(q)::value] = k < to ? a(row + g, k + t) : 0;
      y[decltype(q)::value] = k < to ? b(k + t, column + g) : 0;
    });
    unrolled<together>([&](auto q) {
      if (first + 4 * decltype(q)::value < to) arch::mma_m8n8k4_f64(d, x[decltype(q)::value], y[decltype(q)::value]);
    });
  }
}

// By a warp: the 16 × 8 block of X at (row, column) loses the product of X's columns from `first` on, k_strip of them, and as many rows of
// another matrix: b(k), k = 0, 4, 8, 12, is this lane's element of these, in row k + lane % 4 and column column + lane / 4.
template <class B>
__device__ __forceinline__ void subtract_strip(const square& X, int row, int column, int first, B b) {
  const int g = arch::lane() / 4, t = arch::lane() % 4;
  double upper[2] = {}, lower[2] = {}, x[2][4], y[4];
  unrolled<4>([&](auto q) {
    constexpr int at = decltype(q)::value, k = 4 * at;
    x[0][at] = X(row + g, first + k + t);
    x[1][at] = X(row + 8 + g, first + k + t);
    y[at] = b(k);
  });
  unrolled<4>([&](auto q) {
    constexpr int at = decltype(q)::value;
    arch::mma_m8n8k4_f64(upper, x[0][at], y[at]);
    arch::mma_m8n8k4_f64(lower, x[1][at], y[at]);
  });
  for (int h = 0; h < 2; ++h) {
    X(row + g, column + 2 * t + h) -= upper[h];
    X(row + 8 + g, column + 2 * t + h) -= lower[h];
  }
}

// What becomes of a row when it is the pivots': nothing, but a pivot may be lost in rounding. The diagonal lies in X less 1, which is near
// its pivots: what they lose is added up by itself, and rounded to units of 1 once.
struct plain_pivots {
  double lost;
  static constexpr bool subtracts = false;
  __device__ __forceinline__ bool is_good(double pivot) const { return pivot > lost; }
};

// Row j loses s_j times row j of R, s_j = ±1 opposite to the pivot.
struct reflected_pivots {
  const double* R;  // packed, of `width` columns
  int width;
  double* signs;  // in shared memory
  static constexpr bool subtracts = true;
  __device__ __forceinline__ double loses(int j, int l) const { return j <= l && l < width ? R[packed(j, l)] : 0; }
  __device__ __forceinline__ double sign(int j) const { return signs[j]; }
  __device__ __forceinline__ void keep(int j, double s) const { signs[j] = s; }
  __device__ __forceinline__ double sign_for(double pivot) const { return pivot > 0 ? -1 : 1; }
  __device__ __forceinline__ bool is_good(double) const { return true; }
};

// What the block on the diagonal leaves for its strip, k_strip × k_strip by rows: L⁻¹; U with its rows divided by their pivots; and what it
// loses when its rows are the pivots'.
struct diagonal_factors {
  double* data;
  __device__ __forceinline__ double& lower_inverse(int i, int l) const { return data[i * k_square_rows_stride + l]; }
  __device__ __forceinline__ double& upper(int i, int l) const { return data[(k_strip + i) * k_square_rows_stride + l]; }
  __device__ __forceinline__ double& loses(int i, int l) const { return data[(2 * k_strip + i) * k_square_rows_stride + l]; }
};

// The elements y of a row in columns j = 0 … k_strip − 1, one after the other: y_j = made(j, y_j), and those behind it lose y_j factor(j, l). A
// loop whose elements move down: its code runs once or a few times in a launch, and to fetch 16 steps would take longer than to compute them.
// factor(j, l) is also read up to l = j + k_strip − 1, and not used.
template <class Made, class Factor>
__device__ __forceinline__ void substitute_row(double (&y)[k_strip], Made made, Factor factor) {
#pragma unroll 1
  for (int j = 0; j < k_strip; ++j) {
    const double x = made(j, y[0]);
    unrolled<k_strip - 1>([&](auto e) { y[decltype(e)::value] = y[decltype(e)::value + 1] - x * factor(j, j + 1 + decltype(e)::value); });
  }
}

// By a warp: L and U of the block on the diagonal at `first`, in its place, and the reciprocals of the pivots. Lane l has column l; lane 16 + l
// column l of the identity, which becomes L⁻¹. Rows move down as in substitute_row. False: a pivot is lost.
template <class Pivots>
__device__ __forceinline__ bool eliminate_diagonal(const square& X, int first, double* reciprocal, const diagonal_factors& made,
                                                   const Pivots& pivots) {
  constexpr unsigned all = 0xffffffffu;
  const int lane = arch::lane(), l = lane % k_strip;
  const bool inverts = lane >= k_strip;
  double x[k_strip];
  unrolled<k_strip>([&](auto row) {
    constexpr int i = decltype(row)::value;
    x[i] = inverts ? (i == l ? 1 : 0) : X(first + i, first + l);
  });
  __syncwarp();  // all lanes have read the block
  bool good = true;
  double own = 0;
  double pivot = __shfl_sync(all, x[0], 0);  // what is left of it
#pragma unroll 1
  for (int j = 0; j < k_strip; ++j) {
    if constexpr (Pivots::subtracts) {
      const double s = pivots.sign_for(pivot);
      if (!inverts) x[0] -= s * made.loses(j, l);
      pivot -= s * made.loses(j, j);
      if (lane == j) pivots.keep(first + j, s);
    } else {
      pivot += 1;
    }
    good = good && pivots.is_good(pivot);
    // The next pivot waits for the reciprocal of this one alone.
    const double below = __shfl_sync(all, x[1], j), right = __shfl_sync(all, x[0], j + 1), left = __shfl_sync(all, x[1], j + 1);
    const double inverse = arch::reciprocal(pivot);
    if (lane == j) own = inverse;
    const double factor = lane > j ? x[0] * inverse : 0;
    // Row j is as it stays.
    if (inverts) {
      made.lower_inverse(j, l) = x[0];
    } else {
      X(first + j, first + l) = l < j ? x[0] * own : l == j ? pivot : x[0];
      made.upper(j, l) = factor;
    }
    pivot = left - below * right * inverse;
    unrolled<k_strip - 1>([&](auto row) {
      constexpr int i = decltype(row)::value;
      x[i] = x[i + 1] - __shfl_sync(all, x[i + 1], j) * factor;
    });
  }
  if (!inverts) reciprocal[first + l] = own;
  return good;
}

// By the block of threads: X = L U in X's place, L with ones on the diagonal; U's pivots as reciprocals, too; and L⁻¹ times the columns
// behind X. False: a pivot is lost. What the rows of the next strip lose is loaded while this one is at work.
template <class Pivots>
__device__ __forceinline__ bool eliminate(const square& X, double* reciprocal, const Pivots& pivots) {
  const diagonal_factors diagonal{X.end()};
  // Warps of rows of L, and of columns of U, a tile of 8 of these for each in turn.
  constexpr int warps = k_square_threads / 32, of_rows = k_most_wide / 32, of_columns = warps - of_rows;
  constexpr int turns = ((k_most_wide + k_square_samples) / 8 + of_columns - 1) / of_columns, each = k_strip * k_strip / 32;
  const int thread = static_cast<int>(threadIdx.x), warp = arch::warp(), lane = arch::lane(), g = lane / 4, t = lane % 4;
  const int columns = X.columns();
  int lost = 0;
  __syncthreads();  // X is there
#pragma unroll 1
  for (int first = 0;; first += k_strip) {
    double lost_by_block[each], lost_by_tile[turns][4];
    const int behind = first + k_strip;
    if constexpr (Pivots::subtracts) {
      // Of this strip what its tiles lose, of the next one what its block does; at the beginning of both.
      unrolled<turns>([&](auto turn) {
        const int column = behind + 8 * (warp - of_rows + decltype(turn)::value * of_columns) + g;
        unrolled<4>([&](auto q) {
          constexpr int k = 4 * decltype(q)::value;
          lost_by_tile[decltype(turn)::value][decltype(q)::value] = warp >= of_rows && column < X.width ? pivots.loses(first + k + t, column) : 0;
        });
      });
    }
    if (first > 0) {
      // Blocks of what is left lose the product of the strip in front; warp 0 takes those of the diagonal, and goes ahead.
      const int front = first - k_strip, down = (X.width - first) / k_strip, count = down * ((columns - first) / 8);
      const int step = warp == 0 ? down : warps - 1, end = warp == 0 ? 2 * down : count;
#pragma unroll 1
      for (int e = warp == 0 ? 0 : warp - 1; e < end; e += step) {
        const int row = first + e % down * k_strip, column = first + e / down * 8;
        if (warp == 0 || e % down > 0 || e / down > 1)
          subtract_strip(X, row, column, front, [&](int k) { return X(front + k + t, column + g); });
      }
    }
    if (warp == 0) {
      if constexpr (Pivots::subtracts) {
        if (first == 0) {
          unrolled<each>([&](auto q) { diagonal.loses(lane % k_strip, 2 * decltype(q)::value + lane / k_strip) = pivots.loses(lane % k_strip, 2 * decltype(q)::value + lane / k_strip); });
        }
      }
      __syncwarp();  // the block is there
      lost = eliminate_diagonal(X, first, reciprocal, diagonal, pivots) ? 0 : 1;
    }
    if (__syncthreads_or(lost) != 0) return false;  // and the block on the diagonal is there
    if (behind >= columns) return true;
    if (warp < of_rows) {
      if constexpr (Pivots::subtracts) {
        unrolled<each>([&](auto q) {
          const int l = 2 * decltype(q)::value + lane / k_strip;
          lost_by_block[decltype(q)::value] = warp == 0 && behind < X.width ? pivots.loses(behind + lane % k_strip, behind + l) : 0;
        });
      }
      const int own = behind + thread;
      if (own < X.width) {
        double y[k_strip];
        unrolled<k_strip>([&](auto e) { y[decltype(e)::value] = X(own, first + decltype(e)::value); });
        substitute_row(
            y,
            [&](int j, double x) {
              X(own, first + j) = x * reciprocal[first + j];
              return x;
            },
            [&](int j, int l) { return diagonal.upper(j, l); });
      }
      if constexpr (Pivots::subtracts) {
        unrolled<each>([&](auto q) {
          if (warp == 0) diagonal.loses(lane % k_strip, 2 * decltype(q)::value + lane / k_strip) = lost_by_block[decltype(q)::value];
        });
      }
    } else {
      unrolled<turns>([&](auto turn) {
        const int column = behind + 8 * (warp - of_rows + decltype(turn)::value * of_columns);
        if (column >= columns) return;
        double upper[2] = {}, lower[2] = {};
        unrolled<4>([&](auto q) {
          constexpr int k = 4 * decltype(q)::value;
          double x = X(first + k + t, column + g);
          if constexpr (Pivots::subtracts) x -= pivots.sign(first + k + t) * lost_by_tile[decltype(turn)::value][decltype(q)::value];
          arch::mma_m8n8k4_f64(upper, diagonal.lower_inverse(g, k + t), x);
          arch::mma_m8n8k4_f64(lower, diagonal.lower_inverse(8 + g, k + t), x);
        });
        __syncwarp();  // the tile has been read
        for (int h = 0; h < 2; ++h) {
          X(first + g, column + 2 * t + h) = upper[h];
          X(first + 8 + g, column + 2 * t + h) = lower[h];
        }
      });
    }
    __syncthreads();  // the strip is L's and U's
    if (behind >= X.width) return true;
  }
}

// By the block of threads: X ← X (D⁻¹ R)⁻¹ for X and R upper triangular, D the diagonal of R, a row by itself: X R⁻¹ but for the scales of its
// columns. R: packed, of w columns, without its diagonal; reciprocal: of the diagonal. Elements of X below its diagonal are 0. Rows of D⁻¹R
// come to shared memory behind X, those of the next strip on their way while this one is at work.
__device__ __forceinline__ void substitute(const square& X, const double* R, int w, const double* reciprocal) {
  constexpr int each = k_strip * k_most_wide / k_square_threads;
  const int thread = static_cast<int>(threadIdx.x), g = arch::lane() / 4, t = arch::lane() % 4;
  double* const rows = X.end();
  double ahead[each];
  const auto fetch = [&](int first) {
    unrolled<each>([&](auto q) {
      const int e = thread + decltype(q)::value * k_square_threads, j = first + e % k_strip, l = e / k_strip;
      ahead[decltype(q)::value] = j < l && l < w ? R[packed(j, l)] : 0;
    });
  };
  const auto row = [&](int j, int l) -> double& { return rows[j + l * k_square_rows_stride]; };
  fetch(0);
#pragma unroll 1
  for (int first = 0; first < X.width; first += k_strip) {
    __syncthreads();  // the strip has lost what those in front of it take; the rows of the last one have been read
    unrolled<each>([&](auto q) {
      const int e = thread + decltype(q)::value * k_square_threads;
      if (e / k_strip < X.width) row(e % k_strip, e / k_strip) = ahead[decltype(q)::value] * reciprocal[first + e % k_strip];
    });
    const int behind = first + k_strip;
    fetch(behind);
    __syncthreads();  // the rows are there
    if (thread < behind) {
      double y[k_strip];
      unrolled<k_strip>([&](auto e) { y[decltype(e)::value] = X(thread, first + decltype(e)::value); });
      substitute_row(
          y,
          [&](int j, double x) {
            X(thread, first + j) = x;
            return x;
          },
          [&](int j, int l) { return l < k_strip ? row(j, first + l) : 0; });
    }
    __syncthreads();  // the strip is final
    const int down = behind / k_strip, count = down * ((X.width - behind) / 8);
#pragma unroll 1
    for (int e = arch::warp(); e < count; e += k_square_threads / 32) {
      const int column = behind + e / down * 8;
      subtract_strip(X, e % down * k_strip, column, first, [&](int k) { return row(k + t, column + g); });
    }
  }
  __syncthreads();  // X is there
}

// G = D RᵀR D by Cholesky, D the roots of G's diagonal, so that the scales of the columns do not count; and the product of all R so far. If
// a pivot is lost in rounding, the diagonal is shifted: then Q = X R⁻¹ is not orthonormal yet, but far better conditioned than X. ‖G − I‖
// says how far the X whose Gram matrix this is was from orthonormal columns: measured, not estimated. Where its square is rounding, R is
// I + (G − I)'s upper triangle with half its diagonal. U of G = L U is R with its rows times the roots of the pivots.
//
// Of A's G = L D Lᵀ, scaled, the mean of zᵀG⁻¹z = ‖D^−½ L⁻¹ z‖² over k_square_samples random z of signs estimates tr G⁻¹, the sum of 1/λ over G's
// eigenvalues. Rounding in G and R moves QᵀQ, Q = A R⁻¹, by no more than some u times that: where it is small, Q needs no second factor,
// and the panel is direct. Source: M. Hutchinson, A stochastic estimator of the trace of the influence matrix, 1989.
template <int Threads>
__global__ void __launch_bounds__(Threads) square_factor_kernel(const __grid_constant__ square_factor_arguments a) {
  static_assert(Threads == k_square_threads);
  auto& scale = arch::shared_object<double[k_most_wide], struct square_scales>();
  auto& reciprocal = arch::shared_object<double[k_most_wide], struct square_reciprocals>();
  auto& several = arch::shared_object<double[Threads / 32], struct square_deviations>();
  auto& deviation_squared = arch::shared_object<double, struct square_deviation>();
  const int w = a.width, thread = static_cast<int>(threadIdx.x);
  if (a.first && is_closed(a.gate)) {
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  if (!a.first && a.state->stage != k_tall_factored) return;
  square X = square_of(w);
  const auto upper = [&](int i, int l) { return i <= l ? a.G[packed(i, l)] : 0; };
  int failed = 0;
  if (thread < w) {
    const double norm_squared = a.G[packed(thread, thread)];
    // Squares that say what they are.
    failed = norm_squared >= 0x1p-900 && norm_squared <= 0x1p900 ? 0 : 1;
    scale[thread] = sqrt(norm_squared);
  }
  if (!a.first) {
    double off[1] = {};
    each_element(w, upper, [&](int i, int l, double x) {
      if (i > l) return;
      const double each = i == l ? x - 1 : x;
      off[0] += (i == l ? 1 : 2) * each * each;
      X(i, l) = i == l ? (1 + x) / 2 : x;
    });
    const double square = ballast::cuda::add_block<Threads>(off, several);
    if (thread == 0) deviation_squared = square;
  }
  if (__syncthreads_or(failed) != 0) {
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  const bool near = !a.first && deviation_squared <= a.near * a.near;
  bool good = near, shifted = false;
  const double lost = w * 0x1p-50;  // pivots as small as that are rounding
#pragma unroll 1
  for (int attempt = 0; attempt < 2 && !good; ++attempt) {
    if (thread < w) reciprocal[thread] = 1 / scale[thread];
    __syncthreads();  // they are there, in an attempt behind the first instead of the pivots'
    each_element(w, upper, [&](int i, int l, double x) {
      if (i <= l) X(i, l) = X(l, i) = i == l ? attempt * 16 * lost : x * reciprocal[i] * reciprocal[l];
    });
    X.pad(w, 0);
    X.more = a.first ? k_square_samples : 0;
#pragma unroll 1
    for (int e = thread; e < X.more * X.width; e += Threads) {
      const int i = e % X.width;
      X(i, X.width + e / X.width) = i >= w ? 0 : ballast::cuda::value_hash(1.0, static_cast<std::uint64_t>(e)) >> 63 != 0 ? 1 : -1;
    }
    shifted = attempt > 0;
    good = eliminate(X, reciprocal, plain_pivots{lost});
  }
  if (!good) {
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  double weighed[1] = {};
#pragma unroll 1
  for (int e = thread; e < X.more * X.width; e += Threads) {
    const double y = X(e % X.width, X.width + e / X.width);
    weighed[0] += y * y * reciprocal[e % X.width];
  }
  const double of_inverse = ballast::cuda::add_block<Threads>(weighed, several) / k_square_samples;
  // R's row i is U's over the root of its pivot; column l gets its scale back.
  if (!near) {
    __syncthreads();  // the pivots have been read
    if (thread < w) {
      reciprocal[thread] = sqrt(reciprocal[thread]);
      X(thread, thread) = sqrt(X(thread, thread)) * scale[thread];
    }
  }
  __syncthreads();  // the roots are there
  constexpr int parts = Threads / k_most_wide;
  const int i = thread % k_most_wide;
#pragma unroll 2
  for (int l = thread / k_most_wide; l < w; l += parts) {
    if (i > l) continue;
    const double r = near || i == l ? X(i, l) : X(i, l) * reciprocal[i] * scale[l];
    X(i, l) = r;
    a.R[packed(i, l)] = r;
    if (a.first) a.all[packed(i, l)] = r;
  }
  __syncthreads();  // R is there
  if (!a.first) {
    const int across = X.width / 8;
#pragma unroll 1
    for (int e = arch::warp(); e < across * across; e += Threads / 32) {
      const int row = e % across * 8, column = e / across * 8;
      if (row > column) continue;
      double d[2] = {};
      tile_product(
          d, row, column, row, column + 8, [&](int k, int l) { return k <= l && l < w ? X(k, l) : 0; },
          [&](int k, int l) { return k <= l && l < w ? a.before[packed(k, l)] : 0; });
      for (int h = 0; h < 2; ++h) {
        const int k = row + arch::lane() / 4, l = column + 2 * (arch::lane() % 4) + h;
        if (k <= l && l < w) a.all[packed(k, l)] = d[h];
      }
    }
  }
  if (thread != 0) return;
  const bool direct = a.first && !shifted && of_inverse <= a.direct;
  a.state->direct = direct ? 1 : 0;
  a.state->stage =
      direct || (!a.first && deviation_squared <= k_tall_deviation * k_tall_deviation) ? k_tall_orthonormal : k_tall_factored;
}

// The reflectors of Q = X R⁻¹ from X's first rows: Q_1 − S = V_1 U with S = diag(±1) opposite to the pivots, so that each is at least 1 in
// size. Taken times R, X_1 − S R = V_1 (U R): one elimination gives both factors, and U R is that by which X becomes the rest of V. R of
// the panel is S times the product of all R. Where a reflector has no tail that rounding could not have made, LAPACK's tau is 0, not 2:
// then nothing is written.
template <class S>
__global__ void __launch_bounds__(k_square_threads) square_reflectors_kernel(const __grid_constant__ square_reflectors_arguments<S> a) {
  auto& signs = arch::shared_object<double[k_most_wide], struct square_signs>();
  auto& reciprocal = arch::shared_object<double[k_most_wide], struct square_pivots>();
  if (a.state->stage < k_tall_orthonormal) return;
  const int w = a.width, thread = static_cast<int>(threadIdx.x);
  if (is_closed(a.gate)) {
    __syncthreads();  // all have read the stage
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  const square X = square_of(w);
  const bool direct = a.state->direct != 0;
  const S* const from = direct ? a.A : a.X;
  const std::int64_t ld = direct ? a.lda : a.ldx;
  const double* const all = direct ? a.R : a.all;
  each_element(
      w, [&](int i, int l) { return static_cast<double>(from[i + l * ld]); }, [&](int i, int l, double x) { X(i, l) = x; });
  X.pad(w, 1);
  (void)eliminate(X, reciprocal, reflected_pivots{a.R, w, signs});
  // As square_t_kernel makes T's diagonal, to the bit.
  const double tau = thread < w ? -signs[thread] * (X(thread, thread) * (1 / a.R[packed(thread, thread)])) : 1;
  if (__syncthreads_or(tau <= 2 - 0x1p-30 ? 0 : 1) != 0) {
    if (thread == 0) a.state->stage = k_tall_failed;
    return;
  }
  if (thread < w) a.tau[thread] = static_cast<S>(tau);
  each_element(
      w, [&](int i, int l) { return i <= l ? all[packed(i, l)] : 0; },
      [&](int i, int l, double r) {
        const double x = X(i, l);
        if (i <= l) {
          a.product[packed(i, l)] = x;
        } else {
          a.lower[packed(l, i)] = x;
        }
        a.A[i + l * a.lda] = static_cast<S>(i <= l ? signs[i] * r : x);
      });
}

// T V_1ᵀ = −U S: U R loses R, changes its signs, and loses V_1ᵀ.
template <class S>
__global__ void __launch_bounds__(k_square_threads) square_t_kernel(const __grid_constant__ square_t_arguments<S> a) {
  auto& reciprocal = arch::shared_object<double[k_most_wide], struct square_diagonal>();
  if (a.state->stage < k_tall_orthonormal) {
    if (threadIdx.x == 0) close(a.gate);
    return;
  }
  constexpr int parts = k_square_threads / k_most_wide;
  const int w = a.width, thread = static_cast<int>(threadIdx.x), i = thread % k_most_wide, part = thread / k_most_wide;
  const square X = square_of(w);
  each_element(
      w, [&](int i, int l) { return i <= l ? a.product[packed(i, l)] : 0; }, [&](int i, int l, double x) { X(i, l) = x; });
  X.pad(w, 1);
  if (thread < X.width) reciprocal[thread] = thread < w ? 1 / a.R[packed(thread, thread)] : 1;
#pragma unroll 1
  for (int factor = 0;; ++factor) {
    __syncthreads();  // X and the reciprocals are there
    substitute(X, factor == 0 ? a.R : a.lower, w, reciprocal);
    if (factor == 1) break;
    // X lacks the reciprocals; U's pivots are opposite to S.
    const double scale = thread < X.width ? X(thread, thread) > 0 ? reciprocal[thread] : -reciprocal[thread] : 0;
    __syncthreads();  // signs and reciprocals have been read
    if (thread < X.width) reciprocal[thread] = scale;
    __syncthreads();  // the scales are there
#pragma unroll 2
    for (int l = part; l < w && i < w; l += parts) X(i, l) *= reciprocal[l];
    __syncthreads();  // they have been read
    if (thread < X.width) reciprocal[thread] = 1;
  }
#pragma unroll 2
  for (int l = part; l < w && i < w; l += parts) a.T[i + l * w] = i <= l ? static_cast<S>(X(i, l)) : S(0);
}

}  // namespace ballast::qr::cuda
