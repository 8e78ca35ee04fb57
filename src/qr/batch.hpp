// The operations that a backend implements for batches of small matrices. The caller (api/batch.cpp) checks the arguments and calls the
// operations in order.
// Layer: algorithm, backend-free. host/ and cuda/ implement it.
#pragma once

#include <memory>
#include <span>

#include <ballast/qr.hpp>

#include "qr/contract.hpp"
#include "run/pending.hpp"

namespace ballast::qr {

// Largest number of rows and of columns of a matrix that every backend computes as part of a batch; on cuda, of columns.
inline constexpr index k_batch_side = 256;

// The size of a batch: A is m × n; Q of ormqr is m × m.
struct batch_size {
  index m = 0, n = 0, count = 0;
};

// Q of a batch of factorizations: reflectors below the diagonal of V's first columns; tau of all matrices, contiguous.
template <class S>
struct batch_factors {
  matrix_batch_view<const S> V;  // rows × reflectors
  const S* tau = nullptr;
  bool conjugated = false;  // V holds the conjugates of the reflectors; tau does not
};

// One backend, for one call. Operations take effect in the order of the calls; they may return before they are done.
// Each operation computes a matrix (or some of its columns) in scratch memory, verifies it, recomputes it if the check fails, and only then
// stores it. An operand that is `conjugated` holds the conjugates of its numbers, before and after; only the backend cuda takes such
// operands (`conjugates()`).
template <class S>
class batch_engine : public run::pending {
 public:
  // Return the operand in memory that this backend can access, as engine::read and write do.
  virtual matrix_batch_view<const S> read(const matrix_batch_view<const S>& operand) = 0;
  virtual std::span<const S> read(std::span<const S> operand) = 0;
  virtual matrix_batch_view<S> write(const matrix_batch_view<S>& operand) = 0;
  virtual std::span<S> write(std::span<S> operand) = 0;
  virtual void commit() = 0;

  // Returns memory for `elements` numbers, valid until the end of the call. A call uses it at most once; on cuda with at most the
  // `scratch_elements` of make_batch_engine().
  virtual S* scratch(index elements) = 0;
  // Copies numbers between this backend's memory, or from it to the host's; the latter are there after collect().
  virtual void copy(const S* from, S* to, index elements) = 0;

  virtual bool conjugates() const { return false; }

  // A ← its factors in LAPACK's storage; tau: min(m, n) for each matrix.
  virtual void factor(const matrix_batch_view<S>& A, S* tau, bool conjugated) = 0;

  // X ← op(Q) X. Only the first `given` rows of X are read; the rows below count as zero. `identity`: X ← the first columns of op(Q); X may
  // then be V's own memory.
  virtual void apply(const batch_factors<S>& Q, bool transposed, const matrix_batch_view<S>& X, index given, bool identity,
                     bool conjugated) = 0;

  // X ← U⁻¹ X or U⁻ᴴ X, U upper triangular; U is `conjugated`.
  virtual void solve(const matrix_batch_view<const S>& U, bool transposed, const matrix_batch_view<S>& X, bool conjugated) = 0;

  // Valid after collect() has waited: matrix · k_batch_side + column of the first number on a diagonal of U that is not above
  // thresholds::least_pivot times the largest of its column; −1 if there was none.
  virtual index singular() = 0;
};

namespace host {
template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const context& run);
}
namespace cuda {
template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const context& run, operation op, const batch_size& size, index scratch_elements);
// Returns whether the batch kernels take such a batch; complex matrices of more rows than k_batch_side they do not take. `precision_bytes`:
// of a number, or of a component of a complex one.
bool takes_batch(operation op, const batch_size& size, index precision_bytes, bool complex);
// Returns whether apply() needs scratch memory for a copy of V when X (m × n) is V's own memory.
bool batch_copies(index m, index n, index precision_bytes, bool complex);
// Returns the bytes of a workspace with `scratch_elements` elements of scratch memory.
template <class S>
index batch_workspace(operation op, const batch_size& size, index scratch_elements);
}  // namespace cuda

}  // namespace ballast::qr
