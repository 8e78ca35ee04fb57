// gels, and the solution from factors: the triangular solve with R, the application of Q, and powers of two that keep numbers in range.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/extent.hpp"
#include "core/function_ref.hpp"
#include "qr/api/batch.hpp"
#include "qr/api/least_squares.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/out_of_core_call.hpp"
#include "qr/driver/application.hpp"
#include "run/attempt.hpp"

namespace ballast::qr {

namespace {

// Returns a function that applies Q, stored in the host's memory, in pieces.
template <class S>
auto out_of_core_q(out_of_core<S>& parts, const matrix_view<const S>& V, const S* tau) {
  return [&parts, V, tau](bool transposed, const matrix_view<const S>& X, const matrix_view<S>& to) {
    copy_on_host<S>(X, to.block(0, 0, X.rows, X.columns));
    for (index j = 0; j < to.columns; ++j) std::fill(&to(0, j) + X.rows, &to(0, j) + to.rows, S(0));
    parts.apply(transposed, V, V.columns, tau, {.view = to}, to);
  };
}

// gels of a matrix, or of its conjugate transpose `tall`, that passes in pieces. The host solves with R, which it reads once.
template <class S>
rank_estimate gels_out_of_core(operation_call<S>& here, index width, const matrix_view<S>& tall, bool under, const matrix_view<S>& B) {
  const index m = tall.rows, n = tall.columns;
  const host_matrix<S> F(m, n);
  copy_on_host<S>(tall, F.view);
  const std::shared_ptr<S> tau = here.on->allocate(n);
  out_of_core<S> parts(here.run, *here.on, m, width);
  parts.factor(here.plan.scheme, F.view, tau.get());
  if (here.lost()) return {};
  const matrix_view<const S> factors = F.view;
  const std::unique_ptr<engine<S>> near = host::make_engine<S>(here.run);
  const moderate<S> R(here.run, *near, factors.block(0, 0, n, n));
  const rank_estimate seen = estimate_rank<S>(here.run, *near, R.view);
  if (here.lost() || !seen.full()) return seen;
  const least_squares<S> solved(here, *near, out_of_core_q(parts, factors, tau.get()), m, R.view, R.shifts, under, B);
  if (here.lost()) return seen;
  copy_on_host<S>(factors, tall);
  solved.store(B);
  return seen;
}

// gels of a small complex matrix on cuda. The kernels for batches work on copies: A and B stay as they are without full rank, which is
// judged from R as for the other backends.
template <class S>
rank_estimate gels_by_kernels(operation_call<S>& here, matrix_view<S> A, matrix_view<S> B) {
  engine<S>& on = *here.on;
  write_both(on, A, B);
  const bool under = A.rows < A.columns;
  const index n = std::min(A.rows, A.columns);
  const owned<S> F(on, A.rows, A.columns), X(on, B.rows, B.columns);
  copy_verified<S>(here.run, on, A, F.view);
  copy_verified<S>(here.run, on, B, X.view);
  on.wait();  // the kernels run on the caller's stream
  if (here.lost()) return {};
  compute_by_kernels<S>(here, {.plan = here.plan, .what = operation::gels, .A = batch_of(F.view, 1), .C = batch_of(X.view, 1)});
  if (here.lost()) return {};
  // For rank and condition Rᵀ is as good as its conjugate.
  const owned<S> stored(on, n, n);
  copy_verified<S>(here.run, on, under ? F.view.transposed().block(0, 0, n, n) : F.view.block(0, 0, n, n), stored.view);
  const moderate<S> R(here.run, on, stored.view);
  const rank_estimate seen = estimate_rank<S>(here.run, on, R.view);
  if (here.lost() || !seen.full()) return seen;
  copy_verified<S>(here.run, on, F.view, A);
  copy_verified<S>(here.run, on, X.view, B);
  on.wait();
  if (!here.lost()) on.commit();
  return seen;
}

// Reports the condition number, and throws unless R (of A, or of Aᴴ if `under`) has full rank.
template <class S>
void conclude(operation_call<S>& here, const rank_estimate& seen, index n, bool under) {
  if (here.lost()) return;
  here.seen.conditioned(seen.condition);
  if (!seen.full()) throw rank_deficient_error(fmt::format("{}: {}", here.plan.token.view(), deficient_text(seen, n, under)));
}

}  // namespace

template <class S>
rank_estimate gels_in(operation_call<S>& here, matrix_view<S> A, matrix_view<S> B) {
  engine<S>& on = *here.on;
  const bool under = A.rows < A.columns;
  const index width = piece_width(here, A.data, std::max(A.rows, A.columns), std::min(A.rows, A.columns));
  if (width > 0 && in_host_memory(B.data)) return gels_out_of_core(here, width, under ? A.transposed() : A, under, B);
  write_both(on, A, B);
  // The factors of A, or of Aᴴ, are computed in a copy: nothing is committed before all is verified, and A is there for a restart.
  const matrix_view<S> stored = under ? A.transposed() : A;
  const index m = stored.rows, n = stored.columns;
  const bool conjugated = is_complex<S> && under;
  const owned<S> mirrored = conjugated ? owned<S>(on, m, n) : owned<S>();
  if (conjugated) conjugate_verified<S>(here.run, on, stored, mirrored.view);
  if (here.lost()) return {};
  const matrix_view<const S> tall = conjugated ? mirrored.view : stored;
  const owned<S> F(on, m, n);
  on.copy(tall, F.view);
  const std::shared_ptr<S> tau = on.allocate(n);
  factorization<S> made(here.run, on, here.plan.scheme, F.view, tau.get(), tall);
  made.run(true);
  if (here.lost()) return {};
  const rank_estimate seen = estimate_rank<S>(here.run, on, made.worked_r());
  if (here.lost() || !seen.full()) return seen;
  orthogonal_factor<S> Q(here.run, on, F.view, tau.get());
  if (here.lost()) return seen;
  const auto apply = [&](bool transposed, const matrix_view<const S>& X, const matrix_view<S>& to) { Q.apply(transposed, {X}, to); };
  const least_squares<S> solved(here, on, apply, m, made.worked_r(), made.shifts(), under, B);
  if (here.lost()) return seen;
  conjugated ? conjugate_verified<S>(here.run, on, F.view, stored) : copy_verified<S>(here.run, on, F.view, stored);
  solved.store(B);
  on.wait();
  if (!here.lost()) on.commit();
  return seen;
}

template <class S>
report gels_of(const prepared& plan, matrix_view<S> A, matrix_view<S> B, const call& now) {
  check_view(A, "A", plan.token);
  check_view(B, "B", plan.token);
  const index most = std::max(A.rows, A.columns);
  if (B.rows != most)
    throw invalid_argument_error(fmt::format("{}: B: expected max(m, n) = {} rows, got {}", plan.token.view(), most, B.rows));
  check_apart(A, B, "A and B", plan.token);
  return run_operation<S>(plan, counted::gels, now, A.data, [&](operation_call<S>& here) {
    if constexpr (is_complex<S>) {
      if (has_kernels(here, operation::gels, A.rows, A.columns))
        return conclude(here, gels_by_kernels(here, A, B), std::min(A.rows, A.columns), A.rows < A.columns);
    } else {
      if (const auto seen = gels_in_place<S>(here, {.plan = plan, .what = operation::gels, .A = batch_of(A, 1), .C = batch_of(B, 1)}))
        return conclude(here, *seen, std::min(A.rows, A.columns), A.rows < A.columns);
    }
    conclude(here, gels_in(here, A, B), std::min(A.rows, A.columns), A.rows < A.columns);
  });
}

template <class S>
report solve_of(const prepared& plan, matrix_view<const S> F, std::span<const S> tau, matrix_view<const S> B, matrix_view<S> X,
                const call& now) {
  const index m = F.rows, n = F.columns;
  check_view(B, "B", plan.token);
  if (m < n)
    throw invalid_argument_error(fmt::format("{}: expected at least as many rows as columns, got {} × {}", plan.token.view(), m, n));
  if (B.rows != m) throw invalid_argument_error(fmt::format("{}: B: expected {} rows, got {}", plan.token.view(), m, B.rows));
  return run_operation<S>(plan, counted::solve, now, F.data, [&](operation_call<S>& here) {
    engine<S>& on = *here.on;
    if (const index width = piece_width(here, F.data, m, n); width > 0 && in_host_memory(B.data)) {
      const std::unique_ptr<engine<S>> near = host::make_engine<S>(here.run);
      const moderate<S> R(here.run, *near, F.block(0, 0, n, n));
      conclude(here, estimate_rank<S>(here.run, *near, R.view), n, false);
      if (here.lost()) return;
      out_of_core<S> parts(here.run, on, m, width);
      const auto apply = out_of_core_q<S>(parts, F, on.read(tau).data());
      const least_squares<S> solved(here, *near, apply, m, R.view, R.shifts, false, B);
      if (!here.lost()) solved.store_solution(X);
      return;
    }
    const workable<const S> factors(here.run, on, F);
    const moderate<S> R(here.run, on, factors.view.block(0, 0, n, n));
    conclude(here, estimate_rank<S>(here.run, on, R.view), n, false);
    if (here.lost()) return;
    if (has_kernels(here, operation::gels, m, n)) {
      const owned<S> Y(on, m, B.columns);
      copy_verified<S>(here.run, on, on.read(B), Y.view);
      on.wait();
      if (!here.lost()) solve_by_kernels<S>(here, factors.view, tau, Y.view);
      if (!here.lost()) copy_verified<S>(here.run, on, Y.view.block(0, 0, n, B.columns), X);
      on.wait();
      return;
    }
    orthogonal_factor<S> Q(here.run, on, factors.view, on.read(tau).data());
    if (here.lost()) return;
    const auto apply = [&](bool transposed, const matrix_view<const S>& Y, const matrix_view<S>& to) { Q.apply(transposed, {Y}, to); };
    const least_squares<S> solved(here, on, apply, m, R.view, R.shifts, false, on.read(B));
    if (!here.lost()) solved.store_solution(X);
    on.wait();
  });
}

#define BALLAST_INSTANTIATE(S)                                                              \
  template rank_estimate gels_in<S>(operation_call<S>&, matrix_view<S>, matrix_view<S>);    \
  template report gels_of<S>(const prepared&, matrix_view<S>, matrix_view<S>, const call&); \
  template report solve_of<S>(const prepared&, matrix_view<const S>, std::span<const S>, matrix_view<const S>, matrix_view<S>, const call&);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr
