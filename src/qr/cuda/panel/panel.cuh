// Householder QR of a narrow panel by one cluster of thread blocks, in one launch.
// Layer: backend "cuda" of QR, device code.
// Each thread block has a slab of rows, in shared memory if it fits. Each reflector takes one pass over the slab and one exchange among the
// blocks: the pass applies reflector j and computes the dot products of the next column with all columns; those with the columns before it
// give T. All sums are in double and in an order that depends on the shape alone.
// Source: LAPACK's conventions for xLARFG; R. Schreiber, C. Van Loan, 1989 (T).
#pragma once

#include <cmath>
#include <limits>

#include "cuda/arch/arch.cuh"
#include "cuda/block/sums.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/number.cuh"

namespace ballast::qr::cuda {

// The shared memory before the slab.
template <class S, int Blocks, int Threads>
struct panel_memory {
  using wide = wide_of<S>;
  wide slots[2][Blocks][k_inner];  // the sums sent by each block, for two exchanges
  wide row[2][k_inner];            // row j, from the block that has it
  wide part[k_inner];              // the sums that this block sends
  wide weight[k_inner];            // row j of the reflector's update of the columns
  wide z[k_inner];                 // V_lᴴ v_j for l < j
  wide T[k_inner][k_inner];        // T[column][row]
  wide scale, tau, alpha;
  double several[Threads / 32];
  double beta;
  int plain;  // 1 if the squared norm is in the range where it is accurate, else 0
};

// A barrier of all thread blocks of the cluster.
template <int Blocks>
__device__ __forceinline__ void sync_cluster() {
  if constexpr (Blocks == 1) {
    __syncthreads();
  } else {
    arch::cluster_sync();
  }
}

// Sends a number to the same place of another block.
template <class Wide>
__device__ __forceinline__ void send_number(Wide* to, unsigned block, Wide x) {
  if constexpr (is_complex<Wide>) {
    arch::store_remote(&to->re, block, x.re);
    arch::store_remote(&to->im, block, x.im);
  } else {
    arch::store_remote(to, block, x);
  }
}

// Sends part[0 … count − 1] of this block to its place in slots[half] of all blocks. The caller needs a barrier of the cluster afterwards.
template <class S, int Blocks, int Threads>
__device__ __forceinline__ void send(panel_memory<S, Blocks, Threads>& own, int half, int rank, int count) {
  __syncthreads();  // `part` is complete
  for (int e = static_cast<int>(threadIdx.x); e < k_inner * Blocks; e += Threads) {
    const int to = e / k_inner, l = e % k_inner;
    if (l >= count) continue;
    if constexpr (Blocks == 1) {
      own.slots[half][0][l] = own.part[l];
    } else {
      send_number(&own.slots[half][rank][l], static_cast<unsigned>(to), own.part[l]);
    }
  }
}

// Returns the larger number; NaN if one is NaN.
__device__ __forceinline__ double larger(double a, double b) { return a != a || a > b ? a : b; }

// Reduces one number of each lane over all warps of the block: the sum, or the largest. The result is in part[0] after the next barrier.
template <bool Largest, class S, int Blocks, int Threads>
__device__ __forceinline__ void gather(panel_memory<S, Blocks, Threads>& own, double value) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, value, distance);
    value = Largest ? larger(value, other) : value + other;
  }
  if (arch::lane() == 0) own.several[arch::warp()] = value;
  __syncthreads();  // `several` is complete
  if (threadIdx.x == 0) {
    double all = own.several[0];
    for (int w = 1; w < Threads / 32; ++w) all = Largest ? larger(all, own.several[w]) : all + own.several[w];
    own.part[0] = all;
  }
}

// Sets the weights of the new reflector for the columns to its right. Called by the first warp, lane l for column l. g: the dot product of
// column l with the tail of the pivot; h: its element in row j. The columns get Hᴴ, so that conj(τ) is their factor.
template <class S, int Blocks, int Threads, class Wide>
__device__ __forceinline__ void set_weights(panel_memory<S, Blocks, Threads>& own, int l, int j, Wide g, Wide h, Wide scale, Wide tau) {
  const Wide product = plus_conjugate_product(h, scale, g);  // vᴴ times column l
  own.weight[l] = l > j && !(tau == Wide(0.0)) ? conjugate_of(tau) * product : Wide(0.0);
  own.z[l] = l < j ? conjugate_of(product) : Wide(0.0);
}

// A thread block that factors its slab of the panel.
// Thread mapping: lane i of a warp has rows i, i + 32, … of the slab, warp w has columns w, w + Threads / 32, ….
template <class S, int Blocks, int Threads>
struct panel_block {
  using memory = panel_memory<S, Blocks, Threads>;
  using wide = wide_of<S>;
  using real = real_of<S>;
  static_assert(sizeof(memory) == panel_front<S>(Blocks, Threads));
  static constexpr int warps = Threads / 32;

  const panel_arguments<S>& a;
  memory& own;
  const int rank, lane, warp, w;
  const std::int64_t first;   // the first row of the slab
  const int count;            // rows of the slab
  const bool resident;        // true if the slab is in shared memory
  S* const X;                 // the slab
  const std::int64_t ld;      // its leading dimension
  S *const even, *const odd;  // the columns that become reflectors with an even and with an odd number
  int half = 0;               // the half of `slots` and `row` for the next exchange

  __device__ __forceinline__ explicit panel_block(const panel_arguments<S>& given)
      : a(given),
        own(*reinterpret_cast<memory*>(arch::shared_memory())),
        rank(Blocks == 1 ? 0 : static_cast<int>(arch::cluster_rank())),
        lane(arch::lane()),
        warp(arch::warp()),
        w(a.width),
        first(rank * a.slab),
        count(rows_left()),
        resident(a.pivots == nullptr),
        X(resident ? memory_slab() : a.A + first),
        ld(resident ? a.slab : a.lda),
        even(resident ? memory_slab() + w * a.slab : a.pivots + first),
        odd(resident ? memory_slab() + (w + 1) * a.slab : a.pivots + a.rows + first) {}

  __device__ __forceinline__ int rows_left() const {
    const std::int64_t left = a.rows - first;
    return static_cast<int>(left < 0 ? 0 : left < a.slab ? left : a.slab);
  }
  __device__ __forceinline__ S* memory_slab() const { return reinterpret_cast<S*>(&own + 1); }
  // Returns the first row of the slab that is below row j of the panel.
  __device__ __forceinline__ std::int64_t below(int j) const { return j + 1 > first ? j + 1 - first : 0; }
  __device__ __forceinline__ bool has_row(int j) const { return j >= first && j < first + count; }

  __device__ __forceinline__ void load() const {
    for (int l = warp; l < w; l += warps) {
      for (int i = lane; i < count; i += 32) {
        const S x = a.A[first + i + l * a.lda];
        if (resident) X[i + l * ld] = x;
        if (l == 0) even[i] = x;
      }
    }
  }

  // Computes the dot products of the pivot's tail below row j with all columns, into `part`.
  __device__ __forceinline__ void dots(int j, const S* pivot) const {
    for (int l = warp; l < w; l += warps) {
      wide sum[1] = {};
      for (std::int64_t i = below(j) + lane; i < count; i += 32) {
        const S y = l == j ? pivot[i] : X[i + l * ld];
        sum[0] = plus_conjugate_product(sum[0], widened(pivot[i]), widened(y));
      }
      ballast::cuda::add_lanes<Threads, 32, 1>(all_components(sum));
      if (lane == 0) own.part[l] = sum[0];
    }
  }

  // Sends row j to all blocks. Called by the block that has it. The caller needs a barrier of the cluster afterwards.
  __device__ __forceinline__ void send_row(int j, const S* pivot) const {
    for (int e = static_cast<int>(threadIdx.x); e < k_inner * Blocks; e += Threads) {
      const int to = e / k_inner, l = e % k_inner;
      if (l >= w) continue;
      const wide h = widened(l == j ? pivot[j - first] : X[j - first + l * ld]);
      if constexpr (Blocks == 1) {
        own.row[half][l] = h;
      } else {
        send_number(&own.row[half][l], static_cast<unsigned>(to), h);
      }
    }
  }

  // Computes reflector j from the sums and the row that all blocks have sent. Called by the first warp, lane l for column l. g and h
  // receive its sum and its element, as in set_weights().
  __device__ __forceinline__ void reflector(int j, wide& g, wide& h) const {
    for (int r = 0; r < Blocks && lane < w; ++r) g += own.slots[half][r][lane];
    h = lane < w ? own.row[half][lane] : wide(0.0);
    const wide alpha = __shfl_sync(0xffffffffu, h, j);
    // The reflector turns the tail to zero, and the imaginary part of the pivot.
    const double head = real_part(alpha), squares = real_part(__shfl_sync(0xffffffffu, g, j)) + square_of(imaginary(alpha));
    // Squares of floats neither underflow nor overflow in double.
    const bool plain =
        fabs(head) <= 0x1p450 && (sizeof(real) == 4 ? squares > 0 && squares <= 0x1p300 : squares >= 0x1p-900 && squares <= 0x1p900);
    const double beta = plain ? -copysign(sqrt(head * head + squares), head) : head;
    const wide scale = plain ? quotient(wide(1.0), alpha - wide(beta)) : wide(0.0), tau = rounded(plain ? tau_of(beta, alpha) : wide(0.0));
    if (lane == 0) {
      own.scale = scale;
      own.beta = beta;
      own.tau = tau;
      own.alpha = alpha;
      own.plain = plain || (imaginary(alpha) == 0 && (j + 1 >= a.rows || (sizeof(real) == 4 && squares == 0)));
    }
    set_weights(own, lane, j, g, h, scale, tau);
  }
  // τ of a pivot that becomes the real number β: (β − α) / β.
  __device__ __forceinline__ static wide tau_of(double beta, wide alpha) {
    if constexpr (is_complex<S>)
      return {(beta - alpha.re) / beta, -alpha.im / beta};
    else
      return (beta - alpha) / beta;
  }
  __device__ __forceinline__ static wide rounded(wide x) { return widened(narrowed<S>(x)); }
  __device__ __forceinline__ static double imaginary(wide x) {
    if constexpr (is_complex<S>)
      return x.im;
    else
      return 0;
  }

  // Computes reflector j if the squares of its tail leave the range, or if the tail holds Inf or NaN: the tail is scaled by its largest
  // element, and stored as v itself.
  __device__ __forceinline__ void rescale(int j, S* pivot, wide g, wide h) {
    const std::int64_t begin = below(j) + threadIdx.x;
    double most = 0;
    for (std::int64_t i = begin; i < count; i += Threads) most = larger(most, largest_component(pivot[i]));
    gather<true>(own, most);
    send(own, half, rank, 1);
    sync_cluster<Blocks>();  // all blocks have sent
    most = real_part(own.slots[half][0][0]);
    for (int r = 1; r < Blocks; ++r) most = larger(most, real_part(own.slots[half][r][0]));
    half ^= 1;
    const wide alpha = own.alpha;
    double beta = real_part(alpha);
    wide tau = 0.0;
    if (!(most == 0 && imaginary(alpha) == 0)) {
      const double top = larger(most, largest_component(alpha));
      const int e = top <= std::numeric_limits<double>::max() ? -std::ilogb(top) : 0;
      double squares = 0;
      for (std::int64_t i = begin; i < count; i += Threads) {
        squares += square_of(shifted_number(widened(pivot[i]), e));
      }
      gather<false>(own, squares);
      send(own, half, rank, 1);
      sync_cluster<Blocks>();  // all blocks have sent
      squares = 0;
      for (int r = 0; r < Blocks; ++r) squares += real_part(own.slots[half][r][0]);
      half ^= 1;
      const wide head = shifted_number(alpha, e);
      const double scaled = -copysign(sqrt(square_of(head) + squares), real_part(head));
      tau = rounded(tau_of(scaled, head));
      beta = std::ldexp(scaled, -e);
      for (std::int64_t i = begin; i < count; i += Threads)
        pivot[i] = narrowed<S>(quotient(shifted_number(widened(pivot[i]), e), head - wide(scaled)));
      __syncthreads();  // v is complete
      dots(j, pivot);
      send(own, half, rank, w);
      sync_cluster<Blocks>();  // all blocks have sent
      if (warp == 0) {
        g = 0.0;
        for (int r = 0; r < Blocks && lane < w; ++r) g += own.slots[half][r][lane];
      }
      half ^= 1;
    }
    if (warp == 0) {
      const wide scale = tau == wide(0.0) ? 0.0 : 1.0;
      set_weights(own, lane, j, g, h, scale, tau);
      if (lane == 0) {
        own.scale = scale;
        own.beta = beta;
        own.tau = tau;
      }
    }
    __syncthreads();  // the reflector is complete
  }

