// Loads and stores of global memory with cache hints. T: any trivially copyable type of 4, 8 or 16 bytes, aligned to its size.
// Layer: foundation, device.
//   streaming  touched once: does not stay in L1, first to leave L2
//   keep       written here and read soon by others, also in the same launch: coherent (not through L1), last to leave L2
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

#if BALLAST_DEVICE_CODE
namespace detail {

// The registers of a value.
template <int Words>
struct words {
  std::uint32_t at[Words];
};

template <class T>
__device__ __forceinline__ words<sizeof(T) / 4> to_words(const T& value) {
  return __builtin_bit_cast(words<sizeof(T) / 4>, value);
}

template <class T>
__device__ __forceinline__ T from_words(const words<sizeof(T) / 4>& value) {
  return __builtin_bit_cast(T, value);
}

__device__ __forceinline__ std::uint64_t evict_first() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ std::uint64_t evict_last() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

}  // namespace detail
#endif

// Of memory that nobody writes during the launch.
template <class T>
__device__ __forceinline__ T load_streaming(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  detail::words<sizeof(T) / 4> w;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.b32 %0, [%1], %2;" : "=r"(w.at[0]) : "l"(from), "l"(detail::evict_first()));
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"
                 : "=r"(w.at[0]), "=r"(w.at[1])
                 : "l"(from), "l"(detail::evict_first()));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(w.at[0]), "=r"(w.at[1]), "=r"(w.at[2]), "=r"(w.at[3])
                 : "l"(from), "l"(detail::evict_first()));
  }
  return detail::from_words<T>(w);
#else
  simt::require_aligned(from, sizeof(T));
  return *from;
#endif
}

template <class T>
__device__ __forceinline__ void store_streaming(T* to, const T& value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  const detail::words<sizeof(T) / 4> w = detail::to_words(value);
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.b32 [%0], %1, %2;" ::"l"(to), "r"(w.at[0]), "l"(detail::evict_first())
                 : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.v2.b32 [%0], {%1, %2}, %3;" ::"l"(to), "r"(w.at[0]), "r"(w.at[1]),
                 "l"(detail::evict_first())
                 : "memory");
  } else {
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "r"(w.at[0]), "r"(w.at[1]),
                 "r"(w.at[2]), "r"(w.at[3]), "l"(detail::evict_first())
                 : "memory");
  }
#else
  simt::require_aligned(to, sizeof(T));
  *to = value;
#endif
}

template <class T>
__device__ __forceinline__ T load_keep(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  detail::words<sizeof(T) / 4> w;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.global.cg.L2::cache_hint.b32 %0, [%1], %2;" : "=r"(w.at[0]) : "l"(from), "l"(detail::evict_last()) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.global.cg.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"
                 : "=r"(w.at[0]), "=r"(w.at[1])
                 : "l"(from), "l"(detail::evict_last())
                 : "memory");
  } else {
    asm volatile("ld.global.cg.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(w.at[0]), "=r"(w.at[1]), "=r"(w.at[2]), "=r"(w.at[3])
                 : "l"(from), "l"(detail::evict_last())
                 : "memory");
  }
  return detail::from_words<T>(w);
#else
  simt::require_aligned(from, sizeof(T));
  return *from;
#endif
}

template <class T>
__device__ __forceinline__ void store_keep(T* to, const T& value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  const detail::words<sizeof(T) / 4> w = detail::to_words(value);
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.global.cg.L2::cache_hint.b32 [%0], %1, %2;" ::"l"(to), "r"(w.at[0]), "l"(detail::evict_last()) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("st.global.cg.L2::cache_hint.v2.b32 [%0], {%1, %2}, %3;" ::"l"(to), "r"(w.at[0]), "r"(w.at[1]), "l"(detail::evict_last())
                 : "memory");
  } else {
    asm volatile("st.global.cg.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "r"(w.at[0]), "r"(w.at[1]), "r"(w.at[2]),
                 "r"(w.at[3]), "l"(detail::evict_last())
                 : "memory");
  }
#else
  simt::require_aligned(to, sizeof(T));
  *to = value;
#endif
}

// Through L1 where the hardware wants, for data that is read again (twiddle tables). Nobody writes it during the launch.
template <class T>
__device__ __forceinline__ T load_table(const T* from) {
#if BALLAST_DEVICE_CODE
  return __ldg(from);
#else
  simt::require_aligned(from, sizeof(T));
  return *from;
#endif
}

// The same, but not before the barrier in front of it: what is read early waits in registers.
template <class T>
__device__ __forceinline__ T load_table_late(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  detail::words<sizeof(T) / 4> w;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(w.at[0]) : "l"(from) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(w.at[0]), "=r"(w.at[1]) : "l"(from) : "memory");
  } else {
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.at[0]), "=r"(w.at[1]), "=r"(w.at[2]), "=r"(w.at[3])
                 : "l"(from)
                 : "memory");
  }
  return detail::from_words<T>(w);
#else
  simt::require_aligned(from, sizeof(T));
  return *from;
#endif
}

// Asks for the line of L2 that holds `at`. In the emulator the address is read, so that a wrong one shows.
__device__ __forceinline__ void prefetch_l2(const void* at) {
#if BALLAST_DEVICE_CODE
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  static_cast<void>(*static_cast<const volatile unsigned char*>(at));
#endif
}

}  // namespace ballast::arch
