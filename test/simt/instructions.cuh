// Kernels that use every function of cuda/arch: the tests run them on the emulator and compile them by NVRTC.
// Layer: test emulator.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"

namespace simt_test {

namespace arch = ballast::arch;

// out[i] = in[i] by each of the four ways, one quarter of the block's elements each; 4 · blockDim.x elements a block.
template <class T>
struct copy_argument {
  const T* in;
  T* out;
};

template <class T>
__global__ void hinted_copy_kernel(const copy_argument<T> of) {
  const T* in = of.in + 4 * blockIdx.x * blockDim.x + threadIdx.x;
  T* out = of.out + 4 * blockIdx.x * blockDim.x + threadIdx.x;
  arch::prefetch_l2(in + 3 * blockDim.x);
  arch::store_streaming(out, arch::load_streaming(in));
  arch::store_streaming(out + blockDim.x, arch::load_keep(in + blockDim.x));
  arch::store_keep(out + 2 * blockDim.x, arch::load_streaming(in + 2 * blockDim.x));
  arch::store_keep(out + 3 * blockDim.x, arch::load_table(in + 3 * blockDim.x));
}

// Through shared memory by cp.async, each thread the elements of its neighbour; the last `missing` threads' are zeros.
template <class T>
struct async_copy_argument {
  const T* in;
  T* out;
  int missing;
};

template <class T>
__global__ void async_copy_kernel(const async_copy_argument<T> of) {
  T* shared = reinterpret_cast<T*>(arch::shared_memory());
  const bool valid = static_cast<int>(threadIdx.x) < static_cast<int>(blockDim.x) - of.missing;
  arch::copy_async<sizeof(T)>(shared + threadIdx.x, of.in + threadIdx.x, valid);
  arch::commit_async();
  arch::wait_async<0>();
  __syncthreads();
  of.out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

// Σ over warps of their numbers, in static shared memory, by groups of two warps with their own barriers; and where and when it was.
struct thread_argument {
  std::uint32_t* warps;  // per block
  std::uint64_t* times;  // three per block
};

__global__ void thread_kernel(const thread_argument of) {
  const std::uint64_t start = arch::clock();
  auto& numbers = arch::shared_object<std::uint32_t[32], struct thread_numbers>();
  if (arch::lane() == 0) numbers[arch::warp()] = static_cast<std::uint32_t>(arch::warp());
  arch::group_barrier(1 + arch::warp() / 2, 64);
  if (arch::warp() % 2 == 0 && arch::lane() == 0) numbers[arch::warp()] += numbers[arch::warp() + 1];
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w += 2) sum += numbers[w];
    of.warps[blockIdx.x] = sum;
    of.times[3 * blockIdx.x] = arch::clock() - start;
    of.times[3 * blockIdx.x + 1] = arch::global_timer();
    of.times[3 * blockIdx.x + 2] = static_cast<std::uint64_t>(arch::multiprocessor_id());
  }
}

// Block b adds its number to 3 times what block b − 1 left. Blocks take their number when they start, so that those before have started.
struct chain_argument {
  std::uint32_t* tickets;
  std::uint32_t* done;
  std::uint32_t* started;  // one flag per block, by number
  std::uint64_t* sum;
};

__global__ void chain_kernel(const chain_argument of) {
  auto& number = arch::shared_object<std::uint32_t, struct chain_ticket>();
  if (threadIdx.x == 0) {
    number = arch::atomic_add_acq_rel(of.tickets, 1);
    arch::store_release(of.started + number, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    while (arch::load_acquire(of.done) != number) arch::spin_wait();
    arch::store_keep(of.sum, 3 * arch::load_keep(of.sum) + number);
    arch::fence_gpu();
    arch::atomic_add_release(of.done, 1);
  }
}

// out = 2 · in: `tiles` tiles of 256 numbers, by bulk copies both ways. Broken, for the tests: 1 does not wait for the load, 2 not for the
// store. Shared memory: 1024 bytes of tile, the mbarrier at 1024.
struct bulk_argument {
  const float* in;
  float* out;
  int tiles;
};

template <int Broken>
__global__ void bulk_kernel(const bulk_argument of) {
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
      arch::load_bulk(tile, of.in + i * 256, 512, arrived);
      arch::load_bulk(tile + 128, of.in + i * 256 + 128, 512, arrived);
      arch::arrive(arrived);
    }
    if constexpr (Broken != 1) arch::wait(arrived, static_cast<unsigned>(i % 2));
    for (unsigned at = threadIdx.x; at < 256; at += blockDim.x) tile[at] *= 2;
    arch::fence_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
      arch::store_bulk(of.out + i * 256, tile, 1024);
      arch::commit_bulk();
      if constexpr (Broken != 2) arch::wait_bulk_read<0>();
    }
    __syncthreads();
  }
  if constexpr (Broken != 2) arch::wait_bulk<0>();
}

// Each block gets what its right neighbour in the cluster left. Broken: 1 lacks the barrier before, 2 the one after.
template <class T>
struct ring_argument {
  const T* in;
  T* out;
};

template <class T, int Broken>
__global__ void ring_kernel(const ring_argument<T> of) {
  T* memory = reinterpret_cast<T*>(arch::shared_memory());
  auto& first = arch::shared_object<T, struct ring_first>();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  memory[threadIdx.x] = of.in[at];
  if (threadIdx.x == 0) first = of.in[at];
  if constexpr (Broken != 1) arch::cluster_sync();
  const unsigned right = (arch::cluster_rank() + 1) % arch::cluster_size();
  const T got = threadIdx.x == 0 ? *arch::map_shared(&first, right) : arch::load_remote(memory + threadIdx.x, right);
  if constexpr (Broken != 2) arch::cluster_sync();
  of.out[at] = got;
}

