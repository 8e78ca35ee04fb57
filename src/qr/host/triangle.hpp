// Checks a triangular solve: computes the residuals of a block of right-hand sides by two matrix products in double.
// Layer: backend (host), over kernels<double> and, for complex numbers, kernels<std::complex<double>>.
// Source: docs/design/qr.md; N. Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/aligned_buffer.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "qr/checks/largest.hpp"
#include "qr/contract.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr::host {

// op(U) = U or Uᴴ, n × n, times a power of two that keeps products with it within the range of doubles.
template <class S>
class scaled_triangle {
 public:
  using wide = wide_of<S>;

  scaled_triangle(bool transposed, index n, const S* U, index ldu) : transposed_(transposed), n_(n), U_(U), ldu_(ldu) {
    add_rows();
    // The sum of a row is at least as large as its elements. A large sum may still have moderate elements, or have overflowed.
    if (*std::max_element(rows_.begin(), rows_.end()) <= 0x1p400 && std::none_of(rows_.begin(), rows_.end(), is_nan)) return;
    largest size;
    for (index j = 0; j < n; ++j) size.add(reals(U + j * ldu), k_reals<S> * (j + 1));
    finite_ = std::isfinite(size.value());
    if (!finite_ || !(size.value() > 0x1p400)) return;
    scale_ = std::ldexp(1.0, -std::ilogb(size.value()));
    add_rows();
  }

  bool finite() const { return finite_; }
  double scale() const { return scale_; }
  double row_sum(index i) const { return rows_[static_cast<std::size_t>(i)]; }  // Σ_j |op(U)_ij|
  double diagonal(index i) const { return size_of_number(U_[i + i * ldu_]) * scale_; }

  // Copies columns first … first + width − 1 of op(U) to D, and their absolute values to A, for the rows in which they may be nonzero.
  // Returns the first such row and the number of rows, which is the leading dimension.
  struct rows {
    index first = 0, count = 0;
  };
  rows columns(index first, index width, wide* D, double* A) const {
    const rows taken = transposed_ ? rows{first, n_ - first} : rows{0, first + width};
    std::fill_n(D, taken.count * width, wide(0));
    for (index c = 0; c < (transposed_ ? taken.count : width); ++c) {
      const S* const u = U_ + (first + c) * ldu_;  // a column of U
      if (transposed_) {
        for (index j = 0; j < std::min(width, c + 1); ++j) D[c + j * taken.count] = static_cast<wide>(conjugate(u[first + j])) * scale_;
      } else {
        for (index i = 0; i <= first + c; ++i) D[i + c * taken.count] = static_cast<wide>(u[i]) * scale_;
      }
    }
    for (index i = 0; i < taken.count * width; ++i) A[i] = size_of_number(D[i]);
    return taken;
  }

 private:
  static bool is_nan(double x) { return x != x; }
  void add_rows() {
    rows_.assign(static_cast<std::size_t>(n_), 0.0);
    for (index j = 0; j < n_; ++j) {
      double sum = 0;
      for (index i = 0; i <= j; ++i) {
        const double size = size_of_number(U_[i + j * ldu_]) * scale_;
        transposed_ ? sum += size : rows_[static_cast<std::size_t>(i)] += size;
      }
      if (transposed_) rows_[static_cast<std::size_t>(j)] = sum;
    }
  }

  const bool transposed_;
  const index n_;
  const S* const U_;
  const index ldu_;
  bool finite_ = true;
  double scale_ = 1;
  core::vector<double> rows_;
};

// Compares the residuals of op(U) X = B, n × k, with their rounding bound: computes op(U) X and |op(U)||X| by blocks of columns of op(U).
// Columns of X and B are scaled by powers of two where doubles would overflow. 4n²k flops.
template <class S>
solve_sums residual_of(const kernels<wide_of<S>>& arithmetic, const kernels<double>& of_sizes, bool transposed,
                       const matrix_view<const S>& U, const matrix_view<const S>& X, const matrix_view<const S>& B) {
  using wide = wide_of<S>;
  using real = real_of<S>;
  constexpr index k_width = 64;
  const index n = X.rows, k = X.columns;
  const scaled_triangle<S> triangle(transposed, n, U.data, U.column_stride);
  solve_sums made;
  if (!triangle.finite()) {
    made.odd = true;
    return made;
  }
  core::aligned_buffer<wide> x(n * k), residual(n * k), D(n * k_width);
  core::aligned_buffer<double> minus_size(n * k), size(n * k), A(n * k_width);
  core::vector<double> x_scale(static_cast<std::size_t>(k), 1.0);
  core::vector<char> odd(static_cast<std::size_t>(k), 0);
  for (index c = 0; c < k; ++c) {
    largest most;
    most.add(reals(&X(0, c)), k_reals<S> * n);
    for (index i = 0; i < n; ++i) most.add(reals(&B(i, c)), k_reals<S>);
    double& scale = x_scale[static_cast<std::size_t>(c)];
    odd[static_cast<std::size_t>(c)] = !std::isfinite(most.value());
    if (!std::isfinite(most.value()))
      scale = 0;  // the column does not disturb the products of the others
    else if (most.value() > 0x1p400)
      scale = std::ldexp(1.0, -std::ilogb(most.value()));
    for (index i = 0; i < n; ++i) {
      const index at = i + c * n;
      x[at] = scale == 0 ? wide(0) : static_cast<wide>(X(i, c)) * scale;
      minus_size[at] = -size_of_number(x[at]);
      residual[at] = scale == 0 ? wide(0) : static_cast<wide>(B(i, c)) * scale * triangle.scale();
      size[at] = size_of_number(residual[at]);
    }
  }
  for (index first = 0; first < n; first += k_width) {
    const index width = std::min(k_width, n - first);
    const auto rows = triangle.columns(first, width, D.data(), A.data());
    arithmetic.subtract_product(rows.count, k, width, D.data(), rows.count, x.data() + first, n, residual.data() + rows.first, n);
    of_sizes.subtract_product(rows.count, k, width, A.data(), rows.count, minus_size.data() + first, n, size.data() + rows.first, n);
  }
  // Underflow may take the smallest number from an element of x, from a reciprocal of the diagonal that the solve multiplies by, and from
  // the products, both here (in double) and in the solve. All in units of the smallest normal number, since arithmetic with subnormal
  // numbers is slow.
  constexpr double smallest = std::numeric_limits<real>::min(), step = std::numeric_limits<real>::epsilon();
  constexpr double in_double = std::numeric_limits<double>::min() / smallest;
  for (index c = 0; c < k; ++c) {
    const double scale = x_scale[static_cast<std::size_t>(c)];
    made.odd |= odd[static_cast<std::size_t>(c)] != 0;
    for (index i = 0; i < n && odd[static_cast<std::size_t>(c)] == 0; ++i) {
      const index at = i + c * n;
      const double d = triangle.diagonal(i);
      const double drowned = step * (triangle.row_sum(i) * scale + d * std::abs(x[at]) * (d / triangle.scale()));
      const double threshold = thresholds::solve<real>(size[at], k_reals<S> * n) +
                               4 * static_cast<double>(n) * smallest * (in_double + scale * triangle.scale() + drowned);
      const double off = size_of_number(residual[at]);
      if (!std::isfinite(off) || !std::isfinite(threshold)) {
        made.odd = true;
        break;
      }
      // Compares quotients, since products would underflow for small numbers.
      if (off / threshold <= made.residual / made.threshold) continue;
      made.residual = off;
      made.threshold = threshold;
      made.column = c;
    }
  }
  return made;
}

}  // namespace ballast::qr::host
