// The traits of a type of numbers: its components, and the type of its sums. Types are float, double, std::complex (scalar.hpp) and the
// complex numbers of kernels (cuda/layout/number_types.hpp).
// Layer: algorithm, backend-free. Host/device-neutral.
#pragma once

#include <cstdint>

namespace ballast::qr {

template <class S>
struct scalar {
  using real = S;
  using wide = double;
  static constexpr std::int64_t reals = 1;
};

// The type of a component; the type of sums of such numbers, in double; the number of components.
template <class S>
using real_of = typename scalar<S>::real;
template <class S>
using wide_of = typename scalar<S>::wide;
template <class S>
inline constexpr std::int64_t k_reals = scalar<S>::reals;
template <class S>
inline constexpr bool is_complex = k_reals<S> == 2;

}  // namespace ballast::qr
