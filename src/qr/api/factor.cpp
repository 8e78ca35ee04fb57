// geqrf, ormqr and orgqr of one matrix: arguments, copies of operands that the engine cannot work on, and the commit of verified results.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp.
#include <algorithm>
#include <memory>
#include <utility>

#include "qr/api/batch.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/out_of_core_call.hpp"
#include "qr/driver/application.hpp"

namespace ballast::qr {

namespace {

// Computes the first columns of Q to `out`. The reflectors are V's first columns, one for each tau. `out` may be V.
template <class S>
void form_q(operation_call<S>& here, const matrix_view<const S>& V, std::span<const S> tau, const matrix_view<S>& out) {
  engine<S>& on = *here.on;
  const workable<const S> reflectors(here.run, on, V.block(0, 0, V.rows, static_cast<index>(tau.size())));
  orthogonal_factor<S> Q(here.run, on, reflectors.view, tau.data());
  if (here.lost()) return;
  const owned<S> made(on, out.rows, out.columns);
  Q.apply(false, {.view = {}, .identity = true}, made.view);
  if (!here.lost()) copy_verified<S>(here.run, on, made.view, out);
  on.wait();
}

}  // namespace

template <class S>
void geqrf_in(operation_call<S>& here, matrix_view<S> A, std::span<S> tau) {
  engine<S>& on = *here.on;
  if (const index width = piece_width(here, A.data, A.rows, A.columns); width > 0) {
    tau = on.write(tau);
    factor_out_of_core(here, width, A, tau.data());
    if (!here.lost()) on.commit();
    return;
  }
  A = on.write(A);
  tau = on.write(tau);
  const workable<S> work(here.run, on, A);
  const matrix_view<const S> source = work.copied() ? matrix_view<const S>(A) : matrix_view<const S>{};
  factorization<S>(here.run, on, here.plan.scheme, work.view, tau.data(), source).run();
  if (here.lost()) return;
  if (work.copied()) copy_verified<S>(here.run, on, work.view, A);
  on.wait();
  if (!here.lost()) on.commit();
}

template <class S>
report geqrf_of(const prepared& plan, matrix_view<S> A, std::span<S> tau, const call& now) {
  check_view(A, "A", plan.token);
  const index steps = std::min(A.rows, A.columns);
  check_tau(tau, steps, plan.token);
  check_apart(A, column_major(tau.data(), steps, index{1}), "A and tau", plan.token);
  if (auto made = run_as_batch<S>({.plan = plan, .what = operation::geqrf, .A = batch_of(A, 1), .tau = tau}, now)) return *std::move(made);
  return run_operation<S>(plan, counted::geqrf, now, A.data, [&](operation_call<S>& here) { geqrf_in(here, A, tau); });
}

template <class S>
void ormqr_in(operation_call<S>& here, side from, transpose op, matrix_view<const S> A, std::span<const S> tau, matrix_view<S> C) {
  engine<S>& on = *here.on;
  const index count = static_cast<index>(tau.size());
  // C op(Q) = (op(Q)ᴴ Cᴴ)ᴴ.
  const bool left = from == side::left, transposed = (op == transpose::yes) == left;
  const index order = left ? C.rows : C.columns, others = left ? C.columns : C.rows;
  const index width = piece_width(here, A.data, order, std::max(count, others));
  if (width > 0 && in_host_memory(C.data)) {
    apply_out_of_core(here, width, A, tau, transposed, false, left ? C : C.transposed());
    return;
  }
  A = on.read(A.block(0, 0, order, count));
  tau = on.read(tau);
  C = on.write(C);
  const workable<const S> V(here.run, on, A);
  orthogonal_factor<S> Q(here.run, on, V.view, tau.data());
  const matrix_view<S> X = left ? C : C.transposed();
  if (here.lost()) return;
  const owned<S> made(on, order, X.columns);
  const bool conjugated = is_complex<S> && !left;
  Q.apply(transposed, {.view = X, .conjugated = conjugated}, made.view);
  if (here.lost()) return;
  conjugated ? conjugate_verified<S>(here.run, on, made.view, X) : copy_verified<S>(here.run, on, made.view, X);
  on.wait();
  if (!here.lost()) on.commit();
}

template <class S>
report ormqr_of(const prepared& plan, side from, transpose op, matrix_view<const S> A, std::span<const S> tau, matrix_view<S> C,
                const call& now) {
  const index count = static_cast<index>(tau.size());
  const index order = from == side::left ? C.rows : C.columns;
  check_view(A, "A", plan.token, 0);
  check_view(C, "C", plan.token);
  check_tau(tau, count, plan.token);
  if (A.rows != order || A.columns < count || count > order)
    throw invalid_argument_error(fmt::format("{}: A: expected {} rows and {} columns or more for {} reflectors of C's {}, got {} × {}",
                                             plan.token.view(), order, count, count, from == side::left ? "rows" : "columns", A.rows,
                                             A.columns));
  check_apart(A, C, "A and C", plan.token);
  const matrix_batch_view<const S> V = batch_of(A.block(0, 0, order, count), 1);
  if (auto made = run_as_batch<S>(
          {.plan = plan, .what = operation::ormqr, .V = V, .scalars = tau, .C = batch_of(C, 1), .from = from, .op = op}, now))
    return *std::move(made);
  return run_operation<S>(plan, counted::ormqr, now, A.data, [&](operation_call<S>& here) { ormqr_in(here, from, op, A, tau, C); });
}

template <class S>
void orgqr_in(operation_call<S>& here, matrix_view<S> A, std::span<const S> tau) {
  engine<S>& on = *here.on;
  if (const index width = piece_width(here, A.data, A.rows, A.columns); width > 0) {
    apply_out_of_core<S>(here, width, A, tau, false, true, A);
    return;
  }
  A = on.write(A);
  tau = on.read(tau);
  form_q<S>(here, A, tau, A);
  if (!here.lost()) on.commit();
}

template <class S>
report orgqr_of(const prepared& plan, matrix_view<S> A, std::span<const S> tau, const call& now) {
  check_view(A, "A", plan.token);
  const index count = static_cast<index>(tau.size());
  check_tau(tau, count, plan.token);
  if (A.columns > A.rows || count > A.columns)
    throw invalid_argument_error(fmt::format("{}: A: expected {} ≤ columns ≤ rows for {} reflectors, got {} × {}", plan.token.view(), count,
                                             count, A.rows, A.columns));
  if (auto made = run_as_batch<S>({.plan = plan, .what = operation::orgqr, .A = batch_of(A, 1), .scalars = tau}, now))
    return *std::move(made);
  return run_operation<S>(plan, counted::orgqr, now, A.data, [&](operation_call<S>& here) { orgqr_in(here, A, tau); });
}

template <class S>
report factor_of(const prepared& plan, matrix_view<const S> A, matrix_view<S> F, std::span<S> tau, const call& now) {
  check_view(A, "A", plan.token);
  return run_operation<S>(plan, counted::geqrf, now, A.data, [&](operation_call<S>& here) {
    engine<S>& on = *here.on;
    if (const index width = piece_width(here, A.data, A.rows, A.columns); width > 0) {
      copy_on_host(A, F);
      out_of_core<S>(here.run, on, A.rows, width).factor(plan.scheme, F, on.write(tau).data());
      if (!here.lost()) on.commit();
      return;
    }
    const matrix_view<const S> source = on.read(A);
    if (has_kernels(here, operation::geqrf, A.rows, A.columns)) {
      copy_verified<S>(here.run, on, source, F);
      on.wait();
      if (!here.lost()) compute_by_kernels<S>(here, {.plan = plan, .what = operation::geqrf, .A = batch_of(F, 1), .tau = tau});
      return;
    }
    on.copy(source, F);
    on.wait();
    const workable<S> work(here.run, on, F);
    factorization<S>(here.run, on, plan.scheme, work.view, on.write(tau).data(), source).run();
    if (work.copied()) copy_verified<S>(here.run, on, work.view, F);
    on.wait();
    if (!here.lost()) on.commit();
  });
}

template <class S>
report form_q_of(const prepared& plan, matrix_view<const S> F, std::span<const S> tau, matrix_view<S> out, const call& now) {
  return run_operation<S>(plan, counted::form_q, now, F.data, [&](operation_call<S>& here) {
    if (has_kernels(here, operation::orgqr, out.rows, out.columns)) {
      copy_verified<S>(here.run, *here.on, F.block(0, 0, out.rows, out.columns), out);
      here.on->wait();
      if (!here.lost()) compute_by_kernels<S>(here, {.plan = plan, .what = operation::orgqr, .A = batch_of(out, 1), .scalars = tau});
      return;
    }
    if (const index width = piece_width(here, F.data, F.rows, out.columns); width > 0)
      apply_out_of_core<S>(here, width, F, tau, false, true, out);
    else
      form_q<S>(here, F, here.on->read(tau), out);
  });
}

#define BALLAST_INSTANTIATE(S)                                                                                                          \
  template void geqrf_in<S>(operation_call<S>&, matrix_view<S>, std::span<S>);                                                          \
  template report geqrf_of<S>(const prepared&, matrix_view<S>, std::span<S>, const call&);                                              \
  template void ormqr_in<S>(operation_call<S>&, side, transpose, matrix_view<const S>, std::span<const S>, matrix_view<S>);             \
  template report ormqr_of<S>(const prepared&, side, transpose, matrix_view<const S>, std::span<const S>, matrix_view<S>, const call&); \
  template void orgqr_in<S>(operation_call<S>&, matrix_view<S>, std::span<const S>);                                                    \
  template report orgqr_of<S>(const prepared&, matrix_view<S>, std::span<const S>, const call&);                                        \
  template report factor_of<S>(const prepared&, matrix_view<const S>, matrix_view<S>, std::span<S>, const call&);                       \
  template report form_q_of<S>(const prepared&, matrix_view<const S>, std::span<const S>, matrix_view<S>, const call&);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr
