// Elimination and substitution of small matrices by one thread block, on tensor cores: the work of small_factor.cuh.
// Layer: backend "cuda" of QR, device code.
// A matrix lies in shared memory by columns, and is processed by tiles of 8 × 8: one warp eliminates a tile on the diagonal in registers,
// and computes the inverses of its factors. All other work is products on tensor cores: of those inverses with the tiles to the right of it
// and below it, and of these with each other. The warp of the diagonal works ahead: it eliminates the next tile while the others compute
// products. All arithmetic is in double, and in an order that depends on the shape alone.
// Source: blocked elimination as in G. Golub, C. Van Loan, Matrix Computations, 2013, §3.2.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/real_blocks.cuh"

namespace ballast::qr::cuda {

using ballast::cuda::unrolled;

// A matrix of up to k_most_wide columns in shared memory, its width rounded up to 16, followed by `more` columns of the same height, a
// multiple of 8. The stride of columns is width + 4 numbers: at most two lanes access the same bank for a tile.
struct small_factor {
  double* data;
  int width;
  int more = 0;

  __device__ __forceinline__ double& operator()(int i, int l) const { return data[i + l * (width + 4)]; }
  __device__ __forceinline__ int columns() const { return width + more; }
  // Returns the memory after the matrix.
  __device__ __forceinline__ double* end() const { return data + columns() * (width + 4); }
  // Fills the columns and rows from `own` on: `diagonal` on the diagonal, 0 elsewhere.
  __device__ __forceinline__ void pad(int own, double diagonal) const {
    const int i = static_cast<int>(threadIdx.x) % k_most_wide;
#pragma unroll 1
    for (int l = static_cast<int>(threadIdx.x) / k_most_wide; l < width && i < width; l += k_small_factor_threads / k_most_wide) {
      if (i >= own || l >= own) (*this)(i, l) = i == l ? diagonal : 0;
    }
  }
};

__device__ __forceinline__ small_factor small_factor_of(int width) {
  return {reinterpret_cast<double*>(arch::shared_memory()), (width + 15) / 16 * 16};
}

// Calls body(i, l, load(i, l)) for each element of a w × w matrix. Several loads are issued before the first use; otherwise each would wait
// for the memory latency of the one before.
template <class Load, class Body>
__device__ __forceinline__ void each_element(int w, Load load, Body body) {
  constexpr int parts = k_small_factor_threads / k_most_wide, together = 16;
  const int i = static_cast<int>(threadIdx.x) % k_most_wide;
  if (i >= w) return;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) / k_most_wide; first < w; first += together * parts) {
    decltype(load(0, 0)) x[together];
    unrolled<together>([&](auto q) {
      const int l = first + decltype(q)::value * parts;
      x[decltype(q)::value] = l < w ? load(i, l) : decltype(load(0, 0))(0.0);
    });
    unrolled<together>([&](auto q) {
      const int l = first + decltype(q)::value * parts;
      if (l < w) body(i, l, x[decltype(q)::value]);
    });
  }
}

// Called by a warp: d = the 8 × 8 tile at (row, column) of the product of a(i, k) and b(k, l), from ≤ k < to; both are multiples of 4. Lane
// 4 g + t gets row g and columns 2 t, 2 t + 1.
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

// Called by a warp: subtracts a product from the tiles begin, begin + step, … < count. Its left factor are the k_small_factor_tile columns
// of X from `front` on; its right factor has as many rows: b(k, column) is its element (k, column). position(e) is the position of tile e;
// a negative row means no tile. `Together` tiles are processed at once, so that the loads of one do not wait for the stores of another.
struct tile_position {
  int row, column;
};
// Computes quotients by `by` ≤ 16 of numbers below 512: a division instruction would take longer than a tile.
struct quotients {
  int by, factor;
  __device__ __forceinline__ explicit quotients(int divisor) : by(divisor), factor((65535 + divisor) / divisor) {}
  __device__ __forceinline__ int operator()(int e) const { return e * factor >> 16; }
};
template <int Together, class Position, class B>
__device__ __forceinline__ void subtract_tiles(const small_factor& X, int begin, int step, int count, int front, Position position, B b) {
  const int g = arch::lane() / 4, t = arch::lane() % 4, stride = X.width + 4;
  // Addresses of this lane in a tile at (0, 0).
  const double* const factor = X.data + g + (front + t) * stride;
  double* const product = X.data + g + 2 * t * stride;
#pragma unroll 1
  for (int first = begin; first < count; first += Together * step) {
    double d[Together][2] = {}, x[Together][2] = {}, y[Together][2] = {};
    int to[Together];  // offset from `product`; negative: there is no tile
    unrolled<Together>([&](auto n) {
      constexpr int e = decltype(n)::value;
      const tile_position at = first + e * step < count ? position(first + e * step) : tile_position{-1, 0};
      to[e] = at.row < 0 ? -1 : at.row + at.column * stride;
      if (at.row < 0) return;
      for (int q = 0; q < 2; ++q) {
        x[e][q] = -factor[at.row + 4 * q * stride];
        y[e][q] = b(4 * q + t, at.column + g);
        d[e][q] = product[to[e] + q * stride];
      }
    });
    unrolled<2>([&](auto half) {
      constexpr int q = decltype(half)::value;
      unrolled<Together>([&](auto n) { arch::mma_m8n8k4_f64(d[decltype(n)::value], x[decltype(n)::value][q], y[decltype(n)::value][q]); });
    });
    unrolled<Together>([&](auto n) {
      constexpr int e = decltype(n)::value;
      if (to[e] < 0) return;
      for (int q = 0; q < 2; ++q) product[to[e] + q * stride] = d[e][q];
    });
  }
}

// Pivots of Cholesky: their rows are not changed, but a pivot may be lost in rounding. X holds the diagonal minus 1, which is close to its
// pivots: their losses are accumulated separately, and rounded to units of 1 once.
struct plain_pivots {
  double lost;
  static constexpr bool subtracts = false, in_pairs = false;
  __device__ __forceinline__ bool is_good(double pivot) const { return pivot > lost; }
};

// Pivots of the reflectors: s_j times row j of R is subtracted from row j, s_j = ±1 opposite to the pivot, or to the real part of a complex
// one: both rows of its block have the same sign.
template <int Reals>
struct reflected_pivots {
  packed_blocks<Reals> R;
  int width;      // columns of reals
  double* signs;  // in shared memory
  static constexpr bool subtracts = true, in_pairs = Reals == 2;
  __device__ __forceinline__ double loses(int j, int l) const { return R.has(j, l) && l < width ? R(j, l) : 0; }
  __device__ __forceinline__ double sign(int j) const { return signs[j]; }
  __device__ __forceinline__ void keep(int j, double s) const { signs[j] = s; }
  __device__ __forceinline__ double sign_for(double pivot) const { return pivot > 0 ? -1 : 1; }
  __device__ __forceinline__ bool is_good(double) const { return true; }
};

// The inverses of the factors of a tile on the diagonal, stored after X.
struct tile_inverses {
  double* data;
  __device__ __forceinline__ double& lower(int i, int l) const { return data[k_small_factor_stride * i + l]; }
  __device__ __forceinline__ double& upper(int i, int l) const { return data[k_small_factor_stride * (k_small_factor_tile + i) + l]; }
};

