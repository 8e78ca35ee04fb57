// The tile of a team (batch_policy): a small matrix, or columns of one, in the registers of its threads. It is loaded, factored by panels,
// multiplied by reflectors, and stored.
// Layer: backend "cuda" of QR, device code.
// Source: LAPACK's conventions for xLARFG; docs/design/qr-cuda-batches.md.
#pragma once

#include <cmath>

#include "abft/attempt.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/launch.cuh"
#include "cuda/block/sums.cuh"
#include "cuda/block/twice.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/arithmetic/random.hpp"
#include "qr/cuda/batch/batch_args.hpp"
#include "qr/cuda/layout/number.cuh"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

// 2^e, |e| ≤ 1022.
__device__ __forceinline__ double power_of_two(int e) {
  return ballast::cuda::from_bits<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

// Returns ⌊log₂|x|⌋ of a finite number other than 0.
__device__ __forceinline__ int exponent_of(double x) {
  const bool subnormal = fabs(x) < 0x1p-1022;
  const std::uint64_t word = ballast::cuda::bits(subnormal ? x * 0x1p54 : x);
  return static_cast<int>(word >> 52 & 0x7ff) - (subnormal ? 1077 : 1023);
}

// Returns the upper half of |x|. It orders numbers by their size, except for their last digits.
__device__ __forceinline__ int size_word(double x) { return static_cast<int>(ballast::cuda::bits(x) >> 32 & 0x7fffffff); }
// The same of the larger component.
template <class S>
__device__ __forceinline__ int largest_word(S x) {
  if constexpr (is_complex<S>)
    return max(size_word(static_cast<double>(x.re)), size_word(static_cast<double>(x.im)));
  else
    return size_word(static_cast<double>(x));
}
// Returns ⌊log₂|x|⌋ of a number with this size word, unless it is 0, subnormal, Inf or NaN.
__device__ __forceinline__ int exponent_of_word(int word) { return (word >> 20) - 1023; }
inline constexpr int k_normal_word = 0x00100000, k_infinite_word = 0x7ff00000;

struct column_size {
  int word, exponent;  // the exponent of zeros, Inf and NaN is 0
};

// x · 2^e in two steps, since the reciprocal of a subnormal number is not representable.
struct binary_scale {
  double half, rest;
  __device__ __forceinline__ explicit binary_scale(int e) : half(power_of_two(e / 2)), rest(power_of_two(e - e / 2)) {}
  __device__ __forceinline__ double operator()(double x) const { return x * half * rest; }
};

__device__ __forceinline__ double larger_of(double a, double b) { return a != a || a > b ? a : b; }

// Returns a column's shift for its store, `kept` in shared memory. With checks it must follow from `exponent`, which the check has found in
// its own reading of the input: both are loaded until they agree, since a load may be struck.
template <class S, bool Factors>
__device__ __forceinline__ int checked_shift(const volatile int& kept, const volatile int& exponent, bool checked) {
  int shift = kept;
  for (int trial = 0; checked && trial < 4; ++trial) {
    const int e = exponent;
    if (shift == (Factors ? abft::moderating_shift<S>(e) : abft::product_shift<S>(e))) break;
    shift = kept;
  }
  return shift;
}

// A barrier of all threads of the team.
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

// A barrier of the team's threads in one thread block.
template <batch_policy P>
__device__ __forceinline__ void block_barrier() {
  if constexpr (P.matrices > 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// Returns the team's shared memory.
template <class S, batch_policy P>
__device__ __forceinline__ batch_memory<S, P>& own_memory() {
  const int position = P.matrices == 1 ? 0 : static_cast<int>(threadIdx.x) / batch_shape<P>::team;
  return *reinterpret_cast<batch_memory<S, P>*>(arch::shared_memory() + position * k_batch_pitch<S, P>);
}

// Draws the weights by `threads` threads, of which this is number `thread`.
template <batch_policy P>
__device__ __forceinline__ void draw(batch_weights<P>& weights, int thread, int threads) {
  for (int e = thread; e < k_certificates * batch_shape<P>::width; e += threads) {
    const int q = e / batch_shape<P>::width, j = e % batch_shape<P>::width;
    weights.of[q][j] = random_signed(k_batch_stream + static_cast<std::uint64_t>(q), static_cast<std::uint64_t>(j));
  }
}

// Returns the weights, which the whole thread block draws if there are `checks`.
template <class S, batch_policy P>
__device__ __forceinline__ batch_weights<P>& draw_weights(bool checks) {
  auto& made = *reinterpret_cast<batch_weights<P>*>(arch::shared_memory() + P.matrices * k_batch_pitch<S, P>);
  if (!checks) return made;
  draw(made, static_cast<int>(threadIdx.x), batch_shape<P>::threads);
  __syncthreads();
  return made;
}

template <class S, batch_policy P, class Launch>
struct batch_tile {
  using shape = batch_shape<P>;
  using memory = batch_memory<S, P>;
  using real = real_of<S>;

  const Launch& given;
  memory& own;
  batch_weights<P>& weights;
  const std::int64_t item, items;  // the team's position for the injector
  int thread, lane, group;
  const int rank;
  S x[P.columns][P.rows];

  __device__ __forceinline__ batch_tile(const Launch& launch, batch_weights<P>& drawn, std::int64_t which, std::int64_t count)
      : given(launch),
        own(own_memory<S, P>()),
        weights(drawn),
        item(which),
        items(count),
        thread(static_cast<int>(threadIdx.x) % shape::team),
        lane(thread % P.lanes),
        group(thread / P.lanes),
        rank(P.blocks == 1 ? 0 : static_cast<int>(arch::cluster_rank())) {}

  // Makes the compiler recompute the thread's position. Otherwise it keeps values derived from it across the phases of a kernel, in local
  // memory if need be.
  __device__ __forceinline__ void new_phase() {
    thread = static_cast<int>(arch::opaque(static_cast<unsigned>(thread)));
    lane = thread % P.lanes;
    group = thread / P.lanes;
  }

  __device__ __forceinline__ int column_of(int c) const { return panel() * shape::panel + c * shape::near + group % shape::near; }
  __device__ __forceinline__ int panel() const { return shape::panels == 1 ? 0 : thread / 32 * P.blocks + rank; }
  __device__ __forceinline__ int row_of(int r) const { return shape::row_of(lane, r); }
  // The thread's number among the threads that share a check: within the team, or within its warp.
  __device__ __forceinline__ int checker() const { return thread % shape::checkers; }
  // Returns the lane of the warp that is lane l of group g.
  __device__ __forceinline__ int source(int g, int l) const {
    const int first = shape::team < 32 ? static_cast<int>(threadIdx.x) % 32 / shape::team * shape::team : 0;
    return first + g * P.lanes + l;
  }
  __device__ __forceinline__ bool verifies() const { return rank == 0 && thread < shape::checkers; }
  // Stores a value at the same address in all thread blocks of the team; send_first() only in block 0.
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
    given.strike(ballast::cuda::index<k_reals<T> * Count>{}, where,
                 {item, items, step, steps, thread + rank * shape::team, shape::team * P.blocks}, components(data));
  }
  __device__ __forceinline__ void strike_tile(inject::site where, int step, int steps) {
    strike<P.columns * P.rows>(where, step, steps, &x[0][0]);
  }
  // Strikes a number that only one thread has.
  template <class T>
  __device__ __forceinline__ void strike_one(inject::site where, int step, int steps, T* data) const {
    given.strike(ballast::cuda::index<k_reals<T>>{}, where, {item, items, step, steps, 0, 1}, components(data));
  }

  // Returns whether `here` is true in any lane of the warp: collective operations must not depend on a lane's data.
  static __device__ __forceinline__ bool any(bool here) { return __any_sync(0xffffffffu, here ? 1 : 0) != 0; }

  // Loads the tile; `conjugated`: the conjugates of its numbers.
  __device__ __forceinline__ void load(const S* from, std::int64_t down, std::int64_t across, int rows, int columns, int first,
                                       bool identity, bool conjugated) {
    for (int c = 0; c < P.columns; ++c) {
      const int column = column_of(c);
      const S* const at = from + column * across;
      if (!identity && all_words(from, down, across, rows) && column < columns) {
        for (int r = 0; r < P.rows; r += k_word) {
          const word here = *reinterpret_cast<const word*>(at + row_of(r));
          for (int i = 0; i < k_word; ++i) x[c][r + i] = conjugated_if(conjugated, here.number[i]);
        }
        continue;
      }
      const S* const own_rows = at + row_of(0) * down;
      for (int r = 0; r < P.rows; ++r) {
        const int row = row_of(r);
        x[c][r] = 0;
        if (row < rows && column < columns)
          x[c][r] = identity ? S(row == first + column) : conjugated_if(conjugated, own_rows[r * (shape::row_step * down)]);
      }
    }
  }

  // Returns the size of a column's largest element; each of `Lanes` lanes has some of its rows.
  template <int Lanes, int Count>
  static __device__ __forceinline__ column_size size_of(const S (&part)[Count]) {
    int word = 0;
#pragma unroll
    for (const S& each : part) word = max(word, largest_word(each));
    for (int distance = 1; distance < Lanes; distance *= 2) word = max(word, __shfl_xor_sync(0xffffffffu, word, distance));
    int exponent = word >= k_infinite_word ? 0 : exponent_of_word(word);
    if (any(word < k_normal_word)) {
      double most = 0;
#pragma unroll
      for (const S& each : part) most = larger_of(most, largest_component(each));
      for (int distance = 1; distance < Lanes; distance *= 2) most = larger_of(most, __shfl_xor_sync(0xffffffffu, most, distance));
      if (word < k_normal_word) exponent = most > 0 ? exponent_of(most) : 0;
    }
    return {word, exponent};
  }

  // Scales columns of extreme size by powers of two, so that products neither overflow nor lose digits to underflow; nor, if the tile is
  // factored (`Factors`), squares.
  template <bool Factors>
  __device__ __forceinline__ void moderate_columns() {
    for (int c = 0; c < P.columns; ++c) {
      const column_size most = size_of<P.lanes>(x[c]);
      const int shift = Factors ? abft::moderating_shift<real>(most.exponent) : abft::product_shift<real>(most.exponent);
      if (lane == 0) own.shift[column_of(c)] = shift;
      if (shift != 0) {
        const binary_scale scale(shift);
        for (int r = 0; r < P.rows; ++r) x[c][r] = each_component(x[c][r], scale);
      }
    }
  }

  template <bool Factors>
  __device__ __forceinline__ int shift_to_store(int column, bool checked) const {
    return checked_shift<real, Factors>(own.shift[column], own.exponent[column], checked);
  }

  // Stores the tile, or its conjugate; elements with `scaled(row, column)` get their original units back. `Factors`, `checked`: as above.
  template <bool Factors, class Scaled>
  __device__ __forceinline__ void store(S* to, std::int64_t down, std::int64_t across, int rows, int columns, bool checked, bool conjugated,
                                        Scaled&& scaled) {
    for (int c = 0; c < P.columns; ++c) {
      const int column = column_of(c);
      if (column >= columns) continue;
      S* const at = to + column * across;
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
    // Columns of extreme size, and conjugates, which are rare: from memory, since x has no address.
#pragma unroll 1
    for (int c = 0; c < P.columns; ++c) {
      const int column = column_of(c);
      if (column >= columns) continue;
      const int shift = shift_to_store<Factors>(column, checked);
      if (shift == 0 && !(is_complex<S> && conjugated)) continue;
#pragma unroll 1
      for (int r = 0; r < P.rows; ++r) {
        const int row = row_of(r);
        if (row < rows) turn_stored(to + row * down + column * across, scaled(row, column), shift, conjugated);
      }
    }
  }
  // Gives a stored number, or its conjugate, its original unit if `scaled`. Nothing checks what is computed here, so it is computed twice.
  static __device__ __forceinline__ void turn_stored(S* at, bool scaled, int shift, bool conjugated) {
    const auto turn = [scaled, shift](real* component, bool negated) {
      const real stored = ballast::cuda::loaded_twice(*component);
      ballast::cuda::store_compared(component, [&] {
        const binary_scale back(scaled ? -static_cast<int>(arch::opaque(static_cast<unsigned>(shift))) : 0);
        const auto value = static_cast<real>(back(static_cast<double>(arch::opaque(stored))));
        return negated ? -value : value;
      });
    };
    if constexpr (is_complex<S>) {
      turn(&at->re, false);
      turn(&at->im, conjugated);
    } else {
      turn(at, false);
    }
  }

  // k_word: contiguous elements that one instruction moves, if a lane has such rows. all_words(): returns whether all of a matrix can be
  // moved this way.
  static constexpr int k_word = shape::cyclic || P.rows * sizeof(S) % 16 != 0 ? 1 : static_cast<int>(16 / sizeof(S));
  struct alignas(k_word * sizeof(S)) word {
    S number[k_word];
  };
  static __device__ __forceinline__ bool all_words(const S* first, std::int64_t down, std::int64_t across, int rows) {
    constexpr auto last = static_cast<std::uint64_t>(sizeof(word) - 1);
    return k_word > 1 && down == 1 && rows == shape::height && ((reinterpret_cast<std::uint64_t>(first) | across * sizeof(S)) & last) == 0;
  }

  // x_c ← x_c − factor · v, if `changes`.
  __device__ __forceinline__ void subtract(int c, const S (&v)[P.rows], S factor, bool changes) {
    for (int r = 0; r < P.rows; ++r) {
      const S y = minus_product(x[c][r], factor, v[r]);
      x[c][r] = changes ? y : x[c][r];
    }
  }

  // Divides α and the tail y by the power of two that scales the larger of them to about 1, if `wanted`; returns its exponent. `most`:
  // receives the largest element of the tail.
  __device__ __forceinline__ int normalize(bool wanted, S& alpha, S (&y)[P.rows], double& most) const {
    most = 0;
#pragma unroll
    for (int r = 0; r < P.rows; ++r) most = larger_of(most, largest_component(y[r]));
    for (int distance = 1; distance < P.lanes; distance *= 2) most = larger_of(most, __shfl_xor_sync(0xffffffffu, most, distance));
    const double top = larger_of(most, largest_component(alpha));
    if (!wanted || !(top > 0 && top <= abft::k_largest<double>)) return 0;
    const int e = exponent_of(top);
    const binary_scale down(-e);
    alpha = each_component(alpha, down);
#pragma unroll
    for (int r = 0; r < P.rows; ++r) y[r] = each_component(y[r], down);
    return e;
  }

  // Returns whether no component of α is above a bound; whether α is real.
  static __device__ __forceinline__ bool within(S alpha, real most) {
    if constexpr (is_complex<S>)
      return fabs(alpha.re) <= most && fabs(alpha.im) <= most;
    else
      return fabs(alpha) <= most;
  }
  static __device__ __forceinline__ bool is_real(S alpha) {
    if constexpr (is_complex<S>)
      return alpha.im == 0;
    else
      return true;
  }
  // (β − α) / β with β = −sign(Re α) / inverse.
  static __device__ __forceinline__ S tau_of(S alpha, real inverse) {
    if constexpr (is_complex<S>)
      return {fabs(alpha.re) * inverse + 1, copysign(inverse, alpha.re) * alpha.im};
    else
      return fabs(alpha) * inverse + 1;
  }
  // 1 / (α + sign(Re α) norm).
  static __device__ __forceinline__ S reciprocal_of_difference(S alpha, real norm) {
    if constexpr (is_complex<S>) {
      const real sum = alpha.re + copysign(norm, alpha.re), inverse = arch::reciprocal(sum * sum + alpha.im * alpha.im);
      return {sum * inverse, -alpha.im * inverse};
    } else {
      return copysign(arch::reciprocal(fabs(alpha) + norm), alpha);
    }
  }

  // The first column of a thread that needs its product with column c: from c on, or in the same chunk.
  static constexpr int first_of(int c) {
    if constexpr (shape::panels == 1 || shape::near >= shape::at_once) return c;
    return c * shape::near / shape::at_once * shape::at_once / shape::near;
  }

  // Computes yᴴx_c for the columns from `First` on, over the rows from `Row` on, in all lanes of a group.
  template <int First, int Row>
  __device__ __forceinline__ void dots(const S (&y)[P.rows], S (&sum)[P.columns]) const {
#pragma unroll
    for (int c = First; c < P.columns; ++c) {
      S even = 0, odd = 0;
#pragma unroll
      for (int r = Row; r < P.rows; r += 2) {
        even = plus_conjugate_product(even, y[r], x[c][r]);
        if (r + 1 < P.rows) odd = plus_conjugate_product(odd, y[r + 1], x[c][r + 1]);
      }
      sum[c] = even + odd;
    }
    for (int distance = 1; distance < P.lanes; distance *= 2) {
#pragma unroll
      for (int c = First; c < P.columns; ++c) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], distance);
    }
  }

  // Computes reflector j from column c of group g of the warp, in place: β on the diagonal, v below it. Applies H_jᴴ to the later columns
  // of the warp. The products of the column's tail with all of them take one reduction over lanes, concurrent with the computation of v. If
  // `publishes`, v with its one and its zeros goes to all blocks; so do its products with the reflectors before it in its chunk. If g is a
  // constant, so are the registers of row j.
  template <int c, class Group>
  __device__ __forceinline__ void eliminate(Group g, int j, int steps, int half, bool publishes) {
    constexpr int first = first_of(c);
    const int in_panel = c * shape::near + g, own_group = group % shape::near;
    const int holder = shape::lane_of(j), at = shape::register_of(j);  // the lane and the register of row j
    const bool behind = lane > holder, from = lane >= holder;
    // Registers that may hold row j, and rows after it; the rows before `lowest` are finished.
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
    real squares = __shfl_sync(0xffffffffu, real_part(sum[c]), source(g, 0));
    constexpr real most_square = static_cast<real>(sizeof(real) == 4 ? 0x1p100 : 0x1p900),
                   most = static_cast<real>(sizeof(real) == 4 ? 0x1p50 : 0x1p450);
    int exponent = 0;
    bool tail = true;
    const bool plain = within(alpha, most) && squares >= 1 / most_square && squares <= most_square;
    if (any(!plain)) {
      // The squares have left the range, or are 0, Inf or NaN.
      double largest;
      exponent = normalize(!plain, alpha, y, largest);
      // A complex number without a tail is made real, as LAPACK does.
      tail = plain || largest != 0 || !is_real(alpha);
      dots<first, lowest>(y, sum);
      real own_squares = 0;  // for the column itself, sum[c] mixes y with its old values
#pragma unroll
      for (int r = lowest; r < P.rows; ++r) own_squares += square_of(y[r]);
      for (int distance = 1; distance < P.lanes; distance *= 2) own_squares += __shfl_xor_sync(0xffffffffu, own_squares, distance);
      squares = plain ? squares : own_squares;
    }
    // β = −sign(Re α)‖x‖, τ = (β − α) / β, v = [1; factor · y], factor = 1 / (α − β).
    const real head = real_part(alpha), all = square_of(alpha) + squares, inverse = arch::reciprocal_sqrt(all);
    real norm = all * inverse;
    norm += (all - norm * norm) * inverse / 2;
    real beta = tail ? -copysign(norm, head) : head;
    S tau = tail ? tau_of(alpha, inverse) : S(0);
    const S factor = tail ? reciprocal_of_difference(alpha, norm) : S(0);
    if (exponent != 0) beta = static_cast<real>(binary_scale(exponent)(static_cast<double>(beta)));
#pragma unroll
    for (int k = first; k < P.columns; ++k) sum[k] = plus_conjugate_product(top[k], factor, sum[k]);  // vᴴx_k
    if constexpr (shape::panels > 1) {
#pragma unroll
      for (int k = first; k <= c; ++k) {
        const int before = k * shape::near + own_group;
        if (lane == 0 && before / shape::at_once == in_panel / shape::at_once && before < in_panel)
          send(&own.gram[half][in_panel / shape::at_once][before % shape::at_once][in_panel % shape::at_once], sum[k]);
      }
    }
#pragma unroll
    for (int k = c; k < P.columns; ++k) sum[k] = tau == 0 ? S(0) : conjugated_if(true, tau) * sum[k];
    if constexpr (shape::panels == 1) strike<P.columns>(site::product, j, steps, sum);
#pragma unroll
    for (int r = lowest; r < P.rows; ++r) y[r] = y[r] * factor;
#pragma unroll
    for (int r = lowest; r < P.rows; ++r) {
      if (may_be(r) && r == at && lane == holder) y[r] = 1;
    }
#pragma unroll
    for (int k = c; k < P.columns; ++k) {
      if (k > c || own_group > g) {
#pragma unroll
        for (int r = lowest; r < P.rows; ++r) x[k][r] = minus_product(x[k][r], sum[k], y[r]);
      }
    }
    if (own_group != g) return;
    given.strike(ballast::cuda::index<k_reals<S> * P.rows>{}, site::reflector, {item, items, j, steps, lane, P.lanes}, components(&y[0]));
    if (lane == 0) {
      strike_one(site::tau, j, steps, &tau);
      send(&own.tau[j], tau);
    }
    auto& to = own.v[half][shape::panels > 1 ? in_panel : 0].lane[lane];
#pragma unroll
    for (int r = 0; r < P.rows; ++r) {
      if (publishes) send(&to.row[r], y[r]);
      if (r >= lowest && is_behind(r)) x[c][r] = y[r];
      if (may_be(r) && r == at && lane == holder) x[c][r] = beta;
    }
  }

  // Applies the reflectors H_lᴴ of chunk `which` of the panel whose first column is `begin` to all columns of the thread, one after the
  // other: w_l = conj(τ_l) (v_lᴴx − Σ_(k<l) v_lᴴv_k w_k), x ← x − Σ w_l v_l.
  __device__ __forceinline__ void apply_chunk(int half, int which, int begin, int steps) {
    const auto& v = own.v[half];
    const int first = which * shape::at_once, count = steps - begin - first;  // number of reflectors left
    S w[shape::at_once][P.columns] = {};
#pragma unroll
    for (int l = 0; l < shape::at_once; ++l) {
      const auto& here = v[first + l].lane[lane].row;
#pragma unroll
      for (int r = 0; r < P.rows; ++r) {
#pragma unroll
        for (int c = 0; c < P.columns; ++c) w[l][c] = plus_conjugate_product(w[l][c], here[r], x[c][r]);
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
      const S tau = l < count ? conjugated_if(true, own.tau[begin + first + l]) : S(0);
#pragma unroll
      for (int k = 0; k < l; ++k) {
#pragma unroll
        for (int c = 0; c < P.columns; ++c) w[l][c] = minus_product(w[l][c], own.gram[half][which][k][l], w[k][c]);
      }
#pragma unroll
      for (int c = 0; c < P.columns; ++c) w[l][c] = tau == 0 ? S(0) : tau * w[l][c];
    }
    strike<shape::at_once * P.columns>(site::product, (begin + first) / shape::at_once, (steps + shape::at_once - 1) / shape::at_once,
                                       &w[0][0]);
#pragma unroll
    for (int l = 0; l < shape::at_once; ++l) {
      const auto& here = v[first + l].lane[lane].row;
#pragma unroll
      for (int r = 0; r < P.rows; ++r) {
        const S element = l < count ? here[r] : S(0);
#pragma unroll
        for (int c = 0; c < P.columns; ++c) x[c][r] = minus_product(x[c][r], w[l][c], element);
      }
    }
  }

  // Factors the panel of this warp; calls made(j) after each reflector. `publishes`: other threads read the reflectors.
  template <class Made>
  __device__ __forceinline__ void factor_panel(int half, int steps, bool publishes, Made&& made) {
    ballast::cuda::unrolled<P.columns>([&](auto at) {
      constexpr int c = decltype(at)::value;
      const auto each = [&](auto g) {
        const int j = panel() * shape::panel + c * shape::near + static_cast<int>(g);
        if (j >= steps) return;
        eliminate<c>(g, j, steps, half, publishes);
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

  // Applies I − τ v vᴴ to all columns.
  __device__ __forceinline__ void reflect(const batch_column<S, P>& from, S tau, int step, int steps) {
    S v[P.rows], sum[P.columns] = {};
    for (int r = 0; r < P.rows; ++r) v[r] = from.lane[lane].row[r];
    dots<0, 0>(v, sum);
    for (int c = 0; c < P.columns; ++c) sum[c] = sum[c] * tau;
    strike<P.columns>(site::product, step, steps, sum);
    for (int c = 0; c < P.columns; ++c) subtract(c, v, sum[c], tau != 0);
  }
};

}  // namespace ballast::qr::cuda
