// Loads and stores of several numbers by one instruction.
// Layer: foundation, device code, over cuda/arch/memory.cuh.
#pragma once

#include "cuda/arch/memory.cuh"
#include "cuda/block/complex.cuh"

namespace ballast::cuda {

// Four contiguous numbers in shared memory.
template <class T>
struct alignas(16) four {
  T at[4];
};

template <class T>
struct complex_pair {
  complex<T> first;
  complex<T> second;
};

// Loads an element of a table through the read-only cache. Every block reads the table; no thread may write it during the launch.
__device__ __forceinline__ complex<float> cached(const complex<float>* at) {
  const float2 z = arch::load_table(reinterpret_cast<const float2*>(at));
  return {z.x, z.y};
}
__device__ __forceinline__ complex<double> cached(const complex<double>* at) {
  const double2 z = arch::load_table(reinterpret_cast<const double2*>(at));
  return {z.x, z.y};
}

// The same, but the compiler does not move the load before a preceding barrier: a value that is loaded early occupies registers until its
// use.
__device__ __forceinline__ complex<float> cached_late(const complex<float>* at) {
  const float2 z = arch::load_table_late(reinterpret_cast<const float2*>(at));
  return {z.x, z.y};
}
__device__ __forceinline__ complex<double> cached_late(const complex<double>* at) {
  const double2 z = arch::load_table_late(reinterpret_cast<const double2*>(at));
  return {z.x, z.y};
}

// Loads four reals of a table as two complex numbers. `at` is aligned to 16 bytes.
__device__ __forceinline__ complex_pair<float> cached_pair(const float* at) {
  const float4 z = arch::load_table(reinterpret_cast<const float4*>(at));
  return {{z.x, z.y}, {z.z, z.w}};
}
__device__ __forceinline__ complex_pair<double> cached_pair(const double* at) {
  const double2 z = arch::load_table(reinterpret_cast<const double2*>(at));
  const double2 w = arch::load_table(reinterpret_cast<const double2*>(at) + 1);
  return {{z.x, z.y}, {w.x, w.y}};
}

// Loads or stores an element of the data. Shared: other blocks write or read it during the same launch. Summed: a check sums it; then it is
// loaded into and stored from the typed registers of the sum, without moves. For other values the compiler chooses the registers: with
// typed ones, signals of 1024 doubles caused register spills. Again: a second load of the element, by an instruction of its own.
template <bool Shared, bool Summed, bool Again = false, class T>
__device__ __forceinline__ T load_data(const T* from) {
  if constexpr (!Summed) {
    return load_data<Shared, true, Again>(reinterpret_cast<const arch::untyped<T>*>(from)).value;
  } else if constexpr (Shared) {
    return Again ? arch::load_keep_again(from) : arch::load_keep(from);
  } else {
    return Again ? arch::load_streaming_again(from) : arch::load_streaming(from);
  }
}
template <bool Shared, bool Summed, class T>
__device__ __forceinline__ void store_data(T* to, const T& value) {
  if constexpr (!Summed) {
    store_data<Shared, true>(reinterpret_cast<arch::untyped<T>*>(to), arch::untyped<T>{value});
  } else if constexpr (Shared) {
    arch::store_keep(to, value);
  } else {
    arch::store_streaming(to, value);
  }
}

}  // namespace ballast::cuda
