// Applies Q of a factorization to columns under protection, and solves with R: the steps of ormqr, orgqr and gels.
// Layer: algorithm (driver), backend-free.
#pragma once

#include <limits>
#include <memory>
#include <span>

#include "abft/attempt.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

template <class S>
class orthogonal_factor {
 public:
  // V: m × count reflectors (on.works_on(V)) and their tau.
  orthogonal_factor(const context& run, engine<S>& on, const matrix_view<const S>& V, const S* tau);

  // result ← op(Q) X for `result.columns` columns. result: m rows, on.works_on(result), apart from X. The first call computes the factors
  // T; the checks of the blocks cover them. Every block is verified. Call run.seen.uncorrectable() before using the result.
  void apply(bool transposed, const operand<S>& X, const matrix_view<S>& result);

  // The two steps of it, for a caller who divides the columns: prepare() once, then apply_to() for disjoint ranges, also in several calls.
  // A column's result depends on its range alone.
  struct range {
    index first, width;  // width ≤ most_columns()
  };
  // `columns`: of all ranges together, if that is known.
  void prepare(bool transposed, index columns = std::numeric_limits<index>::max());
  void apply_to(bool transposed, const operand<S>& X, const matrix_view<S>& result, std::span<const range> ranges);
  index most_columns() const { return work_->most_columns; }

 private:
  void apply_block(applied_block<S>& X, index task, index tasks, index first) const;

  const context& run_;
  const index m_;
  std::unique_ptr<applier<S>> work_;
  bool protected_ = false, formed_ = false;
};

// to ← from · 2^(rows_i + columns_j), compared with another reading of `from`, and repeated if they differ. Null: no shifts.
template <class S>
void copy_verified(const context& run, engine<S>& on, const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows = nullptr,
                   const int* columns = nullptr);

// to ← the conjugate of `from`, verified in the same way. `upper`: elements below the diagonal become 0.
template <class S>
void conjugate_verified(const context& run, engine<S>& on, const matrix_view<const S>& from, const matrix_view<S>& to, bool upper = false);

// X ← U⁻¹ B or U⁻ᴴ B. Verifies each column: compares its residual with the rounding bound. Operands as in engine::solve.
template <class S>
void solve_triangle(const context& run, engine<S>& on, bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B,
                    const matrix_view<S>& X);

}  // namespace ballast::qr
