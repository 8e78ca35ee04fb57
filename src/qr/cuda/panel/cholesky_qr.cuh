// Householder QR of a panel of many rows by Cholesky QR: Cholesky factors of the Gram matrix make its columns orthonormal, and LU of Q's
// first rows gives the reflectors (small_factor.cuh). Every pass over the rows uses the whole device.
// Layer: backend "cuda" of QR, device code. cholesky_qr.cpp has the order of the launches.
// All arithmetic is in double, and in an order that depends on the shape alone. Complex numbers are blocks of reals (real_blocks.cuh,
// rows.cuh). Source: T. Fukaya et al., Shifted Cholesky QR, 2020 (CholeskyQR2, shifts); G. Ballard et al., Reconstructing Householder
// vectors from TSQR, 2014 (Q1 − S = L U).
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/cuda/layout/number.cuh"
#include "qr/cuda/layout/real_blocks.cuh"
#include "qr/cuda/layout/rows.cuh"

namespace ballast::qr::cuda {

// Returns whether a pass applies to a panel in its current stage.
template <class Arguments>
__device__ __forceinline__ bool is_due(const Arguments& a) {
  return a.needed == k_cholesky_qr_failed || a.state->stage == a.needed;
}

// ---------------------------------------------------------------------------------------------------------------- Gram matrices

// Products of blocks of columns, each of two blocks with one: blocks 2 p, 2 p + 1 for p < Pairs with block q < Blocks. Upper: only those
// with q ≥ 2 p.
template <int Pairs, int Blocks, bool Upper>
struct gram_sums {
  static constexpr int count = Upper ? Pairs * (Pairs + 1) : Pairs * Blocks;
  static_assert(!Upper || Blocks == 2 * Pairs);
  static constexpr int index_of(int p, int q) { return Upper ? p * (Blocks - p + 1) + q - 2 * p : p * Blocks + q; }
  double at[count][4] = {};

  // Calls use(p, q) for each of them.
  template <class Use>
  static __device__ __forceinline__ void each(Use use) {
    ballast::cuda::unrolled<Pairs>(
        [&](auto p) { ballast::cuda::unrolled<Blocks, Upper ? 2 * decltype(p)::value : 0>([&](auto q) { use(p, q); }); });
  }

  // Adds the products of columns of x with columns of y, over k_column_tile rows.
  __device__ __forceinline__ void add(const double (&x)[2 * Pairs][2], const double (&y)[Blocks][2]) {
    each([&](auto p, auto q) {
      constexpr int pair = decltype(p)::value, block = decltype(q)::value;
      multiply_columns(at[index_of(pair, block)], x[2 * pair], x[2 * pair + 1], y[block]);
    });
  }

  // The same with y = [x₂; −x₁] for each pair of reals of x.
  __device__ __forceinline__ void add_turned(const double (&x)[2 * Pairs][2]) {
    static_assert(Upper);
    ballast::cuda::unrolled<Blocks>([&](auto q) {
      constexpr int block = decltype(q)::value;
      const double y[2] = {x[block][1], -x[block][0]};
      ballast::cuda::unrolled<block / 2 + 1>([&](auto p) {
        constexpr int pair = decltype(p)::value;
        multiply_columns(at[index_of(pair, block)], x[2 * pair], x[2 * pair + 1], y);
      });
    });
  }

  // Calls use(number, index) for each number of this lane.
  template <class Use>
  __device__ __forceinline__ void each_number(Use use) {
    ballast::cuda::unrolled<count>([&](auto tile) {
      for (int e = 0; e < 4; ++e) use(at[decltype(tile)::value][e], 4 * decltype(tile)::value + e);
    });
  }

