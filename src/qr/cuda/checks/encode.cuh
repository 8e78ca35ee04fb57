// Protects the input of a factorization in one pass over it: computes the checksum columns of every block and the certificate's product,
// and copies the input for restarts.
// Layer: backend "cuda" of QR, device code. docs/design/qr.md ("Reading twice") explains why each of the three has its own loads.
#pragma once

#include <cmath>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/checks/checks.cuh"
#include "qr/cuda/layout/rows.cuh"

namespace ballast::qr::cuda {

// Accumulates both checksums and the product over columns begin … end − 1 for a lane's rows from `row` on, and copies these elements.
// `weights`: three for each column. Shifted: columns count as 2^shift times their value.
template <bool Whole, bool Shifted, class S>
__device__ __forceinline__ void encode_rows(wide_of<S> (&sum)[k_lane_rows<S>][3], const row_groups<const S, k_lane_rows<S>>& X,
                                            const row_groups<S, k_lane_rows<S>>& copy, const double (*weights)[4], const int* shifts,
                                            bool copies, std::int64_t row, int begin, int end) {
  constexpr int rows = k_lane_rows<S>, together = Shifted || !Whole ? 1 : 4;  // loads of so many columns are in flight at the same time
  const auto take = [&](auto count, int first) {
    constexpr int columns_here = decltype(count)::value;
    typename row_groups<S, rows>::group columns[columns_here], product[columns_here], copied[columns_here];
    const auto load = [&](auto& to) {
      ballast::cuda::unrolled<columns_here>(
          [&](auto c) { to[decltype(c)::value] = X.template load<Whole, true>(row, first + decltype(c)::value); });
    };
    load(columns);
    load(product);
    if (copies) load(copied);
    ballast::cuda::unrolled<columns_here>([&](auto c) {
      constexpr int at = decltype(c)::value;
      const int l = first + at;
      // Rounded like the data: below the normal numbers the shift loses digits.
      const auto worked_on = [&](S x) { return widened(Shifted ? shifted_number(x, shifts[l]) : x); };
      for (int h = 0; h < rows; ++h) {
        const wide_of<S> x = worked_on(columns[at].at[h]);
        for (int q = 0; q < 2; ++q) sum[h][q] += times_real(x, weights[l][q]);
        sum[h][2] += times_real(worked_on(product[at].at[h]), weights[l][2]);
      }
      if (copies) copy.template store<Whole>(copied[at], row, l);
    });
  };
  int first = begin;
#pragma unroll 1
  for (; first + together <= end; first += together) take(ballast::cuda::index<together>{}, first);
#pragma unroll 1
  for (; first < end; ++first) take(ballast::cuda::index<1>{}, first);
}

// Thread blocks are numbered first over rows, then over blocks of columns. A lane has k_lane_rows rows; if there are few rows, the warps of
// a block share the columns. The three loads of an element are separate instructions, and only the first one goes to memory.
template <class S>
__global__ void __launch_bounds__(k_threads, k_rows_resident) encode_kernel(const __grid_constant__ encode_arguments<S> a) {
  constexpr int rows = k_lane_rows<S>, warps = k_threads / 32;
  auto& weights = arch::shared_object<double[k_most_wide][4], struct encode_weights>();
  auto& several = arch::shared_object<wide_of<S>[warps][3][rows][32], struct encode_parts>();
  const int sharing = a.sharing, part = arch::warp() % sharing;
  const std::int64_t slabs = encode_blocks<S>(a.rows, sharing), b = blockIdx.x / slabs;
  const column_range here = range_of(a.blocks, b);
  const int w = here.width;
  for (int e = static_cast<int>(threadIdx.x); e < 3 * w; e += k_threads) weights[e % w][e / w] = a.z[here.first + e % w + e / w * a.ldz];
  __syncthreads();  // the weights are in shared memory
  const row_groups<const S, rows> X(a.X + here.first * a.column_stride, a.column_stride, a.rows, w, a.row_stride);
  const bool copies = a.copy != nullptr;
  const row_groups<S, rows> copy(copies ? a.copy + here.first * a.rows : nullptr, a.rows, a.rows, w);
  const std::int64_t top = blockIdx.x % slabs * lane_block<S>(sharing) + arch::warp() / sharing * 32 * rows,
                     row = top + rows * arch::lane();
  const int each = (w + sharing - 1) / sharing, begin = part * each, end = begin + each < w ? begin + each : w;
  wide_of<S> sum[rows][3] = {};
  if (a.shifts != nullptr) {
    encode_rows<false, true>(sum, X, copy, weights, a.shifts + here.first, copies, row, begin, end);
  } else if (X.are_whole(top, 32 * rows) && (!copies || copy.are_whole(top, 32 * rows))) {
    encode_rows<true, false>(sum, X, copy, weights, nullptr, copies, row, begin, end);
  } else {
    encode_rows<false, false>(sum, X, copy, weights, nullptr, copies, row, begin, end);
  }
  add_sharing_warps(sum, sharing, several);
  for (int h = 0; h < rows; ++h) {
    const std::int64_t i = row + h;
    if (i >= a.rows || part > 0) continue;
    for (int q = 0; q < 2; ++q) a.to[i + (2 * b + q) * a.rows] = narrowed<S>(sum[h][q]);
    a.parts[i + b * a.rows] = sum[h][2];
  }
}

}  // namespace ballast::qr::cuda
