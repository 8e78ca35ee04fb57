// Q of a factorization, applied to columns under protection: what ormqr, orgqr and gels are made of.
// Layer: algorithm (driver). Backend-free.
#pragma once

#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/function_ref.hpp"
#include "qr/factorization.hpp"

namespace ballast::qr {

template <class S>
class orthogonal_factor {
 public:
  // `count` reflectors of `m` rows, column-major, and their tau. Forms the factors T and verifies them against the reflectors one by one.
  orthogonal_factor(const context& run, index m, index count, const S* V, index ldv, const S* tau);

  // Columns [first, first + width) of the operand into X (m rows, leading dimension m).
  using loader = core::function_ref<void(index first, index width, S* X)>;

  // op(Q) times the loaded columns, m × columns, column-major: every block verified before it is taken over. With `unit` the operand is the
  // identity's first columns, and work on its zeros is saved. Check run.seen.uncorrectable() before the result is used.
  core::aligned_buffer<S> apply(bool transposed, index columns, loader load, bool unit) const;

 private:
  void form(index k);
  double deviation(index k, double& size) const;
  void apply_block(bool transposed, index block, index blocks, index first, index width, loader load, bool unit, S* result) const;

  const kernels<S>& kernels_;
  const context& run_;
  const index m_, count_;
  const S* const tau_;
  index nb_ = 1, panels_ = 0;
  bool finite_ = true;
  core::aligned_buffer<S> V1_, T_;
  std::vector<block_reflector<S>> panel_;
};

}  // namespace ballast::qr
