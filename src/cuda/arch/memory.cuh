// Loads and stores of global memory with cache hints. T: any trivially copyable type of 4, 8 or 16 bytes, aligned to its size.
// Layer: foundation, device.
//   streaming  for data that is used once, or twice at once: evicted from L1 and L2 first; stored past L1
//   keep       for data that other threads read soon, also in the same launch: coherent (not through L1), evicted from L2 last
// An assembler (ptxas) merges two loads of one kind from one address, volatile asm statements or not, unless a barrier or a branch is
// between them. A number that is loaded twice, so that a check does not share its register, is loaded by two kinds: …_again are the second
// ones.
#pragma once

#include "cuda/arch/shared.cuh"
#include "cuda/arch/target.cuh"

namespace ballast::arch {

// The type of the registers that hold a T: the type of its numbers, so that a load or store needs no register moves.
template <class T>
struct register_of {
  using type = std::uint32_t;
};
template <>
struct register_of<float> {
  using type = float;
};
template <>
struct register_of<double> {
  using type = double;
};

// A T that is loaded and stored through integer registers, regardless of its members.
template <class T>
struct untyped {
  T value;
};

#if BALLAST_DEVICE_CODE
namespace detail {

// A value of any type as 32-bit words.
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

// A value as registers of the type of its numbers.
template <class T>
struct registers {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  using type = typename register_of<T>::type;
  type at[sizeof(T) / sizeof(type)];
};

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

// NAME(r, address): one instruction that moves data between memory and the registers r. TYPE, LETTER: the names of type REGISTER in PTX and
// in an asm statement.
#define BALLAST_LOAD(NAME, OPERATION, POLICY, REGISTER, TYPE, LETTER, ...)                                              \
  template <int Count>                                                                                                  \
  __device__ __forceinline__ void NAME(REGISTER(&r)[Count], const void* address) {                                      \
    if constexpr (Count == 1) {                                                                                         \
      asm volatile(OPERATION "." TYPE " %0, [%1], %2;" : "=" LETTER(r[0]) : "l"(address), "l"(POLICY()) : __VA_ARGS__); \
    } else if constexpr (Count == 2) {                                                                                  \
      asm volatile(OPERATION ".v2." TYPE " {%0, %1}, [%2], %3;"                                                         \
                   : "=" LETTER(r[0]), "=" LETTER(r[1])                                                                 \
                   : "l"(address), "l"(POLICY())                                                                        \
                   : __VA_ARGS__);                                                                                      \
    } else {                                                                                                            \
      asm volatile(OPERATION ".v4." TYPE " {%0, %1, %2, %3}, [%4], %5;"                                                 \
                   : "=" LETTER(r[0]), "=" LETTER(r[1]), "=" LETTER(r[2]), "=" LETTER(r[3])                             \
                   : "l"(address), "l"(POLICY())                                                                        \
                   : __VA_ARGS__);                                                                                      \
    }                                                                                                                   \
  }
#define BALLAST_STORE(NAME, OPERATION, POLICY, REGISTER, TYPE, LETTER)                                                                 \
  template <int Count>                                                                                                                 \
  __device__ __forceinline__ void NAME(const REGISTER(&r)[Count], void* address) {                                                     \
    if constexpr (Count == 1) {                                                                                                        \
      asm volatile(OPERATION "." TYPE " [%0], %1, %2;" ::"l"(address), LETTER(r[0]), "l"(POLICY()) : "memory");                        \
    } else if constexpr (Count == 2) {                                                                                                 \
      asm volatile(OPERATION ".v2." TYPE " [%0], {%1, %2}, %3;" ::"l"(address), LETTER(r[0]), LETTER(r[1]), "l"(POLICY()) : "memory"); \
    } else {                                                                                                                           \
      asm volatile(OPERATION ".v4." TYPE " [%0], {%1, %2, %3, %4}, %5;" ::"l"(address), LETTER(r[0]), LETTER(r[1]), LETTER(r[2]),      \
                   LETTER(r[3]), "l"(POLICY())                                                                                         \
                   : "memory");                                                                                                        \
    }                                                                                                                                  \
  }
#define BALLAST_EACH_TYPE(KIND, NAME, OPERATION, POLICY, ...)                         \
  KIND(NAME, OPERATION, POLICY, std::uint32_t, "b32", "r" __VA_OPT__(, ) __VA_ARGS__) \
  KIND(NAME, OPERATION, POLICY, float, "f32", "f" __VA_OPT__(, ) __VA_ARGS__)         \
  KIND(NAME, OPERATION, POLICY, double, "f64", "d" __VA_OPT__(, ) __VA_ARGS__)

BALLAST_EACH_TYPE(BALLAST_LOAD, load_streaming, "ld.global.nc.L1::evict_first.L2::cache_hint", evict_first)
BALLAST_EACH_TYPE(BALLAST_LOAD, load_streaming_again, "ld.relaxed.cta.global.L1::evict_first.L2::cache_hint", evict_first)
BALLAST_EACH_TYPE(BALLAST_LOAD, load_keep, "ld.global.cg.L2::cache_hint", evict_last, "memory")
BALLAST_EACH_TYPE(BALLAST_LOAD, load_keep_again, "ld.relaxed.gpu.global.L2::cache_hint", evict_last, "memory")
BALLAST_EACH_TYPE(BALLAST_STORE, store_streaming, "st.global.L1::no_allocate.L2::cache_hint", evict_first)
BALLAST_EACH_TYPE(BALLAST_STORE, store_keep, "st.global.cg.L2::cache_hint", evict_last)
#undef BALLAST_EACH_TYPE
#undef BALLAST_STORE
#undef BALLAST_LOAD

}  // namespace detail
#endif

// Loads through the non-coherent path: no thread may write this memory during the launch.
template <class T>
__device__ __forceinline__ T load_streaming(const T* from) {
#if BALLAST_DEVICE_CODE
  detail::registers<T> r;
  detail::load_streaming(r.at, from);
  return __builtin_bit_cast(T, r);
#else
  simt::require_aligned(from, sizeof(T));
  return simt::loaded(*from);
#endif
}

// Loads what load_streaming has loaded, often from L1, through the coherent path.
template <class T>
__device__ __forceinline__ T load_streaming_again(const T* from) {
#if BALLAST_DEVICE_CODE
  detail::registers<T> r;
  detail::load_streaming_again(r.at, from);
  return __builtin_bit_cast(T, r);
#else
  simt::require_aligned(from, sizeof(T));
  return simt::loaded(*from);
#endif
}

template <class T>
__device__ __forceinline__ void store_streaming(T* to, const T& value) {
#if BALLAST_DEVICE_CODE
  detail::store_streaming(__builtin_bit_cast(detail::registers<T>, value).at, to);
#else
  simt::require_aligned(to, sizeof(T));
  *to = value;
#endif
}

template <class T>
__device__ __forceinline__ T load_keep(const T* from) {
#if BALLAST_DEVICE_CODE
  detail::registers<T> r;
  detail::load_keep(r.at, from);
  return __builtin_bit_cast(T, r);
#else
  simt::require_aligned(from, sizeof(T));
  return simt::loaded(*from);
#endif
}

// Loads what load_keep has loaded.
template <class T>
__device__ __forceinline__ T load_keep_again(const T* from) {
#if BALLAST_DEVICE_CODE
  detail::registers<T> r;
  detail::load_keep_again(r.at, from);
  return __builtin_bit_cast(T, r);
#else
  simt::require_aligned(from, sizeof(T));
  return simt::loaded(*from);
#endif
}

template <class T>
__device__ __forceinline__ void store_keep(T* to, const T& value) {
#if BALLAST_DEVICE_CODE
  detail::store_keep(__builtin_bit_cast(detail::registers<T>, value).at, to);
#else
  simt::require_aligned(to, sizeof(T));
  *to = value;
#endif
}

// Stores a zero that is in no register, so that no fault of a register changes it.
template <class T>
__device__ __forceinline__ void store_zero(T* to) {
#if BALLAST_DEVICE_CODE
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.global.b32 [%0], 0;" ::"l"(to) : "memory");
  } else {
    asm volatile("st.global.b64 [%0], 0;" ::"l"(to) : "memory");
  }
#else
  simt::require_aligned(to, sizeof(T));
  *to = T(0);
#endif
}

