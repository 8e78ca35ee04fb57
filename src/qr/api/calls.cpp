// The one-line functions, and factorizations that own their storage: each makes a plan and runs it once.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp.
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "qr/api/batch.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/out_of_core_call.hpp"
#include "qr/api/plan.hpp"
#include "run/call_scope.hpp"

namespace ballast::qr {

namespace {

// Calls work(plan) with a plan for A that serves this call only. It does not check the shape, so that the operation names the argument that
// is wrong.
template <class S, class Work>
auto with_plan(const matrix_view<S>& A, index batch, const execution& where, Work&& work) {
  return run::in_call(nullptr, where.device, "qr", [&] {
    const prepared plan(problem_of<std::remove_const_t<S>>(A.rows, A.columns, batch), where, {}, core::arena::spares::no);
    return work(plan);
  });
}
template <class S, class Work>
auto with_plan(const matrix_view<S>& A, const execution& where, Work&& work) {
  return with_plan(A, 1, where, std::forward<Work>(work));
}
template <class S, class Work>
auto with_plan(const matrix_batch_view<S>& A, index batch, const execution& where, Work&& work) {
  return with_plan(matrix_view<S>{A.data, A.rows, A.columns, A.row_stride, A.column_stride}, batch, where, std::forward<Work>(work));
}

template <class T>
factors<T> factor_once(matrix_view<const T> A, const execution& where, const call& now) {
  return with_plan(A, where, [&](const prepared& plan) {
    check_view(A, "A", plan.token);
    factors<T> made;
    made.storage = matrix<T>(A.rows, A.columns, order::column_major);
    made.tau.resize(static_cast<std::size_t>(std::min(A.rows, A.columns)));
    made.report = factor_of<T>(plan, A, made.storage.view(), made.tau, now);
    return made;
  });
}

template <class T>
pivoted_factors<T> factor_pivoted_once(matrix_view<const T> A, const execution& where, const call& now) {
  return with_plan(A, where, [&](const prepared& plan) {
    check_view(A, "A", plan.token);
    pivoted_factors<T> made;
    made.storage = matrix<T>(A.rows, A.columns, order::column_major);
    made.tau.resize(static_cast<std::size_t>(std::min(A.rows, A.columns)));
    made.pivots.resize(static_cast<std::size_t>(A.columns));
    made.report = factor_pivoted_of<T>(plan, A, made.storage.view(), made.pivots, made.tau, now);
    return made;
  });
}

template <class T>
matrix<T> copy_of(const matrix_view<const T>& from, index rows) {
  matrix<T> made(rows, from.columns, order::column_major);
  for (index j = 0; j < from.columns; ++j) {
    for (index i = 0; i < from.rows; ++i) made(i, j) = from(i, j);
  }
  return made;
}

template <class T>
solution<T> lstsq_once(matrix_view<const T> A, matrix_view<const T> B, double rcond, const execution& where, const call& now) {
  return with_plan(A, where, [&](const prepared& plan) {
    check_view(A, "A", plan.token);
    check_view(B, "B", plan.token);
    if (B.rows != A.rows) throw invalid_argument_error(fmt::format("{}: B: expected {} rows, got {}", plan.token.view(), A.rows, B.rows));
    if (!in_host_memory(A.data) || !in_host_memory(B.data))
      throw invalid_argument_error(fmt::format("{}: expected A and B in host memory for lstsq, got device memory", plan.token.view()));
    solution<T> made;
    matrix<T> F = copy_of(A, A.rows), X = copy_of(B, std::max(A.rows, A.columns));
    made.pivots.resize(static_cast<std::size_t>(A.columns));
    made.report = gelsy_of<T>(plan, F.view(), X.view(), made.pivots, rcond, made.rank, now);
    made.values = copy_of<T>(std::as_const(X).view().block(0, 0, A.columns, B.columns), A.columns);
    return made;
  });
}

// The caller may change `storage` and `tau`, so that every use of them checks whether they belong together.
template <template <class> class Factors, class T>
void check_factors(const Factors<T>& these) {
  const std::string token = to_token(problem_of<T>(these.storage.rows(), these.storage.columns()));
  check_view(these.storage.view(), "factors: storage", token);
  check_tau(std::span<const T>(these.tau), std::min(these.storage.rows(), these.storage.columns()), token);
}

}  // namespace

inline namespace abi_1 {

#define BALLAST_DEFINE(T)                                                                                                                \
  report geqrf(matrix_view<T> A, std::span<T> tau, const execution& where, const call& now) {                                            \
    return with_plan(A, where, [&](const prepared& plan) { return geqrf_of<T>(plan, A, tau, now); });                                    \
  }                                                                                                                                      \
  report ormqr(side from, transpose op, matrix_view<const T> A, std::span<const T> tau, matrix_view<T> C, const execution& where,        \
               const call& now) {                                                                                                        \
    return with_plan(A, where, [&](const prepared& plan) { return ormqr_of<T>(plan, from, op, A, tau, C, now); });                       \
  }                                                                                                                                      \
  report orgqr(matrix_view<T> A, std::span<const T> tau, const execution& where, const call& now) {                                      \
    return with_plan(A, where, [&](const prepared& plan) { return orgqr_of<T>(plan, A, tau, now); });                                    \
  }                                                                                                                                      \
  report gels(matrix_view<T> A, matrix_view<T> B, const execution& where, const call& now) {                                             \
    return with_plan(A, where, [&](const prepared& plan) { return gels_of<T>(plan, A, B, now); });                                       \
  }                                                                                                                                      \
  report geqrf(matrix_batch_view<T> A, std::span<T> tau, const execution& where, const call& now) {                                      \
    return with_plan(A, A.count, where, [&](const prepared& plan) { return run_batch(geqrf_task<T>(plan, A, tau), now); });              \
  }                                                                                                                                      \
  report ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau, matrix_batch_view<T> C,                    \
               const execution& where, const call& now) {                                                                                \
    return with_plan(A, C.count, where, [&](const prepared& plan) { return run_batch(ormqr_task<T>(plan, from, op, A, tau, C), now); }); \
  }                                                                                                                                      \
  report orgqr(matrix_batch_view<T> A, std::span<const T> tau, const execution& where, const call& now) {                                \
    return with_plan(A, A.count, where, [&](const prepared& plan) { return run_batch(orgqr_task<T>(plan, A, tau), now); });              \
  }                                                                                                                                      \
  report gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const execution& where, const call& now) {                                 \
    return with_plan(A, A.count, where, [&](const prepared& plan) { return run_batch(gels_task<T>(plan, A, B), now); });                 \
  }                                                                                                                                      \
  factors<T> factor(matrix_view<const T> A, const execution& where, const call& now) { return factor_once(A, where, now); }              \
  report geqp3(matrix_view<T> A, std::span<std::int64_t> pivots, std::span<T> tau, const execution& where, const call& now) {            \
    return with_plan(A, where, [&](const prepared& plan) { return geqp3_of<T>(plan, A, pivots, tau, now); });                            \
  }                                                                                                                                      \
  report gelsy(matrix_view<T> A, matrix_view<T> B, std::span<std::int64_t> pivots, double rcond, std::int64_t& rank,                     \
               const execution& where, const call& now) {                                                                                \
    return with_plan(A, where, [&](const prepared& plan) { return gelsy_of<T>(plan, A, B, pivots, rcond, rank, now); });                 \
  }                                                                                                                                      \
  pivoted_factors<T> factor_pivoted(matrix_view<const T> A, const execution& where, const call& now) {                                   \
    return factor_pivoted_once(A, where, now);                                                                                           \
  }                                                                                                                                      \
  solution<T> lstsq(matrix_view<const T> A, matrix_view<const T> B, double rcond, const execution& where, const call& now) {             \
    return lstsq_once(A, B, rcond, where, now);                                                                                          \
  }
