// CUDA's language extensions for g++, so that a .cuh source compiles unchanged and runs on fibers (scheduler.cpp).
// Layer: test emulator. cuda/arch/target.cuh includes it if the compiler is not a CUDA compiler; launch.hpp runs kernels.
//
// One host thread runs all emulated threads, one at a time, each until it waits. So plain memory is sequentially consistent: the emulator
// detects wrong ordering of threads, but not errors that only a weak memory model shows.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "simt/vector_types.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__  // empty, because the standard headers use it inside __attribute__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

// The variables of the running thread, which every switch sets.
inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;
inline constexpr int warpSize = 32;

namespace simt {

// A source location at which a kernel waits, for messages and to distinguish barriers.
struct code_location {
  const char* file = "";
  unsigned line = 0;
};

// --- functions that kernels call, by the CUDA names below and through src/cuda/arch --------------------------------------------------

enum class vote { none, any, all, count };

int block_barrier(vote kind, int predicate, code_location where);
// A barrier of `threads` threads, in whole warps. `number`: 1 to 15.
void group_barrier(int number, int threads, code_location where);

// All existing lanes of `mask` meet. warp_exchange returns the value of lane `source`; warp_ballot the lanes with a true predicate.
std::uint64_t warp_exchange(unsigned mask, std::uint64_t value, int source, code_location where);
unsigned warp_ballot(unsigned mask, bool predicate, code_location where);
// `combine` is called once, after all lanes of the mask have arrived: operands[lane] is the operand of that lane.
void warp_collective(unsigned mask, void* operand, void (*combine)(void* const* operands, unsigned mask), code_location where);
// All 128 threads of a warpgroup meet. `perform` gets their operands, `size` bytes each; it is called at once, or when the first thread
// waits for the product.
void product_begin(const void* operand, int size, void (*perform)(const unsigned char* operands, int size), code_location where);
void product_commit();
void product_wait(int groups_left);
unsigned live_lanes();
int lane();
int warp();
int multiprocessor();
std::uint64_t ticks();

// Lets other threads run. A thread that polls memory must call it, or it would poll forever. `spins`: count the call for the deadlock
// check.
void give_way(bool spins);
// Sometimes lets other threads run. Called before an atomic operation, so that the order of threads varies.
void maybe_give_way();

unsigned char* dynamic_shared();
// Returns the object of the running block with this key.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);

// Computes D ← D + A B with one rounding for each term, in ascending order of k. A is m × k, B is k × n, D is m × n, all row-major.
void multiply_add(int m, int n, int k, const double* a, const double* b, double* d);

// Throws error.
[[noreturn]] void refuse(const char* what);
// Throws error unless `pointer` is a multiple of `alignment`.
void require_aligned_slow(const void* pointer, std::size_t alignment);
inline void require_aligned(const void* pointer, std::size_t alignment) {
  if ((reinterpret_cast<std::uintptr_t>(pointer) & (alignment - 1)) != 0) [[unlikely]]
    require_aligned_slow(pointer, alignment);
}

// Loads of data from global memory (arch/memory.cuh): `seen` counts them. A test can make load number `at` return a wrong value: bit 4 of
// its byte number `byte` is flipped.
struct load_strike {
  std::int64_t seen = 0;
  std::int64_t at = -1;
  int byte = 0;
};
inline load_strike loads;

template <class T>
T loaded(T value) {
  if (loads.seen++ == loads.at) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    bytes[loads.byte] ^= 0x10;
    std::memcpy(&value, bytes, sizeof(T));
  }
  return value;
}

// Asynchronous copies. The seed determines whether the bytes move at once, at a later switch, or when a thread waits for them.
void async_copy(void* shared, const void* global, int bytes, int valid_bytes, code_location where);
void async_commit();
void async_wait(int groups_left);
void bulk_load(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier, code_location where);
void bulk_store(void* global, const void* shared, std::uint32_t bytes, code_location where);
void bulk_commit();
void bulk_wait(int groups_left);
void store_async(void* remote, const void* value, int bytes, std::uint64_t* remote_barrier, code_location where);

