// The operands of whole calls of QR in device memory, and NVIDIA's functions for the same calls.
// Layer: gpu-check.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "calls.hpp"
#include "each_case.hpp"
#include "nvidia.hpp"
#include "qr_stages.hpp"

namespace ballast::gpu_check::factors {

enum class what_runs : std::uint8_t { geqrf, ormqr, orgqr, q_and_r, gels };
inline constexpr std::array k_names = {"geqrf", "ormqr", "orgqr", "Q and R", "lstsq"};

// Numbers repeat after so many: a prime, so that no two columns are equal. Random ones for all would take the host longer than the calls.
inline constexpr index k_different = 16'777'213;

// The operands of a problem. Restored before each call.
template <class T>
class operands {
 public:
  operands(const qr::problem& what, bool by_rows)
      : what_(what),
        by_rows_(by_rows),
        steps_(std::min(what.rows, what.columns)),
        source_(what.rows * what.columns * what.batch * size),
        matrix_(source_.bytes()),
        factors_(source_.bytes()),
        tau_(steps_ * what.batch * size),
        right_(what.rows * what.batch * size),
        right_source_(gpu::buffer_of(matrix_of<T>({.precision = what.precision, .rows = what.rows * what.batch, .columns = 1}, 12))),
        upper_(steps_ * what.columns * size) {
    const std::vector<T> values =
        matrix_of<T>({.precision = what.precision, .rows = std::min(k_different, source_.bytes() / size), .columns = 1}, 11);
    const auto bytes = static_cast<index>(values.size() * sizeof(T));
    for (index at = 0; at < source_.bytes(); at += bytes)
      gpu::copy(static_cast<char*>(source_.data()) + at, values.data(), std::min(bytes, source_.bytes() - at));
    gpu::synchronize();
  }

  T* matrix() const { return static_cast<T*>(matrix_.data()); }
  T* tau() const { return static_cast<T*>(tau_.data()); }
  const T* factors() const { return static_cast<const T*>(factors_.data()); }
  const T* source() const { return static_cast<const T*>(source_.data()); }
  T* right() const { return static_cast<T*>(right_.data()); }
  const T* right_source() const { return static_cast<const T*>(right_source_.data()); }
  const qr::problem& what() const { return what_; }

  qr::plan<T> plan(protection level, int sampled = 1) const {
    return qr::plan<T>(what_, {.backend = tested, .protection = level, .sampled = sampled});
  }
  // Keeps factors for ormqr and orgqr.
  void factor(const qr::plan<T>& plan) {
    prepare(what_runs::geqrf);
    run(plan, what_runs::geqrf);
    gpu::copy(factors_.data(), matrix_.data(), factors_.bytes());
    gpu::synchronize();
  }
  void prepare(what_runs which) const {
    gpu::copy(matrix_.data(), which == what_runs::orgqr ? factors_.data() : source_.data(), matrix_.bytes());
    if (which == what_runs::gels) gpu::copy(right_.data(), right_source_.data(), right_.bytes());
  }
  void run(const qr::plan<T>& plan, what_runs which) const {
    if (which == what_runs::q_and_r) {
      run(plan, what_runs::geqrf);
      keep_upper();
      return run(plan, what_runs::orgqr);
    }
    const report seen = what_.batch == 1 ? run_one(plan, which) : run_batch(plan, which);
    if (seen.detected > 0) throw error("a false alarm: " + describe(seen));
  }

 private:
  static constexpr auto size = static_cast<index>(sizeof(T));

