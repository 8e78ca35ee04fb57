// The sums and residuals of the checks of a factorization. Everything is added up in double, in an order that depends on the shape alone.
// Layer: backend "cuda" of QR, device code. docs/design/qr.md says what each check covers.
#pragma once

#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/sums.cuh"
#include "qr/cuda/arguments.hpp"
#include "qr/cuda/matrix.cuh"

namespace ballast::qr::cuda {

// Element (i, j) of V.
template <class S>
__device__ __forceinline__ double element(const reflectors<S>& h, std::int64_t i, int j) {
  return i < j ? 0.0 : i == j ? 1.0 : static_cast<double>(h.V[i + j * h.ldv]);
}

// A block has k_threads rows. First thread t makes row t of the vectors, then each warp takes the sums of columns warp, warp + 8, …
template <class S>
__global__ void __launch_bounds__(k_threads) products_kernel(const __grid_constant__ products_arguments<S> a) {
  constexpr int vectors = 4;
  auto& y = arch::shared_object<double[vectors + 1][k_threads], struct product_vectors>();
  auto& several = arch::shared_object<double[k_threads / 32], struct product_sums>();
  const std::int64_t top = std::int64_t{blockIdx.x} * k_threads, i = top + threadIdx.x;
  const int w = a.h.width;
  const bool there = i < a.h.rows;
  double p = 0;
  if (there && a.tx != nullptr) {
    for (int j = 0; j < w; ++j) p += element(a.h, i, j) * a.tx[j];
  }
  y[0][threadIdx.x] = there && a.y != nullptr ? a.y[i] : 0;
  y[1][threadIdx.x] = p;
  y[2][threadIdx.x] = there && a.c != nullptr ? static_cast<double>(a.c[i]) : 0;
  y[3][threadIdx.x] = there && a.c != nullptr ? static_cast<double>(a.c[i + a.ldc]) : 0;
  y[4][threadIdx.x] = there && a.weights != nullptr ? a.weights[i] : 0;
  double* const to = a.partial + std::int64_t{blockIdx.x} * (8 * w + 1);
  const double square = over_block<false>(p * p, several);  // and a barrier: y is there
  if (threadIdx.x == 0) to[8 * w] = square;
  const int rows = static_cast<int>(a.h.rows - top < k_threads ? a.h.rows - top : k_threads);
  for (int j = arch::warp(); j < w; j += k_threads / 32) {
    double sum[8] = {};
    for (int r = arch::lane(); r < rows; r += 32) {
      const double v = element(a.h, top + r, j), weight = y[4][r];
      for (int q = 0; q < vectors; ++q) sum[q] += v * y[q][r];
      sum[4] += v;
      sum[5] += v * weight;
      sum[6] += v * weight * weight;
      sum[7] += v * v;
    }
    ballast::cuda::add_lanes<k_threads, 32, 1>(sum);
    if (arch::lane() == 0) {
      for (int q = 0; q < 8; ++q) to[q * w + j] = sum[q];
    }
  }
}

// 32 numbers by each block, a lane for each; warp w adds up what the blocks w, w + 8, … have left.
__device__ __forceinline__ void fold(const fold_arguments& a) {
  constexpr int warps = k_threads / 32;
  auto& several = arch::shared_object<double[warps][32], struct folded_sums>();
  const int lane = arch::lane(), warp = arch::warp();
  const std::int64_t value = std::int64_t{blockIdx.x} * 32 + lane;
  double sum[2] = {};
  if (value < a.count) {
    std::int64_t b = warp;
    for (; b + warps < a.blocks; b += 2 * warps) {
      for (int s = 0; s < 2; ++s) sum[s] += a.partial[(b + s * warps) * a.count + value];
    }
    if (b < a.blocks) sum[0] += a.partial[b * a.count + value];
  }
  several[warp][lane] = sum[0] + sum[1];
  __syncthreads();  // the sums of the warps are there
  if (warp != 0 || value >= a.count) return;
  double all = several[0][lane];
  for (int w = 1; w < warps; ++w) all += several[w][lane];
  a.to[value] = all;
}

template <int Threads>
__global__ void __launch_bounds__(Threads) fold_kernel(const __grid_constant__ fold_arguments a) {
  static_assert(Threads == k_threads);
  fold(a);
}

// By one block: the hash of X's columns, as hash_kernel makes it. All threads get it.
template <class S>
__device__ __forceinline__ unsigned long long hash_of(const S* X, std::int64_t ld, int rows, int columns, bool upper) {
  auto& sum = arch::shared_object<unsigned long long, struct hashed_matrix>();
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();  // it is set
  unsigned long long own = 0;
  for (int e = static_cast<int>(threadIdx.x); e < rows * columns; e += k_threads) {
    const int i = e % rows, l = e / rows;
    if (!upper || i <= l) own += ballast::cuda::value_hash(X[i + l * ld], static_cast<std::uint64_t>(i + l * rows));
  }
  if (own != 0) atomicAdd(&sum, own);
  __syncthreads();  // all have added
  return sum;
}

// z = T x, or Tᵀ x, by one block.
template <class S>
__device__ __forceinline__ void times_t(const reflectors<S>& h, bool transposed, const double* x, double* z) {
  const int w = h.width;
  for (int i = static_cast<int>(threadIdx.x); i < w; i += k_threads) {
    double sum = 0;
    for (int j = transposed ? 0 : i; j < (transposed ? i + 1 : w); ++j)
      sum += static_cast<double>(transposed ? h.T[j + i * h.ldt] : h.T[i + j * h.ldt]) * x[j];
    z[i] = sum;
  }
}

// One block.
template <class S>
__global__ void __launch_bounds__(k_threads) small_kernel(const __grid_constant__ small_arguments<S> a) {
  times_t(a.h, a.transposed, a.x, a.z);
}

// Three blocks, one for each result.
template <class S>
__global__ void __launch_bounds__(k_threads) open_kernel(const __grid_constant__ open_arguments<S> a) {
  if (blockIdx.x == 0) return times_t(a.h, false, a.x, a.tx);
  const int w = a.h.width;
  const unsigned long long hash = blockIdx.x == 1 ? hash_of(a.h.T, a.h.ldt, w, w, false) : hash_of(a.h.V, a.h.ldv, w, w, true);
  if (threadIdx.x == 0) *(blockIdx.x == 1 ? a.seal_t : a.seal_r) = hash;
}

// √Σ of `blocks` squares for each of `count` vectors, the largest; NaN if there is one. By one block; thread 0 gets it.
__device__ __forceinline__ double largest_norm(const double* squares, std::int64_t blocks, int count) {
  auto& several = arch::shared_object<double[k_threads / 32], struct norm_sums>();
  double most = 0;
  for (int q = 0; q < count; ++q) {
    double sum = 0;
    for (std::int64_t b = threadIdx.x; b < blocks; b += k_threads) sum += squares[count * b + q];
    const double norm = sqrt(over_block<false>(sum, several));
    if (most == most && !(norm <= most)) most = norm;
  }
  return most;
}

// The sums over the rows of V are added up as by fold_kernel; the last block judges. Orthogonality: Tᵀ Vᵀ V T x against (T + Tᵀ) x, element
// i by thread i; each reflector's τ‖v‖² − 2; what the second pass over V takes; the checkpoint.
template <class S>
__global__ void __launch_bounds__(k_threads) judge_kernel(const __grid_constant__ judge_arguments<S> a) {
  auto& off = arch::shared_object<double[k_most_wide], struct judged_off>();
  auto& limit = arch::shared_object<double[k_most_wide], struct judged_limit>();
  auto& tail = arch::shared_object<double[k_most_wide], struct judged_tail>();
  fold(a.fold);
  if (!is_last_block(a.arrived)) return;
  const int w = a.h.width;
  const double* const sums = a.fold.to;
  const double p_norm = sqrt(sums[8 * w]);
  const int i = static_cast<int>(threadIdx.x);
  if (i < w) {
    const auto t = [&](int row, int column) { return static_cast<double>(a.h.T[row + column * a.h.ldt]); };
    double residual = 0, scale = 0, tz[3] = {};
    for (int j = 0; j <= i; ++j) {
      const double each = t(j, i), g = sums[w + j], x = a.x[j];
      residual += each * (g - x);
      scale += fabs(each) * (fabs(g) + p_norm + fabs(x));
      tz[0] += each * sums[j];
      tz[1] += each * sums[2 * w + j];
      tz[2] += each * sums[3 * w + j];
    }
    for (int j = i; j < w; ++j) {
      residual -= t(i, j) * a.x[j];
      scale += fabs(t(i, j)) * fabs(a.x[j]);
    }
    off[i] = fabs(residual);
    limit[i] = abft::qr_orthogonality_threshold<S>(scale, a.m);
    for (int q = 0; q < 3; ++q) a.tz[q * w + i] = tz[q];
    for (int q = 0; q < 4 && a.checkpoint != nullptr; ++q) a.checkpoint[q * w + i] = sums[(4 + q) * w + i];
    // A tau of 0 belongs to v = e₁. tau must be T's diagonal to the bit.
    const double tau = static_cast<double>(a.tau[i]), square = sums[7 * w + i];
    const bool same = ballast::cuda::bits(a.tau[i]) == ballast::cuda::bits(a.h.T[i + i * a.h.ldt]);
    tail[i] = !same ? std::numeric_limits<double>::quiet_NaN() : fabs(tau == 0 ? square - 1 : tau * square - 2);
  }
  __syncthreads();  // all are there
  if (threadIdx.x != 0) return;
  panel_result made{0, 1, 0, 0};
  for (int j = 0; j < w; ++j) {
    if (made.reflectors == made.reflectors && !(tail[j] <= made.reflectors)) made.reflectors = tail[j];
  }
  for (int j = 0; j < w; ++j) {
    if (!(off[j] <= std::numeric_limits<double>::max()) || !(limit[j] <= std::numeric_limits<double>::max())) {
      made.orthogonality = std::numeric_limits<double>::quiet_NaN();  // no later row may take its place
      break;
    }
    if (off[j] * made.orthogonality_threshold > made.orthogonality * limit[j]) {
      made.orthogonality = off[j];
      made.orthogonality_threshold = limit[j];
    }
    if (made.orthogonality > made.orthogonality_threshold) break;
  }
  a.to->orthogonality = made.orthogonality;
  a.to->orthogonality_threshold = made.orthogonality_threshold;
  a.to->reflectors = made.reflectors;
  a.to->data = 0;
}

// A row a thread.
template <class S>
__global__ void __launch_bounds__(k_threads) transformed_kernel(const __grid_constant__ transformed_arguments<S> a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct transformed_sums>();
  const std::int64_t i = std::int64_t{blockIdx.x} * k_threads + threadIdx.x;
  const int w = a.h.width;
  double r[2] = {};
  if (i < a.h.rows) {
    double y = a.y[i];
    if (a.c == nullptr) {
      for (int j = 0; j < w; ++j) y -= element(a.h, i, j) * a.tz[j];
    } else {
      for (int q = 0; q < 2; ++q) r[q] = static_cast<double>(a.c[i + q * a.ldc]);
      for (int j = 0; j < w; ++j) {
        const double v = element(a.h, i, j);
        y -= v * a.tz[j];
        r[0] -= v * a.tz[w + j];
        r[1] -= v * a.tz[2 * w + j];
      }
      if (i < w) {
        for (int q = 0; q < 2; ++q) a.head[i + q * w] = r[q];
        for (int j = static_cast<int>(i); j < w; ++j) {
          const double x = static_cast<double>(a.h.V[i + j * a.h.ldv]);
          for (int q = 0; q < 2; ++q) r[q] -= x * a.d[j + q * a.ldd];
        }
      }
    }
    a.next[i] = y;
  }
  if (a.c == nullptr) return;
  for (int q = 0; q < 2; ++q) {
    const double square = over_block<false>(r[q] * r[q], several);
    if (threadIdx.x == 0) a.squares[2 * std::int64_t{blockIdx.x} + q] = square;
  }
  if (!is_last_block(a.arrived)) return;
  const double norm = largest_norm(a.squares, gridDim.x, 2);
  if (threadIdx.x == 0) *a.norm = norm;
}

// Block b of the list.
struct column_range {
  std::int64_t first;
  int width;
  bool panel;
};
__device__ __forceinline__ column_range range_of(const block_list& all, std::int64_t b) {
  const std::int64_t panels = (all.steps + all.width - 1) / all.width;
  const bool panel = b < panels;
  const std::int64_t first = panel ? b * all.width : all.steps + (b - panels) * all.width;
  const std::int64_t left = (panel ? all.steps : all.columns) - first;
  return {first, static_cast<int>(left < all.width ? left : all.width), panel};
}

// Blocks of threads first over rows, then over blocks of columns. A row a thread.
template <class S>
__global__ void __launch_bounds__(k_threads) weigh_kernel(const __grid_constant__ weigh_arguments<S> a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct weighed_sums>();
  const std::int64_t slabs = (a.rows + k_threads - 1) / k_threads;
  const std::int64_t chunk = blockIdx.x / slabs, b = a.first_block + chunk;
  const column_range here = range_of(a.blocks, b);
  const std::int64_t i = blockIdx.x % slabs * k_threads + threadIdx.x;
  const bool there = i < a.rows && !(a.r && here.panel && i >= here.first + here.width);
  const int begin = a.r && here.panel && i > here.first ? static_cast<int>(i - here.first) : 0;
  double sum[2] = {};
  unsigned long long hash = 0;
  if (there) {
    for (int l = begin; l < here.width; ++l) {
      const std::int64_t j = here.first + l;
      const S read = a.X[i * a.row_stride + j * a.column_stride];
      // Sealed by the reading that is verified: nothing lies between the two.
      if (a.seal != nullptr && i < here.first) hash += ballast::cuda::value_hash(read, static_cast<std::uint64_t>(i + l * here.first));
      double x = static_cast<double>(read);
      if (a.shifts != nullptr && a.shifts[j] != 0) {
        // Rounded as the data are: below the normal numbers that loses digits.
        x = static_cast<double>(std::ldexp(read, a.shifts[j]));
      }
      for (int q = 0; q < 2; ++q) sum[q] += q < a.count ? x * a.z[j + q * a.ldz] : 0;
    }
  }
  for (int q = 0; q < 2; ++q) {
    if (q == a.count) break;
    if (a.init != nullptr && there) sum[q] = static_cast<double>(a.init[i + q * a.ldi + 2 * chunk * a.ldi]) - sum[q];
    if (a.from != nullptr && there) sum[q] = a.from[i + q * a.ldi] - sum[q];
    if (a.to_column != nullptr && i < a.rows) a.to_column[i + q * a.ldi + 2 * chunk * a.ldi] = static_cast<S>(sum[q]);
    if (a.to != nullptr && i < a.rows) a.to[i + q * a.ldi + a.count * chunk * a.ldi] = sum[q];
    if (a.squares == nullptr) continue;
    const double square = over_block<false>(sum[q] * sum[q], several);
    if (threadIdx.x == 0) a.squares[a.count * std::int64_t{blockIdx.x} + q] = square;
  }
  if (a.norm == nullptr) return;
  if (a.seal != nullptr) {
    auto& all = arch::shared_object<unsigned long long, struct weighed_hash>();
    if (threadIdx.x == 0) all = 0;
    __syncthreads();  // it is set
    if (hash != 0) atomicAdd(&all, hash);
    __syncthreads();  // all have added
    if (threadIdx.x == 0) a.hashes[blockIdx.x] = all;
  }
  if (!is_last_block(a.arrived)) return;
  const double norm = largest_norm(a.squares, gridDim.x, a.count);
  if (threadIdx.x != 0) return;
  *a.norm = norm;
  if (a.seal == nullptr) return;
  hash = 0;
  for (std::int64_t s = 0; s < gridDim.x; ++s) hash += a.hashes[s];
  *a.seal = hash;
}

// A row a thread.
template <int Threads>
__global__ void __launch_bounds__(Threads) combine_kernel(const __grid_constant__ combine_arguments a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct combined_sums>();
  const std::int64_t i = std::int64_t{blockIdx.x} * k_threads + threadIdx.x;
  double sum = 0;
  for (int c = 0; c < a.chunks && i < a.rows; ++c) sum += a.parts[i + c * a.rows];
  if (a.from != nullptr && i < a.rows) sum = a.from[i] - sum;
  if (a.to != nullptr && i < a.rows) a.to[i] = sum;
  if (a.squares == nullptr) return;
  const double square = over_block<false>(sum * sum, several);
  if (threadIdx.x == 0) a.squares[blockIdx.x] = square;
}

// A block for each norm.
template <int Threads>
__global__ void __launch_bounds__(Threads) norm_kernel(const __grid_constant__ norm_arguments a) {
  const double norm = largest_norm(a.squares + a.count * blockIdx.x * a.blocks, a.blocks, a.count);
  if (threadIdx.x == 0) a.to[blockIdx.x] = norm;
}

// A block for each column.
template <class S>
__global__ void __launch_bounds__(k_threads) hash_kernel(const __grid_constant__ hash_arguments<S> a) {
  auto& sum = arch::shared_object<unsigned long long, struct hashed_sum>();
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();  // it is set
  const std::int64_t l = blockIdx.x;
  const std::int64_t rows = a.upper && l + 1 < a.rows ? l + 1 : a.rows;
  unsigned long long own = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += k_threads)
    own += ballast::cuda::value_hash(a.X[i + l * a.ld], static_cast<std::uint64_t>(i + l * a.rows));
  if (own != 0) atomicAdd(&sum, own);
  __syncthreads();  // all have added
  if (threadIdx.x == 0) atomicAdd(a.to, sum);
}

// A block for each panel: the largest difference; the same bits give 0.
template <int Threads>
__global__ void __launch_bounds__(Threads) changes_kernel(const __grid_constant__ changes_arguments a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct changed_sums>();
  const int count = blockIdx.x + 1 == gridDim.x ? a.last : a.most;
  double most = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += k_threads) {
    const double now = a.now[blockIdx.x * a.stride + i], kept = a.kept[blockIdx.x * a.stride + i];
    const double size = now == kept ? 0 : fabs(now - kept);
    if (most == most && !(size <= most)) most = size;
  }
  most = over_block<true>(most, several);
  if (threadIdx.x == 0) a.to[blockIdx.x] = most;
}

// A row a thread.
template <class S>
__global__ void __launch_bounds__(k_threads) accept_kernel(const __grid_constant__ accept_arguments<S> a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * k_threads + threadIdx.x;
  if (i >= a.rows) return;
  if (a.carried != nullptr) a.carried[i] = a.next[i];
  for (int q = 0; q < 2 && i < a.width; ++q) a.to[i + q * a.ld] = static_cast<S>(a.head[i + q * a.width]);
}

// A block for each panel.
template <class S>
__global__ void __launch_bounds__(k_threads) taus_kernel(const __grid_constant__ taus_arguments<S> a) {
  const std::int64_t first = blockIdx.x * a.width, left = a.steps - first;
  const int w = static_cast<int>(left < a.width ? left : a.width);
  const S* const T = a.T + blockIdx.x * a.width * a.width;
  int differ = 0;
  for (int j = static_cast<int>(threadIdx.x); j < w; j += k_threads)
    differ |= ballast::cuda::bits(a.tau[first + j]) != ballast::cuda::bits(T[j * (w + 1)]) ? 1 : 0;
  differ = __syncthreads_or(differ);
  if (threadIdx.x == 0) a.to[blockIdx.x] = differ != 0 ? 1 : 0;
}

// A block for each column and vector: Σ_i b(i, q) x(i, j).
template <class S>
__global__ void __launch_bounds__(k_threads) dots_kernel(const __grid_constant__ dots_arguments<S> a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct dotted_sums>();
  const std::int64_t j = blockIdx.x;
  double sum[k_vectors] = {};
  const int shift = a.shifts != nullptr ? a.shifts[j] : 0;
  for (std::int64_t i = threadIdx.x; i < a.rows; i += k_threads) {
    double x = 0;
    if (a.X == nullptr) {
      x = i == a.first + j ? 1 : 0;
    } else {
      const S read = a.X[i * a.row_stride + j * a.column_stride];
      x = static_cast<double>(shift == 0 ? read : std::ldexp(read, shift));
    }
    for (int q = 0; q < k_vectors; ++q) sum[q] += a.b[i + q * a.ldb] * x;
  }
  for (int q = 0; q < k_vectors; ++q) {
    const double all = over_block<false>(sum[q], several);
    if (threadIdx.x == 0) a.to[j + q * a.columns] = all;
  }
}

}  // namespace ballast::qr::cuda
