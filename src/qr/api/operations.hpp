// The operations on one matrix, for a plan that fits it.
// Layer: algorithm (driver), backend-free.
#pragma once

#include <span>

#include <ballast/qr.hpp>

#include "qr/api/operation_call.hpp"
#include "qr/driver/rank.hpp"

namespace ballast::qr {

// factor.cpp. Each checks its arguments, computes, and returns the report. As the functions of plan<T>.
template <class S>
report geqrf_of(const prepared& plan, matrix_view<S> A, std::span<S> tau, const call& now);
template <class S>
report ormqr_of(const prepared& plan, side from, transpose op, matrix_view<const S> A, std::span<const S> tau, matrix_view<S> C,
                const call& now);
template <class S>
report orgqr_of(const prepared& plan, matrix_view<S> A, std::span<const S> tau, const call& now);
// As geqrf, but from A to F, which is column-major without gaps, in host memory.
template <class S>
report factor_of(const prepared& plan, matrix_view<const S> A, matrix_view<S> F, std::span<S> tau, const call& now);
// The first columns of Q into `out`, in host memory.
template <class S>
report form_q_of(const prepared& plan, matrix_view<const S> F, std::span<const S> tau, matrix_view<S> out, const call& now);

// The same without checks of arguments and without a report, for batches.
template <class S>
void geqrf_in(operation_call<S>& here, matrix_view<S> A, std::span<S> tau);
template <class S>
void ormqr_in(operation_call<S>& here, side from, transpose op, matrix_view<const S> A, std::span<const S> tau, matrix_view<S> C);
template <class S>
void orgqr_in(operation_call<S>& here, matrix_view<S> A, std::span<const S> tau);

// pivoted.cpp.
template <class S>
report geqp3_of(const prepared& plan, matrix_view<S> A, std::span<index> pivots, std::span<S> tau, const call& now);
// As geqp3, but from A to F, which is column-major without gaps, in host memory.
template <class S>
report factor_pivoted_of(const prepared& plan, matrix_view<const S> A, matrix_view<S> F, std::span<index> pivots, std::span<S> tau,
                         const call& now);
template <class S>
report gelsy_of(const prepared& plan, matrix_view<S> A, matrix_view<S> B, std::span<index> pivots, double rcond, index& rank,
                const call& now);
// The rank of R in F. A negative rcond: the default.
template <class S>
index rank_from(const matrix_view<const S>& F, double rcond);

// least_squares.cpp.
template <class S>
report gels_of(const prepared& plan, matrix_view<S> A, matrix_view<S> B, const call& now);
// X ← the least-squares solution from factors, in host memory.
template <class S>
report solve_of(const prepared& plan, matrix_view<const S> F, std::span<const S> tau, matrix_view<const S> B, matrix_view<S> X,
                const call& now);
// Leaves A and B as they were if A does not have full rank.
template <class S>
rank_estimate gels_in(operation_call<S>& here, matrix_view<S> A, matrix_view<S> B);

}  // namespace ballast::qr
