// The operations on batches, for a plan that fits them.
// Layer: algorithm (driver), backend-free.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <ballast/qr.hpp>

#include "qr/api/operation_call.hpp"
#include "qr/api/plan.hpp"
#include "qr/driver/rank.hpp"

namespace ballast::qr {

// The operands of one call, checked.
template <class S>
struct batch_task {
  const prepared& plan;
  operation what = operation::geqrf;
  matrix_batch_view<S> A = {};
  matrix_batch_view<const S> V = {};  // A of ormqr
  std::span<S> tau = {};
  std::span<const S> scalars = {};  // tau of ormqr and orgqr
  matrix_batch_view<S> C = {};      // C, or B of gels
  side from = side::left;
  transpose op = transpose::no;

  const void* operand() const { return what == operation::ormqr ? static_cast<const void*>(V.data) : A.data; }
  index rows() const { return what == operation::ormqr ? V.rows : A.rows; }
  index columns() const { return what == operation::ormqr ? V.columns : A.columns; }
  index count() const { return what == operation::ormqr ? C.count : A.count; }
};

// Each checks its arguments. As the functions of plan<T>.
template <class S>
batch_task<S> geqrf_task(const prepared& plan, const matrix_batch_view<S>& A, std::span<S> tau);
template <class S>
batch_task<S> ormqr_task(const prepared& plan, side from, transpose op, const matrix_batch_view<const S>& A, std::span<const S> tau,
                         const matrix_batch_view<S>& C);
template <class S>
batch_task<S> orgqr_task(const prepared& plan, const matrix_batch_view<S>& A, std::span<const S> tau);
template <class S>
batch_task<S> gels_task(const prepared& plan, const matrix_batch_view<S>& A, const matrix_batch_view<S>& B);

// Computes the task, and returns its report.
template <class S>
report run_batch(const batch_task<S>& work, const call& now);

// Computes the task of one matrix by the kernels for batches: on cuda, for up to k_batch_side rows and columns, if the caller names no
// scheme. They make one launch where the engine for one matrix makes dozens. Returns nullopt, and computes nothing, for other matrices, for
// operands that interleave in memory, for Q applied to more columns than one team holds (an uncorrectable fault would leave some columns
// old), for calls that want progress, and for calls with faults, whose sites are those of the engine for one matrix. Takes no workspace
// from the call. The arguments are checked. Complex matrices are computed here with faults, progress and any number of columns of C, too.
template <class S>
std::optional<report> run_as_batch(const batch_task<S>& work, const call& now);

// gels of one matrix in place by the kernels for batches, on cuda: three launches, after which the host estimates the rank of R. Returns
// nullopt, and leaves the operands as they were, if those kernels do not take it, or if numbers are so near the ends of the range that they
// must be scaled. A rank that is not full leaves them, too.
template <class S>
std::optional<rank_estimate> gels_in_place(operation_call<S>& here, const batch_task<S>& work);

// Returns whether these kernels do the operation on a complex matrix in this call: on cuda, where they hold it, if the caller names no
// scheme.
template <class S>
bool has_kernels(const operation_call<S>& here, operation what, index rows, index columns);

// Does the task of one complex matrix by these kernels as a part of the call `here`. has_kernels() returned true.
template <class S>
void compute_by_kernels(operation_call<S>& here, const batch_task<S>& work);

// The first rows of X (m × k) ← R⁻¹ Qᴴ X, with the factors F (m × n, m ≥ n) and tau of a complex matrix, on cuda; as above.
template <class S>
void solve_by_kernels(operation_call<S>& here, matrix_view<const S> F, std::span<const S> tau, matrix_view<S> X);

// Enqueues the task on the call's stream.
template <class S>
pending_report enqueue_batch(const std::shared_ptr<const prepared>& owner, const batch_task<S>& work, const call& now);

// As plan<T>::workspace_bytes.
std::int64_t batch_workspace_bytes(const prepared& plan, operation op);

}  // namespace ballast::qr
