// The verification of a tile before its store, and the attempts at the tile.
// Layer: fft/cuda kernels; a part of line.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "abft/seal.hpp"
#include "abft/verify.hpp"
#include "cuda/block/sums.cuh"
#include "fft/cuda/kernel/real_line.cuh"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

// The code that computes a tile, from its load to its store.
template <line_policy P, class Injector>
using computation_of = std::conditional_t<P.of_reals(), real_line<P, Injector>, line_transform<P, Injector>>;

template <line_policy P, class Injector>
struct line_tile : computation_of<P, Injector> {
  using below = computation_of<P, Injector>;
  using below::a;
  using below::add_line;
  using below::arrival_parity;
  using below::barrier;
  using below::deposit_encoded;
  using below::encoded;
  using below::finish;
  using below::forget;
  using below::k_summed;
  using below::k_verified;
  using below::larger_residual;
  using below::launch;
  using below::line_of;
  using below::load;
  using below::number_of;
  using below::partials;
  using below::position_of;
  using below::rank;
  using below::shared;
  using below::square;
  using below::store;
  using below::strike;
  using below::tile;
  using below::transform;
  using below::valid;
  using typename below::number;
  using typename below::real;

  using below::below;

  __device__ __forceinline__ line_record* records() const {
    return reinterpret_cast<line_record*>(shared + P.partial_offset() + P.partial_bytes());
  }

  // Returns whether this lane leads: one lane of each line judges it again and reports it. Faults in a check strike this lane.
  __device__ __forceinline__ bool leads() const { return position_of(P.out_columns) == 0 && rank() == 0; }

  // Computes the residual of this thread's line, from both checksums of its outputs and the encoded ones, and its ‖x‖².
  __device__ __forceinline__ void residual_of_line(const real (&sum)[4], real& residual, real& norm) const {
    real value[4];
    if constexpr (P.remaps()) {
      for (int v = 0; v < 4; ++v) value[v] = sum[v];
      norm = 0;
    } else {
      const real scale = P.scaled ? static_cast<real>(a.check_scale) : real(1);
      for (int v = 0; v < 4; ++v) value[v] = multiply_add(-scale, encoded[v], sum[v]);
      norm = square;
    }
    add_line(value, norm);
    if constexpr (Injector::enabled) {
      if (leads()) strike(index<4>{}, site::checksum, a.pass, a.passes, value, line_of(P.out_columns), P.lines);
    }
    residual = larger_residual(value);
  }

  // Initialises the records: a line is good until a lane fails it.
  __device__ __forceinline__ void expect_all() const {
    constexpr bool within = P.within_warp(P.out_columns);
    const int line = within ? line_of(P.out_columns) : static_cast<int>(threadIdx.x);
    if (within ? position_of(P.out_columns) == 0 : line < P.lines) {
      records()[line].word = abft::k_pass;
      records()[line].settled = k_ready;
    }
    if constexpr (within) __syncwarp(warp_mask<P.block()>());
  }

  // Verifies this lane's line; returns false if it fails. All lanes of a line get the same answer, unless one of them is struck.
  __device__ __forceinline__ bool verify_line(real residual_here, real norm_here) const {
    const int line = line_of(P.out_columns);
    const double residual = static_cast<double>(residual_here);
    const double norm_square = static_cast<double>(norm_here);
    // Squares of elements far from 1 overflow or underflow: such a line fails here, and is judged after another computation, with
    // careful_norms.
    constexpr double tiny = below::k_tiny_square;
    constexpr double huge = below::k_huge_square;
    const bool in_range = norm_square >= tiny && norm_square <= huge;  // false for NaN
    abft::guarded_threshold tau = this->squared_threshold(norm_square);
    if constexpr (Injector::enabled) {
      if (leads()) strike(index<1>{}, site::threshold, a.pass, a.passes, &tau.value, line, P.lines);
    }
    std::uint32_t word = abft::verify(residual * residual, tau);
    if (!in_range && !(norm_square == 0 && residual == 0)) word = abft::k_fail;
    if constexpr (Injector::enabled) {
      if (leads()) strike(index<1>{}, site::comparison, a.pass, a.passes, &word, line, P.lines);
    }
    if (word == abft::k_pass || !valid(line)) return true;
    line_record& r = records()[line];
    if (atomicExch(&r.settled, 0u) != 0) {
      line_record seen{};
      seen.word = word;
      seen.detected = in_range ? 1 : 0;
      seen.residual = residual;
      seen.threshold = tau.value;
      seen.norm_scale = !P.wide ? 1.0 : norm_square <= huge ? (norm_square >= tiny ? 1.0 : 0x1p+600) : 0x1p-600;
      seen.unscale = !P.wide ? 1.0 : norm_square <= huge ? (norm_square >= tiny ? 1.0 : 0x1p-600) : 0x1p+600;
      if constexpr (P.cluster > 1) {
        for (unsigned to = 0; to < P.cluster; ++to) {
          arch::store_remote(&r.word, to, seen.word);
          arch::store_remote(&r.detected, to, seen.detected);
          arch::store_remote(&r.residual, to, seen.residual);
          arch::store_remote(&r.threshold, to, seen.threshold);
          arch::store_remote(&r.norm_scale, to, seen.norm_scale);
          arch::store_remote(&r.unscale, to, seen.unscale);
          arch::store_remote(&r.settled, to, seen.settled);
        }
      } else {
        r.word = seen.word;
        r.detected = seen.detected;
        r.residual = seen.residual;
        r.threshold = seen.threshold;
        r.norm_scale = seen.norm_scale;
        r.unscale = seen.unscale;
      }
    }
    return false;
  }

  // Returns whether any lane has failed a line. All lanes get the same answer, because the attempt loop contains barriers.
  __device__ __forceinline__ bool vote(bool open) const {
    if constexpr (P.cluster > 1) {
      __syncwarp();
      arch::cluster_sync();
      return records()->settled == 0;
    } else if constexpr (P.block() <= 32) {
      const bool any = __any_sync(warp_mask<P.block()>(), open) != 0;
      __syncwarp();
      return any;
    } else {
      return __syncthreads_or(open) != 0;
    }
  }

  // Judges the lines that failed, after another computation of the tile.
  __device__ __forceinline__ void judge_repeated(const real (&sum)[4], int attempt) const {
    real residual = 0;
    real norm = 0;
    residual_of_line(sum, residual, norm);
    const int line = line_of(P.out_columns);
    if (leads() && valid(line))
      judge_again<Injector>(launch, records()[line], tile, P.lines, line, number_of(line), attempt, static_cast<double>(residual));
    if constexpr (P.cluster > 1) {
      __syncwarp();
      const line_record& r = records()[0];
      if (rank() == 0 && threadIdx.x > 0 && threadIdx.x < P.cluster) {
        arch::store_remote(&records()->word, threadIdx.x, r.word);
        arch::store_remote(&records()->settled, threadIdx.x, r.settled);
        arch::store_remote(&records()->norm_scale, threadIdx.x, r.norm_scale);
      }
      arch::cluster_sync();
    } else {
      barrier();
    }
  }

  // Adds the values of the threads of a line in thread order, into `member` of the line's record. The case is rare, so one thread adds
  // through the memory of the exchange. Atomics are no option: 64-bit atomics on shared memory compile to loops that lanes leave one by
  // one, and the compiler let lanes run into the next barrier while others were still in the loop (NVRTC 13.0, sm_90a: an illegal
  // instruction).
  template <bool Columns, class Value>
  __device__ __forceinline__ void add_up(Value value, Value line_record::*member) const {
    if constexpr (P.threads == 1) {
      records()[line_of(Columns)].*member = value;
      barrier();
    } else {
      static_assert(P.exchange_bytes() >= static_cast<std::int64_t>(P.block() * sizeof(Value)));
      Value* const all = reinterpret_cast<Value*>(shared);
      barrier();
      all[threadIdx.x] = value;
      barrier();
      for (int line = static_cast<int>(threadIdx.x); line < P.lines; line += P.block()) {
        Value sum = 0;
#pragma unroll 1
        for (int t = 0; t < P.threads; ++t) sum += all[Columns ? t * P.lines + line : line * P.threads + t];
        records()[line].*member = sum;
      }
      barrier();
    }
    if constexpr (P.cluster > 1) {
      static_assert(sizeof(Value) == sizeof(double));
      // Uses the memory of the partial sums, which is free at this point.
      static_assert(P.partial_bytes() >= static_cast<std::int64_t>(P.cluster * sizeof(Value)));
      ballast::cuda::add_cluster<P.cluster>(rank(), reinterpret_cast<Value*>(partials()), records()->*member,
                                            [&](Value sum) { records()->*member = sum; });
    }
  }

  // Computes a hash of the outputs of each line, to compare two computations.
  __device__ __forceinline__ void hash_outputs() {
    barrier();
    for (int line = static_cast<int>(threadIdx.x); line < P.lines; line += P.block()) records()[line].previous = records()[line].hash;
    const std::uint64_t hash = this->hash_of_results();
    barrier();
    add_up<P.out_columns>(hash, &line_record::hash);
  }

  __device__ __forceinline__ void compute(real (&sum)[4]) {
    load();
    transform();
    if constexpr (P.remaps() && k_summed) {
      real in[4];
      for (int v = 0; v < 4; ++v) in[v] = encoded[v];
      deposit_encoded(in, square);
      forget();
    }
    finish(sum);
  }

  // Computes ‖x‖² of every line from its input, scaled such that it neither overflows nor underflows.
  __device__ __forceinline__ void careful_norms() {
    add_up<P.in_columns>(this->squares(records()[line_of(P.in_columns)].norm_scale), &line_record::careful_square);
  }

  // Called after the second of two computations: lines that were judged good and have the same bits are ready to be stored; the others are
  // judged again. Returns whether any line must be judged again.
  __device__ __forceinline__ bool confirm() const {
    const auto decide = [&](int line) {
      line_record& r = records()[line];
      if (r.settled == k_ready) r.settled = k_settled;
      if (r.settled == k_judged) {
        const bool same = r.word != abft::k_pass || r.hash == r.previous;
        r.settled = same ? k_ready : 0;
        if (!same) r.detected = 1;  // one of the two computations was struck, even if both were good
      }
      return r.settled == 0;
    };
    if constexpr (P.cluster > 1) {  // the first block has the hash of the whole line
      if (rank() == 0 && threadIdx.x == 0) {
        (void)decide(0);
        for (unsigned to = 1; to < P.cluster; ++to) arch::store_remote(&records()->settled, to, records()->settled);
      }
      arch::cluster_sync();
      return records()->settled == 0;
    } else {
      bool open = false;
      for (int line = static_cast<int>(threadIdx.x); line < P.lines; line += P.block()) open = (valid(line) && decide(line)) || open;
      return __syncthreads_or(open) != 0;
    }
  }

  // Reports the events of the lines that are stored after another computation.
  __device__ __forceinline__ void report_confirmed() const {
    const int line = line_of(P.out_columns);
    const line_record& r = records()[line];
    if (leads() && valid(line) && r.settled == k_ready && r.word == abft::k_pass && r.detected != 0)
      report_line<Injector>(launch, r, tile, P.lines, line, number_of(line));
  }

  // Computes the tile, verifies its lines and stores them. Stores nothing before all lines are verified, and stores a line only if all its
  // threads found it good. If a line fails, it stores the good lines and then computes the whole tile again, two computations to an
  // attempt: after the first it judges the failed lines (odd step), after the second it stores those that are good and have the same bits
  // again (even step). It needs two, because the judgement takes the registers that hold the outputs. Lines that are already stored are
  // computed again too and ignored. check_form::one_sided stores the first computation before it verifies it.
  __device__ __forceinline__ void run_verified() {
    constexpr bool one_sided = P.check == check_form::one_sided;
    expect_all();
    for (int step = 0;; ++step) {
      real sum[4];
      // Parity of the completed phases of the barrier: a computation takes one phase, or two if exchanges are split.
      if constexpr (P.cluster > 1) arrival_parity = P.split ? 0u : static_cast<unsigned>(step) & 1u;
      compute(sum);
      if (step > 0) hash_outputs();
      if (step % 2 != 0) {
        judge_repeated(sum, (step + 1) / 2);
        continue;
      }
      bool open = false;
      bool mine = false;  // this thread's line is to be stored
      if (step == 0) {
        if constexpr (one_sided) {
          if (valid(line_of(P.out_columns))) store();
        }
        real residual = 0;
        real norm = 0;
        forget();
        residual_of_line(sum, residual, norm);
        open = vote(!verify_line(residual, norm));
        mine = !one_sided && (!open || records()[line_of(P.out_columns)].settled == k_ready);
      } else {
        open = confirm();
        const line_record& r = records()[line_of(P.out_columns)];
        mine = r.settled == k_ready && r.word == abft::k_pass;
      }
      forget();
      if (mine && valid(line_of(P.out_columns))) store();
      if (step == 0) {
        if (!open) return;
        hash_outputs();
      } else {
        report_confirmed();
        if (!open) return;
      }
      barrier();
      careful_norms();
    }
  }

  __device__ __forceinline__ void run() {
    if constexpr (k_verified) {
      run_verified();
    } else {
      real sum[4] = {};
      load();
      transform();
      finish(sum);
      if (valid(line_of(P.out_columns))) store();
    }
  }
};

}  // namespace ballast::fft::cuda
