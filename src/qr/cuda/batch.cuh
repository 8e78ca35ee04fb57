// QR of many small matrices, Q applied to columns, and triangular systems: a team of threads for each matrix, which lies in registers.
// Layer: backend "cuda" of QR, device code.
// A team (batch_policy) computes a tile from its input, compares what it is about to store with sums that were made from other loads of the
// input and, where Q is applied, of V, and only then stores it. A tile that fails is computed again.
// Source: LAPACK's conventions for xLARFG; docs/design/qr-cuda.md, "Batches", for what must agree with what.
#pragma once

#include <cmath>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/sums.cuh"
#include "qr/cuda/batch_arguments.hpp"
#include "qr/random.hpp"

namespace ballast::qr::cuda {

// 2^e, |e| ≤ 1022.
__device__ __forceinline__ double power_of_two(int e) {
  return ballast::cuda::from_bits<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

// ⌊log₂|x|⌋ of a finite number other than 0.
__device__ __forceinline__ int exponent_of(double x) {
  const bool subnormal = fabs(x) < 0x1p-1022;
  const std::uint64_t word = ballast::cuda::bits(subnormal ? x * 0x1p54 : x);
  return static_cast<int>(word >> 52 & 0x7ff) - (subnormal ? 1077 : 1023);
}

// The upper half of |x|: it orders numbers by their size, but for their last digits.
__device__ __forceinline__ int size_word(double x) { return static_cast<int>(ballast::cuda::bits(x) >> 32 & 0x7fffffff); }
// ⌊log₂|x|⌋ of a number with this size word, if it is neither 0, subnormal, Inf nor NaN.
__device__ __forceinline__ int exponent_of_word(int word) { return (word >> 20) - 1023; }
inline constexpr int k_normal_word = 0x00100000, k_infinite_word = 0x7ff00000;

// x · 2^e in two steps: the reciprocal of a subnormal number is none.
struct binary_scale {
  double half, rest;
  __device__ __forceinline__ explicit binary_scale(int e) : half(power_of_two(e / 2)), rest(power_of_two(e - e / 2)) {}
  __device__ __forceinline__ double operator()(double x) const { return x * half * rest; }
};

__device__ __forceinline__ double larger_of(double a, double b) { return a != a || a > b ? a : b; }

// All threads of the team.
template <batch_policy P>
__device__ __forceinline__ void team_barrier() {
  if constexpr (P.blocks > 1) {
    arch::cluster_sync();
  } else if constexpr (P.matrices > 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// Those of one block.
template <batch_policy P>
__device__ __forceinline__ void block_barrier() {
  if constexpr (P.matrices > 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// The team's shared memory.
template <class S, batch_policy P>
__device__ __forceinline__ batch_memory<S, P>& own_memory() {
  const int place = P.matrices == 1 ? 0 : static_cast<int>(threadIdx.x) / batch_shape<P>::team;
  return *reinterpret_cast<batch_memory<S, P>*>(arch::shared_memory() + place * k_batch_pitch<S, P>);
}

// By so many threads.
template <batch_policy P>
__device__ __forceinline__ void draw(batch_weights<P>& weights, int thread, int threads) {
  for (int e = thread; e < k_certificates * batch_shape<P>::width; e += threads) {
    const int q = e / batch_shape<P>::width, j = e % batch_shape<P>::width;
    weights.of[q][j] = random_signed(k_batch_stream + static_cast<std::uint64_t>(q), static_cast<std::uint64_t>(j));
  }
}

// The weights, which the whole block draws where there are `checks`.
template <class S, batch_policy P>
__device__ __forceinline__ batch_weights<P>& draw_weights(bool checks) {
  auto& made = *reinterpret_cast<batch_weights<P>*>(arch::shared_memory() + P.matrices * k_batch_pitch<S, P>);
  if (!checks) return made;
  draw(made, static_cast<int>(threadIdx.x), batch_shape<P>::threads);
  __syncthreads();
  return made;
}

template <class S, batch_policy P, class Launch>
struct batch_team {
  using shape = batch_shape<P>;
  using memory = batch_memory<S, P>;

  const Launch& given;
  memory& own;
  batch_weights<P>& weights;
  const std::int64_t item, items;  // of the injector
  int thread, lane, group;
  const int rank;
  S x[P.columns][P.rows];

  __device__ __forceinline__ batch_team(const Launch& launch, batch_weights<P>& drawn, std::int64_t which, std::int64_t count)
      : given(launch),
        own(own_memory<S, P>()),
        weights(drawn),
        item(which),
        items(count),
        thread(static_cast<int>(threadIdx.x) % shape::team),
        lane(thread % P.lanes),
        group(thread / P.lanes),
        rank(P.blocks == 1 ? 0 : static_cast<int>(arch::cluster_rank())) {}

  // Compilers keep what they have computed of a thread's place from one phase of a kernel to the next, in local memory if need be. Behind
  // this they compute it again.
  __device__ __forceinline__ void new_phase() {
    thread = static_cast<int>(arch::opaque(static_cast<unsigned>(thread)));
    lane = thread % P.lanes;
    group = thread / P.lanes;
  }

  __device__ __forceinline__ int column_of(int c) const { return panel() * shape::panel + c * shape::near + group % shape::near; }
  __device__ __forceinline__ int panel() const { return shape::panels == 1 ? 0 : thread / 32 * P.blocks + rank; }
  __device__ __forceinline__ int row_of(int r) const { return shape::row_of(lane, r); }
  // The thread's number among those that share a check: in the team, or in its warp.
  __device__ __forceinline__ int checker() const { return thread % shape::checkers; }
  // The lane of the warp with this lane of this group.
  __device__ __forceinline__ int source(int g, int l) const {
    const int first = shape::team < 32 ? static_cast<int>(threadIdx.x) % 32 / shape::team * shape::team : 0;
    return first + g * P.lanes + l;
  }
  __device__ __forceinline__ bool verifies() const { return rank == 0 && thread < shape::checkers; }
  // To the same place in all blocks of the team, or in block 0.
  template <class T>
  __device__ __forceinline__ void send(T* to, const T& value) const {
    if constexpr (P.blocks == 1) {
      *to = value;
    } else {
      for (int b = 0; b < P.blocks; ++b) arch::store_remote(to, static_cast<unsigned>(b), value);
    }
  }
  template <class T>
  __device__ __forceinline__ void send_first(T* to, const T& value) const {
    if constexpr (P.blocks == 1) {
      *to = value;
    } else {
      arch::store_remote(to, 0u, value);
    }
  }

  template <int Count, class T>
  __device__ __forceinline__ void strike(inject::site where, int step, int steps, T* data) const {
    given.strike(ballast::cuda::index<Count>{}, where, {item, items, step, steps, thread + rank * shape::team, shape::team * P.blocks},
                 data);
  }
  __device__ __forceinline__ void strike_tile(inject::site where, int step, int steps) {
    strike<P.columns * P.rows>(where, step, steps, &x[0][0]);
  }
  // A number that one thread has.
  template <class T>
  __device__ __forceinline__ void strike_one(inject::site where, int step, int steps, T* data) const {
    given.strike(ballast::cuda::index<1>{}, where, {item, items, step, steps, 0, 1}, data);
  }

  // ---------------------------------------------------------------- The tile.

  // Whether it is so in one lane of the warp: what lanes do together must not depend on their data.
  static __device__ __forceinline__ bool any(bool here) { return __any_sync(0xffffffffu, here ? 1 : 0) != 0; }

  __device__ __forceinline__ void load(const S* from, std::int64_t down, std::int64_t across, int rows, int columns, int first,
                                       bool identity) {
    for (int c = 0; c < P.columns; ++c) {
      const int column = column_of(c);
      const S* const at = from + column * across;
      if (!identity && all_words(from, down, across, rows) && column < columns) {
        for (int r = 0; r < P.rows; r += k_word) {
          const word here = *reinterpret_cast<const word*>(at + row_of(r));
          for (int i = 0; i < k_word; ++i) x[c][r + i] = here.number[i];
        }
        continue;
      }
      const S* const own_rows = at + row_of(0) * down;
      for (int r = 0; r < P.rows; ++r) {
        const int row = row_of(r);
        x[c][r] = 0;
        if (row < rows && column < columns) x[c][r] = identity ? S(row == first + column) : own_rows[r * (shape::row_step * down)];
      }
    }
  }

  // Columns of extreme size are brought to a moderate one by powers of two: products neither overflow nor lose digits to underflow.
  __device__ __forceinline__ void moderate_columns() {
    for (int c = 0; c < P.columns; ++c) {
      int most = 0;
      for (int r = 0; r < P.rows; ++r) most = max(most, size_word(static_cast<double>(x[c][r])));
      for (int distance = 1; distance < P.lanes; distance *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, distance));
      constexpr int moderate = abft::k_moderate_exponent<S>;
      const bool extreme = most < (1023 - moderate) << 20 || most >= (1023 + moderate + 1) << 20;
      int shift = 0;
      if (any(extreme)) {
        double exact = 0;
        for (int r = 0; r < P.rows; ++r) exact = larger_of(exact, fabs(static_cast<double>(x[c][r])));
        for (int distance = 1; distance < P.lanes; distance *= 2) exact = larger_of(exact, __shfl_xor_sync(0xffffffffu, exact, distance));
        if (extreme && exact > 0 && exact <= abft::k_largest<S>) shift = -exponent_of(exact);
      }
      if (lane == 0) own.shift[column_of(c)] = shift;
      if (shift != 0) {
        const binary_scale scale(shift);
        for (int r = 0; r < P.rows; ++r) x[c][r] = static_cast<S>(scale(static_cast<double>(x[c][r])));
      }
    }
  }

  // Back, in its own units where `scaled(row, column)`.
  template <class Scaled>
  __device__ __forceinline__ void store(S* to, std::int64_t down, std::int64_t across, int rows, int columns, Scaled&& scaled) {
    for (int c = 0; c < P.columns; ++c) {
      const int column = column_of(c);
      if (column >= columns) continue;
      const int shift = own.shift[column];
      S* const at = to + column * across;
      if (shift != 0) {
        const binary_scale back(-shift);
        for (int r = 0; r < P.rows; ++r) {
          if (scaled(row_of(r), column)) x[c][r] = static_cast<S>(back(static_cast<double>(x[c][r])));
        }
      }
      if (all_words(to, down, across, rows)) {
        for (int r = 0; r < P.rows; r += k_word) {
          word here;
          for (int i = 0; i < k_word; ++i) here.number[i] = x[c][r + i];
          *reinterpret_cast<word*>(at + row_of(r)) = here;
        }
        continue;
      }
      S* const own_rows = at + row_of(0) * down;
      for (int r = 0; r < P.rows; ++r) {
        if (row_of(r) < rows) own_rows[r * (shape::row_step * down)] = x[c][r];
      }
    }
  }

  // Numbers that lie together and are moved at once, where a lane has such rows; whether all of a matrix can be.
  static constexpr int k_word = shape::cyclic || P.rows * sizeof(S) % 16 != 0 ? 1 : static_cast<int>(16 / sizeof(S));
  struct alignas(k_word * sizeof(S)) word {
    S number[k_word];
  };
  static __device__ __forceinline__ bool all_words(const S* first, std::int64_t down, std::int64_t across, int rows) {
    constexpr auto last = static_cast<std::uint64_t>(sizeof(word) - 1);
    return k_word > 1 && down == 1 && rows == shape::height && ((reinterpret_cast<std::uint64_t>(first) | across * sizeof(S)) & last) == 0;
  }

  // x_c ← x_c − factor · v, where `changes`.
  __device__ __forceinline__ void subtract(int c, const S (&v)[P.rows], S factor, bool changes) {
    for (int r = 0; r < P.rows; ++r) {
      const S y = x[c][r] - factor * v[r];
      x[c][r] = changes ? y : x[c][r];
    }
  }

  // Divides α and the tail y by the power of two that brings the larger to 1, where that is `wanted`; returns its exponent. `most`: the
  // largest of the tail.
  __device__ __forceinline__ int normalize(bool wanted, S& alpha, S (&y)[P.rows], double& most) const {
    most = 0;
#pragma unroll
    for (int r = 0; r < P.rows; ++r) most = larger_of(most, fabs(static_cast<double>(y[r])));
    for (int distance = 1; distance < P.lanes; distance *= 2) most = larger_of(most, __shfl_xor_sync(0xffffffffu, most, distance));
    const double top = larger_of(most, fabs(static_cast<double>(alpha)));
    if (!wanted || !(top > 0 && top <= abft::k_largest<double>)) return 0;
    const int e = exponent_of(top);
    const binary_scale down(-e);
    alpha = static_cast<S>(down(static_cast<double>(alpha)));
#pragma unroll
    for (int r = 0; r < P.rows; ++r) y[r] = static_cast<S>(down(static_cast<double>(y[r])));
    return e;
  }

  // The columns of a thread whose products with column c are wanted: those from c on, and of the same chunk.
  static constexpr int first_of(int c) {
    if constexpr (shape::panels == 1 || shape::near >= shape::at_once) return c;
    return c * shape::near / shape::at_once * shape::at_once / shape::near;
  }

  // yᵀx_c for the columns from `First` on, by the rows from `Row` on, in all lanes of a group.
  template <int First, int Row>
  __device__ __forceinline__ void dots(const S (&y)[P.rows], S (&sum)[P.columns]) const {
#pragma unroll
    for (int c = First; c < P.columns; ++c) {
      S even = 0, odd = 0;
#pragma unroll
      for (int r = Row; r < P.rows; r += 2) {
        even += y[r] * x[c][r];
        if (r + 1 < P.rows) odd += y[r + 1] * x[c][r + 1];
      }
      sum[c] = even + odd;
    }
    for (int distance = 1; distance < P.lanes; distance *= 2) {
#pragma unroll
      for (int c = First; c < P.columns; ++c) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], distance);
    }
  }

  // Reflector j from column c of group g of the warp, in place: β on the diagonal, v below; and H_j applied to the columns of the warp that
  // lie behind it. The products of the column's tail with all of them are one sum over lanes: what v is, is found beside it. v, with its
  // one and its zeros, where it is published, and its products with those before it in its chunk go to all blocks. Where g is a constant,
  // so are the registers of row j.
  template <int c, class Group>
  __device__ __forceinline__ void eliminate(Group g, int j, int steps, int turn, bool publishes) {
    constexpr int first = first_of(c);
    const int in_panel = c * shape::near + g, own_group = group % shape::near;
    const int holder = shape::lane_of(j), at = shape::place_of(j);  // of row j
    const bool behind = lane > holder, from = lane >= holder;
    // Registers that may be row j's, and rows behind it; those in front of `lowest` are done.
    constexpr int lowest = shape::cyclic ? c * shape::near / P.lanes : 0;
    constexpr int highest = shape::cyclic ? (c * shape::near + shape::near - 1) / P.lanes : P.rows - 1;
    const auto may_be = [&](int r) {
      if constexpr (shape::cyclic) return r >= lowest && r <= highest;
      return (r - in_panel) % (shape::panel < P.rows ? shape::panel : P.rows) == 0;
    };
    const auto is_behind = [&](int r) {
      if constexpr (shape::cyclic) return r > highest || r > at || (r == at && behind);
      return r > at ? from : behind;
    };
    S y[P.rows] = {}, sum[P.columns], top[P.columns] = {};
#pragma unroll
    for (int r = lowest; r < P.rows; ++r) {
      y[r] = __shfl_sync(0xffffffffu, x[c][r], source(g, lane));
      y[r] = is_behind(r) ? y[r] : S(0);
    }
#pragma unroll
    for (int k = first; k < P.columns; ++k) {
#pragma unroll
      for (int r = 0; r < P.rows; ++r) {
        if (may_be(r)) top[k] = r == at ? x[k][r] : top[k];
      }
    }
    S alpha = __shfl_sync(0xffffffffu, top[c], source(g, holder));
#pragma unroll
    for (int k = first; k < P.columns; ++k) top[k] = __shfl_sync(0xffffffffu, top[k], source(own_group, holder));
    dots<first, lowest>(y, sum);
    S squares = __shfl_sync(0xffffffffu, sum[c], source(g, 0));
    constexpr S most_square = static_cast<S>(sizeof(S) == 4 ? 0x1p100 : 0x1p900), most = static_cast<S>(sizeof(S) == 4 ? 0x1p50 : 0x1p450);
    int exponent = 0;
    bool tail = true;
    const bool plain = fabs(alpha) <= most && squares >= 1 / most_square && squares <= most_square;
    if (any(!plain)) {
      // Squares that have left the range, or are 0, or Inf or NaN.
      double largest;
      exponent = normalize(!plain, alpha, y, largest);
      tail = plain || largest != 0;
      dots<first, lowest>(y, sum);
      S own_squares = 0;  // sum[c] of the column itself is of y and of what it was
#pragma unroll
      for (int r = lowest; r < P.rows; ++r) own_squares += y[r] * y[r];
      for (int distance = 1; distance < P.lanes; distance *= 2) own_squares += __shfl_xor_sync(0xffffffffu, own_squares, distance);
      squares = plain ? squares : own_squares;
    }
    // β = −sign(α)‖x‖, τ = (β − α) / β, v = [1; factor · y].
    const S all = alpha * alpha + squares, inverse = arch::reciprocal_sqrt(all);
    S norm = all * inverse;
    norm += (all - norm * norm) * inverse / 2;
    S beta = tail ? -copysign(norm, alpha) : alpha, tau = tail ? fabs(alpha) * inverse + 1 : S(0);
    const S factor = tail ? copysign(arch::reciprocal(fabs(alpha) + norm), alpha) : S(0);
    if (exponent != 0) beta = static_cast<S>(binary_scale(exponent)(static_cast<double>(beta)));
#pragma unroll
    for (int k = first; k < P.columns; ++k) sum[k] = top[k] + factor * sum[k];  // vᵀx_k
    if constexpr (shape::panels > 1) {
#pragma unroll
      for (int k = first; k <= c; ++k) {
        const int before = k * shape::near + own_group;
        if (lane == 0 && before / shape::at_once == in_panel / shape::at_once && before < in_panel)
          send(&own.gram[turn][in_panel / shape::at_once][before % shape::at_once][in_panel % shape::at_once], sum[k]);
      }
    }
#pragma unroll
    for (int k = c; k < P.columns; ++k) sum[k] = tau == 0 ? S(0) : tau * sum[k];
    if constexpr (shape::panels == 1) strike<P.columns>(inject::site::qr_product, j, steps, sum);
#pragma unroll
    for (int r = lowest; r < P.rows; ++r) y[r] *= factor;
#pragma unroll
    for (int r = lowest; r < P.rows; ++r) {
      if (may_be(r) && r == at && lane == holder) y[r] = 1;
    }
#pragma unroll
    for (int k = c; k < P.columns; ++k) {
      if (k > c || own_group > g) {
#pragma unroll
        for (int r = lowest; r < P.rows; ++r) x[k][r] -= sum[k] * y[r];
      }
    }
    if (own_group != g) return;
    given.strike(ballast::cuda::index<P.rows>{}, inject::site::qr_reflector, {item, items, j, steps, lane, P.lanes}, y);
    if (lane == 0) {
      strike_one(inject::site::qr_tau, j, steps, &tau);
      send(&own.tau[j], tau);
    }
    auto& to = own.v[turn][shape::panels > 1 ? in_panel : 0].lane[lane];
#pragma unroll
    for (int r = 0; r < P.rows; ++r) {
      if (publishes) send(&to.row[r], y[r]);
      if (r >= lowest && is_behind(r)) x[c][r] = y[r];
      if (may_be(r) && r == at && lane == holder) x[c][r] = beta;
    }
  }

  // H_l, of chunk `which` of the panel whose first column is `begin`, applied to all columns of the thread one after the other:
  // w_l = τ_l (v_lᵀx − Σ_(k<l) v_kᵀv_l w_k), x ← x − Σ w_l v_l.
  __device__ __forceinline__ void apply_chunk(int turn, int which, int begin, int steps) {
    const auto& v = own.v[turn];
    const int first = which * shape::at_once, count = steps - begin - first;  // reflectors that there are
    S w[shape::at_once][P.columns] = {};
#pragma unroll
    for (int l = 0; l < shape::at_once; ++l) {
      const auto& here = v[first + l].lane[lane].row;
#pragma unroll
      for (int r = 0; r < P.rows; ++r) {
#pragma unroll
        for (int c = 0; c < P.columns; ++c) w[l][c] += here[r] * x[c][r];
      }
    }
    for (int distance = 1; distance < P.lanes; distance *= 2) {
#pragma unroll
      for (int l = 0; l < shape::at_once; ++l) {
#pragma unroll
        for (int c = 0; c < P.columns; ++c) w[l][c] += __shfl_xor_sync(0xffffffffu, w[l][c], distance);
      }
    }
#pragma unroll
    for (int l = 0; l < shape::at_once; ++l) {
      const S tau = l < count ? own.tau[begin + first + l] : S(0);
#pragma unroll
      for (int k = 0; k < l; ++k) {
#pragma unroll
        for (int c = 0; c < P.columns; ++c) w[l][c] -= own.gram[turn][which][k][l] * w[k][c];
      }
#pragma unroll
      for (int c = 0; c < P.columns; ++c) w[l][c] = tau == 0 ? S(0) : tau * w[l][c];
    }
    strike<shape::at_once * P.columns>(inject::site::qr_product, (begin + first) / shape::at_once,
                                       (steps + shape::at_once - 1) / shape::at_once, &w[0][0]);
#pragma unroll
    for (int l = 0; l < shape::at_once; ++l) {
      const auto& here = v[first + l].lane[lane].row;
#pragma unroll
      for (int r = 0; r < P.rows; ++r) {
        const S element = l < count ? here[r] : S(0);
#pragma unroll
        for (int c = 0; c < P.columns; ++c) x[c][r] -= w[l][c] * element;
      }
    }
  }

  // The panel of this warp; made(j) follows each reflector. `publishes`: somebody reads them.
  template <class Made>
  __device__ __forceinline__ void factor_panel(int turn, int steps, bool publishes, Made&& made) {
    ballast::cuda::unrolled<P.columns>([&](auto at) {
      constexpr int c = decltype(at)::value;
      const auto each = [&](auto g) {
        const int j = panel() * shape::panel + c * shape::near + static_cast<int>(g);
        if (j >= steps) return;
        eliminate<c>(g, j, steps, turn, publishes);
        made(j);
      };
      if constexpr (shape::unrolled) {
        ballast::cuda::unrolled<shape::near>(each);
      } else {
#pragma unroll 1
        for (int g = 0; g < shape::near; ++g) each(g);
      }
    });
  }

  // H x for all columns.
  __device__ __forceinline__ void reflect(const batch_column<S, P>& from, S tau, int step, int steps) {
    S v[P.rows], sum[P.columns] = {};
    for (int r = 0; r < P.rows; ++r) v[r] = from.lane[lane].row[r];
    dots<0, 0>(v, sum);
    for (int c = 0; c < P.columns; ++c) sum[c] *= tau;
    strike<P.columns>(inject::site::qr_product, step, steps, sum);
    for (int c = 0; c < P.columns; ++c) subtract(c, v, sum[c], tau != 0);
  }

  // ---------------------------------------------------------------- The checks. Sums are in double.

  // sum_q ← Σ_j w_qj 2^−e_j x_j over all columns from another reading of the input, e_j its exponent; norm_q: ‖(w_qj 2^−e_j x_j)_j‖_F.
  // By the readers, of block 0.
  __device__ __forceinline__ void encode(const S* from, std::int64_t down, std::int64_t across, int rows, int columns, int first,
                                         bool identity) {
    constexpr int together = shape::checkers / shape::span;  // columns that a warp has at a time
    const int reader = thread / 32, l = checker();
    if (rank == 0 && reader < shape::readers) {
      double sums[k_certificates][shape::of_lane] = {}, squares[k_certificates] = {};
      int odd = 0;
      constexpr int ahead = 4;  // columns that are loaded together
      // Teams that share a warp may have other numbers of columns.
      const int end = shape::team < 32 ? shape::width : columns;
      for (int begin = reader * together; begin < end; begin += shape::readers * together * ahead) {
        S a[ahead][shape::of_lane];
        const auto column_at = [&](int k) { return begin + k * shape::readers * together + l / shape::span; };
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          const int j = column_at(k);
          const S* const at = from + j * across;
#pragma unroll
          for (int i = 0; i < shape::of_lane; ++i) {
            const int row = l % shape::span + shape::span * i;
            a[k][i] = 0;
            if (row < rows && j < columns) a[k][i] = identity ? S(row == first + j) : at[row * down];
          }
        }
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          const int j = column_at(k);
          int most = 0;
#pragma unroll
          for (int i = 0; i < shape::of_lane; ++i) most = max(most, size_word(static_cast<double>(a[k][i])));
          for (int distance = 1; distance < shape::span; distance *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, distance));
          odd |= most >= k_infinite_word ? 1 : 0;
          int e = most >= k_infinite_word ? 0 : exponent_of_word(most);
          if (any(most < k_normal_word)) {
            double exact = 0;
#pragma unroll
            for (int i = 0; i < shape::of_lane; ++i) exact = larger_of(exact, fabs(static_cast<double>(a[k][i])));
            for (int distance = 1; distance < shape::span; distance *= 2)
              exact = larger_of(exact, __shfl_xor_sync(0xffffffffu, exact, distance));
            if (most < k_normal_word) e = exact > 0 ? exponent_of(exact) : 0;
          }
          if (l % shape::span == 0 && j < columns) send(&own.exponent[j], e);
          const binary_scale scale(-e);
#pragma unroll
          for (int i = 0; i < shape::of_lane; ++i) {
            const double value = scale(static_cast<double>(a[k][i]));
#pragma unroll
            for (int q = 0; q < k_certificates; ++q) {
              const double term = j < columns ? weights.of[q][j] * value : 0;
              sums[q][i] += term;
              squares[q] += term * term;
            }
          }
        }
      }
      // Columns that other lanes had.
      for (int distance = shape::span; distance < shape::checkers; distance *= 2) {
        for (int q = 0; q < k_certificates; ++q) sums[q][0] += __shfl_xor_sync(0xffffffffu, sums[q][0], distance);
        odd |= __shfl_xor_sync(0xffffffffu, odd, distance);
      }
      ballast::cuda::add_lanes<32, shape::checkers, 1>(squares);
      for (int q = 0; q < k_certificates; ++q) {
        for (int i = 0; i < shape::of_lane; ++i) {
          if (l < shape::span) own.partial[reader][q][l + shape::span * i] = sums[q][i];
        }
        if (l == 0) own.norm[reader][q] = squares[q];
      }
      if (l == 0) own.odd[reader] = odd;
    }
    team_barrier<P>();  // partial sums and exponents are there
    if (verifies()) {
      double squares[k_certificates] = {};
      for (int q = 0; q < k_certificates; ++q) {
        for (int row = l; row < shape::height; row += shape::checkers) {
          double sum = 0;
          for (int r = 0; r < shape::readers; ++r) sum += own.partial[r][q][row];
          own.sum[q][row] = sum;
          squares[q] += sum * sum;
        }
      }
      ballast::cuda::add_lanes<32, shape::checkers, 1>(squares);
      if (l < k_certificates) own.before[l] = l == 0 ? squares[0] : squares[1];
      for (int row = l; row < shape::height; row += shape::checkers) {
        given.strike(ballast::cuda::index<1>{}, inject::site::qr_checksum, {item, items, 0, 1, row, shape::height}, &own.sum[0][row]);
      }
    }
  }

