// The rank of a triangle R, independent of the scaling of its columns.
// Layer: algorithm (driver), backend-free.
#pragma once

#include <limits>
#include <string>

#include "qr/contract.hpp"

namespace ballast::qr {

// The findings about R (n × n), whose columns are scaled by powers of two to norms in [1, 2): S.
struct rank_estimate {
  // ‖S‖_F ‖S⁻¹‖₂ / √n: 1 for orthogonal columns (Demmel's condition number over √n). NaN if R holds Inf or NaN.
  double condition = 1;
  index dependent = -1;  // a column that depends on the others to rounding; −1: full rank
  index rank = -1;       // with `dependent`: the numerical rank; −1 if R is too large to compute it (k_most_ranked)

  bool full() const { return dependent < 0; }
};

// R is larger: its rank is not counted when it is deficient.
inline constexpr index k_most_ranked = 1024;

// Estimates ‖S⁻¹‖₂ from below by one step of inverse iteration with SᵀS on two random vectors, 4n² flops each; its two triangular solves
// are verified. A condition above thresholds::most_condition is confirmed by other vectors. Then the rank is counted: by QR with column
// pivoting of S in double, 4/3 n³ flops. Without qr::options::full_rank only a zero on the diagonal is looked for.
template <class S>
rank_estimate estimate_rank(const context& run, engine<S>& on, const matrix_view<const S>& R);

// Returns the message of a rank_deficient_error. `under`: the columns of R are rows of A.
std::string deficient_text(const rank_estimate& seen, index n, bool under);

}  // namespace ballast::qr
