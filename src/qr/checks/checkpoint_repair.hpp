// Repair of V from its checkpoint: c₁ = Σ v_i, c₂ = Σ w_i v_i, c₃ = Σ w_i² v_i and ‖v‖² of a column locate and rebuild up to two struck
// elements.
// Layer: algorithm, backend-free. In host memory.
// Source: P. Du et al., 2011, §6.
#pragma once

#include "core/memory.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

// S: real or complex. The sums are those of the components of a complex number; its two components are two elements.
template <class S>
class checkpoint_repair {
 public:
  // `weight`: w, numbers in [1, 2), one for each component of m numbers.
  checkpoint_repair(index m, const double* weight) : m_(m), weight_(weight) {}

  // Repairs column j of V as it is stored: v(i) for i > j, v(j) = 1. `kept` and `sums` hold its four sums from the checkpoint and from the
  // current V, each `stride` apart. Returns true if they are equal, or if v agrees with `kept` after the repair; sets *struck to j if they
  // were not equal.
  bool column(S* v, index j, const double* kept, const double* sums, index stride, index* struck);

 private:
  index m_;
  const double* weight_;
  core::vector<index> order_;  // components sorted by weight; filled on first use
};

}  // namespace ballast::qr
