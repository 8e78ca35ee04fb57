// Q of a factorization, applied to columns under protection, and the triangular solve: what ormqr, orgqr and gels are made of.
// Layer: algorithm (driver). Backend-free.
#pragma once

#include <memory>

#include "abft/attempt.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

template <class S>
class orthogonal_factor {
 public:
  // V: m × count reflectors (on.works_on it) and their tau.
  orthogonal_factor(const context& run, engine<S>& on, const matrix_view<const S>& V, const S* tau);

  // result ← op(Q) X for `result.columns` columns; result: m rows, on.works_on it, apart from X. The first call forms the factors T, which
  // the check of what they are applied to covers. Every block is verified before it is taken over. Check run.seen.uncorrectable() before
  // the result is used.
  void apply(bool transposed, const operand<S>& X, const matrix_view<S>& result);

 private:
  void apply_block(applied_block<S>& X, index task, index tasks, index first) const;

  const context& run_;
  const index m_;
  std::unique_ptr<applier<S>> work_;
  bool protected_ = false, formed_ = false;
};

// X ← U⁻¹ B or U⁻ᵀ B, verified by columns: the residual against what rounding explains. Operands as in engine::solve.
template <class S>
void solve_triangle(const context& run, engine<S>& on, bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B,
                    const matrix_view<S>& X);

}  // namespace ballast::qr
