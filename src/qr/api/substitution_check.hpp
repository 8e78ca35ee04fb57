// The check of a back substitution on ranks.
// Layer: algorithm, over columns.hpp. docs/design/distributed.md, "QR of columns" and "QR on a grid".
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/at.hpp"
#include "qr/api/columns.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr {

// Checks X = R⁻¹ Y by Σ_i a_i Y_i = Σ_j (aᵀR)_j X_j for random real a, for each column. R, Y and X are read where they lie when the
// substitution has ended. So it covers what the substitution reads only as copies: blocks of R and parts of X that other ranks sent, and Y
// as it changes. Sums are in double.
template <class S>
class substitution_check {
 public:
  using wide = wide_of<S>;
  // Sums, and the sums of the sizes of their terms.
  struct sums {
    std::vector<wide> values;
    std::vector<double> sizes;
  };

  // rows: the numbers of this rank's rows of Y, ascending.
  substitution_check(index n, std::span<const index> rows) : n_(n), rows_(rows.begin(), rows.end()) {
    for (const index i : rows_) a_.push_back(random_signed(k_rank_stream, static_cast<std::uint64_t>(i)));
  }

  // This rank's part of (aᵀR)_j for its columns, whose numbers are `columns`; R has its rows, with anything below the diagonal.
  sums of_r(const matrix_view<const S>& R, std::span<const index> columns) const {
    sums made = none(R.columns);
    for (index j = 0; j < R.columns; ++j)
      for (std::size_t i = 0; i < rows_.size() && rows_[i] <= columns[core::at(j)]; ++i)
        add(made, j, a_[i], static_cast<wide>(R(static_cast<index>(i), j)));
    return made;
  }

  // This rank's part of Σ_j g_j X_j − Σ_i a_i Y_i for each column; g: all n of (aᵀR)_j. X and Y have its rows below n.
  sums of_solution(const sums& g, const matrix_view<const S>& X, const matrix_view<const S>& Y) const {
    sums made = none(X.columns);
    for (index j = 0; j < X.columns; ++j) {
      for (std::size_t i = 0; i < rows_.size() && rows_[i] < n_; ++i) {
        const wide x = static_cast<wide>(X(static_cast<index>(i), j));
        made.values[core::at(j)] += times(g.values[core::at(rows_[i])], x);
        made.sizes[core::at(j)] += g.sizes[core::at(rows_[i])] * size_of_number(x);
        add(made, j, -a_[i], static_cast<wide>(Y(static_cast<index>(i), j)));
      }
    }
    return made;
  }

  // The finding of the sums over all rows. Every solve of a triangle, and every rounding of Y to S, errs like a substitution of n columns
  // in S.
  abft::finding judge(rank_call<S>& here, const sums& all) const {
    abft::finding worst;
    if (!here.is_protected()) return worst;
    for (std::size_t j = 0; j < all.values.size(); ++j) {
      if (!std::isfinite(all.sizes[j])) continue;  // the sums have left the range of numbers
      const index number = static_cast<index>(j);
      const abft::finding found = compare(here.run(), {number, static_cast<index>(all.values.size()), 0, 1}, size_of_number(all.values[j]),
                                          thresholds::solve<real_of<S>>(all.sizes[j], n_), "qr.substitution", number);
      if (!passes(found) && passes(worst)) worst = found;
    }
    return worst;
  }

  static sums none(index count) { return {std::vector<wide>(core::at(count), wide(0)), std::vector<double>(core::at(count), 0.0)}; }

 private:
  static void add(sums& to, index j, double a, const wide& value) {
    to.values[core::at(j)] += a * value;
    to.sizes[core::at(j)] += std::abs(a) * size_of_number(value);
  }

  index n_;
  std::vector<index> rows_;
  std::vector<double> a_;
};

}  // namespace ballast::qr
