// Products of block reflectors with few columns: W = VᵀC, op(T) W and C − V W, which cuBLAS takes 15 µs of the host's time to launch, each
// as long as three launches of a kernel. Layer: backend "cuda" of QR, device code. All are products of doubles on the tensor cores, also
// for floats, in an order that depends on the shape alone. A warp loads what it multiplies as the tensor cores take it, the next rows
// while these are multiplied. What lies outside of a matrix in a direction that is not summed is taken from its last row or column: it
// goes into results that are not stored.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/arguments.hpp"

namespace ballast::qr::cuda {

using ballast::cuda::unrolled;

// By a warp: d += A B for 16 rows of A, 8 · Tiles columns of B, and k from `begin` to `end` − 1. a(r, k): row g or g + 8 of A, for r = 0,
// 1; b(n, k): column g of tile n. Lane 4 g + t gets rows g and g + 8 of columns 2 t and 2 t + 1 of each tile: d[n][2 r + c].
template <class S, int Tiles, class A, class B>
__device__ __forceinline__ void add_product(double (&d)[Tiles][4], std::int64_t begin, std::int64_t end, A a, B b) {
  constexpr int steps = 2;  // of 8 numbers k
  const int t = arch::lane() % 4;
  struct operands {
    S a[steps][4], b[steps][Tiles][2];
  } here, next;
  const auto load = [&](operands& to, std::int64_t first) {
    const auto take = [&](auto whole) {
      unrolled<2 * steps>([&](auto part) {
        constexpr int step = decltype(part)::value / 2, half = decltype(part)::value % 2;
        const std::int64_t k = first + 8 * step + 4 * half + t;
        const bool there = decltype(whole)::value != 0 || k < end;
        unrolled<2>([&](auto r) { to.a[step][2 * half + decltype(r)::value] = there ? a(decltype(r)::value, k) : S(0); });
        unrolled<Tiles>([&](auto n) { to.b[step][decltype(n)::value][half] = there ? b(decltype(n)::value, k) : S(0); });
      });
    };
    if (first + 8 * steps <= end) {
      take(ballast::cuda::index<1>());
    } else {
      take(ballast::cuda::index<0>());
    }
  };
  load(next, begin);
#pragma unroll 1
  for (std::int64_t first = begin; first < end; first += 8 * steps) {
    here = next;
    load(next, first + 8 * steps);
    unrolled<steps>([&](auto step) {
      constexpr int s = decltype(step)::value;
      double x[4];
      for (int q = 0; q < 4; ++q) x[q] = static_cast<double>(here.a[s][q]);
      unrolled<Tiles>([&](auto n) {
        const double y[2] = {static_cast<double>(here.b[s][decltype(n)::value][0]), static_cast<double>(here.b[s][decltype(n)::value][1])};
        arch::mma_m16n8k8_f64(d[decltype(n)::value], x, y);
      });
    });
  }
}

// store(row, column, x) for what a lane has of 16 rows and 8 · Tiles columns from (top, left) on.
template <int Tiles, class Store>
__device__ __forceinline__ void each_of_lane(double (&d)[Tiles][4], std::int64_t top, std::int64_t left, Store store) {
  const int g = arch::lane() / 4, t = arch::lane() % 4;
  unrolled<Tiles>([&](auto n) {
    for (int q = 0; q < 4; ++q) store(top + g + q / 2 * 8, left + 8 * decltype(n)::value + 2 * t + q % 2, d[decltype(n)::value][q]);
  });
}

// VᵀC of a chunk of rows and k_narrow_across columns; a warp has 16 of V's columns. The next block has the next columns of the same rows.
template <class S>
__global__ void __launch_bounds__(k_threads) narrow_product_kernel(const __grid_constant__ narrow_product_arguments<S> a) {
  constexpr int tiles = k_narrow_across / 8;
  const int g = arch::lane() / 4, across = (a.columns + k_narrow_across - 1) / k_narrow_across, top = 16 * arch::warp();
  if (top >= a.width) return;
  const std::int64_t chunk = blockIdx.x / across, rows = ((a.rows + a.chunks - 1) / a.chunks + 7) / 8 * 8;
  const std::int64_t begin = chunk * rows, end = begin + rows < a.rows ? begin + rows : a.rows;
  const int left = static_cast<int>(blockIdx.x % across) * k_narrow_across;
  const S *v[2], *c[tiles];
  unrolled<2>([&](auto r) {
    const int l = top + g + 8 * decltype(r)::value;
    v[decltype(r)::value] = a.V + (l < a.width ? l : a.width - 1) * a.rows;
  });
  unrolled<tiles>([&](auto n) {
    const int l = left + 8 * decltype(n)::value + g;
    c[decltype(n)::value] = a.C + (l < a.columns ? l : a.columns - 1) * a.ldc;
  });
  double sum[tiles][4] = {};
  add_product<S>(
      sum, begin, end, [&](int r, std::int64_t k) { return v[r][k]; }, [&](int n, std::int64_t k) { return c[n][k]; });
  double* const to = a.parts + chunk * a.width * a.columns;
  each_of_lane(sum, top, left, [&](std::int64_t i, std::int64_t j, double x) {
    if (i < a.width && j < a.columns) to[i + j * a.width] = x;
  });
}

// op(T) W for `Columns` columns; a warp has 16 of its rows. Of 8 columns W comes as the sums of chunks, else whole.
template <class S, int Columns>
__global__ void __launch_bounds__(k_threads) turn_kernel(const __grid_constant__ turn_arguments<S> a) {
  constexpr int stride = k_most_wide + 4, each = Columns * k_most_wide / k_threads, parts = k_threads / k_most_wide, together = 8;
  auto& W = arch::shared_object<double[Columns * stride], struct turned_columns>();
  const int thread = static_cast<int>(threadIdx.x), i = thread % k_most_wide, part = thread / k_most_wide;
  const std::int64_t left = std::int64_t{blockIdx.x} * Columns, size = a.width * a.columns;
  double sum[each] = {};
  if constexpr (Columns == k_turn_few) {
#pragma unroll 1
    for (std::int64_t first = 0; first < a.chunks; first += together) {
      double x[each][together];
      unrolled<each * together>([&](auto e) {
        constexpr int column = decltype(e)::value / together, q = decltype(e)::value % together;
        const std::int64_t j = left + part + parts * column;
        const bool there = i < a.width && j < a.columns && first + q < a.chunks;
        x[column][q] = there ? a.parts[(first + q) * size + i + j * a.width] : 0;
      });
      unrolled<each * together>(
          [&](auto e) { sum[decltype(e)::value / together] += x[decltype(e)::value / together][decltype(e)::value % together]; });
    }
  } else {
    unrolled<each>([&](auto column) {
      const std::int64_t j = left + part + parts * decltype(column)::value;
      sum[decltype(column)::value] = i < a.width && j < a.columns ? static_cast<double>(a.W[i + j * a.width]) : 0;
    });
  }
  unrolled<each>([&](auto column) { W[(part + parts * decltype(column)::value) * stride + i] = sum[decltype(column)::value]; });
  __syncthreads();  // W is there
  const int g = arch::lane() / 4, top = 16 * arch::warp();
  if (top >= a.width) return;
  double d[Columns / 8][4] = {};
  const int rows[2] = {top + g < a.width ? top + g : a.width - 1, top + g + 8 < a.width ? top + g + 8 : a.width - 1};
  // Op(T) is zero elsewhere.
  const int begin = a.transposed ? 0 : top, end = a.transposed && top + 16 < a.width ? top + 16 : a.width;
  const auto of_w = [&](int n, std::int64_t k) { return W[(8 * n + g) * stride + k]; };
  if (a.transposed) {
    add_product<double>(
        d, begin, end, [&](int r, std::int64_t k) { return static_cast<double>(a.T[k + rows[r] * a.width]); }, of_w);
  } else {
    add_product<double>(
        d, begin, end, [&](int r, std::int64_t k) { return static_cast<double>(a.T[rows[r] + k * a.width]); }, of_w);
  }
  each_of_lane(d, top, left, [&](std::int64_t row, std::int64_t j, double x) {
    if (row < a.width && j < a.columns) a.W[size + row + j * a.width] = static_cast<S>(x);
  });
}

// C − V W for k_threads / 2 rows and k_narrow_across columns; a warp has 16 of the rows.
template <class S>
__global__ void __launch_bounds__(k_threads) narrow_subtract_kernel(const __grid_constant__ narrow_subtract_arguments<S> a) {
  constexpr int tiles = k_narrow_across / 8;
  const int g = arch::lane() / 4, across = (a.columns + k_narrow_across - 1) / k_narrow_across;
  const int left = static_cast<int>(blockIdx.x % across) * k_narrow_across;
  const std::int64_t top = blockIdx.x / across * (k_threads / 2) + 16 * arch::warp();
  if (top >= a.rows) return;
  const S *v[2], *w[tiles];
  unrolled<2>([&](auto r) {
    const std::int64_t i = top + g + 8 * decltype(r)::value;
    v[decltype(r)::value] = a.V + (i < a.rows ? i : a.rows - 1);
  });
  unrolled<tiles>([&](auto n) {
    const int l = left + 8 * decltype(n)::value + g;
    w[decltype(n)::value] = a.W + std::int64_t{l < a.columns ? l : a.columns - 1} * a.width;
  });
  double d[tiles][4];
  each_of_lane(d, top, left, [&](std::int64_t i, std::int64_t j, double& x) {
    x = i < a.rows && j < a.columns ? static_cast<double>(a.C[i + j * a.ldc]) : 0;
  });
  add_product<S>(
      d, 0, a.width, [&](int r, std::int64_t k) { return -v[r][k * a.rows]; }, [&](int n, std::int64_t k) { return w[n][k]; });
  each_of_lane(d, top, left, [&](std::int64_t i, std::int64_t j, double x) {
    if (i < a.rows && j < a.columns) a.C[i + j * a.ldc] = static_cast<S>(x);
  });
}

}  // namespace ballast::qr::cuda
