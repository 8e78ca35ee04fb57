// When Lloyd's iterations stop, and which points an empty cluster may take: the decisions that the driver (driver/lloyd.cpp), the kernel of
// the update (cuda/update) and the kernel of small fits (cuda/batch) share.
// Layer: algorithm, host/device-neutral.
// Source: scikit-learn's conventions for tol, convergence and empty clusters.
#pragma once

#include "abft/threshold.hpp"
#include "core/macros.hpp"

namespace ballast::kmeans {

// The rule that stops the iterations. The first three are those of kmeans::stop_reason; none: they go on.
enum class stop_rule : int { labels_unchanged, tolerance, max_iter, none };

// Returns the rule that stops the iterations after one of them, apart from max_iter, which the loops count themselves. `unchanged`: no
// label differs from that of the iteration before. `shift`: Σ‖c_new − c_old‖².
BALLAST_HD constexpr stop_rule stop_after(bool unchanged, double shift, double tolerance) {
  return unchanged ? stop_rule::labels_unchanged : shift <= tolerance ? stop_rule::tolerance : stop_rule::none;
}

// Returns whether a point is farther from its centroid than rounding can move it: only such a point becomes the centroid of an empty
// cluster. To move another gains nothing, and with fewer different points than clusters the iterations would never stop. `distance`:
// ‖x − c‖²; `square`: ‖x‖²; `members`: the points of the cluster. Derivation: the
// centroid of a cluster of equal points is a sum of `members` terms in double, a quotient, and a number of type T: with the rounding of x
// itself, it differs from x by at most `rounding` · ‖x‖. The
// factor 4 is a margin for both.
template <class T>
BALLAST_HD constexpr bool may_relocate(double distance, double square, double members) {
  const double rounding = 2 * abft::unit_roundoff<T> + abft::unit_roundoff<double> * members;
  return distance > 4 * rounding * rounding * square;
}

}  // namespace ballast::kmeans
