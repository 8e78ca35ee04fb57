// Products of block reflectors with few columns: W = VᵀC, op(T) W and C − V W. The host takes 15 µs to launch a product of cuBLAS, three
// times as long as a kernel.
// Layer: backend "cuda" of QR, device code. All are products of doubles on tensor cores, also for floats, in an order that depends on the
// shape alone.
// Complex V and T are real matrices of twice the rows and columns (real_blocks.cuh). Columns of C and of W are stored as columns of twice
// as many reals. Rows and widths below are those of reals.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/real_blocks.cuh"

namespace ballast::qr::cuda {

using ballast::cuda::unrolled;

// Called by a warp: d += A B for 16 rows of A, 8 · Tiles columns of B, and k from `begin` to `end` − 1. a(r, k): row g or g + 8 of A, for
// r = 0, 1; b(n, k): column g of tile n. A's numbers are loaded 8 · Steps at a time, the next ones while the current ones are multiplied,
// and the first ones before ready() is called. B's numbers are loaded when they are multiplied. The last group may extend beyond `end`:
// there A is −0 and B must be finite; where B is +0, not even the sign of a zero changes. Lane 4 g + t gets rows g and g + 8 of columns 2 t
// and 2 t + 1 of each tile: d[n][2 r + c].
template <int Steps, int Tiles, class A, class B, class Ready>
__device__ __forceinline__ void add_product(double (&d)[Tiles][4], std::int64_t begin, std::int64_t end, A a, B b, Ready ready) {
  const int t = arch::lane() % 4;
  double here[Steps][4], next[Steps][4];
  const auto load = [&](std::int64_t first) {
    const auto take = [&](auto whole) {
      unrolled<2 * Steps>([&](auto part) {
        constexpr int step = decltype(part)::value / 2, half = decltype(part)::value % 2;
        const std::int64_t k = first + 8 * step + 4 * half + t;
        const bool there = decltype(whole)::value != 0 || k < end;
        unrolled<2>([&](auto r) { next[step][2 * half + decltype(r)::value] = there ? a(decltype(r)::value, k) : -0.0; });
      });
    };
    if (first + 8 * Steps <= end) {
      take(ballast::cuda::index<1>());
    } else {
      take(ballast::cuda::index<0>());
    }
  };
  load(begin);
  ready();
#pragma unroll 1
  for (std::int64_t first = begin; first < end; first += 8 * Steps) {
    unrolled<Steps>([&](auto step) {
      for (int q = 0; q < 4; ++q) here[decltype(step)::value][q] = next[decltype(step)::value][q];
    });
    load(first + 8 * Steps);
    unrolled<Steps>([&](auto step) {
      const std::int64_t k = first + 8 * decltype(step)::value + t;
      unrolled<Tiles>([&](auto n) {
        constexpr int tile = decltype(n)::value;
        const double x[2] = {b(tile, k), b(tile, k + 4)};
        arch::mma_m16n8k8_f64(d[tile], here[decltype(step)::value], x);
      });
    });
  }
}

// Calls use(row, column, x) for a lane's elements of 16 rows and 8 · Tiles columns from (top, left) on.
template <int Tiles, class Use>
__device__ __forceinline__ void each_of_lane(double (&d)[Tiles][4], std::int64_t top, std::int64_t left, Use use) {
  const int g = arch::lane() / 4, t = arch::lane() % 4;
  unrolled<Tiles>([&](auto n) {
    for (int q = 0; q < 4; ++q) use(top + g + q / 2 * 8, left + 8 * decltype(n)::value + 2 * t + q % 2, d[decltype(n)::value][q]);
  });
}

// Computes VᵀC of a chunk of rows and k_narrow_across columns; a warp has 16 of V's columns. The next thread block has the next columns of
// the same rows. 32 rows at a time are in shared memory by columns, with a stride of 36, free of bank conflicts. While they are multiplied,
// the next rows are loaded into registers: a warp loads 32 rows of every eighth column.
template <class S>
__global__ void __launch_bounds__(k_threads) narrow_product_kernel(const __grid_constant__ narrow_product_arguments<S> a) {
  constexpr int tiles = k_narrow_across / 8, warps = k_threads / 32, stride = 36, of_v = k_most_wide / warps,
                of_c = k_narrow_across / warps;
  auto& left = arch::shared_object<double[k_most_wide * stride], struct narrow_left>();
  auto& right = arch::shared_object<double[k_narrow_across * stride], struct narrow_right>();
  const int lane = arch::lane(), warp = arch::warp(), g = lane / 4;
  const int first_across = (a.C[0].columns + k_narrow_across - 1) / k_narrow_across;
  const int across = first_across + (a.C[1].columns + k_narrow_across - 1) / k_narrow_across;
  using real = real_of<S>;
  constexpr int reals = static_cast<int>(k_reals<S>);
  const std::int64_t count = reals * a.rows, width = reals * a.width;
  const std::int64_t chunk = blockIdx.x / across, rows = ((count + a.chunks - 1) / a.chunks + 7) / 8 * 8;
  const std::int64_t begin = chunk * rows, end = begin + rows < count ? begin + rows : count;
  const int position = static_cast<int>(blockIdx.x % across), which = position < first_across ? 0 : 1;
  const int first_column = (which == 0 ? position : position - first_across) * k_narrow_across, top = 16 * warp;
  const auto& of = a.C[which];
  const matrix_of_blocks<S> V(a.V, a.rows);
  const std::int64_t ldc = reals * of.ld;
  const real* const C = reinterpret_cast<const real*>(of.data) + (first_column + warp) * ldc;
  const int columns_of_v = (static_cast<int>(width) - warp + warps - 1) / warps,
            columns_of_c = (of.columns - first_column - warp + warps - 1) / warps;
  real v[of_v], c[of_c];
  const auto load = [&](std::int64_t first) {
    const std::int64_t i = first + lane;
    unrolled<of_v>([&](auto q) {
      v[decltype(q)::value] = i < end && decltype(q)::value < columns_of_v ? V(i, warp + decltype(q)::value * warps) : real(0);
    });
    unrolled<of_c>([&](auto q) {
      c[decltype(q)::value] = i < end && decltype(q)::value < columns_of_c ? C[i + decltype(q)::value * warps * ldc] : real(0);
    });
  };
  double sum[tiles][4] = {};
  load(begin);
#pragma unroll 1
  for (std::int64_t first = begin; first < end; first += 32) {
    unrolled<of_v>([&](auto q) { left[(warp + decltype(q)::value * warps) * stride + lane] = static_cast<double>(v[decltype(q)::value]); });
    unrolled<of_c>(
        [&](auto q) { right[(warp + decltype(q)::value * warps) * stride + lane] = static_cast<double>(c[decltype(q)::value]); });
    __syncthreads();  // the rows are in shared memory
    load(first + 32);
    if (top < width) {
      add_product<4>(
          sum, 0, 32, [&](int r, std::int64_t k) { return left[(top + g + 8 * r) * stride + k]; },
          [&](int n, std::int64_t k) { return right[(8 * n + g) * stride + k]; }, [] {});
    }
    __syncthreads();  // the rows have been read
  }
  const int before = which == 0 ? 0 : a.C[0].columns;
  double* const to = a.parts + (chunk * (a.C[0].columns + a.C[1].columns) + before) * width;
  each_of_lane(sum, top, first_column, [&](std::int64_t i, std::int64_t j, double x) {
    if (i < width && j < of.columns) to[i + j * width] = x;
  });
}

// Computes op(T) W for `Columns` columns; a warp has 16 rows of the result. With k_apply_t_few columns W comes as the sums of chunks,
// otherwise complete. The stride of W's columns in shared memory is k_most_wide + 4.
template <class S, int Columns>
__global__ void __launch_bounds__(k_threads) apply_t_kernel(const __grid_constant__ apply_t_arguments<S> a) {
  constexpr int stride = k_most_wide + 4, each = Columns * k_most_wide / k_threads, parts = k_threads / k_most_wide, together = 8;
  auto& W = arch::shared_object<double[Columns * stride], struct turned_columns>();
  const int i = static_cast<int>(threadIdx.x) % k_most_wide, part = static_cast<int>(threadIdx.x) / k_most_wide;
  using real = real_of<S>;
  const int width = static_cast<int>(k_reals<S>) * a.width;
  real* const whole = reinterpret_cast<real*>(a.W);
  const std::int64_t left = std::int64_t{blockIdx.x} * Columns, size = width * a.columns;
  const auto gather = [&] {
    double sum[each] = {};
    if constexpr (Columns == k_apply_t_few) {
#pragma unroll 1
      for (std::int64_t first = 0; first < a.chunks; first += together) {
        double x[each][together];
        unrolled<each * together>([&](auto e) {
          constexpr int column = decltype(e)::value / together, q = decltype(e)::value % together;
          const std::int64_t j = left + part + parts * column;
          const bool there = i < width && j < a.columns && first + q < a.chunks;
          x[column][q] = there ? a.parts[(first + q) * size + i + j * width] : 0;
        });
        unrolled<each * together>([&](auto e) {
          constexpr int column = decltype(e)::value / together, q = decltype(e)::value % together;
          sum[column] += x[column][q];
        });
      }
    } else {
      unrolled<each>([&](auto column) {
        const std::int64_t j = left + part + parts * decltype(column)::value;
        sum[decltype(column)::value] = i < width && j < a.columns ? static_cast<double>(whole[i + j * width]) : 0;
      });
    }
    unrolled<each>([&](auto column) { W[(part + parts * decltype(column)::value) * stride + i] = sum[decltype(column)::value]; });
    __syncthreads();  // W is in shared memory
  };
  const int g = arch::lane() / 4, top = 16 * arch::warp();
  double d[Columns / 8][4] = {};
  // Rows outside T are replaced by the last row; their results are not stored.
  const int row[2] = {top + g < width ? top + g : width - 1, top + g + 8 < width ? top + g + 8 : width - 1};
  // op(T) is zero elsewhere. The rows of W are loaded in groups of 64, which end with the column.
  const int begin = a.transposed || top >= width ? 0 : top / 64 * 64;
  const int end = top >= width ? 0 : a.transposed && top + 16 < width ? top + 16 : width;
  const auto element_of_t = [&](std::int64_t k, std::int64_t r) {
    if constexpr (is_complex<S>) {
      const matrix_of_blocks<S> T(a.T, a.width);
      return a.transposed ? T(k, r) : T(r, k);
    } else {
      const std::int64_t along = a.transposed ? 1 : a.width, across = a.transposed ? a.width : 1;
      return a.T[k * along + r * across];
    }
  };
  add_product<8>(
      d, begin, end, [&](int r, std::int64_t k) { return static_cast<double>(element_of_t(k, row[r])); },
      [&](int n, std::int64_t k) { return W[(8 * n + g) * stride + k]; }, gather);
  each_of_lane(d, top, left, [&](std::int64_t r, std::int64_t j, double x) {
    if (r < width && j < a.columns) whole[size + r + j * width] = static_cast<real>(x);
  });
}

// Computes C − V W for k_threads / 2 rows and k_subtract_across columns; a warp has 16 of the rows. The stride of W's columns in shared
// memory is k_most_wide + 4.
template <class S>
__global__ void __launch_bounds__(k_threads) narrow_subtract_kernel(const __grid_constant__ narrow_subtract_arguments<S> a) {
  constexpr int tiles = k_subtract_across / 8, stride = k_most_wide + 4, parts = k_threads / k_most_wide, each = k_subtract_across / parts;
  auto& W = arch::shared_object<double[k_subtract_across * stride], struct narrow_columns>();
  const int g = arch::lane() / 4, across = (a.columns + k_subtract_across - 1) / k_subtract_across;
  const int left = static_cast<int>(blockIdx.x % across) * k_subtract_across;
  const std::int64_t top = blockIdx.x / across * (k_threads / 2) + 16 * arch::warp();
  const int k = static_cast<int>(threadIdx.x) % k_most_wide, part = static_cast<int>(threadIdx.x) / k_most_wide;
  using real = real_of<S>;
  constexpr int reals = static_cast<int>(k_reals<S>);
  const std::int64_t rows = reals * a.rows, ldc = reals * a.ldc;
  const int width = reals * a.width;
  const real* const of_w = reinterpret_cast<const real*>(a.W);
  real* const C = reinterpret_cast<real*>(a.C);
  real w[each];
  unrolled<each>([&](auto q) {
    const int j = left + part + parts * decltype(q)::value;
    w[decltype(q)::value] = k < width && j < a.columns ? of_w[k + std::int64_t{j} * width] : real(0);
  });
  double d[tiles][4];
  each_of_lane(d, top, left,
               [&](std::int64_t i, std::int64_t j, double& x) { x = i < rows && j < a.columns ? static_cast<double>(C[i + j * ldc]) : 0; });
  const matrix_of_blocks<S> V(a.V, a.rows);
  const std::int64_t row[2] = {top + g < rows ? top + g : rows - 1, top + g + 8 < rows ? top + g + 8 : rows - 1};
  add_product<8>(
      d, 0, width, [&](int r, std::int64_t l) { return -static_cast<double>(V(row[r], l)); },
      [&](int n, std::int64_t l) { return W[(8 * n + g) * stride + l]; },
      [&] {
        unrolled<each>([&](auto q) { W[(part + parts * decltype(q)::value) * stride + k] = static_cast<double>(w[decltype(q)::value]); });
        __syncthreads();  // W is in shared memory
      });
  each_of_lane(d, top, left, [&](std::int64_t i, std::int64_t j, double x) {
    if (i < rows && j < a.columns) C[i + j * ldc] = static_cast<real>(x);
  });
}

}  // namespace ballast::qr::cuda
