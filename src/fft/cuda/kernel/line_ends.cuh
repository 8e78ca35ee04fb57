// The check of a line of two or three passes from end to end: the first pass sums its inputs, the last one its outputs, each tile into
// memory. The tile of the last pass that is done last adds up the sums of the whole line and judges them. Results are stored before that;
// repair.cuh computes the lines again that fail.
// Layer: fft/cuda kernels; a part of line.cuh, next to line_verify.cuh.
// Source: docs/design/fft-cuda.md, "From end to end".
#pragma once

#include <cstdint>

#include "abft/verify.hpp"
#include "cuda/block/sums.cuh"
#include "cuda/block/twice.cuh"
#include "fft/cuda/kernel/line_transform.cuh"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

// Returns the verdict of a word that is kept twice.
__device__ __forceinline__ bool is_settled(const whole_line_record& r, std::uint32_t as) {
  const volatile whole_line_record& now = r;
  return now.state == as && now.twin == as;
}

template <line_policy P, class Injector>
struct line_ends : line_transform<P, Injector> {
  using below = line_transform<P, Injector>;
  using below::a;
  using below::encoded;
  using below::finish;
  using below::first_column;
  using below::larger_residual;
  using below::launch;
  using below::line_of;
  using below::load;
  using below::number_of;
  using below::partials;
  using below::square;
  using below::store;
  using below::strike;
  using below::tile;
  using below::transform;
  using below::valid;
  using typename below::number;
  using typename below::real;

  using below::below;

  static_assert(P.cluster == 1 && (!P.begins() || P.stages > 1));
  static constexpr int k_warps = (P.block() + 31) / 32;

  // Returns the number of the whole line of this tile.
  __device__ __forceinline__ std::uint32_t whole_line() const { return tile / a.whole_line.tiles; }

  // Adds four numbers, and a fifth one if Five, over the lanes of each warp, into shared memory: value v of warp w at [w][v].
  template <bool Five, class Value>
  __device__ __forceinline__ void deposit(Value (&value)[4], Value fifth) const {
    Value* const to = reinterpret_cast<Value*>(partials()) + threadIdx.x / 32 * 5;
    const unsigned lane = threadIdx.x % 32;
    if constexpr (P.block() % 32 != 0) {
      ballast::cuda::add_lanes<P.block(), 32, 1>(value, fifth);
      if (lane == 0) {
        for (int v = 0; v < 4; ++v) to[v] = value[v];
        to[4] = fifth;
      }
    } else {
      // Twice, each half of the lanes continues with half of the values; then a quarter of each eight lanes takes the fifth value.
      constexpr unsigned all = 0xffffffffu;
      const bool upper = lane >= 16, odd = lane % 16 >= 8;
      Value half[2];
      for (int v = 0; v < 2; ++v) half[v] = (upper ? value[2 + v] : value[v]) + __shfl_xor_sync(all, upper ? value[v] : value[2 + v], 16);
      Value one = (odd ? half[1] : half[0]) + __shfl_xor_sync(all, odd ? half[0] : half[1], 8);
      if constexpr (Five) {
        fifth += __shfl_xor_sync(all, fifth, 16);
        fifth += __shfl_xor_sync(all, fifth, 8);
        const bool last = lane % 8 >= 4;
        one = (last ? fifth : one) + __shfl_xor_sync(all, last ? one : fifth, 4);
      } else {
        one += __shfl_xor_sync(all, one, 4);
      }
      for (int distance = 2; distance > 0; distance /= 2) one += __shfl_xor_sync(all, one, distance);
      if (lane % 8 == 0) to[lane / 8] = one;
      if (Five && lane == 4) to[4] = one;
    }
  }
  // Adds the sums of the warps. Call it after a barrier.
  template <bool Five, class Value>
  __device__ __forceinline__ void add_warps(Value (&value)[4], Value& fifth) const {
    const Value* const from = reinterpret_cast<const Value*>(partials());
    for (int v = 0; v < 4; ++v) value[v] = 0;
    fifth = 0;
#pragma unroll 1
    for (int w = 0; w < k_warps; ++w) {
      for (int v = 0; v < 4; ++v) value[v] += from[5 * w + v];
      if constexpr (Five) fifth += from[5 * w + 4];
    }
  }
  // Writes the four sums of this tile.
  __device__ __forceinline__ void write_sums(void* to, real (&value)[4]) const {
    strike(index<4>{}, site::checksum, a.pass, a.passes, value, 0, 1);
    number* const at = static_cast<number*>(to) + std::size_t{2} * tile;
    arch::store_keep(at, number{value[0], value[1]});
    arch::store_keep(at + 1, number{value[2], value[3]});
  }

