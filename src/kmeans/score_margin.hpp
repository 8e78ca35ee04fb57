// The difference of two scores that rounding can explain: rows with a smaller one are decided by exact distances.
// Layer: algorithm, backend-free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "abft/threshold.hpp"

namespace ballast::kmeans {

// Two scores of a point x, the smaller one `minimum`, may be in the wrong order if they differ by no more than
// square · ‖x‖² + least_score · minimum + offset.
template <class T>
struct score_margin {
  T square = 0, least_score = 0, offset = 0;
};

// Derivation. A score is ‖c‖² − 2 x·c with rounded coordinates. Let u be the unit roundoff, a = ‖x‖, D = ‖x − c‖, R = ‖c‖ ≤ a + D.
//   · A term of the product passes `steps` additions: of its run, its span, and the sum of the spans; ‖c‖² passes as many and was rounded
//     itself. With Σ|2 x_f c_f| ≤ 2aR the error is at most u (steps + 1) (R² + 2aR) (Higham, Accuracy and Stability, section 3.1).
//   · x and c were rounded when they were shifted: ‖δx‖ ≤ ua and ‖δc‖ ≤ uR change D² by at most 2uD (a + R).
//   · R² + 2aR ≤ 3a² + 4aD + D² ≤ 5a² + 3D², and 2D (a + R) ≤ 2D (2a + D) ≤ 2a² + 4D².
// So E ≤ u ((5s + 2) a² + (3s + 4) D²) with s = steps + 1. The nearest centroid and the one of the smallest score err by E each, and both
// have D² ≤ minimum + a² + 2E; 1.01 covers terms of order u² s². Each operation may also lose half of the smallest number by underflow.
template <class T>
score_margin<T> score_margin_of(std::int64_t n) {
  const std::int64_t run = abft::k_kmeans_run, runs = (n + run - 1) / run, spans = (runs + run - 1) / run;
  const double steps = static_cast<double>(std::min(n, run) + std::min(runs - 1, run) + (spans - 1));
  const double s = steps + 1, unit = 1.01 * 2 * abft::unit_roundoff<T>;
  return {static_cast<T>(unit * (8 * s + 6)), static_cast<T>(unit * (3 * s + 4)),
          static_cast<T>(4 * static_cast<double>(n + 2)) * std::numeric_limits<T>::denorm_min()};
}

}  // namespace ballast::kmeans
