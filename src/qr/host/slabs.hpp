// Slabs of rows of V, and a block reflector applied to a few columns by sums over them.
// Layer: backend (host), over kernels<S>.
#pragma once

#include <algorithm>
#include <vector>

#include "core/parallel.hpp"
#include "qr/contract.hpp"
#include "qr/kernels.hpp"

namespace ballast::qr::host {

// Fixed, so that sums do not depend on the threads; a slab stays in a core's cache while several sums pass over it.
inline constexpr index k_slab_rows = 1024;

// Rows top … top + rows − 1 of V: V1, or k_slab_rows rows of V2.
template <class S>
struct slab {
  index top = 0, rows = 0;
  const S* X = nullptr;
  index ld = 0;
};

template <class S>
index slabs(const block_reflector<S>& H) {
  return 1 + (H.rows - H.width + k_slab_rows - 1) / k_slab_rows;
}

template <class S>
slab<S> slab_of(const block_reflector<S>& H, index t) {
  if (t == 0) return {0, H.width, H.V1, H.width};
  const index top = H.width + (t - 1) * k_slab_rows;
  return {top, std::min(k_slab_rows, H.rows - top), H.V2 + (top - H.width), H.ldv};
}

// tz ← T z, or Tᵀ z.
template <class S>
void multiply_t(const block_reflector<S>& H, bool transposed, const double* z, double* tz) {
  const index w = H.width;
  for (index i = 0; i < w; ++i) {
    double sum = 0;
    for (index j = transposed ? 0 : i; j < (transposed ? i + 1 : w); ++j)
      sum += static_cast<double>(transposed ? H.T[j + i * w] : H.T[i + j * w]) * z[j];
    tz[i] = sum;
  }
}

// C ← H C or Hᵀ C for a few columns, C H.rows × columns, summed in double.
template <class S, class T>
void apply_narrow(const kernels<S>& arithmetic, int threads, const block_reflector<S>& H, bool transposed, index columns, T* C, index ldc) {
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  const index w = H.width;
  const index tasks = slabs(H);
  const index size = w * columns;
  const auto load = [&](const slab<S>& part, std::vector<double>& y) {
    y.resize(at(columns * part.rows));
    for (index q = 0; q < columns; ++q) {
      for (index i = 0; i < part.rows; ++i) y[at(i + q * part.rows)] = static_cast<double>(C[part.top + i + q * ldc]);
    }
  };
  std::vector<double> partial(at(tasks * size), 0.0), z(at(size), 0.0), tz(at(size), 0.0);
  core::parallel_for(threads, tasks, [&](index t, int) {
    const slab<S> part = slab_of(H, t);
    std::vector<double> y;
    load(part, y);
    for (index q = 0; q < columns; q += 4)
      arithmetic.dot(part.rows, w, part.X, part.ld, static_cast<int>(std::min<index>(4, columns - q)), y.data() + q * part.rows, part.rows,
                     partial.data() + t * size + q * w, w);
  });
  for (std::size_t i = 0; i < partial.size(); ++i) z[i % z.size()] += partial[i];
  for (index q = 0; q < columns; ++q) multiply_t(H, transposed, z.data() + q * w, tz.data() + q * w);
  core::parallel_for(threads, tasks, [&](index t, int) {
    const slab<S> part = slab_of(H, t);
    std::vector<double> y;
    load(part, y);
    for (index q = 0; q < columns; q += 4)
      arithmetic.subtract(part.rows, w, part.X, part.ld, static_cast<int>(std::min<index>(4, columns - q)), tz.data() + q * w, w,
                          y.data() + q * part.rows, part.rows);
    for (index q = 0; q < columns; ++q) {
      for (index i = 0; i < part.rows; ++i) C[part.top + i + q * ldc] = static_cast<T>(y[at(i + q * part.rows)]);
    }
  });
}

}  // namespace ballast::qr::host
