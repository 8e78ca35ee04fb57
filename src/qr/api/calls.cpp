// The one-line functions, and factorizations that own their storage: each makes a plan and runs it once.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp.
#include <algorithm>

#include "qr/api/batch.hpp"
#include "qr/api/operations.hpp"
#include "qr/api/plan.hpp"

namespace ballast::qr {

namespace {

// A plan for A. It does not check the shape, so that the operation names the argument that is wrong.
template <class S>
prepared plan_for(const matrix_view<S>& A, const execution& where) {
  return prepared({precision_of<std::remove_const_t<S>>, A.rows, A.columns}, where, {});
}
template <class S>
prepared plan_for(const matrix_batch_view<S>& A, index count, const execution& where) {
  return prepared({precision_of<std::remove_const_t<S>>, A.rows, A.columns, count}, where, {});
}

template <class T>
factors<T> factor_once(matrix_view<const T> A, const execution& where, const call& now) {
  const prepared plan = plan_for(A, where);
  check_view(A, "A", plan.token);
  factors<T> made;
  made.storage = matrix<T>(A.rows, A.columns, order::column_major);
  made.tau.resize(static_cast<std::size_t>(std::min(A.rows, A.columns)));
  made.report = factor_of<T>(plan, A, made.storage.view(), made.tau, now);
  return made;
}

// A plan for stored factors. The caller may change `storage` and `tau`, so that every use of them checks whether they belong together.
template <class T>
prepared plan_for(const factors<T>& these, const execution& where) {
  const std::string token = to_token({precision_of<T>, these.storage.rows(), these.storage.columns()});
  check_view(these.storage.view(), "factors: storage", token);
  check_tau(std::span<const T>(these.tau), std::min(these.storage.rows(), these.storage.columns()), token);
  return plan_for(these.storage.view(), where);
}

}  // namespace

inline namespace abi_1 {

#define BALLAST_DEFINE(T)                                                                                                               \
  report geqrf(matrix_view<T> A, std::span<T> tau, const execution& where, const call& now) {                                           \
    return geqrf_of<T>(plan_for(A, where), A, tau, now);                                                                                \
  }                                                                                                                                     \
  report ormqr(side from, transpose op, matrix_view<const T> A, std::span<const T> tau, matrix_view<T> C, const execution& where,       \
               const call& now) {                                                                                                       \
    return ormqr_of<T>(plan_for(A, where), from, op, A, tau, C, now);                                                                   \
  }                                                                                                                                     \
  report orgqr(matrix_view<T> A, std::span<const T> tau, const execution& where, const call& now) {                                     \
    return orgqr_of<T>(plan_for(A, where), A, tau, now);                                                                                \
  }                                                                                                                                     \
  report gels(matrix_view<T> A, matrix_view<T> B, const execution& where, const call& now) {                                            \
    return gels_of<T>(plan_for(A, where), A, B, now);                                                                                   \
  }                                                                                                                                     \
  report geqrf(matrix_batch_view<T> A, std::span<T> tau, const execution& where, const call& now) {                                     \
    const prepared plan = plan_for(A, A.count, where);                                                                                  \
    return run_batch(geqrf_task<T>(plan, A, tau), now);                                                                                 \
  }                                                                                                                                     \
  report ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau, matrix_batch_view<T> C,                   \
               const execution& where, const call& now) {                                                                               \
    const prepared plan = plan_for(A, C.count, where);                                                                                  \
    return run_batch(ormqr_task<T>(plan, from, op, A, tau, C), now);                                                                    \
  }                                                                                                                                     \
  report orgqr(matrix_batch_view<T> A, std::span<const T> tau, const execution& where, const call& now) {                               \
    const prepared plan = plan_for(A, A.count, where);                                                                                  \
    return run_batch(orgqr_task<T>(plan, A, tau), now);                                                                                 \
  }                                                                                                                                     \
  report gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const execution& where, const call& now) {                                \
    const prepared plan = plan_for(A, A.count, where);                                                                                  \
    return run_batch(gels_task<T>(plan, A, B), now);                                                                                    \
  }                                                                                                                                     \
  factors<T> factor(matrix_view<const T> A, const execution& where, const call& now) { return factor_once(A, where, now); }
BALLAST_DEFINE(float)
BALLAST_DEFINE(double)
#undef BALLAST_DEFINE

}  // namespace abi_1

template <class T>
matrix<T> factors<T>::r() const {
  (void)plan_for(*this, {.backend = backend::reference});
  matrix<T> made(std::min(storage.rows(), storage.columns()), storage.columns());
  for (index i = 0; i < made.rows(); ++i) {
    for (index j = i; j < made.columns(); ++j) made(i, j) = storage(i, j);
  }
  return made;
}

template <class T>
computed<T> factors<T>::q(const execution& where, const call& now) const {
  const prepared plan = plan_for(*this, where);
  computed<T> made{matrix<T>(storage.rows(), std::min(storage.rows(), storage.columns()), order::column_major), {}};
  made.report = form_q_of<T>(plan, storage.view(), tau, made.values.view(), now);
  return made;
}

template <class T>
computed<T> factors<T>::solve(matrix_view<const T> B, const execution& where, const call& now) const {
  const prepared plan = plan_for(*this, where);
  check_view(B, "B", plan.token);
  computed<T> made{matrix<T>(storage.columns(), B.columns, order::column_major), {}};
  made.report = solve_of<T>(plan, storage.view(), tau, B, made.values.view(), now);
  return made;
}

inline namespace abi_1 {
template class factors<float>;
template class factors<double>;
}  // namespace abi_1

}  // namespace ballast::qr
