// Slabs of rows of V in host memory, and the checkpoint of V: three weighted sums and the squared norm of every column.
// Layer: algorithm, over kernels<S>.
// Source: P. Du et al., 2011, §6.
#pragma once

#include <algorithm>

#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "qr/arithmetic/kernels.hpp"

namespace ballast::qr {

// A fixed size, so that sums do not depend on the number of threads. A slab stays in a core's cache while several sums pass over it.
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

// Computes c₁ = Σv, c₂ = Σwv, c₃ = Σw²v and ‖v‖² of each column over one slab (4 × width), the v being real components. `weights`: one for
// each component of a column of V.
template <class S>
void checkpoint_slab(const kernels<S>& arithmetic, index width, const slab<S>& part, const double* weights, double* sums) {
  std::fill_n(sums, 4 * width, 0.0);
  arithmetic.moments(part.rows, width, part.X, part.ld, weights + k_reals<S> * part.top, sums, width);
}

// Computes the same sums over all of V.
template <class S>
void checkpoint_of(const kernels<S>& arithmetic, int threads, const block_reflector<S>& H, const double* weights,
                   core::vector<double>& sums) {
  const index size = 4 * H.width, tasks = slabs(H);
  core::vector<double> partial(static_cast<std::size_t>(tasks * size));
  core::parallel_for(threads, tasks,
                     [&](index t, int) { checkpoint_slab(arithmetic, H.width, slab_of(H, t), weights, partial.data() + t * size); });
  sums.assign(static_cast<std::size_t>(size), 0.0);
  for (std::size_t i = 0; i < partial.size(); ++i) sums[i % sums.size()] += partial[i];
}

// Copies V1 with its ones and zeros written out (width × width) from the panel's storage.
template <class S>
void copy_triangle(index width, const S* panel, index ld, S* V1) {
  for (index j = 0; j < width; ++j) {
    for (index i = 0; i < width; ++i) V1[i + j * width] = i < j ? S(0) : i == j ? S(1) : panel[i + j * ld];
  }
}

}  // namespace ballast::qr