  // T: column j is −τ T Vᴴv_j above the diagonal. Computed by the last warp of the first block, lane l for row l.
  __device__ __forceinline__ void extend_t(int j) const {
    if (rank == 0 && warp == warps - 1) {
      wide sums[4] = {};
      int q = 0;  // the sum includes q < lane: T is zero there
      for (; q + 4 <= j; q += 4) {
        for (int s = 0; s < 4; ++s) sums[s] = plus_product(sums[s], own.T[q + s][lane], own.z[q + s]);
      }
      for (; q < j; ++q) sums[0] = plus_product(sums[0], own.T[q][lane], own.z[q]);
      const wide sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      own.T[j][lane] = lane < j ? rounded(negative_of(own.tau * sum)) : lane == j ? own.tau : wide(0.0);
    }
    if (rank == 0 && threadIdx.x == 0) a.tau[j] = narrowed<S>(own.tau);
  }

  // Applies reflector j, and computes the dot products of column j + 1 below its diagonal. Column j is read from `pivot` and written to
  // the slab; column j + 1 is read from the slab and written to `next`, so that no warp waits for another.
  __device__ __forceinline__ void apply(int j, const S* pivot, S* next, bool with_row) const {
    const wide scale = own.scale, next_weight = j + 1 < w ? own.weight[j + 1] : wide(0.0);
    constexpr int mine = k_inner / warps;  // columns of a warp
    wide sum[mine] = {}, weight[mine];
    for (int c = 0; c < mine; ++c) weight[c] = own.weight[warp + c * warps];
    for (std::int64_t i = below(j) + lane; i < count; i += 32) {
      const S v = narrowed<S>(widened(pivot[i]) * scale);
      S x = 0;
      if (j + 1 < w) x = narrowed<S>(minus_product(widened(X[i + (j + 1) * ld]), widened(v), next_weight));
      const wide factor = first + i > j + 1 ? widened(x) : wide(0.0);
      for (int c = 0; c < mine; ++c) {
        const int l = warp + c * warps;
        if (l >= w) continue;
        S y = 0;
        if (l < j) {
          y = X[i + l * ld];
        } else if (l == j) {
          X[i + l * ld] = y = v;
        } else if (l == j + 1) {
          next[i] = y = x;
        } else {
          X[i + l * ld] = y = narrowed<S>(minus_product(widened(X[i + l * ld]), widened(v), weight[c]));
        }
        sum[c] = plus_conjugate_product(sum[c], factor, widened(y));
      }
    }
    ballast::cuda::add_lanes<Threads, 32, 1>(all_components(sum));
    for (int c = 0; c < mine; ++c) {
      const int l = warp + c * warps;
      if (l >= w) continue;
      if (lane == 0) own.part[l] = sum[c];
      // Row j belongs to R.
      if (with_row && lane == 0 && l >= j) {
        S& r = X[j - first + l * ld];
        r = l == j ? S(static_cast<real>(own.beta)) : narrowed<S>(widened(r) - weight[c]);
      }
    }
  }

  // Stores the slab and T.
  __device__ __forceinline__ void store() const {
    if (resident) {
      for (int l = warp; l < w; l += warps) {
        for (int i = lane; i < count; i += 32) a.A[first + i + l * a.lda] = X[i + l * ld];
      }
    }
    if (rank == 0) {
      for (int e = static_cast<int>(threadIdx.x); e < w * w; e += Threads) {
        const int l = e / w, i = e % w;
        a.T[i + l * a.ldt] = i <= l ? narrowed<S>(own.T[l][i]) : S(0);
      }
    }
  }
};

template <class S, int Blocks, int Threads>
__global__ void __launch_bounds__(Threads) panel_kernel(const __grid_constant__ panel_arguments<S> a) {
  panel_block<S, Blocks, Threads> block(a);
  block.load();
  sync_cluster<Blocks>();  // the slab is loaded, and all blocks have started, so that they can be sent to
  block.dots(0, block.even);
  for (int j = 0; j < block.w; ++j) {
    S* const pivot = j % 2 == 0 ? block.even : block.odd;
    S* const next = j % 2 == 0 ? block.odd : block.even;
    const bool has_row = block.has_row(j);
    send(block.own, block.half, block.rank, block.w);
    if (has_row) block.send_row(j, pivot);
    sync_cluster<Blocks>();  // all blocks have sent
    wide_of<S> g = 0.0, h = 0.0;
    if (block.warp == 0) block.reflector(j, g, h);
    block.half ^= 1;
    __syncthreads();  // the reflector is complete
    if (!block.own.plain) block.rescale(j, pivot, g, h);
    block.extend_t(j);
    block.apply(j, pivot, next, has_row);
    // The barrier in send() separates this pass from the writes of the next reflector.
  }
  __syncthreads();  // the slab and T are final
  block.store();
  sync_cluster<Blocks>();  // no block exits while others may still send to it
}

}  // namespace ballast::qr::cuda
