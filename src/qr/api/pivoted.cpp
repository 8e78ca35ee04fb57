// geqp3 and gelsy: the order of the columns, the protected factorization in that order, the check of the pivots, and the solution of least
// norm.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp and docs/design/qr-pivoting.md.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "core/at.hpp"
#include "qr/api/least_squares.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/out_of_core_call.hpp"
#include "qr/host/pivots.hpp"
#include "run/attempt.hpp"

namespace ballast::qr {

using core::at;

namespace {

// The factors of A(:, order).
template <class S>
class pivoted_factorization {
 public:
  // A: m × n, where the engine can read it. F: m × n, where the engine works. With `width` > 0 (pieces) both are in host memory. On a host
  // F may be A. tau: as in engine::make_factorizer.
  pivoted_factorization(operation_call<S>& here, const matrix_view<const S>& A, const matrix_view<S>& F, S* tau, index width)
      : here_(here),
        A_(A),
        F_(F),
        tau_(tau),
        width_(width),
        in_place_(F.data == A.data),
        on_device_(here.run.which == backend::cuda && width == 0),
        order_(at(A.columns)) {
    if (on_device_) {
      placed_ = owned<S>(*here.on, A.rows, A.columns);
      P_ = placed_.view;
    } else {
      P_ = memory_.emplace(A.rows, A.columns).view;
    }
  }

  // After an uncorrectable fault with protection::correct, and after an exception, A holds what it held, if F is A.
  void run(std::span<index> pivots) {
    try {
      run::attempt(here_.seen, here_.how.protection, "qr.pivot", 0, [&](int) { return once(pivots); });
    } catch (...) {
      give_back();
      throw;
    }
    if (here_.lost()) give_back();
  }

  // R (min(m, n) × n) in host memory; valid after run().
  matrix_view<const S> r() {
    if (!on_device_) return own_r();
    if (!copied_r_) {
      copied_r_.emplace(own_r().rows, own_r().columns);
      copy_verified<S>(here_.run, *here_.on, own_r(), copied_r_->view);
      here_.on->wait();
    }
    return copied_r_->view;
  }
  // A holds no Inf and no NaN.
  bool finite() const { return finite_; }

 private:
  // One attempt. Returns nothing if the factorization failed for good.
  std::optional<abft::finding> once(std::span<index> pivots) {
    give_back();
    finite_ = scan();
    if (!finite_) {
      std::iota(order_.begin(), order_.end(), index{0});
      return factor_in_order(pivots);
    }
    choose(order_, false);
    const std::optional<abft::finding> seen = factor_in_order(pivots);
    if (!seen || seen->word == abft::k_pass || !std::isfinite(seen->residual)) return seen;
    // R breaks the rule. If the same order is chosen again, no fault chose it, and if the plain choice is another one, its method did.
    give_back();
    core::vector<index> again(order_.size()), plain(order_.size());
    choose(again, false);
    if (again != order_) return seen;
    choose(plain, true);
    if (plain == order_) return seen;
    order_ = std::move(plain);
    return factor_in_order(pivots);
  }

  // Operands in the host's memory, from which the engine computes in pieces, are the host's for all but the factorization.
  void choose(std::span<index> order, bool plainly) {
    if (width_ > 0) return host::choose_pivots<S>(here_.run, A_, order, plainly);
    here_.on->choose_pivots(A_, order, plainly);
  }
  void place() {
    if (width_ > 0) return host::copy_columns<S>(here_.run, A_, order_, P_, false);
    here_.on->permute_columns(A_, order_, P_);
  }
  index first_moved(std::span<const index> order) {
    return width_ > 0 ? host::first_moved<S>(here_.run, A_, order, P_) : here_.on->first_moved(A_, order, P_);
  }

