// The sums over V and C that several checks share: products of rows, and their folding over blocks.
// Layer: backend "cuda" of QR, device code.
#pragma once

#include <cmath>
#include <limits>

#include "abft/threshold.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/matrix.cuh"
#include "qr/cuda/layout/number.cuh"
#include "qr/cuda/layout/rows.cuh"

namespace ballast::qr::cuda {

// Returns element (i, j) of V, given the number stored there: above the diagonal the storage belongs to R. Callers load it in any case, so
// that no load waits for a branch.
template <class S>
__device__ __forceinline__ wide_of<S> element(S stored, std::int64_t i, int j) {
  using wide = wide_of<S>;
  return i < j ? wide(0.0) : i == j ? wide(1.0) : widened(stored);
}

// The mapping for thread blocks of k_block_rows rows: thread t has row t % k_block_rows, and k_row_parts threads share its columns.
struct row_part {
  int row, part;
  __device__ __forceinline__ row_part()
      : row(static_cast<int>(threadIdx.x) % k_block_rows), part(static_cast<int>(threadIdx.x) / k_block_rows) {}
};

// Calls use(l, load(l)) for this thread's part of the columns begin … end − 1. Several loads are issued before the first use; otherwise
// each would wait for the memory latency of the one before.
template <class T, int together = 8, class Load, class Use>
__device__ __forceinline__ void each_column(int part, int begin, int end, Load load, Use use) {
#pragma unroll 1
  for (int first = begin + part; first < end; first += together * k_row_parts) {
    T x[together];
    ballast::cuda::unrolled<together>([&](auto q) {
      const int l = first + decltype(q)::value * k_row_parts;
      x[decltype(q)::value] = l < end ? load(l) : T(0);
    });
    ballast::cuda::unrolled<together>([&](auto q) {
      const int l = first + decltype(q)::value * k_row_parts;
      if (l < end) use(l, x[decltype(q)::value]);
    });
  }
}

// Adds up the sums of the parts of each row; part 0 gets the result. Contains a barrier; `several` may be reused after another one.
template <int Count, class Wide>
__device__ __forceinline__ void add_parts(const row_part& own, Wide (&sum)[Count], Wide (&several)[k_row_parts - 1][Count][k_block_rows]) {
  for (int q = 0; q < Count && own.part > 0; ++q) several[own.part - 1][q][own.row] = sum[q];
  __syncthreads();  // the sums of the other parts are stored
  if (own.part > 0) return;
  for (int p = 0; p + 1 < k_row_parts; ++p) {
    for (int q = 0; q < Count; ++q) sum[q] += several[p][q][own.row];
  }
}

// A lane's operands in products_kernel for some tiles of rows: V's columns, and for rows 2 t, 2 t + 1 of a tile the vector g of y, p, c1,
// c2, 1, w, w², none.
template <class S, int Blocks, int Tiles>
struct product_rows {
  column_tile<S, Blocks> V[Tiles];
  double vector[Tiles][2];
  S checksum[Tiles][2];

  // Loads the rows from `first` on. Elements outside the matrix are 0.
  __device__ __forceinline__ void load(const products_arguments<S>& a, const row_pairs<const S>& from, const double* weights,
                                       std::int64_t first) {
    const int g = arch::lane() / 4, t = arch::lane() % 4;
    const double* const vectors = g == 0 ? a.y : g == 5 || g == 6 ? weights : nullptr;
    const S* const checksums = a.c == nullptr ? nullptr : g == 2 ? a.c : g == 3 ? a.c + a.ldc : nullptr;
    ballast::cuda::unrolled<Tiles>([&](auto n) {
      constexpr int tile = decltype(n)::value;
      V[tile].load(from, first + k_column_tile * tile);
      for (int h = 0; h < 2; ++h) {
        const std::int64_t i = first + k_column_tile * tile + 2 * t + h;
        vector[tile][h] = vectors != nullptr && i < from.rows() ? vectors[i] : 0;
        checksum[tile][h] = checksums != nullptr && i < from.rows() ? checksums[i] : S(0);
      }
    });
  }
};

// The sums of a lane: of columns g and 8 + g of each pair of blocks with the vectors 2 t, 2 t + 1; of the squares of its own elements, by
// blocks; of the squares of p.
template <int Blocks>
struct product_sums {
  double vectors[Blocks / 2][4] = {}, squares[Blocks] = {}, p_square = 0;

