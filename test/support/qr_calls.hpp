// The functions of QR with run::settings, which hold faults and everything else that a plan and a call have: one argument for the tests.
// Layer: test harness.
#pragma once

#include <algorithm>
#include <complex>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <ballast/qr.hpp>

#include "inject/active.hpp"
#include "run/settings.hpp"

namespace ballast::qr {

// Constrained templates, so that an argument in braces is an `execution`.
template <class How>
concept test_settings = std::same_as<How, run::settings>;

// The execution of a call on one matrix: on cuda with a scheme, so that the engine for one matrix computes small ones, too. Tests of
// complex matrices name the scheme themselves.
template <class T>
execution alone(const run::settings& how) {
  execution made = how.where();
  if (std::is_floating_point_v<T> && made.backend == backend::cuda && made.scheme.empty()) made.scheme = "block_checksum";
  return made;
}

template <class T>
plan<T> plan_of(std::int64_t rows, std::int64_t columns, std::int64_t batch, const run::settings& how) {
  return plan<T>({.rows = rows, .columns = columns, .batch = batch}, batch == 1 ? alone<T>(how) : how.where(),
                 {.tf32x3 = how.tf32x3, .full_rank = how.full_rank});
}

// The one-line functions; a plan only if an option is not the default.
#define BALLAST_CALLS(T)                                                                                                                \
  template <test_settings How>                                                                                                          \
  report geqrf(matrix_view<T> A, std::span<T> tau, const How& how) {                                                                    \
    const inject::scope faults(how.faults);                                                                                             \
    if (!how.tf32x3 || !how.full_rank) return plan_of<T>(A.rows, A.columns, 1, how).geqrf(A, tau, how.now());                           \
    return geqrf(A, tau, alone<T>(how), how.now());                                                                                     \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  report ormqr(side from, transpose op, matrix_view<const T> A, std::span<const T> tau, matrix_view<T> C, const How& how) {             \
    const inject::scope faults(how.faults);                                                                                             \
    if (!how.tf32x3 || !how.full_rank) return plan_of<T>(A.rows, A.columns, 1, how).ormqr(from, op, A, tau, C, how.now());              \
    return ormqr(from, op, A, tau, C, alone<T>(how), how.now());                                                                        \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  report orgqr(matrix_view<T> A, std::span<const T> tau, const How& how) {                                                              \
    const inject::scope faults(how.faults);                                                                                             \
    if (!how.tf32x3 || !how.full_rank) return plan_of<T>(A.rows, A.columns, 1, how).orgqr(A, tau, how.now());                           \
    return orgqr(A, tau, alone<T>(how), how.now());                                                                                     \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  report gels(matrix_view<T> A, matrix_view<T> B, const How& how) {                                                                     \
    const inject::scope faults(how.faults);                                                                                             \
    if (!how.tf32x3 || !how.full_rank) return plan_of<T>(A.rows, A.columns, 1, how).gels(A, B, how.now());                              \
    return gels(A, B, alone<T>(how), how.now());                                                                                        \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  report geqrf(matrix_batch_view<T> A, std::span<T> tau, const How& how) {                                                              \
    const inject::scope faults(how.faults);                                                                                             \
    return geqrf(A, tau, how.where(), how.now());                                                                                       \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  report ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau, matrix_batch_view<T> C, const How& how) { \
    const inject::scope faults(how.faults);                                                                                             \
    return ormqr(from, op, A, tau, C, how.where(), how.now());                                                                          \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  report orgqr(matrix_batch_view<T> A, std::span<const T> tau, const How& how) {                                                        \
    const inject::scope faults(how.faults);                                                                                             \
    return orgqr(A, tau, how.where(), how.now());                                                                                       \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  report gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const How& how) {                                                         \
    const inject::scope faults(how.faults);                                                                                             \
    return gels(A, B, how.where(), how.now());                                                                                          \
  }                                                                                                                                     \
  template <test_settings How>                                                                                                          \
  factors<T> factor(matrix_view<const T> A, const How& how) {                                                                           \
    const inject::scope faults(how.faults);                                                                                             \
    return factor(A, alone<T>(how), how.now());                                                                                         \
  }                                                                                                                                     \
  inline pending_report enqueue_geqrf(matrix_batch_view<T> A, std::span<T> tau, const run::settings& how) {                             \
    const inject::scope faults(how.faults);                                                                                             \
    return plan_of<T>(A.rows, A.columns, A.count, how).enqueue_geqrf(A, tau, how.now());                                                \
  }                                                                                                                                     \
  inline pending_report enqueue_ormqr(side from, transpose op, matrix_batch_view<const T> A, std::span<const T> tau,                    \
                                      matrix_batch_view<T> C, const run::settings& how) {                                               \
    const inject::scope faults(how.faults);                                                                                             \
    return plan_of<T>(A.rows, A.columns, A.count, how).enqueue_ormqr(from, op, A, tau, C, how.now());                                   \
  }                                                                                                                                     \
  inline pending_report enqueue_orgqr(matrix_batch_view<T> A, std::span<const T> tau, const run::settings& how) {                       \
    const inject::scope faults(how.faults);                                                                                             \
    return plan_of<T>(A.rows, A.columns, A.count, how).enqueue_orgqr(A, tau, how.now());                                                \
  }                                                                                                                                     \
  inline pending_report enqueue_gels(matrix_batch_view<T> A, matrix_batch_view<T> B, const run::settings& how) {                        \
    const inject::scope faults(how.faults);                                                                                             \
    return plan_of<T>(A.rows, A.columns, A.count, how).enqueue_gels(A, B, how.now());                                                   \
  }
BALLAST_CALLS(float)
BALLAST_CALLS(double)
BALLAST_CALLS(std::complex<float>)
BALLAST_CALLS(std::complex<double>)
#undef BALLAST_CALLS

template <class T>
computed<T> q_of(const factors<T>& these, const run::settings& how) {
  const inject::scope faults(how.faults);
  return these.q(how.where(), how.now());
}

template <class T>
computed<T> solution_of(const factors<T>& these, const std::type_identity_t<matrix_view<const T>>& right, const run::settings& how) {
  const inject::scope faults(how.faults);
  return these.solve(right, how.where(), how.now());
}

}  // namespace ballast::qr