// Loads through the read-only cache, for data that is read again (twiddle tables). No thread may write it during the launch.
template <class T>
__device__ __forceinline__ T load_table(const T* from) {
#if BALLAST_DEVICE_CODE
  return __ldg(from);
#else
  simt::require_aligned(from, sizeof(T));
  return *from;
#endif
}

#if BALLAST_DEVICE_CODE
namespace detail {

// Loads through all caches. The compiler does not move or merge the load; an assembler merges it with others of its kind.
template <class T>
__device__ __forceinline__ T load_here(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  words<sizeof(T) / 4> w;
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
  return from_words<T>(w);
}

}  // namespace detail
#endif

// As load_table, but the compiler does not move the load before a preceding barrier: a value that is loaded early occupies registers until
// its use.
template <class T>
__device__ __forceinline__ T load_table_late(const T* from) {
#if BALLAST_DEVICE_CODE
  return detail::load_here(from);
#else
  simt::require_aligned(from, sizeof(T));
  return *from;
#endif
}

// Loads an element again by an instruction of its own, from the caches, instead of reusing the register that already holds it.
template <class T>
__device__ __forceinline__ T load_itself(const T* from) {
#if BALLAST_DEVICE_CODE
  return detail::load_here(from);
#else
  simt::require_aligned(from, sizeof(T));
  return simt::loaded(*from);
#endif
}

// Loads an element of shared memory by an instruction of its own, which no assembler merges with another one.
template <class T>
__device__ __forceinline__ T load_shared_itself(const T* from) {
#if BALLAST_DEVICE_CODE
  detail::words<sizeof(T) / 4> w;
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(w.at[0]) : "r"(shared_address(from)) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.volatile.shared.v2.b32 {%0, %1}, [%2];" : "=r"(w.at[0]), "=r"(w.at[1]) : "r"(shared_address(from)) : "memory");
  } else {
    asm volatile("ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.at[0]), "=r"(w.at[1]), "=r"(w.at[2]), "=r"(w.at[3])
                 : "r"(shared_address(from))
                 : "memory");
  }
  return detail::from_words<T>(w);
#else
  simt::require_aligned(from, sizeof(T));
  return *from;
#endif
}

// Prefetches the cache line at `at` into L2. The emulator reads the address, so that a wrong one is detected.
__device__ __forceinline__ void prefetch_l2(const void* at) {
#if BALLAST_DEVICE_CODE
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  static_cast<void>(*static_cast<const volatile unsigned char*>(at));
#endif
}

}  // namespace ballast::arch