BALLAST_DEFINE(float)
BALLAST_DEFINE(double)
BALLAST_DEFINE(std::complex<float>)
BALLAST_DEFINE(std::complex<double>)
#undef BALLAST_DEFINE

}  // namespace abi_1

namespace {

template <class T>
matrix<T> r_of(const matrix<T>& storage) {
  matrix<T> made(std::min(storage.rows(), storage.columns()), storage.columns());
  for (index i = 0; i < made.rows(); ++i) {
    for (index j = i; j < made.columns(); ++j) made(i, j) = storage(i, j);
  }
  return made;
}

template <class T>
computed<T> q_of(const matrix<T>& storage, const std::vector<T>& tau, const execution& where, const call& now) {
  return with_plan(storage.view(), where, [&](const prepared& plan) {
    computed<T> made{matrix<T>(storage.rows(), std::min(storage.rows(), storage.columns()), order::column_major), {}};
    made.report = form_q_of<T>(plan, storage.view(), tau, made.values.view(), now);
    return made;
  });
}

}  // namespace

template <class T>
matrix<T> factors<T>::r() const {
  check_factors(*this);
  return r_of(storage);
}

template <class T>
computed<T> factors<T>::q(const execution& where, const call& now) const {
  check_factors(*this);
  return q_of(storage, tau, where, now);
}

template <class T>
matrix<T> pivoted_factors<T>::r() const {
  check_factors(*this);
  return r_of(storage);
}

template <class T>
computed<T> pivoted_factors<T>::q(const execution& where, const call& now) const {
  check_factors(*this);
  return q_of(storage, tau, where, now);
}

template <class T>
std::int64_t pivoted_factors<T>::rank(double rcond) const {
  check_factors(*this);
  return rank_from<T>(storage.view(), rcond);
}

template <class T>
computed<T> factors<T>::solve(matrix_view<const T> B, const execution& where, const call& now) const {
  check_factors(*this);
  return with_plan(storage.view(), where, [&](const prepared& plan) {
    check_view(B, "B", plan.token);
    computed<T> made{matrix<T>(storage.columns(), B.columns, order::column_major), {}};
    made.report = solve_of<T>(plan, storage.view(), tau, B, made.values.view(), now);
    return made;
  });
}

inline namespace abi_1 {
template class factors<float>;
template class factors<double>;
template class factors<std::complex<float>>;
template class factors<std::complex<double>>;
template class pivoted_factors<float>;
template class pivoted_factors<double>;
template class pivoted_factors<std::complex<float>>;
template class pivoted_factors<std::complex<double>>;
}  // namespace abi_1

}  // namespace ballast::qr