  // Factors A in the order that was chosen, and verifies it.
  std::optional<abft::finding> factor_in_order(std::span<index> pivots) {
    const bool checked = here_.how.protection != protection::off;
    // A number that is no column must not become an address.
    if (const index bad = host::first_repeated(order_); bad >= 0) return failed("qr.permutation", bad);
    place();
    std::copy(order_.begin(), order_.end(), pivots.begin());
    if constexpr (inject::active_injector::enabled)
      here_.injector.strike(site::permutation, {0, 1, 0, 1}, pivots.data(), static_cast<index>(pivots.size()));
    if (checked) {
      here_.seen.checked(1);
      index wrong = host::first_repeated(pivots);
      if (wrong < 0) wrong = first_moved(pivots);
      if (wrong >= 0) return failed("qr.permutation", wrong);
    }
    if (const index wrong = factor(); wrong >= 0) return failed("qr.permutation", wrong);
    if (here_.lost()) return std::nullopt;
    if (!checked) return abft::finding{};
    return finite_ ? verify() : confirm();
  }

  static abft::finding failed(const char* check, index column) {
    return {.word = abft::k_fail, .residual = std::numeric_limits<double>::quiet_NaN(), .index = column, .check = check};
  }

  // Returns whether X is finite, or its upper triangle.
  bool finite_on_device(const matrix_view<const S>& X, bool upper) const {
    core::vector<int> exponents(at(X.columns));
    here_.on->exponents(X, upper, nullptr, exponents.data());
    here_.on->wait();
    return std::find(exponents.begin(), exponents.end(), abft::k_odd_column) == exponents.end();
  }

  // Returns whether A is finite. A look that says no is repeated.
  bool scan() const {
    const auto look = [&] {
      if (on_device_) return finite_on_device(A_, false);
      for (index j = 0; j < A_.columns; ++j) {
        S sum = 0;  // NaN if the column holds Inf or NaN
        for (index i = 0; i < A_.rows; ++i) sum += A_(i, j) - A_(i, j);
        if (sum != S(0)) return false;
      }
      return true;
    };
    return look() || look();
  }

  // Returns a column of P that its copy, from which a matrix beyond the device's memory is computed, does not have; −1 if there is none.
  index factor() {
    engine<S>& on = *here_.on;
    changed_ = true;
    if (!on_device_) {
      core::vector<index> same(order_.size());
      std::iota(same.begin(), same.end(), index{0});
      host::copy_columns<S>(here_.run, P_, same, F_, false);
      // In memory the checks of the factorization read P itself.
      if (width_ > 0 && here_.how.protection != protection::off) {
        if (const index wrong = host::first_moved<S>(here_.run, P_, same, F_); wrong >= 0) return wrong;
      }
    } else {
      on.copy(P_, F_);
    }
    if (width_ > 0) {
      out_of_core<S>(here_.run, on, A_.rows, width_).factor(here_.plan.scheme, F_, tau_);
    } else {
      factorization<S>(here_.run, on, here_.plan.scheme, F_, tau_, P_).run();
    }
    on.wait();
    copied_r_.reset();
    return -1;
  }

  // R where it was computed.
  matrix_view<const S> own_r() const { return F_.block(0, 0, std::min(A_.rows, A_.columns), A_.columns); }

  abft::finding verify() const {
    const pivot_sums sums = width_ > 0 ? host::measure_pivots<S>(here_.run, own_r(), A_.rows) : here_.on->measure_pivots(own_r(), A_.rows);
    here_.seen.checked(1);
    abft::finding seen{.residual = sums.residual, .threshold = sums.threshold, .index = sums.column, .check = "qr.pivot"};
    seen.word = abft::verify(sums.residual, abft::guarded_threshold(sums.threshold));
    return seen;
  }

  // R of a matrix with Inf or NaN has such numbers, too. If it has none, a fault struck both looks at A.
  abft::finding confirm() const {
    here_.seen.checked(1);
    const matrix_view<const S> R = own_r();
    if (on_device_) return finite_on_device(R, true) ? failed("qr.pivot", -1) : abft::finding{};
    for (index j = 0; j < R.columns; ++j) {
      for (index i = 0; i < std::min(j + 1, R.rows); ++i) {
        if (!is_finite(R(i, j))) return {};
      }
    }
    return failed("qr.pivot", -1);
  }

  // Brings A back where F is A.
  void give_back() {
    if (changed_ && in_place_) host::copy_columns<S>(here_.run, P_, order_, F_, true);
    changed_ = false;
  }