// Called by a warp: computes L and U of the tile on the diagonal at `first`, in place; the reciprocals of the pivots; L⁻¹, and U⁻¹ if
// Pivots::subtracts. Lane 8 r + l has rows r and r + 4 of column l. lost: the numbers that are subtracted from these when their row becomes
// the pivot row. Returns false if a pivot is lost.
template <class Pivots>
__device__ __forceinline__ bool eliminate_tile(const small_factor& X, int first, double* reciprocal, const tile_inverses& made,
                                               const double (&lost)[2], const Pivots& pivots) {
  const int r = arch::lane() / k_small_factor_tile, l = arch::lane() % k_small_factor_tile;
  const auto from = [](double x, int lane) { return __shfl_sync(0xffffffffu, x, lane); };
  double x[2], lower[2], upper[2];  // the tile; L⁻¹; U⁻¹ without the scale of its columns
  for (int q = 0; q < 2; ++q) {
    x[q] = X(first + r + 4 * q, first + l);
    lower[q] = upper[q] = r + 4 * q == l ? 1 : 0;
  }
  bool good = true;
  double own = 0, sign = 0;
  double pivot = from(x[0], 0);  // its remaining value
  unrolled<k_small_factor_tile>([&](auto step) {
    constexpr int j = decltype(step)::value, n = j + 1 < k_small_factor_tile ? j + 1 : j, row = j % 4 * k_small_factor_tile,
                  next = n % 4 * k_small_factor_tile;
    if constexpr (Pivots::subtracts) {
      const double s = Pivots::in_pairs && j % 2 == 1 ? sign : pivots.sign_for(pivot);
      sign = s;
      x[j / 4] -= (r == j % 4 ? s : 0) * lost[j / 4];
      pivot -= s * from(lost[j / 4], row + j);
      pivots.keep(first + j, s);
    } else {
      pivot += 1;
    }
    good = good && pivots.is_good(pivot);
    const double top = from(x[j / 4], row + l), top_of_lower = from(lower[j / 4], row + l);
    // The next pivot waits only for the reciprocal of this one.
    const double below = from(x[n / 4], next + j), right = from(x[j / 4], row + n), left = from(x[n / 4], next + n);
    const double inverse = arch::reciprocal(pivot);
    if (l == j) {
      own = inverse;
      if (r == j % 4) x[j / 4] = pivot;
    }
    pivot = left - below * right * inverse;
    const double factor = l > j ? top * inverse : 0;
    for (int q = 0; q < 2; ++q) {
      const double multiplier = from(x[q], r * k_small_factor_tile + j), each = r + 4 * q > j ? multiplier : 0;
      x[q] -= each * factor;
      lower[q] -= each * inverse * top_of_lower;
      if constexpr (Pivots::subtracts) upper[q] -= from(upper[q], r * k_small_factor_tile + j) * factor;
    }
  });
  for (int q = 0; q < 2; ++q) {
    const int i = r + 4 * q;
    X(first + i, first + l) = i > l ? x[q] * own : x[q];
    made.lower(i, l) = lower[q];
    if constexpr (Pivots::subtracts) made.upper(i, l) = upper[q] * own;
  }
  if (r == 0) reciprocal[first + l] = own;
  return good;
}

