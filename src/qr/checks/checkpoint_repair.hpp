// Repair of V from its checkpoint: c₁ = Σ v_i, c₂ = Σ w_i v_i, c₃ = Σ w_i² v_i and ‖v‖² of a column place and rebuild up to two struck
// elements.
// Layer: algorithm, backend-free. In host memory.
// Source: P. Du et al., 2011, §6.
#pragma once

#include <vector>

#include "qr/contract.hpp"

namespace ballast::qr {

template <class S>
class checkpoint_repair {
 public:
  // `weight`: w, m numbers in [1, 2).
  checkpoint_repair(index m, const double* weight) : m_(m), weight_(weight) {}

  // Column j of V as it is stored: v(i) for i > j, v(j) = 1. Its four sums as they were kept and as they are now, `stride` apart. True if
  // they are equal, or if v agrees with those that were kept after the repair; *struck is j if they were not equal.
  bool column(S* v, index j, const double* kept, const double* sums, index stride, index* struck);

 private:
  index m_;
  const double* weight_;
  std::vector<index> order_;  // rows by weight, once they are needed
};

}  // namespace ballast::qr
