// Thread block clusters: ranks, the barrier of all threads of a cluster, and access to the shared memory of its other blocks.
// Layer: foundation, device. sm_90 and later. In a launch without clusters each block is a cluster of one.
// A cluster barrier is needed before the first access to a peer's memory (the peer may not have started) and after the last (it may end).
#pragma once

#include "cuda/arch/async.cuh"
#include "cuda/arch/memory.cuh"
#include "cuda/arch/shared.cuh"
#include "cuda/arch/target.cuh"

namespace ballast::arch {

__device__ __forceinline__ unsigned cluster_rank() {
#if BALLAST_DEVICE_CODE
  unsigned rank = 0;
  BALLAST_ASM_SM90("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return simt::cluster_rank();
#endif
}

__device__ __forceinline__ unsigned cluster_size() {
#if BALLAST_DEVICE_CODE
  unsigned size = 1;
  BALLAST_ASM_SM90("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
#else
  return simt::cluster_size();
#endif
}

// The two halves of a cluster barrier. Every thread arrives, then waits; between the two it may do work that needs no ordering. All lanes
// of a warp call them together.
__device__ __forceinline__ void cluster_arrive(code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  simt::cluster_arrive(where);
#endif
}

__device__ __forceinline__ void cluster_wait(code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  simt::cluster_wait(where);
#endif
}

__device__ __forceinline__ void cluster_sync(code_location where = code_location::here()) {
  cluster_arrive(where);
  cluster_wait(where);
}

// Returns the generic address, in block `rank` of the cluster, of the object that `own` points to in this block's shared memory.
template <class T>
__device__ __forceinline__ T* map_shared(T* own, unsigned rank, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  std::uint64_t mapped = 0;
  BALLAST_ASM_SM90("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(own), "r"(rank));
  return reinterpret_cast<T*>(mapped);
#else
  return static_cast<T*>(simt::cluster_map(own, rank, where));
#endif
}

#if BALLAST_DEVICE_CODE
// The same as a 32-bit address in the cluster's shared window.
__device__ __forceinline__ std::uint32_t map_shared_address(const void* own, unsigned rank) {
  std::uint32_t mapped = 0;
  BALLAST_ASM_SM90("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(own)), "r"(rank));
  return mapped;
}
#endif

// Returns the value that *own has in block `rank`. T: 4, 8 or 16 bytes, aligned to its size.
template <class T>
__device__ __forceinline__ T load_remote(const T* own, unsigned rank, code_location where = code_location::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  const std::uint32_t from = map_shared_address(own, rank);
  detail::words<sizeof(T) / 4> w = {};
  if constexpr (sizeof(T) == 4) {
    BALLAST_ASM_SM90("ld.shared::cluster.b32 %0, [%1];" : "=r"(w.at[0]) : "r"(from) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    BALLAST_ASM_SM90("ld.shared::cluster.v2.b32 {%0, %1}, [%2];" : "=r"(w.at[0]), "=r"(w.at[1]) : "r"(from) : "memory");
  } else {
    BALLAST_ASM_SM90("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.at[0]), "=r"(w.at[1]), "=r"(w.at[2]), "=r"(w.at[3])
                     : "r"(from)
                     : "memory");
  }
  return detail::from_words<T>(w);
#else
  simt::require_aligned(own, sizeof(T));
  return *static_cast<const T*>(simt::cluster_map(own, rank, where));
#endif
}

template <class T>
__device__ __forceinline__ void store_remote(T* own, unsigned rank, const T& value, code_location where = code_location::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  const std::uint32_t to = map_shared_address(own, rank);
  const detail::words<sizeof(T) / 4> w = detail::to_words(value);
  if constexpr (sizeof(T) == 4) {
    BALLAST_ASM_SM90("st.shared::cluster.b32 [%0], %1;" ::"r"(to), "r"(w.at[0]) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    BALLAST_ASM_SM90("st.shared::cluster.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(w.at[0]), "r"(w.at[1]) : "memory");
  } else {
    BALLAST_ASM_SM90("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(w.at[0]), "r"(w.at[1]), "r"(w.at[2]), "r"(w.at[3])
                     : "memory");
  }
#else
  simt::require_aligned(own, sizeof(T));
  *static_cast<T*>(simt::cluster_map(own, rank, where)) = value;
#endif
}

// The asynchronous form of store_remote: returns at once, and completes sizeof(T) bytes on the mbarrier at `barrier` in block `rank`.
template <class T>
__device__ __forceinline__ void store_async(T* own, unsigned rank, const T& value, mbarrier* barrier,
                                            code_location where = code_location::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  const std::uint32_t to = map_shared_address(own, rank);
  const std::uint32_t on = map_shared_address(barrier, rank);
  const detail::words<sizeof(T) / 4> w = detail::to_words(value);
  if constexpr (sizeof(T) == 4) {
    BALLAST_ASM_SM90("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(w.at[0]), "r"(on)
                     : "memory");
  } else if constexpr (sizeof(T) == 8) {
    BALLAST_ASM_SM90("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to), "r"(w.at[0]),
                     "r"(w.at[1]), "r"(on)
                     : "memory");
  } else {
    BALLAST_ASM_SM90("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                     "r"(w.at[0]), "r"(w.at[1]), "r"(w.at[2]), "r"(w.at[3]), "r"(on)
                     : "memory");
  }
#else
  simt::store_async(simt::cluster_map(own, rank, where), &value, sizeof(T),
                    static_cast<std::uint64_t*>(simt::cluster_map(barrier, rank, where)), where);
#endif
}

// Arrives on the mbarrier at `barrier` in block `rank`.
__device__ __forceinline__ void arrive_remote(mbarrier* barrier, unsigned rank, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(map_shared_address(barrier, rank)) : "memory");
#else
  simt::mbarrier_arrive(static_cast<std::uint64_t*>(simt::cluster_map(barrier, rank, where)), 1, 0, where);
#endif
}

}  // namespace ballast::arch
