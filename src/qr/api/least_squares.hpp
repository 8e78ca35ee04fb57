// Least squares from factors: operands that interleave, powers of two that keep numbers in range, and the triangular solve with R beside
// the application of Q.
// Layer: algorithm (driver), backend-free.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/extent.hpp"
#include "core/function_ref.hpp"
#include "qr/api/operation_call.hpp"
#include "qr/driver/application.hpp"
#include "run/attempt.hpp"

namespace ballast::qr {

// Prepares two operands for writing, as engine::write. Operands that interleave become one piece of memory: with two copies, the second
// copy back would overwrite results of the first with old values.
template <class S>
void write_both(engine<S>& on, matrix_view<S>& A, matrix_view<S>& B) {
  const core::extent<S> of_a = core::extent_of(A), of_b = core::extent_of(B);
  if (of_a.elements == 0 || of_b.elements == 0 || !overlap(of_a, of_b)) {
    A = on.write(A);
    B = on.write(B);
    return;
  }
  S* const low = std::min(of_a.first, of_b.first);
  S* const here = on.write(std::span<S>(low, std::max(of_a.end(), of_b.end()))).data();
  A.data = here + (A.data - low);
  B.data = here + (B.data - low);
}

// engine::exponents from two readings, repeated until both agree: a wrong exponent would scale a column to nothing, or to Inf.
template <class S>
void exponents_twice(const context& run, engine<S>& on, const matrix_view<const S>& X, bool upper, const int* rows,
                     core::vector<int>& found) {
  run::attempt(run.seen, run.how.protection, "qr.scale", 0, [&](int) {
    abft::finding judged;
    on.exponents(X, upper, rows, found.data());
    if (run.how.protection == protection::off) {
      on.wait();
      return judged;
    }
    core::vector<int> again(found.size());
    on.exponents(X, upper, rows, again.data());
    on.wait();
    run.seen.checked(1);
    if (again != found) judged.word = abft::k_fail;
    return judged;
  });
}

// Returns the shifts; null if all are 0, so that as many numbers as a matrix has rows need not be stored or sent.
inline const int* shifts_or_null(const core::vector<int>& shifts) {
  return std::all_of(shifts.begin(), shifts.end(), [](int e) { return e == 0; }) ? nullptr : shifts.data();
}

// R (n × n) with columns of a moderate size: R itself, or a copy of its columns times 2^shifts.
template <class S>
struct moderate {
  moderate(const context& run, engine<S>& on, const matrix_view<const S>& R) : view(R), shifts(static_cast<std::size_t>(R.columns), 0) {
    exponents_twice(run, on, R, true, nullptr, shifts);
    for (int& e : shifts) e = abft::moderating_shift<real_of<S>>(e);
    if (shifts_or_null(shifts) == nullptr) return;
    copy_ = owned<S>(on, R.rows, R.columns);
    copy_verified<S>(run, on, R, copy_.view, nullptr, shifts.data());
    view = copy_.view;
  }
  matrix_view<const S> view;
  core::vector<int> shifts;

 private:
  owned<S> copy_;
};

// Solves a least-squares problem from the factors of A or Aᴴ. Numbers near the ends of the range must not overflow on the way, nor
// underflow: R belongs to A's columns times 2^rows, and right-hand sides of extreme size are scaled by powers of two before, and back
// after.
template <class S>
class least_squares {
 public:
  // result ← Q X, or Qᴴ X. X may have fewer rows than Q; the others are 0.
  using application = core::function_ref<void(bool transposed, const matrix_view<const S>& X, const matrix_view<S>& result)>;

  // `R`: n × n, of columns times 2^rows; `B`: m × k. `on` works on both, and on the operands of Q.
  least_squares(operation_call<S>& here, engine<S>& on, application apply, index m, const matrix_view<const S>& R,
                const core::vector<int>& rows, bool under, const matrix_view<const S>& B)
      : run_(here.run),
        on_(on),
        under_(under),
        rows_(rows),
        columns_(static_cast<std::size_t>(B.columns), 0),
        C_(on_, m, B.columns),
        X_(on_, R.rows, B.columns) {
    const matrix_view<const S> right = under ? B.block(0, 0, R.rows, B.columns) : B;
    const owned<S> scaled = scale(here, right);
    const matrix_view<const S> D = scaled.memory ? scaled.view : right;
    if (here.lost()) return;
    if (under) {
      solve_triangle<S>(here.run, on_, true, R, D, X_.view);
      if (!here.lost()) apply(false, X_.view, C_.view);
    } else {
      apply(true, D, C_.view);
      if (!here.lost()) solve_triangle<S>(here.run, on_, false, R, C_.view.block(0, 0, R.rows, B.columns), X_.view);
    }
  }

  // Stores the solution as gels leaves it in B.
  void store(const matrix_view<S>& B) const {
    copy_verified<S>(run_, on_, C_.view, B, nullptr, shifts_or_null(columns_));
    if (!under_) store_solution(B.block(0, 0, X_.view.rows, B.columns));
  }
  // Stores only X of an overdetermined system.
  void store_solution(const matrix_view<S>& X) const {
    copy_verified<S>(run_, on_, X_.view, X, shifts_or_null(rows_), shifts_or_null(columns_));
  }

 private:
  // Returns a scaled copy of the right-hand sides if one is needed, and sets columns_ to the exponents that reverse the scaling.
  owned<S> scale(operation_call<S>& here, const matrix_view<const S>& right) {
    const int* const rows = under_ ? shifts_or_null(rows_) : nullptr;
    core::vector<int> shifts(columns_.size());
    exponents_twice(here.run, on_, right, false, rows, shifts);
    std::transform(shifts.begin(), shifts.end(), shifts.begin(), abft::product_shift<real_of<S>>);
    std::transform(shifts.begin(), shifts.end(), columns_.begin(), [](int e) { return -e; });
    if (rows == nullptr && shifts_or_null(shifts) == nullptr) return {};
    owned<S> made(on_, right.rows, right.columns);
    copy_verified<S>(here.run, on_, right, made.view, rows, shifts.data());
    return made;
  }

  const context& run_;
  engine<S>& on_;
  const bool under_;
  const core::vector<int>& rows_;
  core::vector<int> columns_;
  const owned<S> C_, X_;  // op(Q) times the right-hand sides, or times X; and X
};

}  // namespace ballast::qr
