// QR of many small matrices, Q applied to columns, and triangular systems: a team of threads for each matrix, which lies in registers.
// Layer: backend "cuda" of QR, device code.
// A team (batch_policy) computes a tile from its input, compares what it is about to store with sums that were made from other loads of the
// input and of V, and only then stores it. A tile that fails is computed again.
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

template <class S, batch_policy P, class Launch>
struct batch_team {
  using shape = batch_shape<P>;
  using memory = batch_memory<S, P>;

  const Launch& given;
  memory& own;
  const std::int64_t item, items;  // of the injector
  const int thread, lane, group, rank;
  S x[P.columns][P.rows];

  __device__ __forceinline__ batch_team(const Launch& launch, memory& shared, std::int64_t which, std::int64_t count)
      : given(launch),
        own(shared),
        item(which),
        items(count),
        thread(static_cast<int>(threadIdx.x) % shape::team),
        lane(thread % P.lanes),
        group(thread / P.lanes),
        rank(P.blocks == 1 ? 0 : static_cast<int>(arch::cluster_rank())) {}

  __device__ __forceinline__ int column_of(int c) const { return (c * P.blocks + rank) * P.groups + group; }
  __device__ __forceinline__ int row_of(int r) const { return lane + P.lanes * r; }
  __device__ __forceinline__ bool verifies() const { return rank == 0 && thread < 32; }

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

  // Columns of extreme size are brought to a moderate one by powers of two: products neither overflow nor lose digits to underflow.
  __device__ __forceinline__ void load(const S* from, std::int64_t down, std::int64_t across, int rows, int columns, int first,
                                       bool identity) {
    for (int c = 0; c < P.columns; ++c) {
      const int column = column_of(c);
      double most = 0;
      for (int r = 0; r < P.rows; ++r) {
        const int row = row_of(r);
        x[c][r] = 0;
        if (row < rows && column < columns) x[c][r] = identity ? S(row == first + column) : from[row * down + column * across];
        most = larger_of(most, fabs(static_cast<double>(x[c][r])));
      }
      for (int distance = 1; distance < P.lanes; distance *= 2) most = larger_of(most, __shfl_xor_sync(0xffffffffu, most, distance));
      int shift = 0;
      if (most > 0 && most <= abft::k_largest<S>) {
        const int e = exponent_of(most);
        if (e > abft::k_moderate_exponent<S> || e < -abft::k_moderate_exponent<S>) shift = -e;
      }
      if (lane == 0) send_first(&own.shift[column], shift);
      if (shift != 0) {
        const binary_scale scale(shift);
        for (int r = 0; r < P.rows; ++r) x[c][r] = static_cast<S>(scale(static_cast<double>(x[c][r])));
      }
      if (P.blocks > 1 && rank != 0 && lane == 0) own.shift[column] = shift;  // for the store
    }
  }

  // Column c of every group into the strip.
  __device__ __forceinline__ void publish(const S (&column)[P.rows]) const {
    for (int r = 0; r < P.rows; ++r) send_first(&own.strip[group][row_of(r)], column[r]);
  }

  // x_c ← x_c − factor · v, where `changes`.
  __device__ __forceinline__ void subtract(int c, const S (&v)[P.rows], S factor, bool changes) {
    for (int r = 0; r < P.rows; ++r) {
      const S y = x[c][r] - factor * v[r];
      x[c][r] = changes ? y : x[c][r];
    }
  }

