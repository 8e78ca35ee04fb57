// Unrolled loops whose index is a compile-time constant, so that the body can use it for register arrays and template arguments.
// Layer: foundation, device code.
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::cuda {

// A compile-time integer as a value.
template <int Value>
struct index {
  static constexpr int value = Value;
  __device__ constexpr operator int() const { return Value; }  // NOLINT(google-explicit-constructor)
};

// A type as a value.
template <class T>
struct type_of {
  using type = T;
};

// Calls body(index<0>{}), …, body(index<Count − 1>{}).
template <int Count, int First = 0, class Body>
__device__ __forceinline__ void unrolled(Body&& body) {
  if constexpr (First < Count) {
    body(index<First>{});
    unrolled<Count, First + 1>(body);
  }
}

}  // namespace ballast::cuda