  report run_one(const qr::plan<T>& plan, what_runs which) const {
    const call now{.stream = gpu::stream()};
    const auto A = column_major(matrix(), what_.rows, what_.columns);
    const std::span<T> scalars(tau(), static_cast<std::size_t>(steps_));
    const std::span<const T> given = scalars;
    if (which == what_runs::geqrf) return plan.geqrf(A, scalars, now);
    if (which == what_runs::orgqr) return plan.orgqr(A, given, now);
    if (which == what_runs::gels) return plan.gels(A, column_major(static_cast<T*>(right_.data()), what_.rows, 1), now);
    return plan.ormqr(qr::side::left, qr::transpose::yes, column_major(factors(), what_.rows, what_.columns), given, A, now);
  }
  report run_batch(const qr::plan<T>& plan, what_runs which) const {
    const call now{.stream = gpu::stream()};
    const auto A = batch_of(by_rows_ ? row_major(matrix(), what_.rows, what_.columns) : column_major(matrix(), what_.rows, what_.columns),
                            what_.batch);
    const std::span<T> scalars(tau(), static_cast<std::size_t>(steps_ * what_.batch));
    if (which == what_runs::geqrf) return plan.geqrf(A, scalars, now);
    if (which == what_runs::orgqr) return plan.orgqr(A, std::span<const T>(scalars), now);
    if (which == what_runs::ormqr)
      return plan.ormqr(qr::side::left, qr::transpose::yes, batch_of(column_major(factors(), what_.rows, what_.columns), what_.batch),
                        std::span<const T>(scalars), A, now);
    return plan.gels(A, batch_of(column_major(static_cast<T*>(right_.data()), what_.rows, 1), what_.batch), now);
  }
  // Copies the rows of R.
  void keep_upper() const {
    if (what_.batch > 1) return gpu::copy(factors_.data(), matrix_.data(), matrix_.bytes());
    if (tested == backend::cuda)
      return ballast::cuda::current_device()->copy_columns(upper_.data(), steps_ * size, matrix_.data(), what_.rows * size, steps_ * size,
                                                           what_.columns, gpu::stream());
    for (index j = 0; j < what_.columns; ++j)
      gpu::copy(static_cast<T*>(upper_.data()) + j * steps_, matrix() + j * what_.rows, steps_ * size);
  }

  qr::problem what_;
  bool by_rows_;
  index steps_;
  gpu::buffer source_, matrix_, factors_, tau_, right_, right_source_, upper_;
};

// NVIDIA's function for a call of one matrix, or of a batch; nothing if there is none.
template <class T>
std::optional<call_variant> rival_of(const qr::problem& what, what_runs which, const operands<T>& with, std::optional<cusolver>& solver,
                                     std::optional<cublas_batched>& batched) {
  call_variant made{what.batch > 1 ? "cuBLAS" : "cuSOLVER", [&with, which] { with.prepare(which); }, {}};
  const index m = what.rows, n = what.columns;
  T* const a = with.matrix();
  T* const tau = with.tau();
  if (what.batch > 1) {
    if (which != what_runs::geqrf && (which != what_runs::gels || m < n)) return std::nullopt;
    made.refused = cublas_batched::why_not();
    if (made.refused.empty())
      made.refused = refusal([&] { batched.emplace(what, a, which == what_runs::gels ? with.right() : tau, which == what_runs::gels); });
    made.run = [&batched, which, a] { which == what_runs::gels ? batched->solve(a) : batched->run(a); };
    return made;
  }
  if (which == what_runs::q_and_r || (which == what_runs::gels && m < n)) return std::nullopt;
  made.refused = cusolver::why_not();
  if (made.refused.empty())
    made.refused = refusal([&] {
      solver.emplace();
      if (which == what_runs::geqrf) solver->prepare_run(m, n, a);
      if (which == what_runs::ormqr) solver->prepare_apply(m, n, a, tau);
      if (which == what_runs::orgqr) solver->prepare_form(m, n, a, tau);
      if (which == what_runs::gels) solver->prepare_solve(m, n, a, with.right());
    });
  made.run = [&solver, &with, which, m, n, a, tau] {
    if (which == what_runs::geqrf) solver->run(m, n, a, tau);
    if (which == what_runs::ormqr) solver->apply(m, n, with.factors(), tau, a);
    if (which == what_runs::orgqr) solver->form(m, n, a, tau);
    if (which == what_runs::gels) solver->solve(m, n, a, with.right());
  };
  return made;
}

}  // namespace ballast::gpu_check::factors