  // vᵀx_c for the columns from `First` on, in all lanes of a group.
  template <int First>
  __device__ __forceinline__ void dots(const S (&v)[P.rows], S (&sum)[P.columns]) const {
    for (int c = First; c < P.columns; ++c) {
      S even = 0, odd = 0;
      for (int r = 0; r < P.rows; r += 2) {
        even += v[r] * x[c][r];
        if (r + 1 < P.rows) odd += v[r + 1] * x[c][r + 1];
      }
      sum[c] = even + odd;
    }
    for (int distance = 1; distance < P.lanes; distance *= 2) {
      for (int c = First; c < P.columns; ++c) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], distance);
    }
  }

  // H x for the columns from `First` on that lie behind `behind`.
  template <int First>
  __device__ __forceinline__ void reflect(const S* from, S tau, int behind, int step, int steps) {
    S v[P.rows], sum[P.columns] = {};
    for (int r = 0; r < P.rows; ++r) v[r] = from[row_of(r)];
    dots<First>(v, sum);
    for (int c = First; c < P.columns; ++c) sum[c] *= tau;
    strike<P.columns>(inject::site::qr_product, step, steps, sum);
    for (int c = First; c < P.columns; ++c) subtract(c, v, sum[c], column_of(c) > behind && tau != 0);
  }

  // Reflector j from column c of group g, in place: β on the diagonal, v below. By the warp that has it; other columns of the warp compute
  // along, for nothing. v, with its one and its zeros, goes to `to` of all blocks.
  __device__ __forceinline__ void make_reflector(S (&column)[P.rows], int g, int j, int steps, S* to) {
    double sums[2] = {};  // the squares below the diagonal, the diagonal
    for (int r = 0; r < P.rows; ++r) {
      const double value = static_cast<double>(column[r]);
      if (row_of(r) > j) sums[0] += value * value;
      if (row_of(r) == j) sums[1] = value;
    }
    ballast::cuda::add_lanes<32, P.lanes, 1>(sums);
    const double squares = sums[0], alpha = sums[1];
    // Squares of floats neither underflow in double nor overflow.
    bool plain = fabs(alpha) <= 0x1p450 && (sizeof(S) == 4 ? squares > 0 && squares <= 0x1p300 : squares >= 0x1p-900 && squares <= 0x1p900);
    double beta = plain ? -copysign(sqrt(alpha * alpha + squares), alpha) : alpha;
    double tau = plain ? (beta - alpha) / beta : 0;
    // v = (x · half) · factor.
    double half = 1, factor = plain ? 1 / (alpha - beta) : 0;
    plain = plain || (sizeof(S) == 4 && squares == 0);
    const int owner = (g * P.lanes + lane) % 32;
    if (__shfl_sync(0xffffffffu, plain ? 1 : 0, owner) == 0) {
      // A tail whose squares leave the range, or with Inf or NaN: scaled by its largest element.
      double most = 0;
      for (int r = 0; r < P.rows; ++r) {
        if (row_of(r) > j) most = larger_of(most, fabs(static_cast<double>(column[r])));
      }
      for (int distance = 1; distance < P.lanes; distance *= 2) most = larger_of(most, __shfl_xor_sync(0xffffffffu, most, distance));
      const double top = larger_of(most, fabs(alpha));
      const binary_scale down(top > 0 && top <= abft::k_largest<double> ? -exponent_of(top) : 0);
      double scaled[1] = {};
      for (int r = 0; r < P.rows; ++r) {
        const double value = down(static_cast<double>(column[r]));
        if (row_of(r) > j) scaled[0] += value * value;
      }
      ballast::cuda::add_lanes<32, P.lanes, 1>(scaled);
      if (!plain && !(most == 0)) {
        const double head = down(alpha), length = -copysign(sqrt(head * head + scaled[0]), head);
        tau = (length - head) / length;
        beta = length / down.half / down.rest;
        half = down.half;
        factor = down.rest / (head - length);
      }
    }
    S rounded = static_cast<S>(tau);
    if (group != g) return;
    S v[P.rows];
    for (int r = 0; r < P.rows; ++r) v[r] = static_cast<S>(static_cast<double>(column[r]) * half * factor);
    given.strike(ballast::cuda::index<P.rows>{}, inject::site::qr_reflector, {item, items, j, steps, lane, P.lanes}, v);
    if (lane == 0) {
      strike_one(inject::site::qr_tau, j, steps, &rounded);
      send(&own.tau[j], rounded);
    }
    for (int r = 0; r < P.rows; ++r) {
      const int row = row_of(r);
      send(&to[row], row > j ? v[r] : row == j ? S(1) : S(0));
      column[r] = row > j ? v[r] : row == j ? static_cast<S>(beta) : column[r];
    }
  }

  // ---------------------------------------------------------------- The checks. Sums are in double.

  // sum_q ← Σ_j w_qj 2^−e_j x_j over all columns from another reading of the input, e_j its exponent; norm_q: ‖(w_qj 2^−e_j x_j)_j‖_F.
  // By the readers, of block 0, before the tile takes their registers.
  __device__ __forceinline__ void encode(const S* from, std::int64_t down, std::int64_t across, int rows, int columns, int first,
                                         bool identity) {
    constexpr int together = 32 / shape::span;  // columns that a warp has at a time
    const int reader = thread / 32, l = thread % 32;
    if (rank == 0) {
      for (int e = thread; e < k_certificates * columns; e += shape::team) {
        const int q = e / columns, j = e % columns;
        own.weight[q][j] = random_signed(k_batch_stream + static_cast<std::uint64_t>(q),
                                         static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(j));
      }
      block_barrier<P>();  // the weights are there
    }
    if (rank == 0 && reader < shape::readers) {
      double sums[k_certificates][shape::of_lane] = {}, squares[k_certificates] = {};
      int odd = 0;
      for (int begin = reader * together; begin < columns; begin += shape::readers * together) {
        const int j = begin + l / shape::span;
        double a[shape::of_lane], most = 0;
        for (int i = 0; i < shape::of_lane; ++i) {
          const int row = l % shape::span + 32 * i;
          a[i] = 0;
          if (row < rows && j < columns)
            a[i] = identity ? static_cast<double>(row == first + j) : static_cast<double>(from[row * down + j * across]);
          most = larger_of(most, fabs(a[i]));
        }
        for (int distance = 1; distance < shape::span; distance *= 2) most = larger_of(most, __shfl_xor_sync(0xffffffffu, most, distance));
        const bool finite = most <= abft::k_largest<S>;
        odd |= finite ? 0 : 1;
        const int e = most > 0 && finite ? exponent_of(most) : 0;
        if (l % shape::span == 0 && j < columns) own.exponent[j] = e;
        const binary_scale scale(-e);
        for (int i = 0; i < shape::of_lane; ++i) {
          const double value = scale(a[i]);
          for (int q = 0; q < k_certificates; ++q) {
            const double term = j < columns ? own.weight[q][j] * value : 0;
            sums[q][i] += term;
            squares[q] += term * term;
          }
        }
      }
      // Columns that other lanes had.
      for (int distance = shape::span; distance < 32; distance *= 2) {
        for (int q = 0; q < k_certificates; ++q) sums[q][0] += __shfl_xor_sync(0xffffffffu, sums[q][0], distance);
        odd |= __shfl_xor_sync(0xffffffffu, odd, distance);
      }
      ballast::cuda::add_lanes<32, 32, 1>(squares);
      for (int q = 0; q < k_certificates; ++q) {
        for (int i = 0; i < shape::of_lane; ++i) {
          if (l + 32 * i < shape::height) own.partial[reader][q][l + 32 * i] = sums[q][i];
        }
        if (l == 0) own.norm[reader][q] = squares[q];
      }
      if (l == 0) own.odd[reader] = odd;
    }
    team_barrier<P>();  // partial sums and exponents are there
    if (verifies()) {
      for (int q = 0; q < k_certificates; ++q) {
        for (int row = thread; row < shape::height; row += 32) {
          double sum = 0;
          for (int r = 0; r < shape::readers; ++r) sum += own.partial[r][q][row];
          own.sum[q][row] = sum;
        }
      }
      for (int row = thread; row < shape::height; row += 32) {
        given.strike(ballast::cuda::index<1>{}, inject::site::qr_checksum, {item, items, 0, 1, row, shape::height}, &own.sum[0][row]);
      }
    }
  }

  // What the warp that verifies keeps, the same in all lanes behind finish().
  struct seen {
    double reflectors = 0;   // max |τ‖v‖² − 2|
    std::uint64_t hash = 0;  // of all numbers that will be stored
    bool odd = false;        // Inf or NaN in what went in
  };

  // sum_q ← H sum_q, v(row) being the elements of v; returns ‖v‖². Few registers: the tile has the others. Of up to 16 rows lanes share the
  // sums: some have sum_0, some sum_1, of 8 rows others v itself.
  template <class Elements>
  __device__ __forceinline__ double reflect_sums(Elements&& v, double tau) const {
    if constexpr (shape::span < 32) {
      static_assert(k_certificates == 2);
      constexpr bool apart = shape::span == 8;
      const int row = thread % shape::span, q = thread / shape::span;
      __syncwarp();  // the sums are there
      const double here = v(row), square = here * here;
      double dot[apart ? 1 : 2] = {apart && q >= k_certificates ? square : here * own.sum[q % k_certificates][row]};
      if constexpr (!apart) dot[1] = square;
      ballast::cuda::add_lanes<32, shape::span, 1>(dot);
      if (tau != 0 && q < k_certificates) own.sum[q][row] -= tau * dot[0] * here;
      const double squares = apart ? __shfl_sync(0xffffffffu, dot[0], k_certificates * shape::span) : dot[apart ? 0 : 1];
      __syncwarp();  // the sums are there
      return squares;
    } else {
      double dot[k_certificates + 1] = {};
#pragma unroll 2
      for (int row = thread; row < shape::height; row += 32) {
        const double here = v(row);
        for (int q = 0; q < k_certificates; ++q) dot[q] += here * own.sum[q][row];
        dot[k_certificates] += here * here;
      }
      ballast::cuda::add_lanes<32, 32, 1>(dot);
      if (tau != 0) {
#pragma unroll 2
        for (int row = thread; row < shape::height; row += 32) {
          const double here = v(row);
          for (int q = 0; q < k_certificates; ++q) own.sum[q][row] -= tau * dot[q] * here;
        }
      }
      return dot[k_certificates];
    }
  }

  // ‖sum_q‖ against the norms: the certificate that is the worse for its norm.
  __device__ __forceinline__ abft::finding judge_sums(int m, int columns, const seen& found, int repeats) const {
    double squares[k_certificates] = {}, before[k_certificates] = {};
    for (int row = thread; row < m; row += 32) {
      for (int q = 0; q < k_certificates; ++q) {
        squares[q] += own.sum[q][row] * own.sum[q][row];
        double sum = 0;
        for (int r = 0; r < shape::readers; ++r) sum += own.partial[r][q][row];
        before[q] += sum * sum;
      }
    }
    ballast::cuda::add_lanes<32, 32, 1>(squares, before[0], before[1]);
    double residual = 0, norm = 0;
    for (int q = 0; q < k_certificates; ++q) {
      double all = 0;
      for (int r = 0; r < shape::readers; ++r) all += own.norm[r][q];
      const double size = sqrt(all) + sqrt(before[q]), found_here = sqrt(squares[q]);
      if (q == 0 || !(found_here * norm <= residual * size)) {
        residual = found_here;
        norm = size;
      }
    }
    return judge(residual, abft::qr_residual_thresholds<S>(norm, m, columns), found, repeats);
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
    if (thread == 0) strike_one(inject::site::qr_threshold, step, 1, &limit.value);
    now.word = abft::verify(residual, limit);
    if (thread == 0) strike_one(inject::site::qr_comparison, step, 1, &now.word);
    return now;
  }

  __device__ __forceinline__ bool any_odd() const {
    bool odd = false;
    for (int r = 0; r < shape::readers; ++r) odd |= own.odd[r] != 0;
    return odd;
  }

  // The tile as it lies in registers now, to be compared with what was verified.
  __device__ __forceinline__ void hash_tile(int m, int columns) const {
    std::uint64_t sum = 0;
    for (int c = 0; c < P.columns; ++c) {
      for (int r = 0; r < P.rows; ++r) {
        const int row = row_of(r), column = column_of(c);
        if (row < m && column < columns)
          sum += ballast::cuda::value_hash(x[c][r], static_cast<std::uint64_t>(row + column * shape::height));
      }
    }
    sum = add_hash(sum);
    if (thread % 32 == 0) send_first(&own.hash[rank][thread / 32], sum);
  }
  static __device__ __forceinline__ std::uint64_t add_hash(std::uint64_t sum) {
    for (int distance = 1; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  }
  // A register that changed since its number was verified: the computation is none.
  __device__ __forceinline__ void compare_hash(std::uint64_t verified, abft::finding& now) const {
    std::uint64_t sum = 0;
    for (int b = 0; b < P.blocks; ++b) {
      for (int w = 0; w < shape::warps; ++w) sum += own.hash[b][w];
    }
    if (sum == verified) return;
    now.word = abft::k_fail;
    now.judged = true;
    now.residual = now.threshold = 0;  // a comparison of bits
  }

  // Judges the computation, writes the event. The outcome is in `how` of all blocks behind the next barrier.
  __device__ __forceinline__ void settle(const abft::finding& now, ballast::cuda::event_ring* events, std::int64_t matrix,
                                         int check) const {
    if (thread != 0) return;
    abft::attempts& state = own.state;
    const abft::outcome how = state.judge(now);
    ballast::cuda::write_outcome(given, *events, how, state.first(), matrix, 0, static_cast<std::uint32_t>(check));
    if (how == abft::outcome::recomputed && state.false_alarm()) ballast::cuda::count(events->false_alarms);
    send(&own.how, static_cast<int>(how));
  }
};