  // Adds the rows from `first` on. Head: some of these rows belong to V's triangle. `tx` is T x; null: there is no p.
  template <bool Head, class S, int Tiles>
  __device__ __forceinline__ void add(const product_rows<S, Blocks, Tiles>& rows, std::int64_t first, int w, const double* tx) {
    const int g = arch::lane() / 4, t = arch::lane() % 4;
    ballast::cuda::unrolled<Tiles>([&](auto n) {
      constexpr int tile = decltype(n)::value;
      double v[Blocks][2], p[2] = {}, own[2];
      ballast::cuda::unrolled<Blocks>([&](auto b) {
        constexpr int block = decltype(b)::value;
        const int l = k_block * block + g;
        for (int h = 0; h < 2; ++h) {
          const S read = rows.V[tile].at[block][h];
          v[block][h] = Head && l < w ? element(read, first + k_column_tile * tile + 2 * t + h, l) : static_cast<double>(read);
          squares[block] += v[block][h] * v[block][h];
        }
        if (tx == nullptr) return;
        const double x = tx[l];
        for (int h = 0; h < 2; ++h) p[h] += v[block][h] * x;
      });
      for (int h = 0; h < 2; ++h) {
        own[h] = rows.vector[tile][h] + static_cast<double>(rows.checksum[tile][h]);
        if (g == 4) own[h] = 1;
        if (g == 6) own[h] *= own[h];
      }
      if (tx != nullptr) {
        ballast::cuda::add_lanes<32, 8, 4>(p);
        for (int h = 0; h < 2; ++h) {
          if (g == 0) p_square += p[h] * p[h];
          if (g == 1) own[h] = p[h];
        }
      }
      ballast::cuda::unrolled<Blocks / 2>([&](auto b) {
        constexpr int pair = decltype(b)::value;
        multiply_columns(vectors[pair], v[2 * pair], v[2 * pair + 1], own);
      });
    });
  }

  // Returns sum number `At` of the lane, of the products and squares.
  template <int At>
  __device__ __forceinline__ double number() const {
    if constexpr (At < 2 * Blocks) {
      return vectors[At / 4][At % 4];
    } else {
      return squares[At - 2 * Blocks];
    }
  }
};

// The rows of V and the sums of one thread block of products_kernel.
template <class S>
struct panel_rows {
  std::int64_t panel, before, block, blocks;
  int w;
  double* to;  // k_panel_sums · w + 1 sums

  __device__ __forceinline__ explicit panel_rows(const products_arguments<S>& a)
      : panel(blockIdx.x / a.blocks),
        before(panel * a.h.width),
        block(blockIdx.x % a.blocks),
        blocks(product_blocks(a.h.rows - before, a.blocks)),
        w(a.columns - before < a.h.width ? static_cast<int>(a.columns - before) : a.h.width),
        to(a.partial + panel * a.blocks * (k_panel_sums<S> * a.h.width + 1) + block * (k_panel_sums<S> * w + 1)) {}
};

// The kernel below for complex numbers, whose products take four times the registers: the sums of a column are added by one warp, over
// k_products_rows rows at a time, and kept in shared memory. The vectors of these rows are there too: p, of which two threads compute the
// halves of a row, y, c1, c2, and the weights of the components.
template <class S, int Most>
__device__ __forceinline__ void complex_products(const products_arguments<S>& a) {
  using wide = wide_of<S>;
  constexpr int warps = k_threads / 32, rows = k_products_rows, halves = k_threads / rows, sums_of_column = k_panel_sums<S>;
  auto& whole = arch::shared_object<double[Most][sums_of_column], struct complex_product_whole>();
  auto& vectors = arch::shared_object<wide[4][rows], struct complex_product_vectors>();
  auto& other = arch::shared_object<wide[rows], struct complex_product_half>();
  auto& weights = arch::shared_object<double[rows][2], struct complex_product_weights>();
  auto& p_squares = arch::shared_object<double[warps], struct complex_product_squares>();
  const panel_rows<S> here(a);
  if (here.block >= here.blocks) return;
  const int w = here.w, lane = arch::lane(), warp = arch::warp(), thread = static_cast<int>(threadIdx.x);
  const S* const V = a.h.V + here.before * (a.h.ldv + 1);
  const std::int64_t count = a.h.rows - here.before;
  for (int e = thread; e < Most * sums_of_column; e += k_threads) whole[e / sums_of_column][e % sums_of_column] = 0;
  double p_square = 0;
  for (std::int64_t top = here.block * rows; top < count; top += here.blocks * rows) {
    const int row = thread % rows, half = thread / rows;
    const std::int64_t i = top + row;
    wide p = 0.0;
    if (a.tx != nullptr && i < count) {
#pragma unroll 4
      for (int l = half; l < w; l += halves) p = plus_product(p, element(V[i + l * a.h.ldv], i, l), a.tx[l]);
    }
    if (half == 1) other[row] = p;
    __syncthreads();  // the other halves of p are stored, and the vectors before have been read
    if (half == 0) {
      const bool there = i < count;
      p = p + other[row];
      p_square += square_of(p);
      vectors[0][row] = there && a.y != nullptr ? a.y[i] : wide(0.0);
      vectors[1][row] = p;
      for (int q = 0; q < 2; ++q) {
        vectors[2 + q][row] = there && a.c != nullptr ? widened(a.c[i + q * a.ldc]) : wide(0.0);
        weights[row][q] = there && a.weights != nullptr ? a.weights[2 * (here.before + i) + q] : 0;
      }
    }
    __syncthreads();  // the vectors are stored
    for (int l = warp; l < w; l += warps) {
      wide products[4] = {};
      double of_v[4] = {};
      for (int e = lane; e < rows && top + e < count; e += 32) {
        const wide v = element(V[top + e + l * a.h.ldv], top + e, l);
        for (int q = 0; q < 4; ++q) products[q] = plus_conjugate_product(products[q], v, vectors[q][e]);
        const double part[2] = {v.re, v.im};
        for (int q = 0; q < 2; ++q) {
          const double weighted = weights[e][q] * part[q];
          of_v[0] += part[q];
          of_v[1] += weighted;
          of_v[2] += weights[e][q] * weighted;
          of_v[3] += part[q] * part[q];
        }
      }
      ballast::cuda::add_lanes<k_threads, 32, 1>(all_components(products));
      ballast::cuda::add_lanes<k_threads, 32, 1>(of_v);
      if (lane != 0) continue;
      for (int q = 0; q < 4; ++q) {
        whole[l][2 * q] += products[q].re;
        whole[l][2 * q + 1] += products[q].im;
        whole[l][8 + q] += of_v[q];
      }
    }
  }
  p_square = over_block<false>(p_square, p_squares);
  if (thread == 0) here.to[sums_of_column * w] = p_square;
  __syncthreads();  // the sums of all columns are complete
  for (int e = thread; e < sums_of_column * w; e += k_threads) {
    // Products by components, each for all columns; then each sum of the checkpoint for all columns.
    const int q = e < 8 * w ? e / (2 * w) : 4 + (e - 8 * w) / w, rest = e < 8 * w ? e % (2 * w) : (e - 8 * w) % w;
    here.to[e] = q < 4 ? whole[rest / 2][2 * q + rest % 2] : whole[rest][4 + q];
  }
}

// Thread blocks are numbered first over rows, k_products_rows at a time in turn, then over panels. Each warp processes its own rows, and
// computes p of a row next to the row's elements; the loads of some warps are in flight while others compute. At the end the warps' sums
// are added, each by the lane that holds it. For panels of at most `Most` columns. The same kernel serves a single panel and all panels:
// the sums must be the same to the bit.
template <class S, int Most>
__device__ __forceinline__ void real_products(const products_arguments<S>& a) {
  constexpr int blocks_of_columns = Most / k_block, warps = k_threads / 32, numbers = 3 * blocks_of_columns;
  constexpr int tiles = product_tiles(Most), rows = k_column_tile * tiles, of_warp = k_products_rows / warps, parts = of_warp / rows;
  static_assert(parts * rows == of_warp);
  auto& whole = arch::shared_object<double[numbers][32], struct product_whole>();
  auto& tx = arch::shared_object<double[Most], struct product_tx>();
  auto& p_squares = arch::shared_object<double[warps], struct product_squares>();
  const panel_rows<S> own(a);
  const std::int64_t before = own.before, block = own.block, blocks = own.blocks;
  const int w = own.w;
  const row_pairs<const S> V(a.h.V + before * (a.h.ldv + 1), a.h.ldv, a.h.rows - before, w);
  if (block >= blocks) return;
  const int lane = arch::lane(), warp = arch::warp();
  const double* const weights = a.weights != nullptr ? a.weights + before : nullptr;
#pragma unroll 1
  for (int l = static_cast<int>(threadIdx.x); l < Most && a.tx != nullptr; l += k_threads) tx[l] = l < w ? a.tx[l] : 0;
  __syncthreads();  // T x is in shared memory
  const double* const by = a.tx != nullptr ? tx : nullptr;
  product_sums<blocks_of_columns> sums;
  const auto row_of = [&](int n) { return (block + n / parts * blocks) * k_products_rows + warp * of_warp + n % parts * rows; };
#pragma unroll 1
  for (int n = 0; row_of(n) < V.rows(); ++n) {
    product_rows<S, blocks_of_columns, tiles> here;
    here.load(a, V, weights, row_of(n));
    if (row_of(n) < w) {
      sums.template add<true>(here, row_of(n), w, by);
    } else {
      sums.template add<false>(here, row_of(n), w, by);
    }
  }
#pragma unroll 1
  for (int of = 0; of < warps; ++of) {
    if (warp == of) {
      double kept[numbers] = {};
      if (of > 0) ballast::cuda::unrolled<numbers>([&](auto e) { kept[decltype(e)::value] = whole[decltype(e)::value][lane]; });
      ballast::cuda::unrolled<numbers>([&](auto e) {
        constexpr int at = decltype(e)::value;
        whole[at][lane] = kept[at] + sums.template number<at>();
      });
    }
    __syncthreads();  // the sums of the warps up to this one are stored
  }
  double* const to = own.to;
  const double p_square = over_block<false>(sums.p_square, p_squares);
  if (threadIdx.x == 0) to[8 * w] = p_square;
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x); e < 7 * w; e += k_threads) {
    const int q = e / w, l = e % w;
    to[e] = whole[l / 16 * 4 + l % 16 / 8 * 2 + q % 2][4 * (l % 8) + q / 2];
  }
#pragma unroll 1
  for (int l = static_cast<int>(threadIdx.x); l < w; l += k_threads) {
    const double* const parts_of = &whole[2 * blocks_of_columns + l / 8][4 * (l % 8)];
    to[7 * w + l] = parts_of[0] + parts_of[1] + (parts_of[2] + parts_of[3]);
  }
}

template <class S, int Most>
__global__ void __launch_bounds__(k_threads, product_resident(Most)) products_kernel(const __grid_constant__ products_arguments<S> a) {
  if constexpr (is_complex<S>)
    complex_products<S, Most>(a);
  else
    real_products<S, Most>(a);
}

// Adds up the sums from … to − 1. Thread block number `block` computes 32 of them, one for each lane; warp w adds the partial sums of the
// blocks w, w + 8, ….
__device__ __forceinline__ void fold(const fold_arguments& a, std::int64_t block, std::int64_t from, std::int64_t to) {
  constexpr int warps = k_threads / 32;
  auto& several = arch::shared_object<double[warps][32], struct folded_sums>();
  const int lane = arch::lane(), warp = arch::warp();
  const std::int64_t value = from + block * 32 + lane;
  constexpr int together = 8;  // loads in flight at the same time
  double sum = 0;
#pragma unroll 1
  for (std::int64_t first = warp; first < a.blocks && value < to; first += together * warps) {
    double x[together];
    ballast::cuda::unrolled<together>([&](auto q) {
      const std::int64_t b = first + decltype(q)::value * warps;
      x[decltype(q)::value] = b < a.blocks ? a.partial[b * a.count + value] : 0;
    });
    for (int q = 0; q < together; ++q) sum += x[q];
  }
  several[warp][lane] = sum;
  __syncthreads();  // the sums of the warps are stored
  if (warp != 0 || value >= to) return;
  double all = several[0][lane];
  for (int w = 1; w < warps; ++w) all += several[w][lane];
  a.to[value - from] = all;
}

template <int Threads>
__global__ void __launch_bounds__(Threads) fold_kernel(const __grid_constant__ fold_arguments a) {
  static_assert(Threads == k_threads);
  if (a.state != nullptr && a.state->stage == k_cholesky_qr_orthonormal) return;
  fold(a, blockIdx.x, 0, a.count);
}

// As fold_kernel, 32 sums of a panel for each thread block. The last four vectors of sums are the checkpoint's.
template <int Threads>
__global__ void __launch_bounds__(Threads) fold_checkpoints_kernel(const __grid_constant__ checkpoints_arguments a) {
  static_assert(Threads == k_threads);
  const std::int64_t each = (4 * a.width + 31) / 32, panel = blockIdx.x / each, before = panel * a.width;
  const std::int64_t w = a.columns - before < a.width ? a.columns - before : a.width;
  fold(
      {a.partial + panel * a.blocks * (a.sums * a.width + 1), product_blocks(a.rows - before, a.blocks), a.sums * w + 1, a.to + 4 * before},
      blockIdx.x % each, (a.sums - 4) * w, a.sums * w);
}

}  // namespace ballast::qr::cuda