  // Whether there is one computation more: teams of one warp go through it together, also those that are through.
  __device__ __forceinline__ bool goes_on(bool open) const { return shape::team < 32 ? any(open) : open; }

  // The tile, and the sums of the check from loads of their own. A small tile is there while sums are made, so that loads wait together.
  // `again`: the weights are drawn once more, too, which the other teams of the block do not notice.
  template <class... Input>
  __device__ __forceinline__ void read(bool checks, bool again, const Input&... input) {
    if (checks && again) {
      draw(weights, thread, shape::team);
      block_barrier<P>();
    }
    if (shape::cyclic) load(input...);
    if (checks) encode(input...);
    new_phase();
    if (!shape::cyclic) load(input...);
    moderate_columns();
  }

  // What the warp that verifies finds.
  struct seen {
    double reflectors = 0;   // max |τ‖v‖² − 2|
    std::uint64_t hash = 0;  // a lane's part of the hash of reflectors; in the end, of all numbers that will be stored
    bool odd = false;        // Inf or NaN in what went in
  };

  // sum_q ← H sum_q, v(i, row) being the elements of v, row the i-th of a thread; returns ‖v‖².
  template <class Elements>
  __device__ __forceinline__ double reflect_sums(Elements&& v, double tau) const {
    double dot[k_certificates + 1] = {};
    for (int i = 0; i < shape::of_lane; ++i) {
      const int row = checker() + shape::checkers * i;
      const double here = row < shape::height ? v(i, row) : 0;
      for (int q = 0; q < k_certificates; ++q) dot[q] += row < shape::height ? here * own.sum[q][row] : 0;
      dot[k_certificates] += here * here;
    }
    ballast::cuda::add_lanes<32, shape::checkers, 1>(dot);
    if (tau != 0) {
      for (int i = 0; i < shape::of_lane; ++i) {
        const int row = checker() + shape::checkers * i;
        if (row >= shape::height) continue;
        const double here = v(i, row);
        for (int q = 0; q < k_certificates; ++q) own.sum[q][row] -= tau * dot[q] * here;
      }
    }
    return dot[k_certificates];
  }