void mbarrier_init(std::uint64_t* barrier, unsigned count, code_location where);
void mbarrier_arrive(std::uint64_t* barrier, unsigned count, unsigned expected_bytes, code_location where);
bool mbarrier_test(std::uint64_t* barrier, unsigned parity, code_location where);

unsigned cluster_rank();
unsigned cluster_size();
void cluster_arrive(code_location where);
void cluster_wait(code_location where);
// Returns the address, in block `rank` of the cluster, of the object that `own` points to in the running block's shared memory.
void* cluster_map(const void* own, unsigned rank, code_location where);

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
T atomic_update(T* at, auto&& change) {
  require_aligned(at, sizeof(T));
  maybe_give_way();
  const T old = *at;
  *at = change(old);
  return old;
}

}  // namespace simt

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
// --- barriers, votes and shuffles ----------------------------------------------------------------------------------------------------
#define SIMT_PLACE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

inline void __syncthreads(SIMT_PLACE) { simt::block_barrier(simt::vote::none, 0, {file, line}); }
inline int __syncthreads_or(int p, SIMT_PLACE) { return simt::block_barrier(simt::vote::any, p, {file, line}); }
inline int __syncthreads_and(int p, SIMT_PLACE) { return simt::block_barrier(simt::vote::all, p, {file, line}); }
inline int __syncthreads_count(int p, SIMT_PLACE) { return simt::block_barrier(simt::vote::count, p, {file, line}); }

inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_PLACE) { simt::warp_ballot(mask, false, {file, line}); }
inline unsigned __ballot_sync(unsigned mask, int p, SIMT_PLACE) { return simt::warp_ballot(mask, p != 0, {file, line}); }
inline int __any_sync(unsigned mask, int p, SIMT_PLACE) { return simt::warp_ballot(mask, p != 0, {file, line}) != 0 ? 1 : 0; }
inline int __all_sync(unsigned mask, int p, SIMT_PLACE) { return simt::warp_ballot(mask, p == 0, {file, line}) == 0 ? 1 : 0; }
inline unsigned __activemask() { return simt::live_lanes(); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_PLACE) {
  const int from = (simt::lane() & ~(width - 1)) | (source & (width - 1));
  return simt::from_bits<T>(simt::warp_exchange(mask, simt::to_bits(value), from, {file, line}));
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, SIMT_PLACE) {
  const int own = simt::lane();
  const int from = own ^ lanes;
  return simt::from_bits<T>(
      simt::warp_exchange(mask, simt::to_bits(value), from < (own & ~(width - 1)) + width ? from : own, {file, line}));
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, SIMT_PLACE) {
  const int own = simt::lane();
  const int from = own - static_cast<int>(distance);
  return simt::from_bits<T>(simt::warp_exchange(mask, simt::to_bits(value), from >= (own & ~(width - 1)) ? from : own, {file, line}));
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, SIMT_PLACE) {
  const int own = simt::lane();
  const int from = own + static_cast<int>(distance);
  return simt::from_bits<T>(
      simt::warp_exchange(mask, simt::to_bits(value), from < (own & ~(width - 1)) + width ? from : own, {file, line}));
}

