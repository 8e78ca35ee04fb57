// Small kernels that use every function of cuda/arch; test/simt/arch_checks.cpp has the expected results. Kernels with a parameter Broken
// contain a defect if it is not 0, for the tests of the emulator.
// Layer: foundation, device.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/arch/checks.hpp"

namespace ballast::arch::checks {

// out[i] = in[i], by each kind of load and store: one quarter of the block's elements each, and the last quarter by two kinds. A block
// copies 4 · blockDim.x elements.
template <class T>
__global__ void hinted_copy_kernel(const copy_argument of) {
  const T* in = static_cast<const T*>(of.in) + 4 * blockIdx.x * blockDim.x + threadIdx.x;
  T* out = static_cast<T*>(of.out) + 4 * blockIdx.x * blockDim.x + threadIdx.x;
  arch::prefetch_l2(in + 3 * blockDim.x);
  arch::store_streaming(out, arch::load_streaming(in));
  arch::store_streaming(out + blockDim.x, arch::load_keep(in + blockDim.x));
  arch::store_keep(out + 2 * blockDim.x, arch::load_streaming(in + 2 * blockDim.x));
  const T* const last = in + 3 * blockDim.x;
  arch::store_keep(out + 3 * blockDim.x, threadIdx.x % 2 == 0 ? arch::load_table(last) : arch::load_table_late(last));
}

// Loads each element twice and stores both: out[2 p], out[2 p + 1] = in[p], in units of blockDim.x elements, for each two kinds of load
// that an assembler does not merge. A block has 2 k_twice units. Its machine code has k_twice_loads loads from global memory, two of them
// evicted from L1 first, and two from shared memory. Broken: the second loads are of the same kind as the first, so that they are merged.
// Shared memory: blockDim.x elements.
template <class T, int Broken>
__global__ void twice_kernel(const copy_argument of) {
  const std::int64_t first = std::int64_t{blockIdx.x} * 2 * k_twice * blockDim.x + threadIdx.x;
  const T* const in = static_cast<const T*>(of.in) + first;
  T* const out = static_cast<T*>(of.out) + first;
  T* const shared = reinterpret_cast<T*>(arch::shared_memory()) + threadIdx.x;
  *shared = in[(k_twice - 1) * blockDim.x];
  __syncthreads();
  const auto put = [&](int pair, const T* from, auto&& load, auto&& load_again) {
    const T one = load(from), other = Broken != 0 ? load(from) : load_again(from);
    out[2 * pair * blockDim.x] = one;
    out[(2 * pair + 1) * blockDim.x] = other;
  };
  const auto put_global = [&](int pair, auto&& load, auto&& load_again) { put(pair, in + pair * blockDim.x, load, load_again); };
  put_global(
      0, [](const T* from) { return arch::load_streaming(from); }, [](const T* from) { return arch::load_streaming_again(from); });
  put_global(
      1, [](const T* from) { return arch::load_keep(from); }, [](const T* from) { return arch::load_keep_again(from); });
  put(
      2, shared, [](const T* from) { return *from; }, [](const T* from) { return arch::load_shared_itself(from); });
}

// Copies through shared memory by cp.async: each thread stores the element of its neighbour. The elements of the last `missing` threads are
// zeros.
template <class T>
__global__ void async_copy_kernel(const copy_argument of) {
  T* shared = reinterpret_cast<T*>(arch::shared_memory());
  const bool valid = static_cast<int>(threadIdx.x) < static_cast<int>(blockDim.x) - of.missing;
  arch::copy_async<sizeof(T)>(shared + threadIdx.x, static_cast<const T*>(of.in) + threadIdx.x, valid);
  arch::commit_async();
  arch::wait_async<0>();
  __syncthreads();
  static_cast<T*>(of.out)[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

// Sums the numbers of the warps in static shared memory, by groups of two warps with barriers of their own. Also stores cycles, time and
// multiprocessor.
template <int Threads>
__global__ void thread_kernel(const thread_argument of) {
  const std::uint64_t start = arch::clock();
  auto& numbers = arch::shared_object<std::uint32_t[Threads / 32], struct thread_numbers>();
  if (arch::lane() == 0) numbers[arch::warp()] = static_cast<std::uint32_t>(arch::warp());
  arch::group_barrier(1 + arch::warp() / 2, 64);
  if (arch::warp() % 2 == 0 && arch::lane() == 0) numbers[arch::warp()] += numbers[arch::warp() + 1];
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t sum = 0;
    for (unsigned w = 0; w < Threads / 32; w += 2) sum += numbers[w];
    of.warps[blockIdx.x] = sum;
    of.times[3 * blockIdx.x] = arch::clock() - start;
    of.times[3 * blockIdx.x + 1] = arch::global_timer();
    of.times[3 * blockIdx.x + 2] = static_cast<std::uint64_t>(arch::multiprocessor_id());
  }
}

// Block b computes 3 times the result of block b − 1, plus b. Blocks draw their number when they start, so that all blocks with smaller
// numbers have already started.
template <class Number>
__global__ void chain_kernel(const chain_argument of) {
  auto& number = arch::shared_object<std::uint32_t, struct chain_ticket>();
  if (threadIdx.x == 0) {
    number = arch::atomic_add_acq_rel(of.tickets, 1);
    arch::store_release(of.started + number, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    while (arch::load_acquire(of.done) != number) arch::spin_wait();
    auto* sum = static_cast<Number*>(of.sum);
    arch::store_keep(sum, 3 * arch::load_keep(sum) + static_cast<Number>(number));
    arch::fence_gpu();
    arch::atomic_add_release(of.done, 1);
  }
}

// out = 2 · in for `tiles` tiles of 256 numbers, with bulk loads and stores. Broken: 1 does not wait for the load, 2 does not wait for the
// store. Shared memory: the tile at 0 (1024 bytes), the mbarrier at 1024.
template <int Broken>
__global__ void bulk_kernel(const copy_argument of) {
  auto* tile = reinterpret_cast<float*>(arch::shared_memory());
  auto* arrived = reinterpret_cast<arch::mbarrier*>(arch::shared_memory() + 1024);
  if (threadIdx.x == 0) {
    arch::init_mbarrier(arrived, 2);
    arch::fence_mbarrier_init();
  }
  __syncthreads();
  for (int i = 0; i < of.tiles; ++i) {
    if (threadIdx.x == 0) {
      arch::arrive_expect(arrived, 1024);
      arch::load_bulk(tile, static_cast<const float*>(of.in) + i * 256, 512, arrived);
      arch::load_bulk(tile + 128, static_cast<const float*>(of.in) + i * 256 + 128, 512, arrived);
      arch::arrive(arrived);
    }
    if constexpr (Broken != 1) arch::wait(arrived, static_cast<unsigned>(i % 2));
    for (unsigned at = threadIdx.x; at < 256; at += blockDim.x) tile[at] *= 2;
    arch::fence_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
      arch::store_bulk(static_cast<float*>(of.out) + i * 256, tile, 1024);
      arch::commit_bulk();
      if constexpr (Broken != 2) arch::wait_bulk_read<0>();
    }
    __syncthreads();
  }
  if constexpr (Broken != 2) arch::wait_bulk<0>();
}

// Each block copies the numbers of its right neighbour in the cluster. Broken: 1 lacks the barrier before the reads, 2 the one after them.
template <class T, int Broken>
__global__ void ring_kernel(const copy_argument of) {
  T* memory = reinterpret_cast<T*>(arch::shared_memory());
  auto& first = arch::shared_object<T, struct ring_first>();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  const T own = static_cast<const T*>(of.in)[at];
  memory[threadIdx.x] = own;
  if (threadIdx.x == 0) first = own;
  if constexpr (Broken != 1) arch::cluster_sync();
  const unsigned right = (arch::cluster_rank() + 1) % arch::cluster_size();
  const T got = threadIdx.x == 0 ? *arch::map_shared(&first, right) : arch::load_remote(memory + threadIdx.x, right);
  if constexpr (Broken != 2) arch::cluster_sync();
  static_cast<T*>(of.out)[at] = got;
}

// The same result, but each block stores its numbers to its left neighbour: one half by asynchronous stores that an mbarrier counts, the
// other by plain stores, after each of which the thread arrives on that mbarrier.
template <class T>
__global__ void push_kernel(const copy_argument of) {
  T* inbox = reinterpret_cast<T*>(arch::shared_memory());
  auto& arrived = arch::shared_object<arch::mbarrier, struct push_arrived>();
  const unsigned half = blockDim.x / 2;
  if (threadIdx.x == 0) {
    arch::init_mbarrier(&arrived, 1 + half);
    arch::fence_mbarrier_init();
    arch::arrive_expect(&arrived, half * sizeof(T));
  }
  arch::cluster_arrive();
  const T own = static_cast<const T*>(of.in)[blockIdx.x * blockDim.x + threadIdx.x];
  arch::cluster_wait();
  const unsigned left = (arch::cluster_rank() + arch::cluster_size() - 1) % arch::cluster_size();
  if (threadIdx.x < half) {
    arch::store_async(inbox + threadIdx.x, left, own, &arrived);
  } else {
    arch::store_remote(inbox + threadIdx.x, left, own);
    arch::arrive_remote(&arrived, left);
  }
  arch::wait_cluster(&arrived, 0);
  static_cast<T*>(of.out)[blockIdx.x * blockDim.x + threadIdx.x] = inbox[threadIdx.x];
  arch::cluster_sync();
}

// One warp computes D += A·B, row-major: A is M × K, B is K × 8, K = M / 2. float: M = 16; double: M = 8 or 16.
template <class T, int M>
__global__ void warp_product_kernel(const product_argument of) {
  constexpr int k_depth = M / 2;
  constexpr int k_results = M / 4;
  const T* from_a = static_cast<const T*>(of.a);
  const T* from_b = static_cast<const T*>(of.b);
  T* to = static_cast<T*>(of.d);
  const int g = arch::lane() / 4;
  const int t = arch::lane() % 4;
  T d[k_results];
  for (int i = 0; i < k_results; ++i) d[i] = to[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  if constexpr (M == 8) {
    arch::mma_m8n8k4_f64(d, from_a[g * k_depth + t], from_b[t * 8 + g]);
  } else {
    const T a[4] = {from_a[g * 8 + t], from_a[(g + 8) * 8 + t], from_a[g * 8 + t + 4], from_a[(g + 8) * 8 + t + 4]};
    const T b[2] = {from_b[t * 8 + g], from_b[(t + 4) * 8 + g]};
    if constexpr (sizeof(T) == 8) {
      arch::mma_m16n8k8_f64(d, a, b);
    } else {
      arch::mma_m16n8k8_tf32(d, {arch::to_tf32(a[0]), arch::to_tf32(a[1]), arch::to_tf32(a[2]), arch::to_tf32(a[3])},
                             {arch::to_tf32(b[0]), arch::to_tf32(b[1])});
    }
  }
  for (int i = 0; i < k_results; ++i) to[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

// One warp computes D += A·B in halves, row-major: A is 16 × K, B is K × 8.
template <int K>
__global__ void half_product_kernel(const product_argument of) {
  const auto* from_a = static_cast<const float*>(of.a);
  const auto* from_b = static_cast<const float*>(of.b);
  auto* to = static_cast<float*>(of.d);
  const int g = arch::lane() / 4;
  const int k = 2 * (arch::lane() % 4);
  static_assert(K == 16);
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = to[(g + i / 2 * 8) * 8 + k + i % 2];
  const auto row = [&](int i, int first) { return arch::to_halves(from_a[i * K + first], from_a[i * K + first + 1]); };
  const std::uint32_t a[4] = {row(g, k), row(g + 8, k), row(g, k + 8), row(g + 8, k + 8)};
  const std::uint32_t b[2] = {arch::to_halves(from_b[k * 8 + g], from_b[(k + 1) * 8 + g]),
                              arch::to_halves(from_b[(k + 8) * 8 + g], from_b[(k + 9) * 8 + g])};
  arch::mma_m16n8k16_f16(d, a, b);
  for (int i = 0; i < 4; ++i) to[(g + i / 2 * 8) * 8 + k + i % 2] = d[i];
}

// One warpgroup computes D = A·Bᵀ in TF32, row-major: A is 64 × 32, B is N × 32. B lies in shared memory with the 128-byte swizzle.
template <int N>
__global__ void wgmma_tf32_product_kernel(const product_argument of) {
  constexpr int k_deep = 32;
  const auto* from_a = static_cast<const float*>(of.a);
  const auto* from_b = static_cast<const float*>(of.b);
  auto* to = static_cast<float*>(of.d);
  unsigned char* const b = arch::shared_memory();
  for (int i = static_cast<int>(threadIdx.x); i < N * k_deep; i += 128)
    *reinterpret_cast<std::uint32_t*>(b + arch::swizzled(arch::swizzle::bytes_128, static_cast<std::uint32_t>(4 * i))) =
        arch::to_tf32(from_b[i]);
  arch::fence_async_shared();
  __syncthreads();
  const int row = arch::warp() * 16 + arch::lane() / 4, t = arch::lane() % 4;
  std::uint32_t a[k_deep / 8][4];
  for (int k = 0; k < k_deep / 8; ++k)
    for (int i = 0; i < 4; ++i) a[k][i] = arch::to_tf32(from_a[(row + i % 2 * 8) * k_deep + k * 8 + i / 2 * 4 + t]);
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i) d[i] = 0;
  const arch::matrix_descriptor first = arch::describe(b, 1024, arch::swizzle::bytes_128);
  arch::fence_wgmma(d);
#pragma unroll
  for (int k = 0; k < k_deep / 8; ++k) arch::wgmma_m64k8_tf32<N>(d, a[k], arch::advanced(first, 32 * k), k > 0);
  arch::commit_wgmma();
  arch::wait_wgmma<0>(d);
  for (int i = 0; i < N / 2; ++i) to[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + 2 * t + i % 2] = d[i];
}

// One warpgroup computes D = A·Bᵀ, row-major: A is 64 × K, B is N × K. Shared memory: B as halves in 8-row groups; without swizzle, in
// blocks of 8 rows × 16 bytes. Broken: 1 reads D without a wait, 2 overwrites B without a wait.
template <int N, int K, arch::swizzle Swizzle, int Broken>
__global__ void wgmma_product_kernel(const product_argument of) {
  const auto* from_a = static_cast<const float*>(of.a);
  const auto* from_b = static_cast<const float*>(of.b);
  auto* to = static_cast<float*>(of.d);
  constexpr int k_row = arch::row_bytes(Swizzle);
  static_assert(2 * K == k_row || Swizzle == arch::swizzle::none);
  constexpr int k_stride = Swizzle == arch::swizzle::none ? 2 * K * 8 : 8 * k_row;
  unsigned char* const b = arch::shared_memory();
  const auto put = [&](const float* from) {
    for (int i = static_cast<int>(threadIdx.x); i < N * K; i += 128) {
      const int row = i / K;
      const int k = i % K;
      const int within = Swizzle == arch::swizzle::none ? k / 8 * 128 + row % 8 * 16 + k % 8 * 2 : row % 8 * k_row + 2 * k;
      *reinterpret_cast<std::uint16_t*>(b + arch::swizzled(Swizzle, static_cast<std::uint32_t>(row / 8 * k_stride + within))) =
          static_cast<std::uint16_t>(arch::to_halves(from[i], 0));
    }
  };
  put(from_b);
  arch::fence_async_shared();
  __syncthreads();
  const int row = arch::warp() * 16 + arch::lane() / 4;
  const int column = arch::lane() % 4 * 2;
  std::uint32_t a[K / 16][4];
  for (int k = 0; k < K / 16; ++k) {
    for (int i = 0; i < 4; ++i) {
      const float* const pair = from_a + (row + i % 2 * 8) * K + k * 16 + i / 2 * 8 + column;
      a[k][i] = arch::to_halves(pair[0], pair[1]);
    }
  }
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i) d[i] = 0;
  // The next 16 values of k start 32 bytes later in a swizzled row, and two 8-row blocks (256 bytes) later without swizzle.
  constexpr int k_step = Swizzle == arch::swizzle::none ? 256 : 32;
  const arch::matrix_descriptor first_b = arch::describe(b, k_stride, Swizzle, 128);
  arch::fence_wgmma(d);
#pragma unroll
  for (int k = 0; k < K / 16; ++k) arch::wgmma_m64k16_f16<N>(d, a[k], arch::advanced(first_b, k * k_step), k > 0);
  arch::commit_wgmma();
  if constexpr (Broken == 2) {
    __syncthreads();
    put(from_a);
  }
  if constexpr (Broken != 1) arch::wait_wgmma<0>(d);
  for (int i = 0; i < N / 2; ++i) to[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + column + i % 2] = d[i];
  if constexpr (Broken == 1) arch::wait_wgmma<0>(d);
}

}  // namespace ballast::arch::checks
