// Products of block reflectors with wide matrices of floats, as three products of TF32 (3xTF32): W = VᵀC and C ← C − V W.
// Layer: backend "cuda" of QR, device code, for sm_90a. product.cpp decides when they are used.
// x = h + l with h = x rounded to the 11 bits of TF32 and l = x − h, which has 12 bits, of which a tensor core takes 11. Then
// xy ≈ l_x h_y + h_x l_y + h_x h_y. The loss is below 2⁻²¹ |xy|, and about u in the mean. Tensor cores truncate their sums instead of
// rounding them, so each of their sums covers only k_depth products xy, and FP32 additions do the rest.
// A warpgroup multiplies 64 columns of C or W, whose numbers it splits in its registers, by an image of V in shared memory, which was split
// in global memory. The order of all sums depends on the shape alone: not on the addresses of operands or their alignment.
// Source: H. Ootomo, R. Yokota, Recovering single precision accuracy from Tensor Cores, 2022 (sums outside of the tensor cores).
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/layout/kernel_args.hpp"

namespace ballast::qr::cuda {

// A number as its two parts in TF32.
struct tf32_parts {
  std::uint32_t high, low;
};
// Does not use cvt.rna.tf32, which runs at a fraction of the rate of these instructions. Inf and NaN give a NaN in `low`.
__device__ __forceinline__ tf32_parts split(float x) {
  using ballast::cuda::bits;
  const std::uint32_t high = (bits(x) + 0x1000u) & ~0x1fffu;
  return {high, bits(x - ballast::cuda::from_bits<float>(high))};
}

// Returns which of k_depth neighbours in memory is number k of a chunk. A thread loads eight neighbours for a chunk, two for each product.
__device__ __forceinline__ constexpr int neighbour(int k) { return k % 4 * 8 + k / 8 * 2 + k % 8 / 4; }

// Returns the position of number k of row or reflector i in a chunk, which is a swizzled operand of wgmma. Four neighbours are placed so
// that one thread holds their sums.
__device__ __forceinline__ int index_in_chunk(int i, int k) {
  const int n = i / 16 * 16 + i % 4 / 2 * 8 + i % 16 / 4 * 2 + i % 2;
  return static_cast<int>(arch::swizzled(arch::swizzle::bytes_128, static_cast<std::uint32_t>(4 * (n * k_depth + k)))) / 4;
}

// Computes the images of V. A thread block has k_side rows and k_depth reflectors: a chunk of subtract_kernel's image, and a quarter of
// each of four chunks of project_kernel's.
template <int Threads>
__global__ void __launch_bounds__(Threads) split_kernel(const __grid_constant__ split_arguments a) {
  static_assert(Threads == k_threads);
  auto& tile = arch::shared_object<float[k_depth * (k_side + 1)], struct split_tile>();
  const split_shape shape(a.rows, a.width);
  const std::int64_t strip = blockIdx.x / shape.across, chunk = blockIdx.x % shape.across;
  const std::int64_t top = strip * k_side, left = chunk * k_depth;
  for (int e = static_cast<int>(threadIdx.x); e < k_depth * k_side; e += Threads) {
    const int i = e % k_side, j = e / k_side;
    tile[j * (k_side + 1) + i] = top + i < a.rows && left + j < a.width ? a.V[top + i + (left + j) * a.rows] : 0.F;
  }
  __syncthreads();  // the tile is in shared memory
  const auto put = [](float* at, int index, float x) {
    const tf32_parts parts = split(x);
    at[index] = ballast::cuda::from_bits<float>(parts.high);
    at[k_chunk / 2 + index] = ballast::cuda::from_bits<float>(parts.low);
  };
  float* const by_columns = a.by_columns + blockIdx.x * std::int64_t{k_chunk};
  for (int e = static_cast<int>(threadIdx.x); e < k_depth * k_side; e += Threads) {
    const int k = e % k_depth, i = e / k_depth;
    put(by_columns, index_in_chunk(i, k), tile[neighbour(k) * (k_side + 1) + i]);
    const int j = i % k_depth, quarter = i / k_depth;
    const std::int64_t n = left % k_side + j, of_rows = strip * (k_side / k_depth) + quarter;
    put(a.by_rows + (left / k_side * shape.chunks_down + of_rows) * k_chunk, index_in_chunk(static_cast<int>(n), k),
        tile[j * (k_side + 1) + k_depth * quarter + neighbour(k)]);
  }
}

// The numbers that a thread loads for a chunk: eight neighbours of each of two columns, g and g + 8 of its warp.
struct column_pieces {
  float x[2][8];
};

// Loads the eight numbers from `first` + 8 t on of a column; zeros from `end` on. `wide`: columns are aligned to 16 bytes.
__device__ __forceinline__ void load_piece(float (&x)[8], const float* column, bool there, std::int64_t first, std::int64_t end,
                                           bool wide) {
  const std::int64_t at = first + arch::lane() % 4 * 8;
  if (wide && first + k_depth <= end) {
    ballast::cuda::unrolled<2>([&](auto q) {
      constexpr int half = 4 * decltype(q)::value;
      const float4 four = there ? *reinterpret_cast<const float4*>(column + at + half) : float4{};
      x[half] = four.x;
      x[half + 1] = four.y;
      x[half + 2] = four.z;
      x[half + 3] = four.w;
    });
  } else {
    ballast::cuda::unrolled<8>([&](auto q) {
      constexpr int n = decltype(q)::value;
      x[n] = there && at + n < end ? column[at + n] : 0.F;
    });
  }
}

// d = the product of 64 columns with the image at `chunk`.
__device__ __forceinline__ void multiply_chunk(float (&d)[k_side / 2], const column_pieces& pieces, const float* chunk) {
  std::uint32_t high[4][4], low[4][4];
  ballast::cuda::unrolled<4>([&](auto s) {
    constexpr int step = decltype(s)::value;
    ballast::cuda::unrolled<4>([&](auto q) {
      constexpr int e = decltype(q)::value;
      const tf32_parts parts = split(pieces.x[e % 2][2 * step + e / 2]);
      high[step][e] = parts.high;
      low[step][e] = parts.low;
    });
  });
  const arch::matrix_descriptor high_image = arch::describe(chunk, 1024, arch::swizzle::bytes_128);
  const arch::matrix_descriptor low_image = arch::describe(chunk + k_chunk / 2, 1024, arch::swizzle::bytes_128);
  arch::fence_wgmma(d);
  ballast::cuda::unrolled<4>([&](auto s) {  // small parts first
    constexpr int step = decltype(s)::value;
    arch::wgmma_m64k8_tf32<k_side>(d, low[step], arch::advanced(high_image, 32 * step), step > 0);
    arch::wgmma_m64k8_tf32<k_side>(d, high[step], arch::advanced(low_image, 32 * step));
  });
  ballast::cuda::unrolled<4>([&](auto s) {
    constexpr int step = decltype(s)::value;
    arch::wgmma_m64k8_tf32<k_side>(d, high[step], arch::advanced(high_image, 32 * step));
  });
  arch::commit_wgmma();
  arch::wait_wgmma<0>(d);
}

__device__ __forceinline__ bool is_aligned(const float* at, std::int64_t ld, int bytes) {
  return (reinterpret_cast<std::uintptr_t>(at) | static_cast<std::uintptr_t>(4 * ld)) % static_cast<unsigned>(bytes) == 0;
}

// Visits a thread's elements of a tile of 64 columns and k_side rows that begins at `tile`: calls four(sums, address) if the tile is
// complete and its columns are aligned to 16 bytes, otherwise one(sum, address) for each element inside the matrix.
template <class Four, class One>
__device__ __forceinline__ void each_sum(float (&sums)[k_side / 2], float* tile, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                                         Four&& four, One&& one) {
  const int g = arch::warp() % 4 * 16 + arch::lane() / 4, t = 4 * (arch::lane() % 4);
  const bool whole = rows >= k_side && columns >= 64 && is_aligned(tile, ld, 16);
  ballast::cuda::unrolled<2>([&](auto h) {
    constexpr int half = decltype(h)::value;
    float* const column = tile + (g + 8 * half) * ld + t;
    if (whole) {
      ballast::cuda::unrolled<k_side / 16>([&](auto j) {
        constexpr int first = 8 * decltype(j)::value + 2 * half;
        four(sums[first], sums[first + 1], sums[first + 4], sums[first + 5], reinterpret_cast<float4*>(column + 16 * decltype(j)::value));
      });
    } else if (g + 8 * half < columns) {
      ballast::cuda::unrolled<k_side / 16>([&](auto j) {
        constexpr int first = 8 * decltype(j)::value + 2 * half, down = 16 * decltype(j)::value;
        ballast::cuda::unrolled<4>([&](auto q) {
          constexpr int n = decltype(q)::value;
          if (down + t + n < rows) one(sums[first + n / 2 * 4 + n % 2], column + down + n);
        });
      });
    }
  });
}

__device__ __forceinline__ void load_sums(float (&sums)[k_side / 2], float* tile, std::int64_t ld, std::int64_t rows,
                                          std::int64_t columns) {
  each_sum(
      sums, tile, ld, rows, columns,
      [](float& x, float& y, float& z, float& w, const float4* at) {
        const float4 from = *at;
        x = from.x;
        y = from.y;
        z = from.z;
        w = from.w;
      },
      [](float& x, const float* at) { x = *at; });
}

__device__ __forceinline__ void store_sums(float (&sums)[k_side / 2], float* tile, std::int64_t ld, std::int64_t rows,
                                           std::int64_t columns) {
  each_sum(
      sums, tile, ld, rows, columns,
      [](float x, float y, float z, float w, float4* at) {
        *at = float4{x, y, z, w};
      },
      [](float x, float* at) { *at = x; });
}

// Adds (Sign 1) or subtracts (−1) k_side columns of X times `count` chunks of an image, which pass through a ring of shared memory: numbers
// begin · k_depth … of the columns, which have `deep` numbers. A warpgroup has 64 columns, from `left` on; X has `columns` columns.
template <int Sign, int Threads>
__device__ __forceinline__ void multiply_streamed(float (&sums)[k_side / 2], const float* image, std::int64_t begin, int count,
                                                  const float* X, std::int64_t ldx, std::int64_t deep, std::int64_t left,
                                                  std::int64_t columns) {
  constexpr int stages = k_ring_stages, warps = Threads / 32;
  auto* const ring = reinterpret_cast<float*>(arch::shared_memory());
  auto* const full = reinterpret_cast<arch::mbarrier*>(ring + stages * k_chunk);
  auto* const empty = full + stages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      arch::init_mbarrier(&full[s], 1);
      arch::init_mbarrier(&empty[s], warps);
    }
    arch::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are initialized
  // Called by thread 0: waits until all warps have read the old chunk in this stage, then starts the copy of the new one.
  const auto request = [&](int chunk) {
    if (chunk >= count) return;
    const int slot = chunk % stages;
    if (chunk >= stages) arch::wait(&empty[slot], static_cast<unsigned>(chunk / stages - 1) & 1u);
    arch::arrive_expect(&full[slot], 4 * k_chunk);
    arch::load_bulk(ring + slot * k_chunk, image + std::int64_t{chunk} * k_chunk, 4 * k_chunk, &full[slot]);
  };
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages - 1; ++s) request(s);
  }
  const std::int64_t column = left + arch::warp() % 4 * 16 + arch::lane() / 4;
  const bool wide = is_aligned(X, ldx, 16);
  const auto load = [&](column_pieces& to, int chunk) {
    ballast::cuda::unrolled<2>([&](auto h) {
      const std::int64_t at = column + 8 * decltype(h)::value;
      load_piece(to.x[decltype(h)::value], X + at * ldx, at < columns && chunk < count, (begin + chunk) * k_depth, deep, wide);
    });
  };
  column_pieces next, second;  // loads in flight
  load(next, 0);
  load(second, 1);
  float d[k_side / 2];
  for (int chunk = 0; chunk < count; ++chunk) {
    if (threadIdx.x == 0) request(chunk + stages - 1);
    __syncwarp();
    const column_pieces now = next;
    next = second;
    load(second, chunk + 2);
    const int slot = chunk % stages;
    arch::wait(&full[slot], static_cast<unsigned>(chunk / stages) & 1u);
    multiply_chunk(d, now, ring + slot * k_chunk);
    if (arch::lane() == 0) arch::arrive(&empty[slot]);
    ballast::cuda::unrolled<k_side / 2>([&](auto q) {
      float& sum = sums[decltype(q)::value];
      sum = Sign > 0 ? sum + d[decltype(q)::value] : sum - d[decltype(q)::value];
    });
  }
}

// W = VᵀC: tiles of k_side reflectors and k_side columns, each in `splits` parts of the rows, which add_parts_kernel adds up. Thread blocks
// with the same part and columns are consecutive, since they read the same C.
template <int Threads>
__global__ void __launch_bounds__(Threads, 1) project_kernel(const __grid_constant__ project_arguments a) {
  static_assert(Threads == k_threads);
  const split_shape shape(a.rows, a.width);
  const std::int64_t tiles = shape.tiles() * ((a.columns + k_side - 1) / k_side);
  const std::int64_t tile = blockIdx.x % tiles, part = blockIdx.x / tiles, of_v = tile % shape.tiles();
  const std::int64_t left = tile / shape.tiles() * k_side + arch::warp() / 4 * 64;
  const std::int64_t each = (shape.chunks() + a.splits - 1) / a.splits, begin = part * each;
  const int count = static_cast<int>(begin + each < shape.chunks() ? each : begin < shape.chunks() ? shape.chunks() - begin : 0);
  float sums[k_side / 2] = {};
  multiply_streamed<1, Threads>(sums, a.image + (of_v * shape.chunks_down + begin) * k_chunk, begin, count, a.C, a.ldc, a.rows, left,
                                a.columns);
  float* const to = (a.splits > 1 ? a.parts + part * a.width * a.columns : a.W) + of_v * k_side + left * a.width;
  store_sums(sums, to, a.width, a.width - of_v * k_side, a.columns - left);
}

// W = Σ parts, in a fixed order.
template <int Threads>
__global__ void __launch_bounds__(Threads) add_parts_kernel(const __grid_constant__ project_arguments a) {
  static_assert(Threads == k_threads);
  constexpr int together = 8;  // loads in flight at the same time
  const std::int64_t count = a.width * a.columns, e = std::int64_t{blockIdx.x} * Threads + threadIdx.x;
  if (e >= count) return;
  float sum = 0;
  for (std::int64_t first = 0; first < a.splits; first += together) {
    float part[together];
    ballast::cuda::unrolled<together>([&](auto q) {
      const std::int64_t p = first + decltype(q)::value;
      part[decltype(q)::value] = p < a.splits ? a.parts[p * count + e] : 0.F;
    });
    ballast::cuda::unrolled<together>([&](auto q) { sum += part[decltype(q)::value]; });
  }
  a.W[e] = sum;
}

// C ← C − V W for more than k_side reflectors: each thread block has a tile of k_side rows and columns.
template <int Threads>
__global__ void __launch_bounds__(Threads, 1) subtract_deep_kernel(const __grid_constant__ subtract_arguments a) {
  static_assert(Threads == k_threads);
  const split_shape shape(a.rows, a.width);
  const std::int64_t tiles = (a.columns + k_side - 1) / k_side, strip = blockIdx.x / tiles, top = strip * k_side;
  const std::int64_t left = blockIdx.x % tiles * k_side + arch::warp() / 4 * 64;
  float* const C = a.C + top + left * a.ldc;
  float sums[k_side / 2] = {};
  load_sums(sums, C, a.ldc, a.rows - top, a.columns - left);
  multiply_streamed<-1, Threads>(sums, a.image + strip * shape.across * k_chunk, 0, static_cast<int>(shape.across), a.W, a.width, a.width,
                                 left, a.columns);
  store_sums(sums, C, a.ldc, a.rows - top, a.columns - left);
}

// The same for up to k_side reflectors. A thread block keeps the image of k_side rows of V in shared memory and processes tiles of 64
// columns from left to right. Its warpgroups take tiles in turn and wait for each other only once: while one loads C, the other multiplies.
template <int Threads>
__global__ void __launch_bounds__(Threads, 1) subtract_kernel(const __grid_constant__ subtract_arguments a) {
  static_assert(Threads == k_threads);
  auto* const image = reinterpret_cast<float*>(arch::shared_memory());
  auto* const full = reinterpret_cast<arch::mbarrier*>(image + k_side / k_depth * k_chunk);
  const split_shape shape(a.rows, a.width);
  const std::int64_t strip = blockIdx.x / a.chunks, top = strip * k_side;
  const int pieces = static_cast<int>(shape.across);
  if (threadIdx.x == 0) {
    arch::init_mbarrier(full, 1);
    arch::fence_mbarrier_init();
    arch::arrive_expect(full, static_cast<unsigned>(4 * k_chunk * pieces));
    for (int p = 0; p < pieces; ++p)
      arch::load_bulk(image + p * k_chunk, a.image + (strip * shape.across + p) * k_chunk, 4 * k_chunk, full);
  }
  __syncthreads();  // the barrier is initialized
  const int group = arch::warp() / 4, groups = Threads / 128;
  const int tiles = static_cast<int>((a.columns + 63) / 64), each = (tiles + a.chunks - 1) / a.chunks;
  const int begin = static_cast<int>(blockIdx.x % a.chunks) * each, end = begin + each < tiles ? begin + each : tiles;
  const bool wide = is_aligned(a.W, a.width, 16);
  // The pieces of a warpgroup's tiles, in order.
  int ahead_tile = begin + group, ahead_piece = 0;
  const auto load = [&](column_pieces& to) {
    const std::int64_t column = std::int64_t{ahead_tile} * 64 + arch::warp() % 4 * 16 + arch::lane() / 4;
    ballast::cuda::unrolled<2>([&](auto h) {
      const std::int64_t at = column + 8 * decltype(h)::value;
      load_piece(to.x[decltype(h)::value], a.W + at * a.width, at < a.columns && ahead_tile < end, ahead_piece * k_depth, a.width, wide);
    });
    if (++ahead_piece == pieces) {
      ahead_piece = 0;
      ahead_tile += groups;
    }
  };
  column_pieces next, second;  // loads in flight
  load(next);
  load(second);
  arch::wait(full, 0);
  float sums[k_side / 2] = {}, d[k_side / 2];
  for (int tile = begin + group; tile < end; tile += groups) {
    float* const C = a.C + top + std::int64_t{tile} * 64 * a.ldc;
    const std::int64_t rows = a.rows - top, columns = a.columns - std::int64_t{tile} * 64;
    load_sums(sums, C, a.ldc, rows, columns);
    // Prefetches the next tile into L2 while this one is multiplied.
    for (int e = static_cast<int>(threadIdx.x) % 128; e < 64 * (k_side / k_depth); e += 128) {
      const std::int64_t column = groups * 64 + e / (k_side / k_depth), row = e % (k_side / k_depth) * k_depth;
      if (tile + groups < end && column < columns && row < rows) arch::prefetch_l2(C + row + column * a.ldc);
    }
#pragma unroll 1
    for (int piece = 0; piece < pieces; ++piece) {
      const column_pieces now = next;
      next = second;
      load(second);
      multiply_chunk(d, now, image + piece * k_chunk);
      ballast::cuda::unrolled<k_side / 2>([&](auto q) { sums[decltype(q)::value] -= d[decltype(q)::value]; });
    }
    store_sums(sums, C, a.ldc, rows, columns);
  }
}

}  // namespace ballast::qr::cuda
