// Fast reciprocals and roots, without the special cases and branches of the exact ones. See arch.cuh.
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

// Returns 1 / x to one unit in the last place. x and 1 / x must be normal numbers; otherwise the result is undefined.
__device__ __forceinline__ double reciprocal(double x) {
#if BALLAST_DEVICE_CODE
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));  // relative error up to 2⁻²⁰
  const double e = fma(-x, y, 1.0);
  return fma(y, fma(e, e, e), y);
#else
  return 1 / x;
#endif
}

__device__ __forceinline__ float reciprocal(float x) {
#if BALLAST_DEVICE_CODE
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

// Returns √value with a relative error of at most 2^−21, without the branch of exact roots.
__device__ __forceinline__ float sqrt_fast(float value) {
#if BALLAST_DEVICE_CODE
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(value));
  return root;
#else
  return sqrtf(value);
#endif
}

// Returns 1 / √x to two units in the last place. x > 0 must be a normal number; otherwise the result is undefined.
__device__ __forceinline__ double reciprocal_sqrt(double x) {
#if BALLAST_DEVICE_CODE
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));  // relative error up to 2⁻²⁰
  const double e = fma(-x * y, y, 1.0);
  return fma(y * e, fma(e, 0.375, 0.5), y);
#else
  return 1 / sqrt(x);
#endif
}
__device__ __forceinline__ float reciprocal_sqrt(float x) {
#if BALLAST_DEVICE_CODE
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));  // relative error up to 2⁻²²
  return fmaf(y * fmaf(-x * y, y, 1.0f), 0.5f, y);
#else
  return 1 / sqrtf(x);
#endif
}

}  // namespace ballast::arch