// The same, but each block brings its numbers to its left neighbour: half by asynchronous stores that an mbarrier counts, half by plain
// ones, after which one thread arrives there.
template <class T>
__global__ void push_kernel(const ring_argument<T> of) {
  T* inbox = reinterpret_cast<T*>(arch::shared_memory());
  auto& arrived = arch::shared_object<arch::mbarrier, struct push_arrived>();
  const unsigned half = blockDim.x / 2;
  if (threadIdx.x == 0) {
    arch::init_mbarrier(&arrived, 1 + half);
    arch::fence_mbarrier_init();
    arch::arrive_expect(&arrived, half * sizeof(T));
  }
  arch::cluster_arrive();
  const T own = of.in[blockIdx.x * blockDim.x + threadIdx.x];
  arch::cluster_wait();
  const unsigned left = (arch::cluster_rank() + arch::cluster_size() - 1) % arch::cluster_size();
  if (threadIdx.x < half) {
    arch::store_async(inbox + threadIdx.x, left, own, &arrived);
  } else {
    arch::store_remote(inbox + threadIdx.x, left, own);
    arch::arrive_remote(&arrived, left);
  }
  arch::wait_cluster(&arrived, 0);
  of.out[blockIdx.x * blockDim.x + threadIdx.x] = inbox[threadIdx.x];
  arch::cluster_sync();
}

// One warp: D += A·B, row-major; A of 16 × 8, B of 8 × 8.
struct product_argument {
  const float* a;
  const float* b;
  float* d;
};

__global__ void tf32_product_kernel(const product_argument of) {
  const int g = arch::lane() / 4;
  const int t = arch::lane() % 4;
  const std::uint32_t a[4] = {arch::to_tf32(of.a[g * 8 + t]), arch::to_tf32(of.a[(g + 8) * 8 + t]), arch::to_tf32(of.a[g * 8 + t + 4]),
                              arch::to_tf32(of.a[(g + 8) * 8 + t + 4])};
  const std::uint32_t b[2] = {arch::to_tf32(of.b[t * 8 + g]), arch::to_tf32(of.b[(t + 4) * 8 + g])};
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = of.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  arch::mma_m16n8k8_tf32(d, a, b);
  for (int i = 0; i < 4; ++i) of.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

// One warp: D += A·B, row-major; A of 8 × 4, B of 4 × 8.
struct double_product_argument {
  const double* a;
  const double* b;
  double* d;
};

__global__ void f64_product_kernel(const double_product_argument of) {
  const int g = arch::lane() / 4;
  const int t = arch::lane() % 4;
  double d[2] = {of.d[g * 8 + 2 * t], of.d[g * 8 + 2 * t + 1]};
  arch::mma_m8n8k4_f64(d, of.a[g * 4 + t], of.b[t * 8 + g]);
  of.d[g * 8 + 2 * t] = d[0];
  of.d[g * 8 + 2 * t + 1] = d[1];
}

// One warpgroup: D = A·Bᵀ, row-major; A of 64 × K, B of N × K. Shared memory: A, then B, each in 8-row groups; without swizzle 16 bytes of
// a row at a time. Broken, for the tests: 1 reads D without a wait, 2 overwrites A without one.
template <int N, int K, arch::swizzle Swizzle, int Broken>
__global__ void wgmma_product_kernel(const product_argument of) {
  constexpr int k_row = arch::row_bytes(Swizzle);
  static_assert(4 * K == k_row || Swizzle == arch::swizzle::none);
  constexpr int k_stride = Swizzle == arch::swizzle::none ? 4 * K * 8 : 8 * k_row;
  unsigned char* const a = arch::shared_memory();
  unsigned char* const b = a + 64 / 8 * k_stride;
  const auto put = [&](unsigned char* to, const float* from, int rows) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * K; i += 128) {
      const int row = i / K;
      const int k = i % K;
      const int within = Swizzle == arch::swizzle::none ? k / 4 * 128 + row % 8 * 16 + k % 4 * 4 : row % 8 * k_row + 4 * k;
      *reinterpret_cast<std::uint32_t*>(to + arch::swizzled(Swizzle, static_cast<std::uint32_t>(row / 8 * k_stride + within))) =
          arch::to_tf32(from[i]);
    }
  };
  put(a, of.a, 64);
  put(b, of.b, N);
  arch::fence_async_shared();
  __syncthreads();
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i) d[i] = 0;
  // 8 columns of k lie 32 bytes on in a swizzled row, two 16-byte blocks on without.
  constexpr int k_step = Swizzle == arch::swizzle::none ? 256 : 32;
  const arch::matrix_descriptor first_a = arch::describe(a, k_stride, Swizzle, 128);
  const arch::matrix_descriptor first_b = arch::describe(b, k_stride, Swizzle, 128);
  arch::fence_wgmma();
#pragma unroll
  for (int k = 0; k < K / 8; ++k)
    arch::wgmma_m64k8_tf32<N>(d, arch::advanced(first_a, k * k_step), arch::advanced(first_b, k * k_step), k > 0);
  arch::commit_wgmma();
  if constexpr (Broken == 2) {
    __syncthreads();
    put(a, of.b, 8);
  }
  if constexpr (Broken != 1) arch::wait_wgmma<0>();
  const int row = arch::warp() * 16 + arch::lane() / 4;
  const int column = arch::lane() % 4 * 2;
  for (int i = 0; i < N / 2; ++i) of.d[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + column + i % 2] = d[i];
  if constexpr (Broken == 1) arch::wait_wgmma<0>();
}

}  // namespace simt_test
