// What a backend implements for batches of small matrices. A driver (batch.cpp) checks arguments and strings the operations together.
// Layer: algorithm, backend-free. host/ and cuda/ implement it.
#pragma once

#include <memory>
#include <span>

#include <ballast/qr.hpp>

#include "qr/contract.hpp"
#include "run/pending.hpp"

namespace ballast::qr {

// Rows and columns of the largest matrix that a batch computes side by side.
inline constexpr index k_batch_side = 256;

// Q of a batch of factorizations: reflectors below the diagonal of V's first columns, tau for each matrix one behind the other.
template <class S>
struct batch_factors {
  matrix_batch_view<const S> V;  // rows × reflectors
  const S* tau = nullptr;
};

// One backend, for one call. Operations take effect in the order of the calls; they may return before they are done.
// Each computes a matrix (or some of its columns) apart, verifies it, computes it again if it fails, and stores it in place.
template <class S>
class batch_engine : public run::pending {
 public:
  // An operand where this backend can reach it, as engine::read and write.
  virtual matrix_batch_view<const S> read(const matrix_batch_view<const S>& operand) = 0;
  virtual std::span<const S> read(std::span<const S> operand) = 0;
  virtual matrix_batch_view<S> write(const matrix_batch_view<S>& operand) = 0;
  virtual std::span<S> write(std::span<S> operand) = 0;
  virtual void commit() = 0;

  // Memory for `elements` numbers, until the end of the call; once for each call. As many as batch_scratch() says, at most.
  virtual S* scratch(index elements) = 0;

  // A ← its factors in LAPACK's storage; tau: min(m, n) for each matrix.
  virtual void factor(const matrix_batch_view<S>& A, S* tau) = 0;

  // X ← op(Q) X, of which only the first `given` rows are read: zeros are below. `identity`: X ← the first columns of op(Q), and X may then
  // be V's own memory.
  virtual void apply(const batch_factors<S>& Q, bool transposed, const matrix_batch_view<S>& X, index given, bool identity) = 0;

  // X ← U⁻¹ X or U⁻ᵀ X, U upper triangular.
  virtual void solve(const matrix_batch_view<const S>& U, bool transposed, const matrix_batch_view<S>& X) = 0;

  // Once collect() has waited: matrix · k_batch_side + column of the first zero on a diagonal of U; −1 if there was none.
  virtual index singular() = 0;
};

namespace host {
template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const context& run);
}
namespace cuda {
template <class S>
std::unique_ptr<batch_engine<S>> make_batch_engine(const context& run, index scratch_elements);
// Whether its kernels take such matrices.
bool takes_batch(operation what, index m, index n);
// Whether apply() needs scratch memory for a copy of V, where X (m × n) is V's own memory.
bool batch_copies(index m, index n);
// Bytes of a workspace with so many elements of scratch memory.
template <class S>
index batch_workspace(index scratch_elements);
}  // namespace cuda

}  // namespace ballast::qr