  __device__ __forceinline__ void run_first() {
    load();
    // Lines beyond the last one have loaded zeros. If the sums leave the registers at once, 2^18 points of f32 spill no more; with a first
    // radix of 16 they spill then.
    constexpr bool early = P.radix[0] <= 8;
    this->template stage<0>([&] {
      if constexpr (early) deposit<true>(encoded, square);
    });
    if constexpr (!early) deposit<true>(encoded, square);
    real outputs[4];
    finish(outputs);
    if (valid(line_of(P.out_columns))) store();
    __syncthreads();
    if (threadIdx.x == 0) {
      real sum[4], norm;
      add_warps<true>(sum, norm);
      write_sums(a.whole_line.encoded, sum);
      static_cast<real*>(a.whole_line.squares)[tile] = norm;
      if (tile % a.whole_line.tiles == 0) {
        // Nothing that an earlier call left may pass for a verdict.
        whole_line_record& r = a.whole_line.records[whole_line()];
        ballast::cuda::reset_counter(&r.state);
        ballast::cuda::reset_counter(&r.twin);
        ballast::cuda::reset_counter(&r.arrived);
        ballast::cuda::reset_counter(&r.changed);
      }
    }
  }

  __device__ __forceinline__ void run_last() {
    real sum[4];
    load();
    transform();
    finish(sum);
    const int line = line_of(P.out_columns);
    if (valid(line)) {
      // In two passes the middle is the whole line, in three it is k₂.
      const std::uint32_t row = tile % a.whole_line.tiles / static_cast<std::uint32_t>(a.column_tiles);
      const auto at = std::size_t{row} * static_cast<std::size_t>(a.columns) + static_cast<std::size_t>(first_column + line);
      const complex_pair<real> own = cached_pair(static_cast<const real*>(a.whole_line.line_weights) + 4 * at);
      const number first = own.first * number{sum[0], sum[1]};
      const number second = own.second * number{sum[2], sum[3]};
      sum[0] = first.re;
      sum[1] = first.im;
      sum[2] = second.re;
      sum[3] = second.im;
      store();
    } else {
      for (real& each : sum) each = 0;
    }
    deposit<false>(sum, real(0));
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
      real all[4], none;
      add_warps<false>(all, none);
      write_sums(a.whole_line.summed, all);
      last = ballast::cuda::arrives_last(&a.whole_line.records[whole_line()].arrived, a.whole_line.tiles);
    }
    if (__syncthreads_or(last) != 0) judge();
  }

  // Adds the sums of all tiles of the whole line and judges them: every thread by itself, and the line passes if none of them fails it.
  __device__ __forceinline__ void judge() const {
    const std::uint32_t whole = whole_line();
    const end_to_end_arguments& e = a.whole_line;
    double value[4] = {};
    double norm = 0;
    const auto add = [&](const void* from, std::uint32_t tiles, double scale) {
      const number* const at = static_cast<const number*>(from) + std::size_t{2} * whole * tiles;
      for (std::uint32_t i = threadIdx.x; i < tiles; i += P.block()) {
        const number first = arch::load_keep(at + 2 * i);
        const number second = arch::load_keep(at + 2 * i + 1);
        value[0] += scale * static_cast<double>(first.re);
        value[1] += scale * static_cast<double>(first.im);
        value[2] += scale * static_cast<double>(second.re);
        value[3] += scale * static_cast<double>(second.im);
      }
    };
    add(e.encoded, e.first_tiles, P.scaled ? -static_cast<double>(static_cast<real>(a.check_scale)) : -1.0);
    add(e.summed, e.last_tiles, 1.0);
    for (std::uint32_t i = threadIdx.x; i < e.first_tiles; i += P.block())
      norm += static_cast<double>(arch::load_keep(static_cast<const real*>(e.squares) + std::size_t{whole} * e.first_tiles + i));
    deposit<true>(value, norm);
    __syncthreads();
    add_warps<true>(value, norm);
    const auto hit = [&](auto count, inject::site where, auto* data) {
      if (threadIdx.x == 0) launch.strike(count, where, inject::device_position{whole, e.lines, 0, 1, 0, 1}, data);
    };
    hit(index<4>{}, site::checksum, value);
    const double residual = larger_residual(value);
    abft::guarded_threshold tau = this->squared_threshold(norm);
    hit(index<1>{}, site::threshold, &tau.value);
    std::uint32_t word = abft::verify(residual * residual, tau);
    hit(index<1>{}, site::comparison, &word);
    const bool judged = (norm >= below::k_tiny_square && norm <= below::k_huge_square) || (norm == 0 && residual == 0);
    const bool failed = __syncthreads_or(judged && word != abft::k_pass) != 0;
    const bool open = __syncthreads_or(!judged) != 0;
    const std::uint32_t state = failed ? abft::k_fail : open ? k_unjudged : word;
    volatile whole_line_record& r = e.records[whole];
    if (threadIdx.x == 0) r.state = state;
    if (threadIdx.x == P.block() - 1) r.twin = state;
    if (failed && threadIdx.x == 0) report_whole_line<Injector>(launch, tile, number_of(0), residual, tau.value);
  }

  __device__ __forceinline__ void run() {
    if constexpr (P.begins()) {
      run_first();
    } else {
      run_last();
    }
  }
};

}  // namespace ballast::fft::cuda
