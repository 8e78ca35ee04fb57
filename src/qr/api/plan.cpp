// Plans: the choice of backend and scheme, and the checks that operands have the plan's shape.
// Layer: algorithm (driver), backend-free. See include/ballast/qr.hpp.
#include "qr/api/plan.hpp"

#include <algorithm>
#include <vector>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "qr/api/batch.hpp"
#include "qr/api/operations.hpp"
#include "qr/batch.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/start.hpp"
#include "run/call_scope.hpp"
#include "run/dispatch.hpp"

namespace ballast::qr {

namespace {

// Returns true if the batch kernels do all work of this problem. Everything else needs cuBLAS.
bool needs_no_blas(const problem& size) {
  return size.batch > 1 && std::max(size.rows, size.columns) <= k_batch_side &&
         cuda::takes_batch(operation::geqrf, {size.rows, size.columns, size.batch},
                           size.precision == precision::f32 ? sizeof(float) : sizeof(double), size.complex);
}

// The backend of a plan. If the caller names none: cuda, unless the device lacks cuBLAS.
backend choose_backend(const problem& size, run::settings how, std::string_view token) {
  const bool automatic = how.backend == backend::automatic;
  if (automatic && how.scheme == k_hybrid) {
    how.backend = backend::cuda;
  } else if (automatic && size.complex && (size.batch == 1 || std::max(size.rows, size.columns) > k_batch_side)) {
    // The engine for large complex matrices has not been timed beside the host's.
    how.backend = run::host_backend();
  }
  const backend best = run::choose_backend(how, token);
  if (how.backend == backend::automatic && best == backend::cuda && !needs_no_blas(size) &&
      (size.complex || !ballast::cuda::current_device()->why_no_blas().empty()))
    return run::host_backend();
  return best;
}

std::vector<std::string_view> schemes_of(const problem& size, backend which) {
  if (size.batch > 1) return {k_block_checksum};
  if (which == backend::cuda) return {k_block_checksum, k_qr_update, k_hybrid};
  return {k_block_checksum, k_qr_update};
}

double flops_of(const problem& size) {
  const double large = static_cast<double>(std::max(size.rows, size.columns)),
               small = static_cast<double>(std::min(size.rows, size.columns));
  return (size.complex ? 4 : 1) * 2 * static_cast<double>(size.batch) * small * small * (large - small / 3);
}

// The work of one thread for geqrf of one matrix of float64 with protection, fitted to times of 8 × 8 to 1000 × 50 (docs/notebook/qr.md):
// operations, numbers that the checks read, and columns. It has many loops that wait for each other, and with two threads took longer than
// with one up to 400 × 40: each loop has an eighth of the work. A batch is one loop over its matrices.
double seconds_of_loop(const problem& size) {
  const double numbers = static_cast<double>(size.rows) * static_cast<double>(size.columns) * static_cast<double>(size.batch);
  const double columns = static_cast<double>(size.columns) * static_cast<double>(size.batch);
  const double seconds = flops_of(size) / run::flops_per_second(precision::f64) + 4e-9 * numbers + 0.5e-6 * columns;
  return size.batch > 1 ? seconds : seconds / 8;
}

// Predicts whether the cpu backend should answer calls with operands on the host.
bool host_answers_first(const problem& size, int threads) {
  const double numbers = static_cast<double>(size.rows) * static_cast<double>(size.columns) * static_cast<double>(size.batch);
  return run::host_answers_first({2 * numbers * (size.precision == precision::f32 ? 4 : 8), flops_of(size), size.precision, threads},
                                 [&](bool begin) { return cuda::seconds_to_start(size, needs_no_blas(size), begin); });
}

}  // namespace

prepared::prepared(const qr::problem& size, const execution& at, const options& with, core::arena::spares kept)
    : problem(size), where(at), wanted(with), token(to_token(size)), memory(kept), sampled(at.sampled, token) {
  run::in_call(nullptr, where.device, token, [&] {
    run::check_protection(where, token, false);
    const run::settings how = run::settings_of(where);
    threads = core::worthwhile_threads(how.threads, seconds_of_loop(problem));
    backend = choose_backend(problem, how, token);
    scheme = run::choose_scheme(how, k_block_checksum, schemes_of(problem, backend), token);
    if (backend != ballast::backend::cuda) return;
    device = cuda::make_device_state();
    host_is_faster = run::host_backend() == ballast::backend::cpu && how.backend == ballast::backend::automatic && how.scheme.empty() &&
                     host_answers_first(problem, threads);
  });
}

run::settings prepared::settings_for(const call& now) const {
  run::settings how = run::settings_of(where, now);
  how.tf32x3 = wanted.tf32x3;
  how.full_rank = wanted.full_rank;
  return how;
}

ballast::backend prepared::backend_for(const void* operand, const run::settings& how) const {
  const bool here = host_is_faster && how.faults == nullptr && ballast::cuda::residence_of(operand) == ballast::cuda::residence::host;
  return here ? ballast::backend::cpu : backend;
}

// ------------------------------------------------------------------------------------------------------------------------- plan<T>

namespace {

template <class T>
problem checked(problem size) {
  size.precision = precision_of<real_of<T>>;
  size.complex = is_complex<T>;
  if (size.rows < 1 || size.columns < 1 || size.batch < 1)
    throw invalid_argument_error(fmt::format("{}: expected at least 1 row, column and matrix, got {} × {} and a batch of {}",
                                             to_token(size), size.rows, size.columns, size.batch));
  return size;
}

// The first columns of A are enough for an operation that only reads reflectors.
void check_shape(const prepared& plan, index rows, index columns, index count, bool first_columns) {
  const problem& size = plan.problem;
  if (count != size.batch)
    throw invalid_argument_error(fmt::format("{}: expected {} matrices, got {}", plan.token.view(), size.batch, count));
  if (rows != size.rows || (first_columns ? columns > size.columns : columns != size.columns))
    throw invalid_argument_error(fmt::format("{}: A: expected the plan's {} × {}{}, got {} × {}", plan.token.view(), size.rows,
                                             size.columns, first_columns ? " or its first columns" : "", rows, columns));
}

// A plan that fits A.
template <class S>
const prepared& fit(const prepared& plan, const matrix_view<S>& A, bool first_columns) {
  check_shape(plan, A.rows, A.columns, 1, first_columns);
  return plan;
}
template <class S>
const prepared& fit(const prepared& plan, const matrix_batch_view<S>& A, bool first_columns) {
  check_shape(plan, A.rows, A.columns, A.count, first_columns);
  return plan;
}

}  // namespace

template <class T>
plan<T>::plan(const qr::problem& size, const execution& where, const options& wanted)
    : implementation_(run::in_call(nullptr, where.device, "qr::plan",
                                   [&] { return std::make_shared<implementation>(checked<T>(size), where, wanted); })) {}

template <class T>
plan<T>::~plan() = default;
template <class T>
plan<T>::plan(const plan&) = default;
template <class T>
plan<T>::plan(plan&&) noexcept = default;
template <class T>
plan<T>& plan<T>::operator=(const plan&) = default;
template <class T>
plan<T>& plan<T>::operator=(plan&&) noexcept = default;

template <class T>
auto plan<T>::made() const -> const implementation& {
  if (implementation_ == nullptr) throw invalid_argument_error("qr::plan: expected a plan, got one that was moved from");
  return *implementation_;
}

template <class T>
const qr::problem& plan<T>::problem() const {
  return made().problem;
}
template <class T>
ballast::backend plan<T>::backend() const {
  return made().backend;
}
template <class T>
std::int64_t plan<T>::workspace_bytes(operation what) const {
  return batch_workspace_bytes(made(), what);
}

template <class T>
report plan<T>::geqrf(matrix_view<T> A, std::span<T> tau, const call& now) const {
  return geqrf_of<T>(fit(made(), A, false), A, tau, now);
}
template <class T>
report plan<T>::ormqr(side from, transpose op, matrix_view<const T> A, std::span<const T> tau, matrix_view<T> C, const call& now) const {
  return ormqr_of<T>(fit(made(), A, true), from, op, A, tau, C, now);
}
template <class T>
report plan<T>::orgqr(matrix_view<T> A, std::span<const T> tau, const call& now) const {
  return orgqr_of<T>(fit(made(), A, true), A, tau, now);
}
template <class T>
report plan<T>::gels(matrix_view<T> A, matrix_view<T> B, const call& now) const {
  return gels_of<T>(fit(made(), A, false), A, B, now);
}
template <class T>
report plan<T>::geqp3(matrix_view<T> A, std::span<std::int64_t> pivots, std::span<T> tau, const call& now) const {
  return geqp3_of<T>(fit(made(), A, false), A, pivots, tau, now);
}
template <class T>
report plan<T>::gelsy(matrix_view<T> A, matrix_view<T> B, std::span<std::int64_t> pivots, double rcond, std::int64_t& rank,
                      const call& now) const {
  return gelsy_of<T>(fit(made(), A, false), A, B, pivots, rcond, rank, now);
}

template <class T>
report plan<T>::geqrf(matrix_batch_view<T> A, std::span<T> tau, const call& now) const {
  return run_batch(geqrf_task<T>(fit(made(), A, false), A, tau), now);
}
template <class T>
report plan<T>::ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau, matrix_batch_view<T> C,
                      const call& now) const {
  return run_batch(ormqr_task<T>(fit(made(), A, true), from, op, A, tau, C), now);
}
template <class T>
report plan<T>::orgqr(matrix_batch_view<T> A, std::span<const T> tau, const call& now) const {
  return run_batch(orgqr_task<T>(fit(made(), A, true), A, tau), now);
}
template <class T>
report plan<T>::gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const call& now) const {
  return run_batch(gels_task<T>(fit(made(), A, false), A, B), now);
}

template <class T>
pending_report plan<T>::enqueue_geqrf(matrix_batch_view<T> A, std::span<T> tau, const call& now) const {
  return enqueue_batch(implementation_, geqrf_task<T>(fit(made(), A, false), A, tau), now);
}
template <class T>
pending_report plan<T>::enqueue_ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau, matrix_batch_view<T> C,
                                      const call& now) const {
  return enqueue_batch(implementation_, ormqr_task<T>(fit(made(), A, true), from, op, A, tau, C), now);
}
template <class T>
pending_report plan<T>::enqueue_orgqr(matrix_batch_view<T> A, std::span<const T> tau, const call& now) const {
  return enqueue_batch(implementation_, orgqr_task<T>(fit(made(), A, true), A, tau), now);
}
template <class T>
pending_report plan<T>::enqueue_gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const call& now) const {
  return enqueue_batch(implementation_, gels_task<T>(fit(made(), A, false), A, B), now);
}

inline namespace abi_1 {
template class plan<float>;
template class plan<double>;
template class plan<std::complex<float>>;
template class plan<std::complex<double>>;
}  // namespace abi_1

}  // namespace ballast::qr