namespace simt {

template <class T>
T warp_reduce(unsigned mask, T value, void (*combine)(void* const*, unsigned), code_location where) {
  warp_collective(mask, &value, combine, where);
  return value;
}

template <class T, class Fold>
void fold_lanes(void* const* operands, unsigned mask) {
  T all = *static_cast<T*>(operands[std::countr_zero(mask)]);
  for (unsigned left = mask & (mask - 1); left != 0; left &= left - 1)
    all = Fold()(all, *static_cast<T*>(operands[std::countr_zero(left)]));
  for (unsigned left = mask; left != 0; left &= left - 1) *static_cast<T*>(operands[std::countr_zero(left)]) = all;
}

struct fold_add {
  auto operator()(auto a, auto b) const { return static_cast<decltype(a)>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }
};
struct fold_min {
  auto operator()(auto a, auto b) const { return b < a ? b : a; }
};
struct fold_max {
  auto operator()(auto a, auto b) const { return a < b ? b : a; }
};
struct fold_and {
  auto operator()(auto a, auto b) const { return a & b; }
};
struct fold_or {
  auto operator()(auto a, auto b) const { return a | b; }
};
struct fold_xor {
  auto operator()(auto a, auto b) const { return a ^ b; }
};

}  // namespace simt

inline unsigned __reduce_add_sync(unsigned mask, unsigned v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<unsigned, simt::fold_add>, {file, line});
}
inline int __reduce_add_sync(unsigned mask, int v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<int, simt::fold_add>, {file, line});
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<unsigned, simt::fold_min>, {file, line});
}
inline int __reduce_min_sync(unsigned mask, int v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<int, simt::fold_min>, {file, line});
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<unsigned, simt::fold_max>, {file, line});
}
inline int __reduce_max_sync(unsigned mask, int v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<int, simt::fold_max>, {file, line});
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<unsigned, simt::fold_and>, {file, line});
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<unsigned, simt::fold_or>, {file, line});
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, SIMT_PLACE) {
  return simt::warp_reduce(mask, v, simt::fold_lanes<unsigned, simt::fold_xor>, {file, line});
}
#undef SIMT_PLACE

// --- memory --------------------------------------------------------------------------------------------------------------------------
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { simt::give_way(true); }
inline long long clock64() { return static_cast<long long>(simt::ticks()); }

template <class T>
T __ldg(const T* from) {
  simt::require_aligned(from, alignof(T));
  return *from;
}

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicSub(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return static_cast<T>(old - value); });
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T) { return value; });
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return old == expected ? value : old; });
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return value < old ? value : old; });
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return old < value ? value : old; });
}
template <class T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return old & value; });
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return old | value; });
}
template <class T>
T atomicXor(T* at, std::type_identity_t<T> value) {
  return simt::atomic_update(at, [&](T old) { return old ^ value; });
}

// --- arithmetic ----------------------------------------------------------------------------------------------------------------------
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
inline float __double2float_rn(double a) { return static_cast<float>(a); }
inline int __float2int_rn(float a) { return static_cast<int>(nearbyintf(a)); }
inline float __int2float_rn(int a) { return static_cast<float>(a); }

inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline long long __double_as_longlong(double a) { return std::bit_cast<long long>(a); }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline int __double2hiint(double a) { return static_cast<int>(std::bit_cast<std::uint64_t>(a) >> 32); }
inline int __double2loint(double a) { return static_cast<int>(std::bit_cast<std::uint64_t>(a)); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low));
}

inline int __popc(unsigned a) { return std::popcount(a); }
inline int __popcll(unsigned long long a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
inline int __clzll(long long a) { return std::countl_zero(static_cast<unsigned long long>(a)); }
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1; }
inline int __ffsll(long long a) { return a == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(a)) + 1; }
inline unsigned __brev(unsigned a) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1u) << (31 - bit);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<wide>(a) * b >> 64);
}
// NOLINTEND(bugprone-reserved-identifier)

// The C library has some of these functions since versions 2.41 and 2.42.
#if !defined(__GLIBC_PREREQ) || !__GLIBC_PREREQ(2, 42)
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline double rsqrt(double a) { return 1.0 / ::sqrt(a); }
#endif
inline float rsqrt(float a) { return 1.0f / sqrtf(a); }

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long min(long a, long b) { return b < a ? b : a; }
inline long max(long a, long b) { return a < b ? b : a; }
inline unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
inline unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }
