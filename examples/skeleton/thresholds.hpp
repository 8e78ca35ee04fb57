// The threshold of the sum.
// Layer: algorithm. Host/device-neutral.
#pragma once

#include <cstdint>

#include "abft/threshold.hpp"
#include "core/macros.hpp"

namespace ballast::skeleton::thresholds {

// Returns the bound of the difference of two sums of the same n numbers in two orders; `size` = Σ|x_i|, as computed. Derivation: a term
// passes through at most n additions, so a computed sum is Σ x_i (1 + e_i) with |e_i| ≤ (1 + u)^n − 1. The difference is at most what it is
// for the numbers |x_i|, for which abft::reordered_sum_limit bounds it relative to their computed sum.
BALLAST_HD constexpr double residual(std::int64_t n, double size) { return abft::reordered_sum_limit(static_cast<double>(n)) * size; }

}  // namespace ballast::skeleton::thresholds
