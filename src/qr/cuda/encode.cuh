// What protects the input of a factorization, in one pass over it: the checksum columns of every block, the certificate's product, and the
// copy to go back to. Layer: backend "cuda" of QR, device code. docs/design/qr.md ("Reading twice") says why each has loads of its own.
#pragma once

#include <cmath>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/checks.cuh"

namespace ballast::qr::cuda {

// Blocks of threads first over rows, k_block_rows each, then over blocks of columns. The three loads of an element are instructions of
// their own, and only the first one goes to memory.
template <class S>
__global__ void __launch_bounds__(k_threads) encode_kernel(const __grid_constant__ encode_arguments<S> a) {
  constexpr int vectors = 3, together = 4;  // loads of each kind that wait for memory at the same time
  auto& several = arch::shared_object<double[k_row_parts - 1][vectors][k_block_rows], struct encoded_parts>();
  const std::int64_t slabs = row_blocks(a.rows), b = blockIdx.x / slabs;
  const column_range here = range_of(a.blocks, b);
  const row_part own;
  const std::int64_t i = blockIdx.x % slabs * k_block_rows + own.row;
  double sum[vectors] = {};
  for (int first = own.part; i < a.rows && first < here.width; first += together * k_row_parts) {
    S columns[together], product[together], copy[together];
    const auto load = [&](S(&to)[together]) {
      ballast::cuda::unrolled<together>([&](auto q) {
        const int l = first + decltype(q)::value * k_row_parts;
        to[decltype(q)::value] = l < here.width ? arch::load_streaming(a.X + i * a.row_stride + (here.first + l) * a.column_stride) : S(0);
      });
    };
    load(columns);
    load(product);
    if (a.copy != nullptr) load(copy);
    ballast::cuda::unrolled<together>([&](auto q) {
      constexpr int n = decltype(q)::value;
      const int l = first + n * k_row_parts;
      if (l >= here.width) return;
      const std::int64_t j = here.first + l;
      const int shift = a.shifts != nullptr ? a.shifts[j] : 0;
      // Rounded as the data are: below the normal numbers that loses digits.
      const auto worked_on = [&](S x) { return static_cast<double>(shift != 0 ? std::ldexp(x, shift) : x); };
      const double x = worked_on(columns[n]);
      sum[0] += x * a.z[j];
      sum[1] += x * a.z[j + a.ldz];
      sum[2] += worked_on(product[n]) * a.z[j + 2 * a.ldz];
      if (a.copy != nullptr) a.copy[i + j * a.rows] = copy[n];
    });
  }
  add_parts(own, sum, several);
  if (i >= a.rows || own.part > 0) return;
  a.to[i + 2 * b * a.rows] = static_cast<S>(sum[0]);
  a.to[i + (2 * b + 1) * a.rows] = static_cast<S>(sum[1]);
  a.parts[i + b * a.rows] = sum[2];
}

}  // namespace ballast::qr::cuda
