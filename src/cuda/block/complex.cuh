// Complex numbers in registers.
// Layer: foundation, device code.
#pragma once

#include "cuda/arch/memory.cuh"

namespace ballast::cuda {

// Returns x y + z with one rounding.
__device__ __forceinline__ float multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
__device__ __forceinline__ double multiply_add(double x, double y, double z) { return fma(x, y, z); }

// A complex number, aligned to its size, so that one instruction loads or stores it.
template <class T>
struct alignas(2 * sizeof(T)) complex {
  T re;
  T im;
};

}  // namespace ballast::cuda

template <class T>
struct ballast::arch::register_of<ballast::cuda::complex<T>> {
  using type = T;
};

namespace ballast::cuda {

template <class T>
__device__ __forceinline__ complex<T> operator+(const complex<T>& x, const complex<T>& y) {
  return {x.re + y.re, x.im + y.im};
}
template <class T>
__device__ __forceinline__ complex<T> operator-(const complex<T>& x, const complex<T>& y) {
  return {x.re - y.re, x.im - y.im};
}
template <class T>
__device__ __forceinline__ complex<T> operator*(const complex<T>& x, const complex<T>& y) {
  return {multiply_add(x.re, y.re, -(x.im * y.im)), multiply_add(x.re, y.im, x.im * y.re)};
}
template <class T>
__device__ __forceinline__ complex<T> conjugate(const complex<T>& z) {
  return {z.re, -z.im};
}
// Returns x y + z with two roundings in each part.
template <class T>
__device__ __forceinline__ complex<T> multiply_add(const complex<T>& x, const complex<T>& y, const complex<T>& z) {
  return {multiply_add(x.re, y.re, multiply_add(-x.im, y.im, z.re)), multiply_add(x.re, y.im, multiply_add(x.im, y.re, z.im))};
}

// Returns z · i^Quarters, 0 ≤ Quarters < 4, without arithmetic.
template <int Quarters, class T>
__device__ __forceinline__ complex<T> quarter_turns(const complex<T>& z) {
  static_assert(Quarters >= 0 && Quarters < 4);
  if constexpr (Quarters == 0) {
    return z;
  } else if constexpr (Quarters == 1) {
    return {-z.im, z.re};
  } else if constexpr (Quarters == 2) {
    return {-z.re, -z.im};
  } else {
    return {z.im, -z.re};
  }
}

}  // namespace ballast::cuda