// A = QR in LAPACK's storage. One team for each matrix.
template <class S, batch_policy P, class Injector>
__global__ void __launch_bounds__(batch_shape<P>::threads, P.resident)
    batch_factor_kernel(const __grid_constant__ ballast::cuda::kernel_launch<batch_factor_arguments<S>, Injector> given) {
  using shape = batch_shape<P>;
  const batch_factor_arguments<S>& a = given.arguments;
  const int place = static_cast<int>(threadIdx.x) / shape::team;
  const std::int64_t matrix = static_cast<std::int64_t>(blockIdx.x) / P.blocks * P.matrices + place;
  if (matrix >= a.count) return;
  auto& own = reinterpret_cast<batch_memory<S, P>*>(arch::shared_memory())[place];
  batch_team<S, P, ballast::cuda::kernel_launch<batch_factor_arguments<S>, Injector>> team(given, own, matrix, a.count);
  S* const A = a.A.data + matrix * a.A.stride;
  const std::int64_t down = a.A.row_stride, across = a.A.column_stride;
  const int m = a.m, n = a.n, steps = m < n ? m : n;
  if (team.verifies() && team.thread == 0) own.state = abft::attempts(a.repeats);
  if constexpr (P.blocks > 1) team_barrier<P>();  // the blocks that are sent to are there
  for (;;) {
    if (a.repeats >= 0) team.encode(A, down, across, m, n, 0, false);
    team.load(A, down, across, m, n, 0, false);
    team.strike_tile(inject::site::qr_panel, 0, 1);
    int turn = 0;
    ballast::cuda::unrolled<P.columns>([&](auto at) {
      constexpr int c = decltype(at)::value;
      for (int s = 0; s < P.groups * P.blocks; ++s) {
        const int j = c * P.groups * P.blocks + s, g = s % P.groups;
        if (j >= steps) break;
        if (team.rank == s / P.groups && team.thread / 32 == g * P.lanes / 32) team.make_reflector(team.x[c], g, j, steps, own.v[turn]);
        team_barrier<P>();  // the reflector is there; the one before it, in the other half of v, has been read
        team.template reflect<c>(own.v[turn], own.tau[j], j, j, steps);
        team.strike_tile(inject::site::qr_trailing, j, steps);
        turn ^= 1;
      }
    });
    if (a.repeats < 0) {
      team.strike_tile(inject::site::qr_r, 0, 1);
      team_barrier<P>();  // tau and the shifts are there
      break;
    }
    typename decltype(team)::seen found;
    ballast::cuda::unrolled<P.columns>([&](auto at) {
      constexpr int c = decltype(at)::value;
      for (int b = 0; b < P.blocks; ++b) {
        const int first = (c * P.blocks + b) * P.groups;
        if (first >= n) break;
        if (team.rank == b) team.publish(team.x[c]);
        team_barrier<P>();  // the strip is there
        if (team.verifies()) {
          for (int j = first; j < n && j < first + P.groups; ++j) {
            const binary_scale scale(-own.exponent[j] - own.shift[j]);
            const S* const stored = own.strip[j - first];
            double w[k_certificates];
            for (int q = 0; q < k_certificates; ++q) w[q] = own.weight[q][j];
            if (j < steps) {
              const double tau = static_cast<double>(own.tau[j]);
              const double squares =
                  team.reflect_sums([&](int row) { return row > j    ? static_cast<double>(stored[row])
                                                          : row == j ? 1.0
                                                                     : 0.0; }, tau);
              if (tau != 0) found.reflectors = larger_of(found.reflectors, fabs(tau * squares - 2));
            }
#pragma unroll 2
            for (int row = team.thread; row < m; row += 32) {
              found.hash += ballast::cuda::value_hash(stored[row], static_cast<std::uint64_t>(row + j * shape::height));
              if (row > j) continue;
              const double value = scale(static_cast<double>(stored[row]));
              for (int q = 0; q < k_certificates; ++q) own.sum[q][row] -= w[q] * value;
            }
          }
        }
        team_barrier<P>();  // the strip has been read
      }
    });
    team.strike_tile(inject::site::qr_r, 0, 1);
    team.hash_tile(m, n);
    team_barrier<P>();  // the hashes are there
    if (team.verifies()) {
      std::uint64_t scalars = 0;  // the hash of tau
      for (int j = team.thread; j < steps; j += 32)
        scalars += ballast::cuda::value_hash(own.tau[j], static_cast<std::uint64_t>(j) + (1u << 20));
      const std::uint64_t tile = team.add_hash(found.hash);
      found.hash = tile + team.add_hash(scalars);
      found.odd = team.any_odd();
      abft::finding now = team.judge_sums(m, n, found, a.repeats);
      int check = 0;
      const double limit = abft::qr_reflector_threshold<S>(m);
      if (now.judged && now.word == abft::k_pass && !(found.reflectors <= limit)) {
        check = 1;
        now.word = abft::k_fail;
        now.residual = found.reflectors;
        now.threshold = limit;
      }
      team.compare_hash(tile, now);
      team.settle(now, a.events, matrix, check);
    }
    team_barrier<P>();  // the outcome is there, and the memory may be used again
    if (own.how != static_cast<int>(abft::outcome::open)) break;
  }
  if (a.repeats < 0 || a.stores || abft::stands(static_cast<abft::outcome>(own.how))) {
    for (int c = 0; c < P.columns; ++c) {
      const int column = team.column_of(c);
      if (column >= n) continue;
      const int shift = own.shift[column];
      const binary_scale back(-shift);
      for (int r = 0; r < P.rows; ++r) {
        const int row = team.row_of(r);
        const bool upper = row <= column && shift != 0;
        if (row < m) A[row * down + column * across] = upper ? static_cast<S>(back(static_cast<double>(team.x[c][r]))) : team.x[c][r];
      }
    }
    if (team.rank == 0) {
      for (int j = team.thread; j < steps; j += shape::team) a.tau[matrix * steps + j] = own.tau[j];
    }
  }
  if constexpr (P.blocks > 1) team_barrier<P>();  // nobody leaves whom others still send to
}

// X ← op(Q) X (Solves false), or X ← T⁻¹ X with a triangular T. A team has up to `width` columns of one matrix.
template <class S, batch_policy P, bool Solves, class Injector>
__global__ void __launch_bounds__(batch_shape<P>::threads, P.resident)
    batch_apply_kernel(const __grid_constant__ ballast::cuda::kernel_launch<batch_apply_arguments<S>, Injector> given) {
  using shape = batch_shape<P>;
  const batch_apply_arguments<S>& a = given.arguments;
  const int place = static_cast<int>(threadIdx.x) / shape::team;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * P.matrices + place;
  if (item >= a.count * a.chunks) return;
  const std::int64_t matrix = item / a.chunks;
  const int first_column = static_cast<int>(item % a.chunks) * shape::width;
  auto& own = reinterpret_cast<batch_memory<S, P>*>(arch::shared_memory())[place];
  batch_team<S, P, ballast::cuda::kernel_launch<batch_apply_arguments<S>, Injector>> team(given, own, item, a.count * a.chunks);
  const S* const V = a.V.data + matrix * a.V.stride;
  const S* const tau = a.tau == nullptr ? nullptr : a.tau + matrix * a.reflectors;
  const S* const from = a.identity ? nullptr : a.from.data + matrix * a.from.stride + first_column * a.from.column_stride;
  S* const X = a.X.data + matrix * a.X.stride + first_column * a.X.column_stride;
  const int m = a.m, k = a.reflectors, columns = a.n - first_column < shape::width ? a.n - first_column : shape::width;
  if (team.verifies() && team.thread == 0) own.state = abft::attempts(a.repeats);
  // Column j of the reflectors or of T in row i, without its diagonal.
  const auto element = [&](int i, int j) {
    const bool inside = i < m && (!Solves || a.ascending ? i > j : i < j);
    return inside ? V[i * a.V.row_stride + j * a.V.column_stride] : S(0);
  };
  for (;;) {
    if (a.repeats >= 0) team.encode(from, a.from.row_stride, a.from.column_stride, a.given, columns, first_column, a.identity);
    team.load(from, a.from.row_stride, a.from.column_stride, a.given, columns, first_column, a.identity);
    team.strike_tile(inject::site::qr_q, 0, 2);
    for (int s = 0; s < k; s += shape::strip) {
      const int count = k - s < shape::strip ? k - s : shape::strip;
      const auto number = [&](int l) { return a.ascending ? s + l : k - 1 - s - l; };
      if (team.group < count) {
        const int j = number(team.group);
        for (int r = 0; r < P.rows; ++r) {
          const int row = team.row_of(r);
          own.strip[team.group][row] = !Solves && row == j ? S(1) : element(row, j);
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
          team.template reflect<0>(own.strip[l], own.tau[l], -1, s + l, k);
        } else {
          S v[P.rows], unit[P.rows], value[P.columns] = {};
          for (int r = 0; r < P.rows; ++r) {
            const int row = team.row_of(r);
            v[r] = own.strip[l][row];
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
    if (a.repeats < 0) {
      team_barrier<P>();  // the shifts are there
      break;
    }
    typename decltype(team)::seen found;
    if (team.verifies()) {
      found.odd = team.any_odd();
      if constexpr (Solves) {
        for (int row = team.thread; row < shape::height; row += 32) own.more[0][row] = own.more[1][row] = own.size[row] = 0;
      } else {
        // V and tau are loaded again.
        for (int s = 0; s < k; ++s) {
          const int j = a.ascending ? s : k - 1 - s;
          const double factor = static_cast<double>(tau[j]);
          const double squares = team.reflect_sums([&](int row) { return row == j ? 1.0 : static_cast<double>(element(row, j)); }, factor);
          found.odd |= !(squares <= abft::k_largest<double>) || !(fabs(factor) <= abft::k_largest<double>);
        }
      }
    }
    ballast::cuda::unrolled<P.columns>([&](auto at) {
      constexpr int c = decltype(at)::value;
      const int first = c * P.groups;
      if (first >= columns) return;
      team.publish(team.x[c]);
      team_barrier<P>();  // the strip is there
      if (team.verifies()) {
        for (int j = first; j < columns && j < first + P.groups; ++j) {
          const binary_scale scale(-own.exponent[j] - own.shift[j]);
          double w[k_certificates];
          for (int q = 0; q < k_certificates; ++q) w[q] = own.weight[q][j];
#pragma unroll 2
          for (int row = team.thread; row < m; row += 32) {
            const S stored = own.strip[j - first][row];
            found.hash += ballast::cuda::value_hash(stored, static_cast<std::uint64_t>(row + j * shape::height));
            const double value = scale(static_cast<double>(stored));
            if constexpr (Solves) {
              for (int q = 0; q < k_certificates; ++q) own.more[q][row] += w[q] * value;
              own.size[row] += 2 * fabs(value);
            } else {
              for (int q = 0; q < k_certificates; ++q) own.sum[q][row] -= w[q] * value;
            }
          }
        }
      }
      team_barrier<P>();  // the strip has been read
    });
    team.hash_tile(m, columns);
    team_barrier<P>();  // the hashes are there
    if (team.verifies()) {
      found.hash = team.add_hash(found.hash);
      int odd = found.odd ? 1 : 0;
      for (int distance = 1; distance < 32; distance *= 2) odd |= __shfl_xor_sync(0xffffffffu, odd, distance);
      found.odd = odd != 0;
      if constexpr (Solves) {
        // T (Xw) against Bw, row by row; T is loaded again.
        __syncwarp();
        double worst = 0, limit = 1;
        for (int row = team.thread; row < m; row += 32) {
          double rest[k_certificates] = {own.sum[0][row], own.sum[1][row]};
          double size = 0, sizes = 0;
          for (int j = 0; j < k; ++j) {
            const S diagonal = V[j * (a.V.row_stride + a.V.column_stride)];
            const double t = static_cast<double>(row == j ? diagonal : element(row, j));
            for (int q = 0; q < k_certificates; ++q) rest[q] -= t * own.more[q][j];
            size += fabs(t) * own.size[j];
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
        for (int distance = 1; distance < 32; distance *= 2) {
          const double other = __shfl_xor_sync(0xffffffffu, worst, distance), bound = __shfl_xor_sync(0xffffffffu, limit, distance);
          if (!(other * limit <= worst * bound)) {
            worst = other;
            limit = bound;
          }
        }
        // A number beyond the range in T, in x or between them: the same bits again are what the data say.
        found.odd |= !(worst <= abft::k_largest<double>) || !(limit <= abft::k_largest<double>);
        abft::finding now = team.judge(worst, {limit, limit}, found, a.repeats);
        team.compare_hash(found.hash, now);
        team.settle(now, a.events, matrix, 3);
      } else {
        abft::finding now = team.judge_sums(m, columns, found, a.repeats);
        team.compare_hash(found.hash, now);
        team.settle(now, a.events, matrix, 2);
      }
    }
    team_barrier<P>();  // the outcome is there, and the memory may be used again
    if (own.how != static_cast<int>(abft::outcome::open)) break;
  }
  if (a.repeats >= 0 && !a.stores && !abft::stands(static_cast<abft::outcome>(own.how))) return;
  for (int c = 0; c < P.columns; ++c) {
    const int column = team.column_of(c);
    if (column >= columns) continue;
    const int shift = own.shift[column];
    const binary_scale back(-shift);
    for (int r = 0; r < P.rows; ++r) {
      const int row = team.row_of(r);
      if (row >= m) continue;
      X[row * a.X.row_stride + column * a.X.column_stride] =
          shift != 0 ? static_cast<S>(back(static_cast<double>(team.x[c][r]))) : team.x[c][r];
    }
  }
}

}  // namespace ballast::qr::cuda
