// A team and the check of its tile: sums from separate loads of the input, to which the reflectors are applied alongside the tile, and
// their comparison with the tile before it is stored. Sums are in double.
// Layer: backend "cuda" of QR, device code. docs/design/qr-cuda-batches.md, describes the checks.
#pragma once

#include <cmath>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "abft/threshold.hpp"
#include "qr/cuda/batch/batch_tile.cuh"
#include "qr/cuda/batch/batch_verdict.cuh"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

template <class S, batch_policy P, class Launch>
struct batch_team : batch_tile<S, P, Launch> {
  using tile = batch_tile<S, P, Launch>;
  using tile::any, tile::checker, tile::column_of, tile::load, tile::new_phase, tile::row_of, tile::send;
  using tile::given, tile::own, tile::weights, tile::item, tile::items, tile::thread, tile::lane, tile::group, tile::rank, tile::x;
  using tile::send_first, tile::strike_one, tile::verifies;
  using typename tile::real, typename tile::shape;
  using wide = wide_of<S>;

  using tile::batch_tile;

  // sum_q ← Σ_j w_qj 2^−e_j x_j over all columns, from another reading of the input, with e_j the exponent of column j. norm_q: ‖(w_qj
  // 2^−e_j x_j)_j‖_F. Computed by the readers of block 0.
  __device__ __forceinline__ void encode(const S* from, std::int64_t down, std::int64_t across, int rows, int columns, int first,
                                         bool identity, bool conjugated) {
    constexpr int together = shape::checkers / shape::span;  // columns that a warp handles at a time
    const int reader = thread / 32, l = checker();
    if (rank == 0 && reader < shape::readers) {
      wide sums[k_certificates][shape::of_lane] = {};
      double squares[k_certificates] = {};
      int odd = 0;
      constexpr int ahead = 4;  // columns that are loaded together
      // Teams that share a warp may have different numbers of columns.
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
            if (row < rows && j < columns) a[k][i] = identity ? S(row == first + j) : conjugated_if(conjugated, at[row * down]);
          }
        }
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          const int j = column_at(k);
          const column_size most = tile::template size_of<shape::span>(a[k]);
          odd |= most.word >= k_infinite_word ? 1 : 0;
          if (l % shape::span == 0 && j < columns) send(&own.exponent[j], most.exponent);
          const binary_scale scale(-most.exponent);
#pragma unroll
          for (int i = 0; i < shape::of_lane; ++i) {
            const wide value = each_component(widened(a[k][i]), scale);
#pragma unroll
            for (int q = 0; q < k_certificates; ++q) {
              const wide term = j < columns ? weights.of[q][j] * value : 0;
              sums[q][i] += term;
              squares[q] += square_of(term);
            }
          }
        }
      }
      // Adds the columns of other lanes.
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
    team_barrier<P>();  // partial sums and exponents are stored
    if (verifies()) {
      double squares[k_certificates] = {};
      for (int q = 0; q < k_certificates; ++q) {
        for (int row = l; row < shape::height; row += shape::checkers) {
          wide sum = 0;
          for (int r = 0; r < shape::readers; ++r) sum += own.partial[r][q][row];
          own.sum[q][row] = sum;
          squares[q] += square_of(sum);
        }
      }
      ballast::cuda::add_lanes<32, shape::checkers, 1>(squares);
      if (l < k_certificates) own.before[l] = l == 0 ? squares[0] : squares[1];
      for (int row = l; row < shape::height; row += shape::checkers) {
        given.strike(ballast::cuda::index<k_reals<S>>{}, site::checksum, {item, items, 0, 1, row, shape::height},
                     components(&own.sum[0][row]));
      }
    }
  }

  // Returns whether the loop continues: teams that share a warp go through it together, including those that are done.
  __device__ __forceinline__ bool goes_on(bool open) const { return shape::team < 32 ? any(open) : open; }

  // Loads the tile, and computes the sums of the check from separate loads. A small tile is loaded before the sums, so that all loads wait
  // for memory together. `again`: the weights are drawn again, too; the other teams of the block are not affected, since the values are the
  // same.
  template <bool Factors, class... Input>
  __device__ __forceinline__ void read(bool checks, bool again, const Input&... input) {
    if (checks && again) {
      draw(weights, thread, shape::team);
      block_barrier<P>();
    }
    if (shape::cyclic) load(input...);
    if (checks) encode(input...);
    new_phase();
    if (!shape::cyclic) load(input...);
    this->template moderate_columns<Factors>();
  }

  // The findings of the warp that verifies.
  struct seen {
    double reflectors = 0;  // max |τ‖v‖² − 2|, for complex τ max ||τ|²‖v‖² / Re τ − 2|
    // A lane's part of the hash of the reflectors; in the end, of all numbers to store.
    std::uint64_t hash = 0;
    bool odd = false;  // the input holds Inf or NaN
  };

  // sum_q ← (I − τ v vᴴ) sum_q. v(i, row) returns element `row` of v, which is the i-th row of the thread. Returns ‖v‖².
  template <class Elements>
  __device__ __forceinline__ double reflect_sums(Elements&& v, wide tau) const {
    wide dot[k_certificates] = {};
    double squares[1] = {};
    for (int i = 0; i < shape::of_lane; ++i) {
      const int row = checker() + shape::checkers * i;
      const wide here = row < shape::height ? v(i, row) : wide(0);
      for (int q = 0; q < k_certificates; ++q)
        dot[q] = row < shape::height ? plus_conjugate_product(dot[q], here, own.sum[q][row]) : dot[q];
      squares[0] += square_of(here);
    }
    ballast::cuda::add_lanes<32, shape::checkers, 1>(dot, squares[0]);
    if (!(tau == 0)) {
      for (int i = 0; i < shape::of_lane; ++i) {
        const int row = checker() + shape::checkers * i;
        if (row >= shape::height) continue;
        const wide here = v(i, row);
        for (int q = 0; q < k_certificates; ++q) own.sum[q][row] = minus_product(own.sum[q][row], tau * dot[q], here);
      }
    }
    return squares[0];
  }

  // Applies reflector j, as the team reads it, to the sums. It uses only the numbers that will be stored, so that a nonzero element after
  // row m is detected.
  __device__ __forceinline__ void follow(const batch_column<S, P>& v, int j, int m, seen& found) const {
    __syncwarp();  // v is complete, if the warp has computed it itself
    const S scalar = own.tau[j];
    const wide tau = widened(scalar);
    const double squares = reflect_sums([&](int, int row) { return row > j && row < m ? widened(v[row])
                                                                   : row == j         ? wide(1)
                                                                                      : wide(0); },
                                        conjugated_if(true, tau));
    if (!(tau == 0)) found.reflectors = larger_of(found.reflectors, fabs(weight_of(tau) * squares - 2));
    for (int row = checker(); row < m; row += shape::checkers) {
      if (row > j) found.hash += hash_of(v[row], row, j);
    }
    if (checker() == j % shape::checkers) found.hash += hash_of(scalar, j, shape::width);
    __syncwarp();  // v has been read
  }

  // τ, or |τ|² / Re τ: times ‖v‖² it is 2, since I − τ v vᴴ is unitary.
  static __device__ __forceinline__ double weight_of(wide tau) {
    if constexpr (is_complex<S>)
      return square_of(tau) / tau.re;
    else
      return tau;
  }

  static __device__ __forceinline__ std::uint64_t hash_of(S value, int row, int column) {
    return hash_of_number(value, static_cast<std::uint64_t>(row + column * shape::height));
  }

  // rest[first + q][row] of block 0 ← the sum over columns of the terms that `add(c, r, sums)` adds to sums[q] for column c and row r of a
  // thread's tile. A barrier of the team must follow.
  template <int Count, class Add>
  __device__ __forceinline__ void add_columns(int first, Add&& add) {
    constexpr int rounds = (shape::warps + shape::readers - 1) / shape::readers;
    const int warp = thread / 32;
    for (int round = 0; round < rounds; ++round) {
      new_phase();
      if (warp / shape::readers == round) {
        for (int r = 0; r < P.rows; ++r) {
          wide sums[Count] = {};
          for (int c = 0; c < P.columns; ++c) add(c, r, sums);
          ballast::cuda::add_lanes<32, shape::near, P.lanes>(sums);
          if (group % shape::near != 0) continue;
          for (int q = 0; q < Count; ++q) {
            wide& to = own.partial[warp % shape::readers][q][row_of(r)];
            to = round == 0 ? sums[q] : to + sums[q];
          }
        }
      }
      block_barrier<P>();  // the sums of these warps are stored
    }
    for (int e = thread; e < Count * shape::height; e += shape::team) {
      const int q = e / shape::height, row = e % shape::height;
      wide sum = 0;
      for (int r = 0; r < shape::readers; ++r) sum += own.partial[r][q][row];
      send_first(&own.rest[rank][first + q][row], sum);
    }
  }

  // The same for Σ w_j 2^(−e_j) x_j over the columns j with `counts(row, column)`. Before that, it computes the hash of these elements.
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
    __syncwarp();  // the factors of this warp's columns are stored
    add_columns<k_certificates>(0, [&](int c, int r, wide(&sums)[k_certificates]) {
      if (!taken(row_of(r), column_of(c))) return;
      for (int q = 0; q < k_certificates; ++q) sums[q] += own.factor[q][column_of(c)] * widened(x[c][r]);
    });
  }
  // Converts from the tile's units to those of the check: the tile's columns are moderate, so the factor is in range.
  __device__ __forceinline__ double scale_of(int column) const { return power_of_two(-own.exponent[column] - own.shift[column]); }

  // √x, accurate to some units in the last place.
  static __device__ __forceinline__ double root(double x) {
    return x > 0x1p-1000 && x <= abft::k_largest<double> ? x * arch::reciprocal_sqrt(x) : sqrt(x);
  }

  // Compares ‖sum_q‖ with the norms, for the certificate with the largest quotient.
  __device__ __forceinline__ abft::finding judge_sums(int m, const abft::tiers& limits, const seen& found, int repeats) const {
    double squares[k_certificates] = {};
    for (int row = checker(); row < m; row += shape::checkers) {
      for (int q = 0; q < k_certificates; ++q) {
        wide left = own.sum[q][row];
        for (int b = 0; b < P.blocks; ++b) left -= own.rest[b][q][row];
        squares[q] += square_of(left);
      }
    }
    ballast::cuda::add_lanes<32, shape::checkers, 1>(squares);
    const auto norm_of = [&](int q) {
      double all = 0;
      for (int r = 0; r < shape::readers; ++r) all += own.norm[r][q];
      return root(all) + root(own.before[q]);
    };
    abft::worst_comparison worst{0, norm_of(0)};
    for (int q = 0; q < k_certificates; ++q) worst.take(root(squares[q]), norm_of(q));
    return judge(worst.residual, {limits.clean * worst.limit, limits.wrong * worst.limit}, found, repeats);
  }

  // As batch_verdict::judge, for the threads that verify.
  __device__ __forceinline__ abft::finding judge(double residual, const abft::tiers& limits, const seen& found, int repeats) const {
    return batch_verdict<Launch>{given, item, items}.judge(residual, limits, found.hash, found.odd, repeats, checker() == 0);
  }

  __device__ __forceinline__ bool any_odd() const {
    bool odd = false;
    for (int r = 0; r < shape::readers; ++r) odd |= own.odd[r] != 0;
    return odd;
  }

  // Returns the hash of the tile's elements in registers.
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
  // Stores the hash that is compared with the hash of the verified numbers.
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
  // Judges the computation, and writes the event. After the next barrier, `how` of all blocks holds the outcome.
  __device__ __forceinline__ void settle(const abft::finding& now, ballast::cuda::event_ring* events, std::int64_t matrix,
                                         int check) const {
    if (checker() != 0) return;
    const abft::outcome how = batch_verdict<Launch>{given, item, items}.settle(own.state, now, *events, matrix, check);
    send(&own.how, static_cast<int>(how));
  }
};

}  // namespace ballast::qr::cuda