// Called by the thread block: X = L U in place, L with ones on the diagonal; also computes the reciprocals of U's pivots, and L⁻¹ times the
// columns after X. Returns false if a pivot is lost. Unless Pivots::subtracts, X is symmetric, and only its tiles on and above the diagonal
// are read.
template <class Pivots>
__device__ __forceinline__ bool eliminate(const small_factor& X, double* reciprocal, const Pivots& pivots) {
  constexpr int warps = k_small_factor_threads / 32, rounds = 2;
  static_assert(2 * (k_most_wide / k_small_factor_tile - 1) + k_small_factor_samples / k_small_factor_tile <= rounds * warps);
  const int warp = arch::warp(), lane = arch::lane(), g = lane / 4, t = lane % 4, columns = X.columns();
  const tile_inverses inverses{X.end()};
  int lost = 0;
  // The numbers to subtract from the next tile on the diagonal, and from the tiles to the right of this one; loaded ahead.
  double lost_by_next[2] = {}, lost_by_tile[rounds][2];
  const auto load_next = [&](int first) {
    if constexpr (Pivots::subtracts) {
      for (int q = 0; q < 2; ++q)
        lost_by_next[q] =
            warp == 0 && first < X.width ? pivots.loses(first + lane / k_small_factor_tile + 4 * q, first + lane % k_small_factor_tile) : 0;
    }
  };
  load_next(0);
  __syncthreads();  // X is complete
#pragma unroll 1
  for (int first = 0;; first += k_small_factor_tile) {
    const int behind = first + k_small_factor_tile, right = (columns - behind) / k_small_factor_tile,
              down = (X.width - behind) / k_small_factor_tile;
    if constexpr (Pivots::subtracts) {
      unrolled<rounds>([&](auto round) {
        const int column = behind + k_small_factor_tile * (warp + decltype(round)::value * warps) + g;
        for (int q = 0; q < 2; ++q)
          lost_by_tile[decltype(round)::value][q] = column < X.width ? pivots.loses(first + 4 * q + t, column) : 0;
      });
    }
    if (first > 0) {
      // Subtracts the product of the tiles below and to the right of the last one from the remaining matrix. Warp 0 updates the tile on the
      // diagonal, and works ahead.
      const int front = first - k_small_factor_tile, rows = down + 1;
      const quotients column_of(rows);
      const auto above = [&X, front](int k, int column) { return X(front + k, column); };
      if (warp == 0) {
        subtract_tiles<1>(
            X, 0, 1, 1, front,
            [&](int) {
              return tile_position{first, first};
            },
            above);
      } else {
        subtract_tiles<3>(
            X, warp, warps - 1, rows * (right + 1), front,
            [&](int e) {
              const int l = column_of(e), i = e - rows * l;
              return tile_position{!Pivots::subtracts && i > l ? -1 : first + i * k_small_factor_tile, first + l * k_small_factor_tile};
            },
            above);
      }
    }
    if (warp == 0) {
      __syncwarp();  // the tile is updated
      lost = eliminate_tile(X, first, reciprocal, inverses, lost_by_next, pivots) ? 0 : 1;
    }
    if (__syncthreads_or(lost) != 0) return false;  // and the tile on the diagonal is eliminated
    if (right == 0) return true;
    load_next(behind);
    unrolled<rounds>([&](auto round) {
      const int e = warp + decltype(round)::value * warps;
      double d[2] = {};
      if (e < right) {  // U
        const int column = behind + k_small_factor_tile * e;
        for (int q = 0; q < 2; ++q) {
          double x = X(first + 4 * q + t, column + g);
          if constexpr (Pivots::subtracts) x -= pivots.sign(first + 4 * q + t) * lost_by_tile[decltype(round)::value][q];
          arch::mma_m8n8k4_f64(d, inverses.lower(g, 4 * q + t), x);
        }
        __syncwarp();  // the tile has been read
        for (int h = 0; h < 2; ++h) {
          X(first + g, column + 2 * t + h) = d[h];
          if (!Pivots::subtracts && e < down) X(column + 2 * t + h, first + g) = d[h] * reciprocal[first + g];  // L
        }
      } else if (Pivots::subtracts && e < right + down) {  // L
        const int row = behind + k_small_factor_tile * (e - right);
        for (int q = 0; q < 2; ++q) arch::mma_m8n8k4_f64(d, X(row + g, first + 4 * q + t), inverses.upper(4 * q + t, g));
        __syncwarp();  // the tile has been read
        for (int h = 0; h < 2; ++h) X(row + g, first + 2 * t + h) = d[h];
      }
    });
    __syncthreads();  // L's column and U's row of tiles are stored
    if (down == 0) return true;
  }
}

