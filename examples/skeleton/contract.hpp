// The contract of the backends.
// Layer: algorithm, backend-free.
// A backend computes y_r = Σ_i x_ri by the scheme "twice". It loads each number twice, in two orders, adds up both times, and compares the
// two sums: the residual is their difference, its threshold is in thresholds.hpp. A sum is stored after it passed. One that fails is
// computed again from x, at most twice; one that still fails is not stored. If Σ|x_ri| is not finite, no threshold can judge the row: then
// two computations must give the same bits.
// Not covered: a number that changes in memory before its first load; an effect below the threshold.
#pragma once

#include "inject/active.hpp"
#include "run/recorder.hpp"
#include "run/settings.hpp"
#include "skeleton/plan.hpp"

namespace ballast::skeleton {

// One call of a plan.
struct work {
  problem size;
  const double* x;
  double* y;
  const run::settings& how;
  inject::active_injector& injector;
  run::recorder& seen;
};

void sum_on_host(const work& given);
void sum_on_device(const work& given);

}  // namespace ballast::skeleton
