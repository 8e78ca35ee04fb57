// Applies a block reflector to a few columns by sums over slabs of V.
// Layer: backend (host), over kernels<S>.
#pragma once

#include <algorithm>

#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/checks/slabs.hpp"
#include "qr/contract.hpp"

namespace ballast::qr::host {

// tz ← T z, or Tᴴ z.
template <class S>
void multiply_t(const block_reflector<S>& H, bool transposed, const wide_of<S>* z, wide_of<S>* tz) {
  const index w = H.width;
  for (index i = 0; i < w; ++i) {
    wide_of<S> sum = 0;
    for (index j = transposed ? 0 : i; j < (transposed ? i + 1 : w); ++j)
      sum += times(static_cast<wide_of<S>>(transposed ? conjugate(H.T[j + i * w]) : H.T[i + j * w]), z[j]);
    tz[i] = sum;
  }
}

// C ← H C or Hᴴ C for a few columns; C is H.rows × columns, the sums are in double.
template <class S, class T>
void apply_narrow(const kernels<S>& arithmetic, int threads, const block_reflector<S>& H, bool transposed, index columns, T* C, index ldc) {
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  const index w = H.width;
  const index tasks = slabs(H);
  const index size = w * columns;
  const auto load = [&](const slab<S>& part, core::vector<wide_of<S>>& y) {
    y.resize(at(columns * part.rows));
    for (index q = 0; q < columns; ++q) {
      for (index i = 0; i < part.rows; ++i) y[at(i + q * part.rows)] = static_cast<wide_of<S>>(C[part.top + i + q * ldc]);
    }
  };
  core::vector<wide_of<S>> partial(at(tasks * size), 0.0), z(at(size), 0.0), tz(at(size), 0.0);
  core::parallel_for(threads, tasks, [&](index t, int) {
    const slab<S> part = slab_of(H, t);
    core::vector<wide_of<S>> y;
    load(part, y);
    for (index q = 0; q < columns; q += 4)
      arithmetic.dot(part.rows, w, part.X, part.ld, static_cast<int>(std::min<index>(4, columns - q)), y.data() + q * part.rows, part.rows,
                     partial.data() + t * size + q * w, w);
  });
  for (std::size_t i = 0; i < partial.size(); ++i) z[i % z.size()] += partial[i];
  for (index q = 0; q < columns; ++q) multiply_t(H, transposed, z.data() + q * w, tz.data() + q * w);
  core::parallel_for(threads, tasks, [&](index t, int) {
    const slab<S> part = slab_of(H, t);
    core::vector<wide_of<S>> y;
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