  // Reflector j, as the team reads it, on the sums; of it what will be stored, so that an element behind row m shows.
  __device__ __forceinline__ void follow(const batch_column<S, P>& v, int j, int m, seen& found) const {
    __syncwarp();  // v is there, where the warp has made it itself
    const S scalar = own.tau[j];
    const double tau = static_cast<double>(scalar);
    const double squares =
        reflect_sums([&](int, int row) { return row > j && row < m ? static_cast<double>(v[row])
                                                : row == j         ? 1.0
                                                                   : 0.0; }, tau);
    if (tau != 0) found.reflectors = larger_of(found.reflectors, fabs(tau * squares - 2));
    for (int row = checker(); row < m; row += shape::checkers) {
      if (row > j) found.hash += hash_of(v[row], row, j);
    }
    if (checker() == j % shape::checkers) found.hash += hash_of(scalar, j, shape::width);
    __syncwarp();  // v has been read
  }

  static __device__ __forceinline__ std::uint64_t hash_of(S value, int row, int column) {
    // Mixed, so that one bit that changed in many places does not cancel.
    std::uint64_t word = (value == value ? static_cast<std::uint64_t>(ballast::cuda::bits(value)) + 1 : 0) * 0x9e3779b97f4a7c15u;
    word ^= word >> 32;
    return core::light_term(word, static_cast<std::uint64_t>(row + column * shape::height));
  }