  operation_call<S>& here_;
  const matrix_view<const S> A_;
  const matrix_view<S> F_;
  S* const tau_;
  const index width_;
  const bool in_place_, on_device_;
  std::optional<host_matrix<S>> memory_;  // holds P on a host
  owned<S> placed_;                       // and on a device
  matrix_view<S> P_;                      // A(:, order)
  core::vector<index> order_;
  bool finite_ = true, changed_ = false;
  std::optional<host_matrix<S>> copied_r_;  // R from a device
};

// NumPy's: singular values up to eps · max(m, n) of the largest are rounding.
template <class S>
double default_rcond(index m, index n) {
  return 2 * abft::unit_roundoff<real_of<S>> * static_cast<double>(std::max(m, n));
}

void check_pivots(std::span<const index> pivots, index columns, std::string_view token) {
  if (static_cast<index>(pivots.size()) != columns)
    throw invalid_argument_error(fmt::format("{}: pivots: expected {} elements, got {}", token, columns, pivots.size()));
  if (pivots.data() == nullptr) throw invalid_argument_error(fmt::format("{}: pivots: expected data, got a null pointer", token));
  if (!in_host_memory(pivots.data()))
    throw invalid_argument_error(fmt::format("{}: pivots: expected host memory, got device memory", token));
}

// Copies the order to the caller, and compares the copy.
void store_order(const context& run, std::span<const index> order, std::span<index> pivots) {
  run::attempt(run.seen, run.how.protection, "qr.store", 0, [&](int) {
    abft::finding judged;
    std::copy(order.begin(), order.end(), pivots.begin());
    if (run.how.protection == protection::off) return judged;
    run.seen.checked(1);
    if (!std::equal(order.begin(), order.end(), pivots.begin())) judged.word = abft::k_fail;
    return judged;
  });
}

// Returns rank_of() from two readings of R that agree.
template <class S>
host::triangle_rank rank_twice(operation_call<S>& here, const matrix_view<const S>& R, double rcond) {
  host::triangle_rank made;
  run::attempt(here.seen, here.how.protection, "qr.rank", 0, [&](int) {
    abft::finding judged;
    made = host::rank_of<S>(R, rcond);
    if (here.how.protection == protection::off) return judged;
    const host::triangle_rank again = host::rank_of<S>(R, rcond);
    here.seen.checked(1);
    if (again.rank != made.rank || abft::word_of(again.condition) != abft::word_of(made.condition)) judged.word = abft::k_fail;
    return judged;
  });
  return made;
}

// The X of least norm with R(0 … r − 1, :) X = C(0 … r − 1, :), by QR of the conjugate transpose of the trapezoid:
// R(0 … r − 1, :)ᴴ = Z U, X = Z U⁻ᴴ C. R: on and above the diagonal, where the engine works.
template <class S>
void solve_trapezoid(operation_call<S>& here, const matrix_view<const S>& R, index r, const matrix_view<const S>& C,
                     const matrix_view<S>& X) {
  engine<S>& on = *here.on;
  const index n = R.columns;
  const owned<S> tall(on, n, r), F(on, n, r);
  conjugate_verified<S>(here.run, on, R.block(0, 0, r, n), tall.view.transposed(), true);
  on.copy(tall.view, F.view);
  const std::shared_ptr<S> tau = on.allocate(r);
  factorization<S> made(here.run, on, here.plan.scheme, F.view, tau.get(), tall.view);
  made.run(true);
  if (here.lost()) return;
  orthogonal_factor<S> Z(here.run, on, F.view, tau.get());
  if (here.lost()) return;
  const auto apply = [&](bool transposed, const matrix_view<const S>& Y, const matrix_view<S>& to) { Z.apply(transposed, {Y}, to); };
  const least_squares<S> solved(here, on, apply, n, made.worked_r(), made.shifts(), true, C);
  if (!here.lost()) solved.store(X);
}

// Runs the factorization for geqp3 and factor_pivoted. `to`: where the factors go; A itself, or column-major memory of the host.
template <class S>
void factor_in_order(operation_call<S>& here, const matrix_view<const S>& A, const matrix_view<S>& to, std::span<index> pivots,
                     std::span<S> tau) {
  engine<S>& on = *here.on;
  const index steps = static_cast<index>(tau.size());
  const owned<S> scalars(on, steps, 1);
  core::vector<index> order(pivots.size());
  // Stores what is not in place.
  const auto commit = [&] {
    copy_verified<S>(here.run, on, scalars.view, column_major(on.write(tau).data(), steps, index{1}));
    on.wait();
    if (here.lost()) return;
    store_order(here.run, order, pivots);
    if (!here.lost()) on.commit();
  };
  if (const index width = piece_width(here, A.data, A.rows, A.columns); width > 0) {
    std::optional<host_matrix<S>> F;
    if (to.row_stride != 1) F.emplace(A.rows, A.columns);
    pivoted_factorization<S>(here, A, F ? F->view : to, scalars.view.data, width).run(order);
    if (here.lost()) return;
    if (F) copy_on_host<S>(F->view, to);
    return commit();
  }
  const bool same = to.data == A.data;
  const matrix_view<S> target = same ? on.write(to) : to;
  const matrix_view<const S> near = same ? matrix_view<const S>(target) : on.read(A);
  std::optional<owned<S>> F;
  if (here.run.which == backend::cuda || !on.works_on(target)) F.emplace(on, A.rows, A.columns);
  const matrix_view<S> work = F ? F->view : target;
  pivoted_factorization<S>(here, near, work, scalars.view.data, 0).run(order);
  if (here.lost()) return;
  if (F) copy_verified<S>(here.run, on, work, target);
  commit();
}

}  // namespace

template <class S>
report geqp3_of(const prepared& plan, matrix_view<S> A, std::span<index> pivots, std::span<S> tau, const call& now) {
  check_view(A, "A", plan.token);
  check_tau(tau, std::min(A.rows, A.columns), plan.token);
  check_pivots(pivots, A.columns, plan.token);
  check_apart(A, column_major(tau.data(), std::min(A.rows, A.columns), index{1}), "A and tau", plan.token);
  return run_operation<S>(plan, counted::geqp3, now, A.data, [&](operation_call<S>& here) { factor_in_order<S>(here, A, A, pivots, tau); });
}

template <class S>
report factor_pivoted_of(const prepared& plan, matrix_view<const S> A, matrix_view<S> F, std::span<index> pivots, std::span<S> tau,
                         const call& now) {
  check_view(A, "A", plan.token);
  return run_operation<S>(plan, counted::geqp3, now, A.data, [&](operation_call<S>& here) { factor_in_order<S>(here, A, F, pivots, tau); });
}

namespace {

// The solution of least norm for the first `r` pivots; `top`: C = QᴴB is computed by `Q`.
template <class S>
void solve_in_order(operation_call<S>& here, orthogonal_factor<S>& Q, const matrix_view<const S>& factors, index r,
                    const matrix_view<const S>& B, const matrix_view<S>& X) {
  engine<S>& on = *here.on;
  const auto apply = [&](bool transposed, const matrix_view<const S>& Y, const matrix_view<S>& to) { Q.apply(transposed, {Y}, to); };
  if (r == factors.columns) {
    const moderate<S> triangle(here.run, on, factors.block(0, 0, r, r));
    const least_squares<S> solved(here, on, apply, factors.rows, triangle.view, triangle.shifts, false, B);
    if (!here.lost()) solved.store_solution(X);
    return;
  }
  const owned<S> C(on, factors.rows, B.columns);
  apply(true, B, C.view);
  if (!here.lost()) solve_trapezoid<S>(here, factors, r, C.view.block(0, 0, r, B.columns), X);
}

}  // namespace

template <class S>
report gelsy_of(const prepared& plan, matrix_view<S> A, matrix_view<S> B, std::span<index> pivots, double rcond, index& rank,
                const call& now) {
  const index m = A.rows, n = A.columns, steps = std::min(m, n);
  check_view(A, "A", plan.token);
  check_view(B, "B", plan.token);
  check_pivots(pivots, n, plan.token);
  if (B.rows != std::max(m, n))
    throw invalid_argument_error(fmt::format("{}: B: expected max(m, n) = {} rows, got {}", plan.token.view(), std::max(m, n), B.rows));
  check_apart(A, B, "A and B", plan.token);
  if (!(rcond < 1)) throw invalid_argument_error(fmt::format("{}: rcond: expected a number below 1, got {}", plan.token.view(), rcond));
  const double limit = rcond >= 0 ? rcond : default_rcond<S>(m, n);
  return run_operation<S>(plan, counted::gelsy, now, A.data, [&](operation_call<S>& here) {
    engine<S>& on = *here.on;
    if (piece_width(here, A.data, m, std::max(n, B.columns)) > 0)
      throw unsupported_error(
          fmt::format("{}: expected a matrix that the device's memory holds for gelsy, got a larger one; the backends "
                      "cpu and reference take it",
                      plan.token.view()));
    write_both(on, A, B);
    core::vector<index> order(at(n));
    const owned<S> F(on, m, n), Y(on, n, B.columns);
    const std::shared_ptr<S> tau = on.allocate(steps);
    pivoted_factorization<S> made(here, A, F.view, tau.get(), 0);
    made.run(order);
    if (here.lost()) return;
    const host::triangle_rank found = made.finite() ? rank_twice<S>(here, made.r(), limit) : host::triangle_rank{steps};
    if (here.lost()) return;
    if (found.rank > 0) {
      orthogonal_factor<S> Q(here.run, on, F.view.block(0, 0, m, steps), tau.get());
      if (!here.lost()) solve_in_order<S>(here, Q, F.view, found.rank, B.block(0, 0, m, B.columns), Y.view);
      on.wait();
    }
    if (here.lost()) return;
    // The host brings the rows of the solution back to the order of A's columns.
    const host_matrix<S> solution(n, B.columns), placed(n, B.columns);
    if (found.rank > 0) {
      copy_verified<S>(here.run, on, Y.view, solution.view);
      on.wait();
    } else {
      std::fill_n(solution.view.data, n * B.columns, S(0));
    }
    const matrix_view<const S> by_pivot = matrix_view<const S>(solution.view).transposed();
    run::attempt(here.seen, here.how.protection, "qr.store", 0, [&](int) {
      abft::finding judged;
      host::copy_columns<S>(here.run, by_pivot, order, placed.view.transposed(), true);
      if (here.how.protection == protection::off) return judged;
      here.seen.checked(1);
      judged.index = host::first_moved<S>(here.run, matrix_view<const S>(placed.view).transposed(), order, by_pivot);
      if (judged.index >= 0) judged.word = abft::k_fail;
      return judged;
    });
    if (here.lost()) return;
    copy_verified<S>(here.run, on, F.view, A);
    copy_verified<S>(here.run, on, placed.view, B.block(0, 0, n, B.columns));
    on.wait();
    if (here.lost()) return;
    store_order(here.run, order, pivots);
    if (here.lost()) return;
    rank = found.rank;
    if (made.finite()) here.seen.conditioned(found.condition);
    on.commit();
  });
}

template <class S>
index rank_from(const matrix_view<const S>& F, double rcond) {
  const index steps = std::min(F.rows, F.columns);
  const double limit = rcond >= 0 ? rcond : default_rcond<S>(F.rows, F.columns);
  const auto compute = [&] { return host::rank_of<S>(F.block(0, 0, steps, F.columns), limit).rank; };
  index rank = compute();
  for (index again = compute(); again != rank; again = compute()) rank = again;
  return rank;
}

#define BALLAST_INSTANTIATE(S)                                                                                                \
  template report geqp3_of<S>(const prepared&, matrix_view<S>, std::span<index>, std::span<S>, const call&);                  \
  template report factor_pivoted_of<S>(const prepared&, matrix_view<const S>, matrix_view<S>, std::span<index>, std::span<S>, \
                                       const call&);                                                                          \
  template index rank_from<S>(const matrix_view<const S>&, double);                                                           \
  template report gelsy_of<S>(const prepared&, matrix_view<S>, matrix_view<S>, std::span<index>, double, index&, const call&);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr
