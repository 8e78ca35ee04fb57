// The sums and residuals of the checks of a factorization. All sums are in double, in an order that depends on the shape alone.
// Layer: backend "cuda" of QR, device code. docs/design/qr.md describes what each check covers.
#pragma once

#include <cmath>
#include <limits>

#include "abft/seal.hpp"
#include "abft/threshold.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/checks/check_sums.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/matrix.cuh"
#include "qr/cuda/layout/number.cuh"
#include "qr/cuda/layout/rows.cuh"
#include "qr/thresholds.hpp"

namespace ballast::qr::cuda {

// Returns the sum of a block's hashes to thread 0.
__device__ __forceinline__ unsigned long long hash_over_block(unsigned long long own) {
  auto& several = arch::shared_object<unsigned long long[k_threads / 32], struct hashed_block>();
  unsigned long long sum[1] = {own};
  __syncthreads();  // the previous sums have been read
  return ballast::cuda::add_block<k_threads>(sum, several);
}

// Called by one thread block: computes the hash of X's columns, equal to hash_kernel's. Thread 0 gets it.
template <class S>
__device__ __forceinline__ unsigned long long hash_of(const S* X, std::int64_t ld, int rows, int columns, bool upper) {
  unsigned long long own = 0;
  const row_part here;
  for (int i = here.row; i < rows; i += k_block_rows) {
    each_column<S>(
        here.part, upper ? i : 0, columns, [&](int l) { return X[i + l * ld]; },
        [&](int l, S x) { own += result_hash_of(x, static_cast<std::uint64_t>(i + l * rows)); });
  }
  return hash_over_block(own);
}

// Called by one thread block: z = T x, or Tᴴ x.
template <class S>
__device__ __forceinline__ void times_t(const reflectors<S>& h, bool transposed, const wide_of<S>* x, wide_of<S>* z) {
  const int w = h.width;
  for (int i = static_cast<int>(threadIdx.x); i < w; i += k_threads) {
    wide_of<S> sum = 0;
    for (int j = transposed ? 0 : i; j < (transposed ? i + 1 : w); ++j)
      sum = plus_product(sum, conjugated_if(transposed, widened(transposed ? h.T[j + i * h.ldt] : h.T[i + j * h.ldt])), x[j]);
    z[i] = sum;
  }
}

// One thread block.
template <class S>
__global__ void __launch_bounds__(k_threads) small_kernel(const __grid_constant__ small_arguments<S> a) {
  times_t(a.h, a.transposed, a.x, a.z);
}

// Computes T x and |T| |x|, k_block_rows rows in each thread block.
template <class S>
__global__ void __launch_bounds__(k_threads) open_kernel(const __grid_constant__ open_arguments<S> a) {
  using wide = wide_of<S>;
  auto& several = arch::shared_object<wide[k_row_parts - 1][1][k_block_rows], struct opened_parts>();
  auto& sizes = arch::shared_object<double[k_row_parts - 1][1][k_block_rows], struct opened_sizes>();
  const row_part own;
  const int w = a.h.width, i = static_cast<int>(blockIdx.x) * k_block_rows + own.row;
  wide sum[1] = {};     // T x
  double size[1] = {};  // |T| |x|
  each_column<S>(
      own.part, i, w, [&](int l) { return a.h.T[i + l * a.h.ldt]; },
      [&](int l, S t) {
        const wide term = times_real(widened(t), a.x[l]);
        sum[0] += term;
        size[0] += magnitude(term);
      });
  add_parts(own, sum, several);
  add_parts(own, size, sizes);
  if (own.part > 0 || i >= w) return;
  a.tx[i] = sum[0];
  a.tx_size[i] = size[0];
}

// Returns the largest of `count` norms, each √Σ of `blocks` squares; NaN if one of them is NaN. Called by one thread block; thread 0 gets
// the result.
__device__ __forceinline__ double largest_norm(const double* squares, std::int64_t blocks, int count) {
  auto& several = arch::shared_object<double[k_threads / 32], struct norm_sums>();
  double most = 0;
#pragma unroll 1
  for (int q = 0; q < count; ++q) {
    double sum = 0;
#pragma unroll 2
    for (std::int64_t b = threadIdx.x; b < blocks; b += k_threads) sum += squares[count * b + q];
    const double norm = sqrt(over_block<false>(sum, several));
    if (most == most && !(norm <= most)) most = norm;
  }
  return most;
}

// Adds up the sums over the rows of V like fold_kernel; the last thread block evaluates the checks. Orthogonality: compares Tᴴ Vᴴ V T x
// with (T + Tᴴ) x; eight lanes compute element i from column i of T. Reflectors: |τ|²/Re τ ‖v‖² − 2 of each. It also computes the operand
// of the second pass over V, and the checkpoint. p was computed with the same T x: if that is wrong by e, the two sides differ by TᵀT⁻¹e.
template <class S>
__global__ void __launch_bounds__(k_threads) judge_kernel(const __grid_constant__ judge_arguments<S> a) {
  auto& off = arch::shared_object<double[k_most_wide], struct judged_off>();
  auto& limit = arch::shared_object<double[k_most_wide], struct judged_limit>();
  auto& tail = arch::shared_object<double[k_most_wide], struct judged_tail>();
  using wide = wide_of<S>;
  auto& factor = arch::shared_object<wide[4][k_most_wide], struct judged_factors>();
  auto& bound = arch::shared_object<double[k_most_wide], struct judged_bounds>();
  const int w = a.h.width;
  const std::int64_t folds = (a.fold.count + 31) / 32;
  if (blockIdx.x < folds) {
    fold(a.fold, blockIdx.x, 0, a.fold.count);
  } else {
    const bool of_t = blockIdx.x == folds;
    const unsigned long long hash = hash_of(of_t ? a.h.T : a.h.V, of_t ? a.h.ldt : a.h.ldv, w, w, !of_t);
    if (threadIdx.x == 0) *(of_t ? a.seal_t : a.seal_r) = hash;
  }
  if (!is_last_block(a.arrived)) return;
  const double* const sums = a.fold.to;
  constexpr int of_vectors = k_panel_sums<S> - 4;  // the sums of the checkpoint come after so many for each column
  const double p_norm = sqrt(sums[k_panel_sums<S> * w]);
  const int i = static_cast<int>(threadIdx.x);
  if (i < w) {
    const wide g = number_at<wide>(sums, w + i);
    const double x = a.x[i];
    factor[0][i] = g - wide(x);
    bound[i] = magnitude(g) + p_norm + fabs(x);
    for (int v = 0; v < 3; ++v) factor[1 + v][i] = number_at<wide>(sums, (v == 0 ? 0 : v + 1) * w + i);
  }
  __syncthreads();  // the factors of T's columns are stored
  // Eight lanes share a column of T, each with every eighth element. All elements are loaded before they are used.
  constexpr int lanes = 8, each = k_most_wide / lanes;
  const int part = i % lanes;
#pragma unroll 1
  for (int first = 0; first < w; first += k_threads / lanes) {
    const int column = first + i / lanes;
    S t[each];
    ballast::cuda::unrolled<each>([&](auto e) {
      const int j = lanes * decltype(e)::value + part;
      t[decltype(e)::value] = j <= column && column < w ? a.h.T[j + column * a.h.ldt] : S(0);
    });
    wide sum[4] = {};     // T's column times g − x, times the sums of y, c1 and c2
    double most[1] = {};  // the rounding bound of the first
    ballast::cuda::unrolled<each>([&](auto e) {
      const int j = lanes * decltype(e)::value + part;
      if (j > column || column >= w) return;
      const wide own = widened(t[decltype(e)::value]);
      most[0] += magnitude(own) * bound[j];
      for (int v = 0; v < 4; ++v) sum[v] = plus_conjugate_product(sum[v], own, factor[v][j]);
    });
    ballast::cuda::add_lanes<k_threads, lanes, 1>(all_components(sum));
    ballast::cuda::add_lanes<k_threads, lanes, 1>(most);
    if (part != 0 || column >= w) continue;
    off[column] = magnitude(sum[0] - a.tx[column]);
    limit[column] = thresholds::orthogonality<real_of<S>>(most[0] + a.tx_size[column], k_reals<S> * a.m);
    for (int v = 0; v < 3; ++v) a.tz[v * w + column] = sum[1 + v];
  }
  if (i < w) {
    for (int q = 0; q < 4 && a.checkpoint != nullptr; ++q) a.checkpoint[q * w + i] = sums[(of_vectors + q) * w + i];
    // A tau of 0 belongs to v = e₁. tau must equal T's diagonal to the bit.
    const wide tau = widened(a.tau[i]);
    const double square = sums[(of_vectors + 3) * w + i];
    const double scale = is_complex<S> ? square_of(tau) / real_part(tau) : real_part(tau);
    tail[i] = !same_bits_of(a.tau[i], a.h.T[i + i * a.h.ldt]) ? std::numeric_limits<double>::quiet_NaN()
                                                              : fabs(tau == wide(0.0) ? square - 1 : scale * square - 2);
  }
  __syncthreads();  // the results of all columns are stored
  if (arch::warp() != 0) return;
  // Finds the largest values; for orthogonality, the residual that is largest in units of its threshold. NaN is kept.
  panel_result made{0, 1, 0, 0};
  const auto join = [&made](double residual, double threshold, double reflectors) {
    if (made.reflectors == made.reflectors && !(reflectors <= made.reflectors)) made.reflectors = reflectors;
    if (made.orthogonality != made.orthogonality) return;
    if (!(residual <= std::numeric_limits<double>::max()) || !(threshold <= std::numeric_limits<double>::max())) {
      made.orthogonality = std::numeric_limits<double>::quiet_NaN();
    } else if (residual * made.orthogonality_threshold > made.orthogonality * threshold) {
      made.orthogonality = residual;
      made.orthogonality_threshold = threshold;
    }
  };
#pragma unroll 1
  for (int j = arch::lane(); j < w; j += 32) join(off[j], limit[j], tail[j]);
#pragma unroll 1
  for (int distance = 1; distance < 32; distance *= 2) {
    const auto from = [&](double mine) { return __shfl_xor_sync(0xffffffffu, mine, distance); };
    const double residual = from(made.orthogonality), threshold = from(made.orthogonality_threshold), reflectors = from(made.reflectors);
    join(residual, threshold, reflectors);
  }
  if (arch::lane() != 0) return;
  a.to->orthogonality = made.orthogonality;
  a.to->orthogonality_threshold = made.orthogonality_threshold;
  a.to->reflectors = made.reflectors;
  a.to->data = 0;
  if (!(made.orthogonality <= made.orthogonality_threshold) || !(made.reflectors <= a.limit)) close(a.gate);
}

// Adds up the partial sums of the warps that share the columns of the same rows: a lane holds sums of `Rows` rows for `Sums` vectors of
// weights. The first of these warps gets the result. `several`: memory for the partial sums of the other warps. Called by the whole block;
// `several` may be reused after another barrier.
template <int Sums, int Rows, class Wide>
__device__ __forceinline__ void add_sharing_warps(Wide (&sum)[Rows][Sums], int sharing, Wide (*several)[Sums][Rows][32]) {
  if (sharing == 1) return;
  const int lane = arch::lane(), warp = arch::warp(), part = warp % sharing;
  if (part > 0) {
    for (int h = 0; h < Rows; ++h) {
      for (int q = 0; q < Sums; ++q) several[warp][q][h][lane] = sum[h][q];
    }
  }
  __syncthreads();  // the partial sums are stored
  for (int other = 1; other < sharing && part == 0; ++other) {
    for (int h = 0; h < Rows; ++h) {
      for (int q = 0; q < Sums; ++q) sum[h][q] += several[warp + other][q][h][lane];
    }
  }
}

// Vectors of a panel in shared memory: for real numbers with a stride that is free of bank conflicts.
template <class S>
inline constexpr int k_vector_stride = is_complex<S> ? 3 : 4;

// Accumulates V times the vectors over columns begin … end − 1, for a lane's rows from `row` on. Head: some rows belong to V's triangle;
// then it also accumulates the part of c1 and c2 that R accounts for. `vectors`: for each column the elements of y's, c1's and c2's tz.
template <bool Head, class S, bool Whole>
__device__ __forceinline__ void lose_by(wide_of<S> (&sum)[k_lane_rows<S>][5], const row_groups<const S, k_lane_rows<S>>& V,
                                        const wide_of<S> (*vectors)[k_vector_stride<S>], const transformed_arguments<S>& a,
                                        std::int64_t row, int begin, int end) {
  constexpr int together = is_complex<S> ? 4 : 8, rows = k_lane_rows<S>;  // loads of so many columns are in flight at the same time
#pragma unroll 1
  for (int first = begin; first < end; first += together) {
    typename row_groups<const S, rows>::group x[together] = {};
    ballast::cuda::unrolled<together>([&](auto c) {
      const int l = first + decltype(c)::value;
      if (l < end) x[decltype(c)::value] = V.template load<Whole>(row, l);
    });
    ballast::cuda::unrolled<together>([&](auto c) {
      const int l = first + decltype(c)::value;
      if (l >= end) return;
      double d[2] = {};
      for (int q = 0; q < 2 && Head && a.c != nullptr; ++q) d[q] = a.d[l + q * a.ldd];
      for (int h = 0; h < rows; ++h) {
        const S read = x[decltype(c)::value].at[h];
        const wide_of<S> v = Head ? element(read, row + h, l) : widened(read);
        for (int q = 0; q < 3; ++q) sum[h][q] = plus_product(sum[h][q], v, vectors[l][q]);
        if (!Head || row + h > l) continue;
        for (int q = 0; q < 2; ++q) sum[h][3 + q] += times_real(widened(read), d[q]);
      }
    });
  }
}

// A lane has k_lane_rows rows. If there are many rows, each warp has all columns; if there are few, all warps of a block share the columns
// of the same rows.
template <class S>
__global__ void __launch_bounds__(k_threads, k_rows_resident) transformed_kernel(const __grid_constant__ transformed_arguments<S> a) {
  using wide = wide_of<S>;
  constexpr int rows = k_lane_rows<S>, warps = k_threads / 32, stride = k_vector_stride<S>;
  auto& squares = arch::shared_object<double[warps], struct transformed_squares>();
  auto& vectors = arch::shared_object<wide[k_most_wide][stride], struct transformed_vectors>();
  auto& several = arch::shared_object<wide[warps][5][rows][32], struct transformed_parts>();
  const int w = a.h.width, sharing = sharing_warps(a.h.rows), part = arch::warp() % sharing;
  const bool checksums = a.c != nullptr;
  const row_groups<const S, rows> V(a.h.V, a.h.ldv, a.h.rows, w);
  for (int e = static_cast<int>(threadIdx.x); e < stride * w; e += k_threads) {
    const int l = e % w, q = e / w;
    vectors[l][q] = q < (checksums ? 3 : 1) ? a.tz[q * w + l] : wide(0.0);
  }
  __syncthreads();  // the vectors are in shared memory
  const int each = (w + sharing - 1) / sharing, begin = part * each, end = begin + each < w ? begin + each : w;
  double square[2] = {};
  for (std::int64_t first = std::int64_t{blockIdx.x} * lane_block<S>(sharing); first < a.h.rows;
       first += std::int64_t{gridDim.x} * lane_block<S>(sharing)) {
    const std::int64_t top = first + arch::warp() / sharing * 32 * rows, row = top + rows * arch::lane();
    wide sum[rows][5] = {};
    if (top < w) {
      lose_by<true, S, false>(sum, V, vectors, a, row, begin, end);
    } else if (V.are_whole(top, 32 * rows)) {
      lose_by<false, S, true>(sum, V, vectors, a, row, begin, end);
    } else {
      lose_by<false, S, false>(sum, V, vectors, a, row, begin, end);
    }
    add_sharing_warps(sum, sharing, several);
    for (int h = 0; h < rows; ++h) {
      const std::int64_t i = row + h;
      if (i >= a.h.rows || part > 0) continue;
      a.next[i] = a.y[i] - sum[h][0];
      for (int q = 0; q < 2 && checksums; ++q) {
        wide r = widened(a.c[i + q * a.ldc]) - sum[h][1 + q];
        if (i < w) {
          a.head[i + q * w] = r;
          r -= sum[h][3 + q];
        }
        square[q] += square_of(r);
      }
    }
    if (sharing > 1) __syncthreads();  // the partial sums have been read
  }
  if (a.c == nullptr) return;
  for (int q = 0; q < 2; ++q) {
    const double all = over_block<false>(square[q], squares);
    if (threadIdx.x == 0) a.squares[2 * std::int64_t{blockIdx.x} + q] = all;
  }
  if (!is_last_block(a.arrived)) return;
  const double norm = largest_norm(a.squares, gridDim.x, 2);
  if (threadIdx.x != 0) return;
  *a.norm = norm;
  if (!(norm <= a.limit)) close(a.gate);
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

// Thread blocks are numbered first over rows, k_block_rows each, then over blocks of columns.
template <class S>
__global__ void __launch_bounds__(k_threads) weigh_kernel(const __grid_constant__ weigh_arguments<S> a) {
  auto& squares = arch::shared_object<double[k_threads / 32], struct weighed_sums>();
  using wide = wide_of<S>;
  auto& several = arch::shared_object<wide[k_row_parts - 1][2][k_block_rows], struct weighed_parts>();
  const std::int64_t slabs = row_blocks(a.rows);
  const std::int64_t chunk = blockIdx.x / slabs, b = a.first_block + chunk;
  const column_range here = range_of(a.blocks, b);
  const row_part own;
  const std::int64_t i = blockIdx.x % slabs * k_block_rows + own.row;
  const int begin = a.r && here.panel && i > here.first ? static_cast<int>(i - here.first < here.width ? i - here.first : here.width) : 0;
  wide sum[2] = {};
  unsigned long long hash = 0;
  if (i < a.rows) {
    each_column<S, 4>(
        own.part, begin, here.width, [&](int l) { return a.X[i * a.row_stride + (here.first + l) * a.column_stride]; },
        [&](int l, S read) {
          const std::int64_t j = here.first + l;
          // The seal uses the same load that is verified, so that no fault fits between the two.
          if (a.seal != nullptr && i < here.first) hash += result_hash_of(read, static_cast<std::uint64_t>(i + l * here.first));
          wide x = widened(read);
          if (a.shifts != nullptr && a.shifts[j] != 0) {
            // Rounded like the data: below the normal numbers the shift loses digits.
            x = widened(shifted_number(read, a.shifts[j]));
          }
          for (int q = 0; q < 2; ++q) sum[q] += q < a.count ? times_real(x, a.z[j + q * a.ldz]) : wide(0.0);
        });
  }
  add_parts(own, sum, several);
  const bool there = i < a.rows && own.part == 0;
  for (int q = 0; q < 2; ++q) {
    if (q == a.count) break;
    if (a.init != nullptr && there) sum[q] = widened(a.init[i + q * a.ldi + 2 * chunk * a.ldi]) - sum[q];
    if (a.from != nullptr && there) sum[q] = a.from[i + q * a.ldi] - sum[q];
    if (a.to_column != nullptr && there) a.to_column[i + q * a.ldi + 2 * chunk * a.ldi] = narrowed<S>(sum[q]);
    if (a.to != nullptr && there) a.to[i + q * a.ldi + a.count * chunk * a.ldi] = sum[q];
    if (a.squares == nullptr) continue;
    const double square = over_block<false>(own.part == 0 ? square_of(sum[q]) : 0, squares);
    if (threadIdx.x == 0) a.squares[a.count * std::int64_t{blockIdx.x} + q] = square;
  }
  if (a.norm == nullptr) return;
  if (a.seal != nullptr) {
    hash = hash_over_block(hash);
    if (threadIdx.x == 0) a.hashes[blockIdx.x] = hash;
  }
  if (!is_last_block(a.arrived)) return;
  const double norm = largest_norm(a.squares, gridDim.x, a.count);
  if (threadIdx.x == 0) {
    *a.norm = norm;
    if (!(norm <= a.limit)) close(a.gate);
  }
  if (a.seal == nullptr) return;
  hash = 0;
  for (std::int64_t s = threadIdx.x; s < gridDim.x; s += k_threads) hash += a.hashes[s];
  hash = hash_over_block(hash);
  if (threadIdx.x == 0) *a.seal = hash;
}

// One row for each thread.
template <int Threads>
__global__ void __launch_bounds__(Threads) combine_kernel(const __grid_constant__ combine_arguments a) {
  auto& several = arch::shared_object<double[k_threads / 32], struct combined_sums>();
  const std::int64_t i = std::int64_t{blockIdx.x} * k_threads + threadIdx.x;
  double sum = 0;
  for (int c = 0; c < a.chunks && i < a.there; ++c) sum += a.parts[i + c * a.rows];
  if (a.from != nullptr && i < a.rows) sum = a.from[i] - sum;
  if (a.to != nullptr && i < a.rows) a.to[i] = sum;
  if (a.squares == nullptr) return;
  const double square = over_block<false>(sum * sum, several);
  if (threadIdx.x == 0) a.squares[blockIdx.x] = square;
}

// One thread block for each norm.
template <int Threads>
__global__ void __launch_bounds__(Threads) norm_kernel(const __grid_constant__ norm_arguments a) {
  const double norm = largest_norm(a.squares + a.count * blockIdx.x * a.blocks, a.blocks, a.count);
  if (threadIdx.x == 0) a.to[blockIdx.x] = norm;
}

// One thread block for each column.
template <class S>
__global__ void __launch_bounds__(k_threads) hash_kernel(const __grid_constant__ hash_arguments<S> a) {
  const std::int64_t l = blockIdx.x;
  const std::int64_t rows = a.upper && l + 1 < a.rows ? l + 1 : a.rows;
  unsigned long long own = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += k_threads)
    own += result_hash_of(a.X[i + l * a.ld], static_cast<std::uint64_t>(i + l * a.rows));
  own = hash_over_block(own);
  if (threadIdx.x == 0) atomicAdd(a.to, own);
}

// Recomputes the seals of judge_kernel, and of weigh_kernel on a panel's entry. First come two thread blocks for each panel, then one for
// each column.
template <class S>
__global__ void __launch_bounds__(k_threads) seals_kernel(const __grid_constant__ seals_arguments<S> a) {
  if (blockIdx.x < 2 * a.count) {
    const std::int64_t k = blockIdx.x / 2;
    const reflectors<S> h = a.panels[k];
    const bool of_t = blockIdx.x % 2 == 0;
    const unsigned long long hash = hash_of(of_t ? h.T : h.V, of_t ? h.ldt : h.ldv, h.width, h.width, !of_t);
    if (threadIdx.x == 0) a.to[3 * k + blockIdx.x % 2 * 2] = hash;
    return;
  }
  const std::int64_t j = blockIdx.x - 2 * a.count, k = j / a.panels.width, rows = k * a.panels.width, l = j - rows;
  unsigned long long own = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += k_threads)
    own += result_hash_of(a.panels.A[i + j * a.panels.lda], static_cast<std::uint64_t>(i + l * rows));
  own = hash_over_block(own);
  if (threadIdx.x == 0) atomicAdd(a.to + 3 * k + 1, own);
}

// One thread block for each panel: the largest difference. Equal bits give 0.
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

// One row for each thread.
template <class S>
__global__ void __launch_bounds__(k_threads) accept_kernel(const __grid_constant__ accept_arguments<S> a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * k_threads + threadIdx.x;
  if (i >= a.rows || is_closed(a.gate)) return;
  if (a.carried != nullptr) a.carried[i] = a.next[i];
  for (int q = 0; q < 2 && i < a.width; ++q) a.to[i + q * a.ld] = narrowed<S>(a.head[i + q * a.width]);
}

// One thread block for each panel.
template <class S>
__global__ void __launch_bounds__(k_threads) taus_kernel(const __grid_constant__ taus_arguments<S> a) {
  const std::int64_t first = blockIdx.x * a.width, left = a.steps - first;
  const int w = static_cast<int>(left < a.width ? left : a.width);
  const S* const T = a.T + blockIdx.x * a.width * a.width;
  int differ = 0;
  for (int j = static_cast<int>(threadIdx.x); j < w; j += k_threads) differ |= !same_bits_of(a.tau[first + j], T[j * (w + 1)]) ? 1 : 0;
  differ = __syncthreads_or(differ);
  if (threadIdx.x == 0) a.to[blockIdx.x] = differ != 0 ? 1 : 0;
}

}  // namespace ballast::qr::cuda