  // rest[first + q][row] of block 0 ← Σ over columns of what `add(c, r, sums)` adds to sums[q] for column c and row r of a thread's tile. A
  // barrier of the team must follow.
  template <int Count, class Add>
  __device__ __forceinline__ void add_columns(int first, Add&& add) {
    constexpr int turns = (shape::warps + shape::readers - 1) / shape::readers;
    const int warp = thread / 32;
    for (int turn = 0; turn < turns; ++turn) {
      new_phase();
      if (warp / shape::readers == turn) {
        for (int r = 0; r < P.rows; ++r) {
          double sums[Count] = {};
          for (int c = 0; c < P.columns; ++c) add(c, r, sums);
          ballast::cuda::add_lanes<32, shape::near, P.lanes>(sums);
          if (group % shape::near != 0) continue;
          for (int q = 0; q < Count; ++q) {
            double& to = own.partial[warp % shape::readers][q][row_of(r)];
            to = turn == 0 ? sums[q] : to + sums[q];
          }
        }
      }
      block_barrier<P>();  // the sums of these warps are there
    }
    for (int e = thread; e < Count * shape::height; e += shape::team) {
      const int q = e / shape::height, row = e % shape::height;
      double sum = 0;
      for (int r = 0; r < shape::readers; ++r) sum += own.partial[r][q][row];
      send_first(&own.rest[rank][first + q][row], sum);
    }
  }

  // The same for Σ w_j 2^(−e_j) x_j over the columns j where `counts(row, column)`; in front of it, the hash of these elements.
  template <class Counts>
  __device__ __forceinline__ void add_weighted(int m, int columns, Counts&& counts) {
    const auto taken = [&](int row, int column) { return row < m && column < columns && counts(row, column); };
    leave_hash(0, hash_where(taken));
    new_phase();
    for (int c = 0; c < P.columns; ++c) {
      for (int q = 0; q < k_certificates; ++q) {
        if (lane == 0) own.factor[q][column_of(c)] = weights.of[q][column_of(c)] * scale_of(column_of(c));
      }
    }
    __syncwarp();  // the factors of this warp's columns are there
    add_columns<k_certificates>(0, [&](int c, int r, double(&sums)[k_certificates]) {
      if (!taken(row_of(r), column_of(c))) return;
      for (int q = 0; q < k_certificates; ++q) sums[q] += own.factor[q][column_of(c)] * static_cast<double>(x[c][r]);
    });
  }
  // From the tile's units to those of the check: the tile's columns are moderate, so this is in range.
  __device__ __forceinline__ double scale_of(int column) const { return power_of_two(-own.exponent[column] - own.shift[column]); }

  // √x to some units in the last place.
  static __device__ __forceinline__ double root(double x) {
    return x > 0x1p-1000 && x <= abft::k_largest<double> ? x * arch::reciprocal_sqrt(x) : sqrt(x);
  }

  // ‖sum_q‖ against the norms: the certificate that is the worse for its norm.
  __device__ __forceinline__ abft::finding judge_sums(int m, const abft::tiers& limits, const seen& found, int repeats) const {
    double squares[k_certificates] = {};
    for (int row = checker(); row < m; row += shape::checkers) {
      for (int q = 0; q < k_certificates; ++q) {
        double left = own.sum[q][row];
        for (int b = 0; b < P.blocks; ++b) left -= own.rest[b][q][row];
        squares[q] += left * left;
      }
    }
    ballast::cuda::add_lanes<32, shape::checkers, 1>(squares);
    double residual = 0, norm = 0;
    for (int q = 0; q < k_certificates; ++q) {
      double all = 0;
      for (int r = 0; r < shape::readers; ++r) all += own.norm[r][q];
      const double size = root(all) + root(own.before[q]), found_here = root(squares[q]);
      if (q == 0 || !(found_here * norm <= residual * size)) {
        residual = found_here;
        norm = size;
      }
    }
    return judge(residual, {limits.clean * norm, limits.wrong * norm}, found, repeats);
  }

  // Between the two thresholds the bits decide, if the tile may be computed again.
  __device__ __forceinline__ abft::finding judge(double residual, const abft::tiers& limits, const seen& found, int repeats) const {
    abft::finding now = compare(residual, repeats > 0 ? limits.clean : limits.wrong, 0);
    now.bits = found.hash == 0 ? 1 : found.hash;
    if (now.word != abft::k_pass) now.judged = !(repeats > 0 && residual > limits.clean && residual <= limits.wrong);
    if (found.odd) now.judged = false;
    return now;
  }

  __device__ __forceinline__ abft::finding compare(double residual, double threshold, int step) const {
    abft::finding now;
    abft::guarded_threshold limit(threshold);
    now.residual = residual;
    now.threshold = threshold;
    if (checker() == 0) strike_one(inject::site::qr_threshold, step, 1, &limit.value);
    now.word = abft::verify(residual, limit);
    if (checker() == 0) strike_one(inject::site::qr_comparison, step, 1, &now.word);
    return now;
  }

  __device__ __forceinline__ bool any_odd() const {
    bool odd = false;
    for (int r = 0; r < shape::readers; ++r) odd |= own.odd[r] != 0;
    return odd;
  }

  // The hash of the tile's elements as they lie in registers now.
  template <class Taken>
  __device__ __forceinline__ std::uint64_t hash_where(Taken&& taken) const {
    std::uint64_t sum = 0;
    for (int c = 0; c < P.columns; ++c) {
      for (int r = 0; r < P.rows; ++r) {
        const int row = row_of(r), column = column_of(c);
        if (taken(row, column)) sum += hash_of(x[c][r], row, column);
      }
    }
    return sum;
  }
  // To be compared with what was verified.
  __device__ __forceinline__ void hash_tile(int m, int columns) const {
    leave_hash(1, hash_where([&](int row, int column) { return row < m && column < columns; }));
  }
  __device__ __forceinline__ void leave_hash(int which, std::uint64_t sum) const {
    sum = add_hash(sum);
    if (checker() == 0) send_first(&own.hash[which][rank][thread / 32], sum);
  }
  __device__ __forceinline__ std::uint64_t tile_hash(int which) const {
    std::uint64_t sum = 0;
    for (int b = 0; b < P.blocks; ++b) {
      for (int w = 0; w < shape::warps; ++w) sum += own.hash[which][b][w];
    }
    return sum;
  }
  static __device__ __forceinline__ std::uint64_t add_hash(std::uint64_t sum) {
    for (int distance = 1; distance < shape::checkers; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  }
  // A number that is another than when it was verified: the computation is none.
  __device__ __forceinline__ void compare_hash(std::uint64_t verified, std::uint64_t stored, abft::finding& now) const {
    if (verified == stored) return;
    now.word = abft::k_fail;
    now.judged = true;
    now.residual = now.threshold = 0;  // a comparison of bits
  }

  // Judges the computation, writes the event. The outcome is in `how` of all blocks behind the next barrier.
  __device__ __forceinline__ void settle(const abft::finding& now, ballast::cuda::event_ring* events, std::int64_t matrix,
                                         int check) const {
    if (checker() != 0) return;
    abft::attempts& state = own.state;
    const abft::outcome how = state.judge(now);
    ballast::cuda::write_outcome(given, *events, how, state.first(), matrix, 0, static_cast<std::uint32_t>(check));
    if (how == abft::outcome::recomputed && state.false_alarm()) ballast::cuda::count(events->false_alarms);
    send(&own.how, static_cast<int>(how));
  }
};

// Which of the problems of a launch the team has.
template <batch_policy P>
__device__ __forceinline__ std::int64_t item_of() {
  return static_cast<std::int64_t>(blockIdx.x) / P.blocks * P.matrices + static_cast<int>(threadIdx.x) / batch_shape<P>::team;
}
// A = QR in LAPACK's storage. One team for each matrix.
template <class S, batch_policy P, class Injector>
__global__ void __launch_bounds__(batch_shape<P>::threads, batch_shape<P>::resident(sizeof(S)))
    batch_factor_kernel(const __grid_constant__ ballast::cuda::kernel_launch<batch_factor_arguments<S>, Injector> given) {
  using shape = batch_shape<P>;
  const batch_factor_arguments<S>& a = given.arguments;
  batch_weights<P>& weights = draw_weights<S, P>(a.repeats >= 0);
  const std::int64_t matrix = item_of<P>();
  const bool there = matrix < a.count;
  if (shape::team >= 32 && !there) return;
  batch_team<S, P, ballast::cuda::kernel_launch<batch_factor_arguments<S>, Injector>> team(given, weights, matrix, a.count);
  auto& own = team.own;
  S* const A = a.A.data + (there ? matrix : a.count - 1) * a.A.stride;
  const std::int64_t down = a.A.row_stride, across = a.A.column_stride;
  const int m = a.m, n = a.n, steps = m < n ? m : n;
  if (team.verifies() && team.checker() == 0) own.state = abft::attempts(a.repeats);
  if constexpr (P.blocks > 1) team_barrier<P>();  // the blocks that are sent to are there
  for (bool open = there, again = false; team.goes_on(open); again = true) {
    team.read(a.repeats >= 0, again, A, down, across, m, n, 0, false);
    team.strike_tile(inject::site::qr_panel, 0, 1);
    team.new_phase();
    typename decltype(team)::seen found;
    const bool follows = a.repeats >= 0 && team.verifies();
    if constexpr (shape::panels == 1) {
      team.factor_panel(0, steps, follows, [&](int j) {
        team.strike_tile(inject::site::qr_trailing, j, steps);
        if (follows) team.follow(own.v[0][0], j, m, found);
      });
    } else {
      for (int p = 0; p * shape::panel < steps; ++p) {
        const int turn = p % 2, begin = p * shape::panel;
        if (team.panel() == p) team.factor_panel(turn, steps, true, [](int) {});
        team_barrier<P>();  // the panel's reflectors are there; those before it, in the other half of v, have been read
        if (team.panel() > p) {
          for (int chunk = 0; chunk < shape::panel / shape::at_once && begin + chunk * shape::at_once < steps; ++chunk)
            team.apply_chunk(turn, chunk, begin, steps);
        }
        team.strike_tile(inject::site::qr_trailing, p, (steps + shape::panel - 1) / shape::panel);
        // The warp that verifies has had the first panel, and nothing else to do since.
        if (!follows) continue;
        for (int j = begin; j < begin + shape::panel && j < steps; ++j) team.follow(own.v[turn][j - begin], j, m, found);
      }
    }
    bool stands = true;
    if (a.repeats >= 0) {
      team.new_phase();
      team.add_weighted(m, n, [](int row, int column) { return row <= column; });
      team.strike_tile(inject::site::qr_r, 0, 1);
      team.new_phase();
      team.hash_tile(m, n);
      team_barrier<P>();  // sums and hashes are there
      if (team.verifies()) {
        const std::uint64_t verified = team.tile_hash(0) + team.add_hash(found.hash);
        std::uint64_t stored = 0;
        for (int j = team.checker(); j < steps; j += shape::checkers) stored += team.hash_of(own.tau[j], j, shape::width);
        stored = team.tile_hash(1) + team.add_hash(stored);
        found.hash = verified;
        found.odd = team.any_odd();
        abft::finding now = team.judge_sums(m, a.limits.residual, found, a.repeats);
        int check = 0;
        const double limit = a.limits.reflectors;
        if (now.judged && now.word == abft::k_pass && !(found.reflectors <= limit)) {
          check = 1;
          now.word = abft::k_fail;
          now.residual = found.reflectors;
          now.threshold = limit;
        }
        team.compare_hash(verified, stored, now);
        if (open) team.settle(now, a.events, matrix, check);
      }
      team_barrier<P>();  // the outcome is there, and the memory may be used again
      const auto how = static_cast<abft::outcome>(own.how);
      if (!open || how == abft::outcome::open) continue;
      stands = a.stores || abft::stands(how);
    } else {
      team.strike_tile(inject::site::qr_r, 0, 1);
      team_barrier<P>();  // tau is there
      if (!open) continue;
    }
    open = false;
    if (!stands) continue;
    team.new_phase();
    team.store(A, down, across, m, n, [](int row, int column) { return row <= column; });  // v is the same in any unit
    if (team.rank == 0) {
      for (int j = team.thread; j < steps; j += shape::team) a.tau[matrix * steps + j] = own.tau[j];
    }
  }
  if constexpr (P.blocks > 1) team_barrier<P>();  // nobody leaves whom others still send to
}

// X ← op(Q) X (Solves false), or X ← T⁻¹ X with a triangular T. A team has up to `width` columns of one matrix.
template <class S, batch_policy P, bool Solves, class Injector>
__global__ void __launch_bounds__(batch_shape<P>::threads, batch_shape<P>::resident(sizeof(S)))
    batch_apply_kernel(const __grid_constant__ ballast::cuda::kernel_launch<batch_apply_arguments<S>, Injector> given) {
  using shape = batch_shape<P>;
  const batch_apply_arguments<S>& a = given.arguments;
  batch_weights<P>& weights = draw_weights<S, P>(a.repeats >= 0);
  const std::int64_t item = item_of<P>(), items = a.count * a.chunks;
  const bool there = item < items;
  if (shape::team >= 32 && !there) return;
  const std::int64_t matrix = there ? item / a.chunks : a.count - 1;
  const int first_column = static_cast<int>(item % a.chunks) * shape::width;
  batch_team<S, P, ballast::cuda::kernel_launch<batch_apply_arguments<S>, Injector>> team(given, weights, item, items);
  auto& own = team.own;
  const S* const V = a.V.data + matrix * a.V.stride;
  const S* const tau = a.tau == nullptr ? nullptr : a.tau + matrix * a.reflectors;
  const S* const from = a.identity ? V : a.from.data + matrix * a.from.stride + first_column * a.from.column_stride;
  S* const X = a.X.data + matrix * a.X.stride + first_column * a.X.column_stride;
  const int m = a.m, k = a.reflectors, columns = a.n - first_column < shape::width ? a.n - first_column : shape::width;
  if (team.verifies() && team.checker() == 0) own.state = abft::attempts(a.repeats);
  // Column j of the reflectors or of T in row i, without its diagonal.
  const auto element = [&](int i, int j) {
    const bool inside = i < m && (!Solves || a.ascending ? i > j : i < j);
    return inside ? V[i * a.V.row_stride + j * a.V.column_stride] : S(0);
  };
  const auto everything = [](int, int) { return true; };
  for (bool open = there, again = false; team.goes_on(open); again = true) {
    team.read(a.repeats >= 0, again, from, a.from.row_stride, a.from.column_stride, a.given, columns, first_column, a.identity);
    team.strike_tile(inject::site::qr_q, 0, 2);
    team.new_phase();
    for (int s = 0; s < k; s += shape::strip) {
      const int count = k - s < shape::strip ? k - s : shape::strip;
      const auto number = [&](int l) { return a.ascending ? s + l : k - 1 - s - l; };
      if (team.group < count) {
        const int j = number(team.group);
        for (int r = 0; r < P.rows; ++r) {
          const int row = team.row_of(r);
          own.strip[team.group].lane[team.lane].row[r] = !Solves && row == j ? S(1) : element(row, j);
        }
        if (team.lane == 0) {
          const S scalar = Solves ? V[j * (a.V.row_stride + a.V.column_stride)] : tau[j];
          own.tau[team.group] = scalar;
          if (Solves && scalar == 0)
            atomicMax(reinterpret_cast<long long*>(a.singular), static_cast<long long>((a.count - matrix) * k_singular_columns - j));
        }
      }
      team_barrier<P>();  // the strip is there
      for (int l = 0; l < count; ++l) {
        const int j = number(l);
        if constexpr (!Solves) {
          team.reflect(own.strip[l], own.tau[l], s + l, k);
        } else {
          S v[P.rows], unit[P.rows], value[P.columns] = {};
          for (int r = 0; r < P.rows; ++r) {
            const int row = team.row_of(r);
            v[r] = own.strip[l].lane[team.lane].row[r];
            unit[r] = S(row == j);
          }
          for (int c = 0; c < P.columns; ++c) {
            for (int r = 0; r < P.rows; ++r) {
              if (team.row_of(r) == j) value[c] = team.x[c][r];
            }
          }
          for (int distance = 1; distance < P.lanes; distance *= 2) {
            for (int c = 0; c < P.columns; ++c) value[c] += __shfl_xor_sync(0xffffffffu, value[c], distance);
          }
          for (int c = 0; c < P.columns; ++c) value[c] /= own.tau[l];
          team.template strike<P.columns>(inject::site::qr_product, s + l, k, value);
          for (int c = 0; c < P.columns; ++c) {
            for (int r = 0; r < P.rows; ++r) {
              const S y = v[r] == 0 ? team.x[c][r] : team.x[c][r] - value[c] * v[r];
              team.x[c][r] = unit[r] != 0 ? value[c] : y;
            }
          }
        }
      }
      team_barrier<P>();  // the strip has been read
    }
    team.strike_tile(inject::site::qr_q, 1, 2);
    team.new_phase();
    if (a.repeats < 0) {
      team_barrier<P>();  // the shifts are there
      if (open) team.store(X, a.X.row_stride, a.X.column_stride, m, columns, everything);
      open = false;
      continue;
    }
    typename decltype(team)::seen found;
    if (!Solves && team.verifies()) {
      // V and tau are loaded again, a reflector ahead of its use.
      S ahead[shape::of_lane], tau_ahead = 0;
      const auto read = [&](int s) {
        if (s >= k) return;
        const int j = a.ascending ? s : k - 1 - s;
        for (int i = 0; i < shape::of_lane; ++i) ahead[i] = element(team.checker() % shape::span + shape::span * i, j);
        tau_ahead = tau[j];
      };
      read(0);
      for (int s = 0; s < k; ++s) {
        const int j = a.ascending ? s : k - 1 - s;
        S here[shape::of_lane];
        for (int i = 0; i < shape::of_lane; ++i) here[i] = ahead[i];
        const double factor = static_cast<double>(tau_ahead);
        read(s + 1);
        const double squares = team.reflect_sums([&](int i, int row) { return row == j ? 1.0 : static_cast<double>(here[i]); }, factor);
        found.odd |= !(squares <= abft::k_largest<double>) || !(fabs(factor) <= abft::k_largest<double>);
      }
    }
    team.add_weighted(m, columns, everything);
    if constexpr (Solves) {
      block_barrier<P>();  // partial sums have been read
      team.template add_columns<1>(k_certificates, [&](int c, int r, double(&sums)[1]) {
        const int column = team.column_of(c);
        if (team.row_of(r) < m && column < columns) sums[0] += 2 * fabs(team.scale_of(column) * static_cast<double>(team.x[c][r]));
      });
    }
    team.hash_tile(m, columns);
    team_barrier<P>();  // sums and hashes are there
    if (team.verifies()) {
      found.hash = team.tile_hash(0);
      int odd = found.odd || team.any_odd() ? 1 : 0;
      for (int distance = 1; distance < shape::checkers; distance *= 2) odd |= __shfl_xor_sync(0xffffffffu, odd, distance);
      found.odd = odd != 0;
      if constexpr (Solves) {
        // T (Xw) against Bw, row by row; T is loaded again.
        double worst = 0, limit = 1;
        for (int row = team.checker(); row < m; row += shape::checkers) {
          double rest[k_certificates] = {own.sum[0][row], own.sum[1][row]};
          double size = 0, sizes = 0;
#pragma unroll 2
          for (int j = 0; j < k; ++j) {
            const S diagonal = V[j * (a.V.row_stride + a.V.column_stride)];
            const double t = static_cast<double>(row == j ? diagonal : element(row, j));
            for (int q = 0; q < k_certificates; ++q) rest[q] -= t * own.rest[0][q][j];
            size += fabs(t) * own.rest[0][k_certificates][j];
            sizes += fabs(t);
          }
          size += fabs(own.sum[0][row]) + fabs(own.sum[1][row]);
          // Rounding, and what underflow takes from an element of x.
          constexpr double smallest = sizeof(S) == 4 ? 0x1p-149 : 0x1p-1074;
          const double allowed = abft::qr_solve_threshold<S>(size, k) + 4 * smallest * (sizes + k);
          for (int q = 0; q < k_certificates; ++q) {
            if (!(fabs(rest[q]) * limit <= worst * allowed)) {
              worst = fabs(rest[q]);
              limit = allowed;
            }
          }
        }
        for (int distance = 1; distance < shape::checkers; distance *= 2) {
          const double other = __shfl_xor_sync(0xffffffffu, worst, distance), bound = __shfl_xor_sync(0xffffffffu, limit, distance);
          if (!(other * limit <= worst * bound)) {
            worst = other;
            limit = bound;
          }
        }
        // A number beyond the range in T, in x or between them: the same bits again are what the data say.
        found.odd |= !(worst <= abft::k_largest<double>) || !(limit <= abft::k_largest<double>);
        abft::finding now = team.judge(worst, {limit, limit}, found, a.repeats);
        team.compare_hash(found.hash, team.tile_hash(1), now);
        if (open) team.settle(now, a.events, matrix, 3);
      } else {
        abft::finding now = team.judge_sums(m, abft::qr_residual_thresholds<S>(1, m, columns), found, a.repeats);
        team.compare_hash(found.hash, team.tile_hash(1), now);
        if (open) team.settle(now, a.events, matrix, 2);
      }
    }
    team_barrier<P>();  // the outcome is there, and the memory may be used again
    const auto how = static_cast<abft::outcome>(own.how);
    if (!open || how == abft::outcome::open) continue;
    open = false;
    team.new_phase();
    if (a.stores || abft::stands(how)) team.store(X, a.X.row_stride, a.X.column_stride, m, columns, everything);
  }
}

}  // namespace ballast::qr::cuda
