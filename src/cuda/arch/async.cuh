// Asynchronous copies between global and shared memory, and the mbarriers on which bulk copies complete.
// Layer: foundation, device. copy_async: sm_80 and later; the rest: sm_90 and later.
#pragma once

#include "cuda/arch/shared.cuh"
#include "cuda/arch/target.cuh"

namespace ballast::arch {

// --- cp.async: each thread copies 4, 8 or 16 bytes and waits for its own groups ---------------------------------------------------------

// Copies Bytes from global to shared memory, both aligned to Bytes. If not `valid`, writes zeros and reads nothing.
template <int Bytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid = true,
                                           code_location where = code_location::here()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global), "n"(Bytes),
                 "r"(valid ? Bytes : 0)
                 : "memory");
  }
#else
  simt::async_copy(shared, global, Bytes, valid ? Bytes : 0, where);
#endif
}

// Commits the thread's copies since the last commit as one group.
__device__ __forceinline__ void commit_async() {
#if BALLAST_DEVICE_CODE
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  simt::async_commit();
#endif
}

// Waits until at most GroupsLeft of the thread's groups are pending. Other threads see the data after a barrier.
template <int GroupsLeft>
__device__ __forceinline__ void wait_async() {
#if BALLAST_DEVICE_CODE
  asm volatile("cp.async.wait_group %0;" ::"n"(GroupsLeft) : "memory");
#else
  simt::async_wait(GroupsLeft);
#endif
}

// --- mbarriers: 8 bytes in shared memory ------------------------------------------------------------------------------------------------
// A phase ends after `count` arrivals and all expected bytes. Phases have parity 0, 1, 0, …

using mbarrier = std::uint64_t;

// Initialises the mbarrier; called by one thread. Before the first use follow fence_mbarrier_init and a barrier.
__device__ __forceinline__ void init_mbarrier(mbarrier* barrier, unsigned count, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
#else
  simt::mbarrier_init(barrier, count, where);
#endif
}

// Makes initialised mbarriers visible to the cluster and to asynchronous copies.
__device__ __forceinline__ void fence_mbarrier_init() {
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Orders ordinary accesses to shared memory before later bulk copies of it. The threads with the ordinary accesses call it.
__device__ __forceinline__ void fence_async_shared() {
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ __forceinline__ void arrive(mbarrier* barrier, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#else
  simt::mbarrier_arrive(barrier, 1, 0, where);
#endif
}

// Arrives, and makes the current phase also wait for `bytes` more bytes.
__device__ __forceinline__ void arrive_expect(mbarrier* barrier, std::uint32_t bytes, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                   : "memory");
#else
  simt::mbarrier_arrive(barrier, 1, bytes, where);
#endif
}

// Returns whether the phase of this parity has ended; may suspend the thread for a limited time. If it has ended, the writes of this
// block's threads before their arrival and the data of the bulk copies are visible.
__device__ __forceinline__ bool try_wait(mbarrier* barrier, unsigned parity, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  std::uint32_t done = 0;
  BALLAST_ASM_SM90(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
#else
  return simt::mbarrier_test(barrier, parity, where);
#endif
}

__device__ __forceinline__ void wait(mbarrier* barrier, unsigned parity, code_location where = code_location::here()) {
  while (!try_wait(barrier, parity, where)) {
  }
}

// The same for an mbarrier on which other blocks of the cluster arrive, or to which their stores complete.
__device__ __forceinline__ bool try_wait_cluster(mbarrier* barrier, unsigned parity, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  std::uint32_t done = 0;
  BALLAST_ASM_SM90(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
#else
  return simt::mbarrier_test(barrier, parity, where);
#endif
}

__device__ __forceinline__ void wait_cluster(mbarrier* barrier, unsigned parity, code_location where = code_location::here()) {
  while (!try_wait_cluster(barrier, parity, where)) {
  }
}

// --- bulk copies: one thread copies many bytes; addresses and size are multiples of 16 ---------------------------------------------------

// Copies from global memory to the shared memory of this block, and completes `bytes` on the mbarrier.
__device__ __forceinline__ void load_bulk(void* shared, const void* global, std::uint32_t bytes, mbarrier* barrier,
                                          code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
                   "l"(global), "r"(bytes), "r"(shared_address(barrier))
                   : "memory");
#else
  simt::bulk_load(shared, global, bytes, barrier, where);
#endif
}

// Copies from shared to global memory, in the thread's open bulk group. If other threads wrote the source, call fence_async_shared and a
// barrier first.
__device__ __forceinline__ void store_bulk(void* global, const void* shared, std::uint32_t bytes,
                                           code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  BALLAST_ASM_SM90("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)), "r"(bytes)
                   : "memory");
#else
  simt::bulk_store(global, shared, bytes, where);
#endif
}

__device__ __forceinline__ void commit_bulk() {
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90("cp.async.bulk.commit_group;" ::: "memory");
#else
  simt::bulk_commit();
#endif
}

// Waits until the sources of all but the last GroupsLeft bulk groups of the thread have been read and may be overwritten. Every thread that
// issued bulk stores must wait before it returns.
template <int GroupsLeft>
__device__ __forceinline__ void wait_bulk_read() {
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90("cp.async.bulk.wait_group.read %0;" ::"n"(GroupsLeft) : "memory");
#else
  simt::bulk_wait(GroupsLeft);
#endif
}

// Waits until all but the last GroupsLeft bulk groups of the thread are in global memory.
template <int GroupsLeft>
__device__ __forceinline__ void wait_bulk() {
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90("cp.async.bulk.wait_group %0;" ::"n"(GroupsLeft) : "memory");
#else
  simt::bulk_wait(GroupsLeft);
#endif
}

}  // namespace ballast::arch
