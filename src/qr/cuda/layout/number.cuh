// The numbers of the kernels: float, double, and complex numbers of them, with what the kernels need of all four. The
// counterpart of qr/arithmetic/scalar.hpp on a device.
// Layer: backend "cuda" of QR, device code. complex_number has the layout of std::complex.
#pragma once

#include <cmath>
#include <cstdint>

#include "abft/seal.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/twice.cuh"
#include "qr/cuda/layout/number_types.hpp"

// The shuffles of complex numbers are found by their argument.
namespace ballast::qr::cuda::numbers {

template <class R>
__device__ __forceinline__ complex_number<R> __shfl_sync(unsigned mask, complex_number<R> x, int lane) {
  return {::__shfl_sync(mask, x.re, lane), ::__shfl_sync(mask, x.im, lane)};
}
template <class R>
__device__ __forceinline__ complex_number<R> __shfl_xor_sync(unsigned mask, complex_number<R> x, int distance) {
  return {::__shfl_xor_sync(mask, x.re, distance), ::__shfl_xor_sync(mask, x.im, distance)};
}

}  // namespace ballast::qr::cuda::numbers

namespace ballast::qr::cuda {

// x + a b, x − a b, x + conj(a) b. The products join the additions in one instruction each.
template <class S>
__device__ __forceinline__ S plus_product(S x, S a, S b) {
  if constexpr (is_complex<S>)
    return {x.re + a.re * b.re - a.im * b.im, x.im + a.re * b.im + a.im * b.re};
  else
    return x + a * b;
}
template <class S>
__device__ __forceinline__ S minus_product(S x, S a, S b) {
  if constexpr (is_complex<S>)
    return {x.re - a.re * b.re + a.im * b.im, x.im - a.re * b.im - a.im * b.re};
  else
    return x - a * b;
}
template <class S>
__device__ __forceinline__ S plus_conjugate_product(S x, S a, S b) {
  if constexpr (is_complex<S>)
    return {x.re + a.re * b.re + a.im * b.im, x.im + a.re * b.im - a.im * b.re};
  else
    return x + a * b;
}

// x in double, component by component.
template <class S>
__device__ __forceinline__ wide_of<S> widened(S x) {
  if constexpr (is_complex<S>)
    return {static_cast<double>(x.re), static_cast<double>(x.im)};
  else
    return static_cast<double>(x);
}
// f(x) of each component, which f takes and returns in double.
template <class S, class Function>
__device__ __forceinline__ S each_component(S x, Function&& f) {
  using real = real_of<S>;
  if constexpr (is_complex<S>)
    return {static_cast<real>(f(static_cast<double>(x.re))), static_cast<real>(f(static_cast<double>(x.im)))};
  else
    return static_cast<S>(f(static_cast<double>(x)));
}

// x, or its conjugate.
template <class S>
__device__ __forceinline__ S conjugated_if(bool wanted, S x) {
  if constexpr (is_complex<S>) x.im = wanted ? -x.im : x.im;
  return x;
}
template <class S>
__device__ __forceinline__ real_of<S> real_part(S x) {
  if constexpr (is_complex<S>)
    return x.re;
  else
    return x;
}

// |x|².
template <class S>
__device__ __forceinline__ real_of<S> square_of(S x) {
  if constexpr (is_complex<S>)
    return x.re * x.re + x.im * x.im;
  else
    return x * x;
}
// The sum of the components' absolute values: |x| for real numbers, between |x| and √2 |x| for complex ones, without a root.
template <class S>
__device__ __forceinline__ double size_of_number(S x) {
  if constexpr (is_complex<S>)
    return fabs(static_cast<double>(x.re)) + fabs(static_cast<double>(x.im));
  else
    return fabs(static_cast<double>(x));
}

// The larger of the components' absolute values, in double; NaN if one is NaN.
template <class S>
__device__ __forceinline__ double largest_component(S x) {
  if constexpr (is_complex<S>) {
    const double a = fabs(static_cast<double>(x.re)), b = fabs(static_cast<double>(x.im));
    return a != a || a > b ? a : b;
  } else {
    return fabs(static_cast<double>(x));
  }
}

// a / b. Complex: both times the conjugate of b, scaled so that no square leaves the range.
template <class S>
__device__ __forceinline__ S quotient(S a, S b) {
  if constexpr (is_complex<S>) {
    using real = real_of<S>;
    // Smith, Algorithm 116, CACM 1962.
    if (fabs(b.re) >= fabs(b.im)) {
      const real share = b.re == 0 ? b.im : b.im / b.re, below = b.re + b.im * share;
      return {(a.re + a.im * share) / below, (a.im - a.re * share) / below};
    }
    const real share = b.re / b.im, below = b.im + b.re * share;
    return {(a.re * share + a.im) / below, (a.im * share - a.re) / below};
  } else {
    return a / b;
  }
}

// A term of a hash over numbers; `place` differs for each number.
template <class S>
__device__ __forceinline__ std::uint64_t hash_of_number(S x, std::uint64_t place) {
  if constexpr (is_complex<S>)
    return abft::spread_hash(x.re, 2 * place) + abft::spread_hash(x.im, 2 * place + 1);
  else
    return abft::spread_hash(x, place);
}

// Loads a number that the compiler may have in a register already.
template <class S>
__device__ __forceinline__ S loaded_again(const S* from) {
  if constexpr (is_complex<S>) {
    const volatile real_of<S>* const parts = &from->re;
    return {parts[0], parts[1]};
  } else {
    return *static_cast<const volatile S*>(from);
  }
}
template <class S>
__device__ __forceinline__ S number_loaded_twice(const S& from) {
  if constexpr (is_complex<S>)
    return {ballast::cuda::loaded_twice(from.re), ballast::cuda::loaded_twice(from.im)};
  else
    return ballast::cuda::loaded_twice(from);
}

// A term of the hash of results, abft::value_hash, over numbers.
template <class S>
__device__ __forceinline__ std::uint64_t result_hash_of(S x, std::uint64_t place) {
  if constexpr (is_complex<S>)
    return abft::value_hash(x.re, 2 * place) + abft::value_hash(x.im, 2 * place + 1);
  else
    return abft::value_hash(x, place);
}

template <class S>
__device__ __forceinline__ bool same_bits_of(S a, S b) {
  if constexpr (is_complex<S>)
    return ballast::cuda::bits(a.re) == ballast::cuda::bits(b.re) && ballast::cuda::bits(a.im) == ballast::cuda::bits(b.im);
  else
    return ballast::cuda::bits(a) == ballast::cuda::bits(b);
}

// Stores a number that make() computes twice, as ballast::cuda::store_compared.
template <class S, class Make>
__device__ __forceinline__ void store_number_compared(S* to, Make&& make) {
  if constexpr (is_complex<S>) {
    ballast::cuda::store_compared(&to->re, [&] { return make().re; });
    ballast::cuda::store_compared(&to->im, [&] { return make().im; });
  } else {
    ballast::cuda::store_compared(to, make);
  }
}

// x · 2^e, rounded like x.
template <class S>
__device__ __forceinline__ S shifted_number(S x, int e) {
  if constexpr (is_complex<S>)
    return {std::ldexp(x.re, e), std::ldexp(x.im, e)};
  else
    return std::ldexp(x, e);
}

// A number rounded from double.
template <class S>
__device__ __forceinline__ S narrowed(wide_of<S> x) {
  if constexpr (is_complex<S>)
    return {static_cast<real_of<S>>(x.re), static_cast<real_of<S>>(x.im)};
  else
    return static_cast<S>(x);
}

template <class S>
__device__ __forceinline__ S conjugate_of(S x) {
  return conjugated_if(true, x);
}
template <class S>
__device__ __forceinline__ S negative_of(S x) {
  if constexpr (is_complex<S>)
    return {-x.re, -x.im};
  else
    return -x;
}
// A real number times a number.
template <class S>
__device__ __forceinline__ S times_real(S x, real_of<S> by) {
  if constexpr (is_complex<S>)
    return {x.re * by, x.im * by};
  else
    return x * by;
}

// |x| of a number in double whose square is within the range.
template <class S>
__device__ __forceinline__ double magnitude(S x) {
  if constexpr (is_complex<S>)
    return sqrt(square_of(x));
  else
    return fabs(x);
}

// A number from an array of its components.
template <class Wide>
__device__ __forceinline__ Wide number_at(const double* components, std::int64_t i) {
  if constexpr (is_complex<Wide>)
    return {components[2 * i], components[2 * i + 1]};
  else
    return components[i];
}

// An array of numbers as one of their components, of whose sums a warp or block adds up each.
template <class S, int Count>
__device__ __forceinline__ auto& all_components(S (&x)[Count]) {
  if constexpr (is_complex<S>)
    return reinterpret_cast<real_of<S>(&)[2 * Count]>(x);
  else
    return x;
}

// An array of numbers as one of their components.
template <class S>
__device__ __forceinline__ real_of<S>* components(S* x) {
  return reinterpret_cast<real_of<S>*>(x);
}
template <class S>
__device__ __forceinline__ const real_of<S>* components(const S* x) {
  return reinterpret_cast<const real_of<S>*>(x);
}

}  // namespace ballast::qr::cuda
