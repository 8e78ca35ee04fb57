// Division without the checks of the general one. See arch.cuh.
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

// 1 / x to a unit in the last place, for x and 1 / x that are normal numbers; else what comes out is not said.
__device__ __forceinline__ double reciprocal(double x) {
#if BALLAST_DEVICE_CODE
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));  // to 2⁻²⁰
  const double e = fma(-x, y, 1.0);
  return fma(y, fma(e, e, e), y);
#else
  return 1 / x;
#endif
}

}  // namespace ballast::arch