  // Stores the sums to a packed upper triangle of w columns; element (0, 0) of the sums is element (left, right) of the triangle. Complex:
  // to component `part`.
  template <int Reals = 1>
  __device__ __forceinline__ void store(double* to, int w, int left, int right, int part = 0) const {
    const int g = arch::lane() / 4, t = arch::lane() % 4;
    each([&](auto p, auto q) {
      constexpr int pair = decltype(p)::value, block = decltype(q)::value;
      for (int e = 0; e < 4; ++e) {
        const int i = left + k_block * (2 * pair + e / 2) + g, l = right + k_block * block + 2 * t + e % 2;
        if (i <= l && l < w) to[Reals * packed(i, l) + part] = part != 0 && i == l ? 0 : at[index_of(pair, block)][e];
      }
    });
  }
};

template <class S, int Blocks>
__device__ __forceinline__ void in_double(double (&to)[Blocks][2], const column_tile<S, Blocks>& from) {
  ballast::cuda::unrolled<Blocks>([&](auto b) {
    for (int h = 0; h < 2; ++h) to[decltype(b)::value][h] = static_cast<double>(from.at[decltype(b)::value][h]);
  });
}

// G = XᴴX over the rows of a thread block, on and above the diagonal. For at most `Most` columns, 32, or 64 of real numbers. Each warp
// processes its own rows and waits for no other; its next rows are loaded meanwhile. The warps' sums are added up at the end. Complex: of x
// and y of numbers x + iy, an even warp computes the real part of G, and the next warp the imaginary part: [xᵀ, yᵀ] times [x; y] and [y;
// −x].
template <class S, int Most>
__global__ void __launch_bounds__(k_gram_threads, gram_resident(Most)) gram_kernel(const __grid_constant__ gram_arguments<S> a) {
  if (!is_due(a)) return;
  constexpr int parts = static_cast<int>(k_reals<S>), teams = k_gram_threads / 32 / parts, blocks = Most / k_block,
                tiles = gram_step(Most) / k_column_tile;
  using tile = column_tile<S, blocks>;
  constexpr int rows = tiles * tile::rows;
  const int w = a.width, team = arch::warp() / parts, part = arch::warp() % parts;
  const real_pairs<const S> X(a.from, a.ldf, a.rows, w);
  using some_rows = tile[tiles];
  const auto load = [&X](some_rows& to, std::int64_t row) {
    ballast::cuda::unrolled<tiles>([&](auto n) { to[decltype(n)::value].load(X, row + tile::rows * decltype(n)::value); });
  };
  gram_sums<blocks / 2, blocks, true> sums;
  some_rows next;
  std::int64_t row = (std::int64_t{blockIdx.x} * teams + team) * rows;
  load(next, row);
  const auto add_rows = [&](auto add) {
#pragma unroll 1
    for (; row < a.rows; row += std::int64_t{gridDim.x} * teams * rows) {
      double x[tiles][blocks][2];
      ballast::cuda::unrolled<tiles>([&](auto n) { in_double(x[decltype(n)::value], next[decltype(n)::value]); });
      load(next, row + std::int64_t{gridDim.x} * teams * rows);
      ballast::cuda::unrolled<tiles>([&](auto n) { add(x[decltype(n)::value]); });
    }
  };
  if (part == 0) {
    add_rows([&](const auto& x) { sums.add(x, x); });
  } else {
    add_rows([&](const auto& x) { sums.add_turned(x); });
  }
  auto& whole = arch::shared_object<double[parts][sums.count * 4][32], struct gram_whole>();
  const int lane = arch::lane();
  for (int of = 0; of < teams; ++of) {
    if (team == of) {
      sums.each_number([&](double& own, int which) {
        double& slot = whole[part][which][lane];
        own = slot = of == 0 ? own : slot + own;
      });
      if (of + 1 == teams) sums.template store<parts>(a.partial + std::int64_t{blockIdx.x} * parts * packed(0, w), w, 0, 0, part);
    }
    __syncthreads();  // the sums of the warps up to this one are stored
  }
}

// The same for more columns. A thread block loads k_staged_rows rows into shared memory, by columns, some stages ahead. Four warps each
// compute a part of G: two of them the triangles of both halves of the columns, two of them a quarter of the columns with the second half.
// The other four do the same for the second half of the rows, and their sums are added at the end. Two warps
// compute the real and the imaginary part of complex numbers for each quarter of the rows.
template <class S>
class staged_gram {
  using stages = gram_stages<S>;
  static constexpr int k_columns = k_most_wide / static_cast<int>(k_reals<S>), k_parts = is_complex<S> ? 2 : 4,
                       k_teams = k_staged_gram_threads / 32 / k_parts, k_rows_of_warp = k_staged_rows / k_teams,
                       k_chunk_rows = k_lane_rows<S>;
  static constexpr int k_most_sums = 20;

  const gram_arguments<S>& a_;
  S* const memory_ = reinterpret_cast<S*>(arch::shared_memory());
  const bool whole_;

  __device__ __forceinline__ S* slot(int stage) const { return memory_ + stage % stages::count * (k_columns * stages::stride); }

  // Loads the rows from `first` on, if there are any.
  __device__ __forceinline__ void bring(std::int64_t first, int stage) const {
    constexpr int chunks = k_staged_rows / k_chunk_rows;  // chunks of a column
    for (int e = static_cast<int>(threadIdx.x); e < k_columns * chunks && first < a_.rows; e += k_staged_gram_threads) {
      const int column = e / chunks, part = e % chunks * k_chunk_rows;
      const std::int64_t row = first + part;
      const S* const from = a_.from + row + column * a_.ldf;
      S* const to = slot(stage) + column * stages::stride + part;
      if (whole_ && column < a_.width && row + k_chunk_rows <= a_.rows) {
        arch::copy_async<16>(to, from);
      } else {
        for (int h = 0; h < k_chunk_rows; ++h) to[h] = column < a_.width && row + h < a_.rows ? from[h] : S(0);
      }
    }
    arch::commit_async();
  }

  // Reads columns `column` … of a tile of rows.
  template <int Blocks>
  __device__ __forceinline__ static void read(double (&to)[Blocks][2], const S* rows, int column) {
    const int g = arch::lane() / 4, t = arch::lane() % 4;
    ballast::cuda::unrolled<Blocks>([&](auto b) {
      constexpr int block = decltype(b)::value;
      const S* const from = rows + (column + k_block * block + g) * stages::stride + column_tile<S, 1>::rows / 4 * t;
      const auto two = *reinterpret_cast<const row_group<real_of<S>, 2>*>(from);
      for (int h = 0; h < 2; ++h) to[block][h] = static_cast<double>(two.at[h]);
    });
  }

  // Computes the products of the columns from `left` on with those from `right` on; component `Part` of complex ones.
  template <int Pairs, int Blocks, bool Upper, int Part = 0>
  __device__ __forceinline__ void run(int left, int right) const {
    gram_sums<Pairs, Blocks, Upper> sums;
    static_assert(sums.count <= k_most_sums);
    constexpr int reals = static_cast<int>(k_reals<S>);
    const int team = arch::warp() / k_parts;
    const std::int64_t step = std::int64_t{gridDim.x} * k_staged_rows;
    std::int64_t first = std::int64_t{blockIdx.x} * k_staged_rows;
    for (int ahead = 0; ahead + 1 < stages::count; ++ahead) bring(first + ahead * step, ahead);
#pragma unroll 1
    for (int stage = 0; first < a_.rows; ++stage, first += step) {
      arch::wait_async<stages::count - 2>();
      __syncthreads();  // the rows have arrived, and the stage before has been read
      bring(first + (stages::count - 1) * step, stage + stages::count - 1);
      const S* const rows = slot(stage) + team * k_rows_of_warp;
      for (int n = 0; n < k_rows_of_warp; n += column_tile<S, 1>::rows) {
        double x[2 * Pairs][2];
        read(x, rows + n, left);
        if constexpr (Part == 1) {
          sums.add_turned(x);
        } else if constexpr (Upper) {
          sums.add(x, x);
        } else {
          double y[Blocks][2];
          read(y, rows + n, right);
          sums.add(x, y);
        }
      }
    }
    arch::wait_async<0>();
    __syncthreads();  // all rows have been read
    double* const others =
        reinterpret_cast<double*>(arch::shared_memory()) + arch::warp() % k_parts * (k_most_sums * 4 * 32) + arch::lane();
    for (int of = 1; of < k_teams; ++of) {
      if (team == of) sums.each_number([&](double& own, int which) { others[32 * which] = own; });
      __syncthreads();  // the sums of that team are stored
      if (team == 0) sums.each_number([&](double& own, int which) { own += others[32 * which]; });
      if (of + 1 < k_teams) __syncthreads();  // they have been read
    }
    if (team > 0) return;
    sums.template store<reals>(a_.partial + std::int64_t{blockIdx.x} * reals * packed(0, a_.width), a_.width, left, right, Part);
  }

 public:
  __device__ __forceinline__ explicit staged_gram(const gram_arguments<S>& a)
      : a_(a), whole_((reinterpret_cast<std::uintptr_t>(a.from) / sizeof(S) | a.ldf) % k_chunk_rows == 0) {}

  __device__ __forceinline__ void run() const {
    const int part = arch::warp() % k_parts;
    if constexpr (is_complex<S>) {
      if (part == 0) {
        run<4, 8, true>(0, 0);
      } else {
        run<4, 8, true, 1>(0, 0);
      }
    } else if (part < 2) {
      run<4, 8, true>(64 * part, 64 * part);
    } else {
      run<2, 8, false>(32 * (part - 2), 64);
    }
  }
};

template <class S>
__global__ void __launch_bounds__(k_staged_gram_threads, 1) staged_gram_kernel(const __grid_constant__ gram_arguments<S> a) {
  if (is_due(a)) staged_gram<S>(a).run();
}

// ---------------------------------------------------------------------------------------------------------------- substitution

template <int Reals>
struct factor_number {
  using type = double;
};
template <>
struct factor_number<2> {
  using type = complex_number<double>;
};
__device__ __forceinline__ double inverse_of(double x) { return 1 / x; }
__device__ __forceinline__ complex_number<double> inverse_of(complex_number<double> x) {
  const double by = 1 / square_of(x);
  return {x.re * by, -x.im * by};
}

// R in shared memory, as tiles of 8 × 8 on and above the diagonal, each by columns, in the operand layout of a product; and the inverses of
// the tiles on the diagonal. Columns and rows outside R are 0.
template <int Reals, int Most>
struct factor_tiles {
  static constexpr int blocks = Most / k_block, tiles = blocks * (blocks + 1) / 2, size = k_block * k_block;
  static_assert(8 * size * (tiles + blocks) == substitute_bytes(Most));
  double* data;

  static constexpr int index_of(int i, int l) { return upper_tile(blocks, i, l); }
  __device__ __forceinline__ double* inverse(int i) const { return data + size * (tiles + i); }
  // Reads this lane's two elements of a tile.
  __device__ __forceinline__ static void read(double (&to)[2], const double* tile) {
    const auto two = *reinterpret_cast<const row_group<double, 2>*>(tile + 2 * arch::lane());
    for (int h = 0; h < 2; ++h) to[h] = two.at[h];
  }

  // Called by a block of substitute_threads threads: loads R, w columns of reals, from `from`. Ends with a barrier.
  __device__ __forceinline__ void load(const packed_blocks<Reals>& from, int w) const {
    constexpr int together = 16, threads = substitute_threads(Most);  // loads in flight at the same time
    const int e = static_cast<int>(threadIdx.x) % size, row = e % k_block, column = e / k_block;
    // Thread e loads element e of every `step`-th tile.
    constexpr int step = threads / size;
    static_assert(threads % size == 0);
    int i = 0, l = static_cast<int>(threadIdx.x) / size;
    const auto to_its_row = [&] {  // l counts from the diagonal of row i
      for (; i < blocks && l >= blocks; l += ++i - blocks) {
      }
    };
    to_its_row();
    for (int first = static_cast<int>(threadIdx.x) / size; first < tiles; first += together * step) {
      double r[together];
      ballast::cuda::unrolled<together>([&](auto q) {
        const int at = k_block * i + row, of = k_block * l + column;
        r[decltype(q)::value] = from.has(at, of) && of < w && i < blocks ? from(at, of) : 0;
        l += step;
        to_its_row();
      });
      ballast::cuda::unrolled<together>([&](auto q) {
        const int tile = first + decltype(q)::value * step;
        if (tile < tiles) data[size * tile + e] = r[decltype(q)::value];
      });
    }
    __syncthreads();  // the tiles are stored
    // One thread computes each column of numbers of an inverse. The divisions are independent; the products depend on each other.
    using number = typename factor_number<Reals>::type;
    constexpr int side = k_block / Reals;
    for (int at = static_cast<int>(threadIdx.x); at < Most / Reals; at += threads) {
      const int block = at / side, of = at % side;
      const double* const R = data + size * index_of(block, block);
      const auto number_of = [R](int k, int l) { return number_at<number>(R + Reals * k_block * l, k); };
      number reciprocal[side], x[side];
      ballast::cuda::unrolled<side>(
          [&](auto k) { reciprocal[decltype(k)::value] = inverse_of(number_of(decltype(k)::value, decltype(k)::value)); });
      ballast::cuda::unrolled<side>([&](auto up) {
        constexpr int k = side - 1 - decltype(up)::value;
        number sum = k == of ? 1.0 : 0.0;
        ballast::cuda::unrolled<side, k + 1>(
            [&](auto behind) { sum = minus_product(sum, number_of(k, decltype(behind)::value), x[decltype(behind)::value]); });
        x[k] = k <= of && Reals * at < w ? sum * reciprocal[k] : number(0.0);
      });
      double* const to = inverse(block) + Reals * k_block * of;
      ballast::cuda::unrolled<side>([&](auto k) {
        constexpr int row = Reals * decltype(k)::value;
        const double* const made = components(&x[decltype(k)::value]);
        for (int q = 0; q < Reals; ++q) {
          for (int p = 0; p < Reals; ++p) to[k_block * q + row + p] = of_block<Reals>(made, p, q);
        }
      });
    }
    __syncthreads();  // the inverses are stored
  }
};

// Q ← X R⁻¹, each row of X independently, so that ‖row − (row of Q) R‖ is rounding for any condition of R. For at most `Most` columns of
// reals, 32, 64 or 128. A warp has 16 rows in registers, and waits for no other warp. The next 8 columns of Q are the remainder of X after
// the columns before them, times the inverse of R's tile; the same is repeated with the remainder of that product, so that the rounding of
// the inverse does not matter. Later columns are updated with the stored numbers: the row's equation holds for the rounded numbers.
template <class S, int Most>
__global__ void __launch_bounds__(substitute_threads(Most), substitute_resident(Most))
    substitute_kernel(const __grid_constant__ substitute_arguments<S> a) {
  if (!is_due(a)) return;
  const bool in_place = a.in_place && a.state->direct != 0;
  constexpr int warps = substitute_threads(Most) / 32, blocks = Most / k_block;
  constexpr int reals = static_cast<int>(k_reals<S>);
  const int w = reals * a.width;
  const row_pairs<const S> X(in_place ? a.to : a.from, in_place ? a.ldt : a.ldf, a.rows, a.width);
  const row_pairs<S> Q(a.to, a.ldt, a.rows, a.width);
  const factor_tiles<reals, Most> R{reinterpret_cast<double*>(arch::shared_memory())};
  R.load(packed_blocks<reals>{a.R}, w);
  // Few rows are spread over all thread blocks. Few columns leave registers for the next rows, which are loaded meanwhile.
  constexpr bool ahead = Most == 32;
  const std::int64_t step = std::int64_t{gridDim.x} * warps * k_row_tile;
  std::int64_t first = (std::int64_t{arch::warp()} * gridDim.x + blockIdx.x) * k_row_tile;
  loaded_rows<S, blocks> next;
  if (ahead) next.load(X, first);
  for (; first < a.rows; first += step) {
    if (!ahead) next.load(X, first);
    row_tile<blocks> x;
    x.take(next);
    if (ahead) next.load(X, first + step);
    // For floats the loads in flight into registers do not saturate memory; for doubles they do.
    if (sizeof(real_of<S>) == 4) X.ask(first + (ahead ? 3 : 1) * step, k_row_tile);
    double minus[4] = {};  // the negated previous columns of Q, as a left operand
    ballast::cuda::unrolled<blocks>([&](auto b) {
      constexpr int at = decltype(b)::value, behind = blocks - 1 - at, third = (behind + 2) / 3;
      if (k_block * at >= w) return;
      double factor[2], inverse[2], q[4] = {}, own[4];
      // The left operand of a product has its numbers in another order than the sums.
      const auto copy = [](double(&to)[4], const double(&from)[4], double sign) {
        for (int e = 0; e < 4; ++e) to[e] = sign * arch::apart(from[e]);
      };
      // Each of these products waits for the one before it. Meanwhile the columns before these are subtracted from a third of the later
      // columns; columns outside the panel stay 0.
      const auto subtract = [&](auto which) {
        constexpr int from = at + 1 + third * decltype(which)::value, to = from + third < blocks ? from + third : blocks;
        if constexpr (at > 0) {
          ballast::cuda::unrolled<to, from>([&](auto l) {
            double tile[2];
            R.read(tile, R.data + R.size * R.index_of(at - 1, decltype(l)::value));
            multiply_rows(x.at[decltype(l)::value], minus, tile);
          });
        }
      };
      R.read(inverse, R.inverse(at));
      R.read(factor, R.data + R.size * R.index_of(at, at));
      copy(own, x.at[at], 1);
      multiply_rows(q, own, inverse);
      subtract(ballast::cuda::index<0>{});
      copy(own, q, -1);
      multiply_rows(x.at[at], own, factor);
      subtract(ballast::cuda::index<1>{});
      copy(own, x.at[at], 1);
      multiply_rows(q, own, inverse);
      subtract(ballast::cuda::index<2>{});
      for (int e = 0; e < 4; ++e) x.at[at][e] = static_cast<double>(static_cast<real_of<S>>(q[e]));
      copy(minus, x.at[at], -1);
      if constexpr (behind > 0) {
        R.read(factor, R.data + R.size * R.index_of(at, at + 1));
        multiply_rows(x.at[at + 1], minus, factor);
      }
    });
    loaded_rows<S, blocks> made;
    x.give(made);
    made.store(Q, first);
  }
}

}  // namespace ballast::qr::cuda