// Called by the thread block: X ← X R⁻¹ for upper triangular X and R. The block computes the rows of tiles blockIdx.x, blockIdx.x +
// gridDim.x, … of X; rows are independent. R has w columns of reals; unit: with ones on its diagonal, which are not read. Blocks of X
// below its diagonal are 0. The memory after X holds the inverses of R's tiles on the diagonal, packed, and k_small_factor_tile rows of R;
// the next rows are loaded while these are used.
template <int Reals>
__device__ __forceinline__ void substitute(const small_factor& X, packed_blocks<Reals> R, int w, bool unit) {
  constexpr int warps = k_small_factor_threads / 32, of_tile = packed(0, k_small_factor_tile),
                each = k_small_factor_tile * k_most_wide / k_small_factor_threads;
  const int thread = static_cast<int>(threadIdx.x), warp = arch::warp(), g = arch::lane() / 4, t = arch::lane() % 4;
  double* const inverses = X.end();
  double* const rows = inverses + X.width / k_small_factor_tile * of_tile;
  const auto row = [&](int j, int l) -> double& { return rows[j + k_small_factor_stride * l]; };
  double ahead[each];
  const auto element_of = [&](int i, int l) { return unit && R.on_diagonal(i, l) ? (i == l ? 1.0 : 0.0) : R(i, l); };
  const auto fetch = [&](int first) {
    for (int q = 0; q < each; ++q) {
      const int e = thread + q * k_small_factor_threads, j = first + e % k_small_factor_tile, l = e / k_small_factor_tile;
      ahead[q] = j < l && l < w ? element_of(j, l) : 0;
    }
  };
  fetch(0);
  // Loads the tiles, then overwrites them with their inverses: column l by substitution from the diagonal upwards.
  for (int e = thread; e < X.width / k_small_factor_tile * of_tile; e += k_small_factor_threads) {
    const int first = e / of_tile * k_small_factor_tile, at = e % of_tile;
    int l = 0;
    while (packed(0, l + 1) <= at) ++l;
    const int i = at - packed(0, l);
    inverses[e] = first + l < w ? element_of(first + i, first + l) : i == l ? 1 : 0;
  }
  __syncthreads();  // the tiles are loaded
  double z[k_small_factor_tile] = {};
  const int l = thread % k_small_factor_tile;
  double* const tile = inverses + thread / k_small_factor_tile * of_tile;
  if (thread < X.width) {
    unrolled<k_small_factor_tile>([&](auto line) {
      constexpr int i = k_small_factor_tile - 1 - decltype(line)::value;
      double sum = i == l ? 1 : 0;
      unrolled<k_small_factor_tile, i + 1>(
          [&](auto column) { sum -= tile[packed(i, decltype(column)::value)] * z[decltype(column)::value]; });
      z[i] = i <= l ? sum * arch::reciprocal(tile[packed(i, i)]) : 0;
    });
  }
  __syncthreads();  // the tiles have been read
  if (thread < X.width) {
    unrolled<k_small_factor_tile>([&](auto line) {
      constexpr int i = decltype(line)::value;
      if (i <= l) tile[packed(i, l)] = z[i];
    });
  }
#pragma unroll 1
  for (int first = 0; first < X.width; first += k_small_factor_tile) {
    __syncthreads();  // the columns before these have been subtracted; the last rows of R have been read
    for (int q = 0; q < each; ++q) {
      const int e = thread + q * k_small_factor_threads;
      if (e / k_small_factor_tile < X.width) row(e % k_small_factor_tile, e / k_small_factor_tile) = ahead[q];
    }
    const int behind = first + k_small_factor_tile, block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    const int down = (behind / k_small_factor_tile - block + blocks - 1) / blocks;
    const auto row_of = [&](int n) { return k_small_factor_tile * (block + n * blocks); };
    fetch(behind);
    if (warp < down) {
      double d[2] = {};
      for (int q = 0; q < 2; ++q) {
        const int k = 4 * q + t;
        arch::mma_m8n8k4_f64(d, X(row_of(warp) + g, first + k),
                             k <= g ? inverses[first / k_small_factor_tile * of_tile + packed(k, g)] : 0);
      }
      __syncwarp();  // the tile has been read
      for (int h = 0; h < 2; ++h) X(row_of(warp) + g, first + 2 * t + h) = d[h];
    }
    __syncthreads();  // the columns are final, and the rows are loaded
    if (down <= 0) continue;
    const quotients column_of(down);
    subtract_tiles<1>(
        X, warp, warps, down * ((X.width - behind) / k_small_factor_tile), first,
        [&](int e) {
          const int l = column_of(e);
          return tile_position{row_of(e - down * l), behind + l * k_small_factor_tile};
        },
        [&](int k, int column) { return row(k, column); });
  }
  __syncthreads();  // X is complete
}

}  // namespace ballast::qr::cuda
