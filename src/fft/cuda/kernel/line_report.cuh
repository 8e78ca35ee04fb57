// The rare cases of a line: a second judgement, and the report of an event.
// Layer: fft/cuda kernels; a part of line.cuh.
// These functions are not inlined into the code of a tile, and take no pointer to it, which would force its registers into memory.
#pragma once

#include <cstdint>

#include "abft/attempt.hpp"
#include "abft/verify.hpp"
#include "cuda/block/bits.cuh"
#include "cuda/block/complex.cuh"
#include "cuda/block/event_writer.cuh"
#include "cuda/block/launch.cuh"
#include "fft/cuda/policy/policy.hpp"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::bits;
using ballast::cuda::complex;
using ballast::cuda::index;

template <class Injector>
using line_launch = ballast::cuda::kernel_launch<line_arguments, Injector>;

// The shared state of a line while its tile is recomputed; in shared memory. The first lane that fails the line writes it, later the lane
// that judges the line. Until a lane fails the line, only `word` and `settled` are defined: k_pass and k_ready.
struct line_record {
  std::uint64_t hash;      // hash of the outputs of this computation
  std::uint64_t previous;  // hash of the previous computation
  double residual;         // residual of the first check that failed
  double threshold;        // squared threshold of that check
  double careful_square;   // ‖x‖² · norm_scale²
  double norm_scale;       // double data: elements are multiplied by it before they are squared
  double unscale;          // 1 / norm_scale
  std::uint32_t word;      // k_pass: the line may be stored
  std::uint32_t detected;  // not 0: a check has failed, and it counts as a failure
  std::uint32_t settled;   // 0: still to be judged; otherwise k_judged, k_ready or k_settled
  std::uint32_t same;      // not 0: the line passed with the same bits with which it failed before, so the check was struck
};
static_assert(sizeof(line_record) <= k_record_bytes);
inline constexpr std::uint32_t k_judged = 1;   // `word` is final, but a good line must repeat with the same bits
inline constexpr std::uint32_t k_ready = 2;    // it has repeated: store it now
inline constexpr std::uint32_t k_settled = 3;  // it is stored

// One line, identified for events and injection.
template <class Injector>
struct line_report {
  const line_launch<Injector>& launch;
  std::int64_t tile;
  int lines;            // lines of a tile
  int line;             // index in the tile
  std::int64_t number;  // number of the line in its pass

  template <int Count, class T>
  __device__ __forceinline__ void strike(index<Count> count, inject::site where, T* data) const {
    const line_arguments& a = launch.arguments;
    launch.strike(count, where, inject::device_position{a.first_tile + tile, a.all_tiles, a.pass, a.passes, line, lines}, data);
  }

  __device__ void report_event(double residual, double threshold, event_check check, event_action action) const {
    const line_arguments& a = launch.arguments;
    ballast::cuda::write_event(launch, *a.events, action, [&](device_event& e) {
      e.index = number + a.first_tile / a.tiles * (a.columns * a.middles * a.batches);
      e.residual = residual;
      e.threshold = threshold;
      e.what = ballast::cuda::event_word(static_cast<std::uint32_t>(a.part), static_cast<std::uint32_t>(check), action);
      e.chunk = static_cast<std::uint32_t>(a.chunk);
    });
  }

  __device__ __forceinline__ void report_false_alarm() const { ballast::cuda::count(launch.arguments.events->false_alarms); }

  // Judges a line that was computed again; careful_norms has computed its norm. attempt: 1, 2, …
  __device__ __forceinline__ void judge(line_record& r, int attempt, double residual) const {
    const line_arguments& a = launch.arguments;
    if (r.settled != 0) return;
    // Compares squares, like the first judgement, with every quantity scaled by norm_scale: nothing overflows, and no root or quotient is
    // needed.
    const double scaled = residual * r.norm_scale;
    abft::guarded_threshold tau;
    tau.value = a.slope[0] * a.slope[0] * r.careful_square + a.offset[0] * r.norm_scale * (a.offset[0] * r.norm_scale);
    tau.twin = a.slope[1] * a.slope[1] * r.careful_square + a.offset[1] * r.norm_scale * (a.offset[1] * r.norm_scale);
    strike(index<1>{}, site::threshold, &tau.value);
    std::uint32_t word = abft::verify(scaled * scaled, tau);
    strike(index<1>{}, site::comparison, &word);
    const bool same = r.hash == r.previous;
    // False for NaN and Inf: then the input itself contains them, and only repetition can tell.
    const double limit = a.overflow * r.norm_scale * (a.overflow * r.norm_scale);
    const bool judged = r.careful_square <= limit && r.careful_square <= 1.7976931348623157e308;
    // A good line must repeat with the same bits (run_verified); a line that never repeats is given up in the end.
    const bool good = abft::is_good(judged, word, same) && attempt <= a.repairs + 2;
    if (good) {
      r.word = abft::k_pass;
      r.settled = k_judged;
      r.same = same ? 1 : 0;
      if (r.detected != 0) {
        if (a.repairs == 0) {  // detect only: a fault was seen, so this result cannot be trusted
          r.word = abft::k_fail;
          report_event(r.residual, r.threshold, event_check::line, event_action::uncorrectable);
        }
      } else {  // for the event if it does not repeat
        r.residual = residual;
        r.threshold = tau.value * r.unscale * r.unscale;
      }
      return;
    }
    // The first computation does not count as a failure if no checksum can judge its data.
    if (r.detected == 0 && (judged || attempt > 1)) {
      r.detected = 1;
      r.residual = residual;
      r.threshold = tau.value * r.unscale * r.unscale;
    }
    if (abft::is_last(attempt - 1, a.repairs, r.detected != 0)) {
      r.settled = k_judged;
      r.word = abft::k_fail;
      report_event(r.residual, r.threshold, event_check::line, event_action::uncorrectable);
    }
  }

  // Decides between two evaluations of one product, with a factor and with its second copy, that differ in their bits. The third evaluation
  // decides. Reports an event, unless only the payload of a NaN differs.
  template <class T>
  __device__ __forceinline__ complex<T> settle_product(complex<T> once, complex<T> twice, complex<T> third) const {
    const auto same = [](const complex<T>& x, const complex<T>& y) {
      const auto equal = [](T p, T q) { return bits(p) == bits(q) || (p != p && q != q); };
      return equal(x.re, y.re) && equal(x.im, y.im);
    };
    if (same(once, twice)) return once;
    const double residual = fabs(static_cast<double>(once.re) - static_cast<double>(twice.re)) +
                            fabs(static_cast<double>(once.im) - static_cast<double>(twice.im));
    const bool settled = (same(third, once) || same(third, twice)) && launch.arguments.repairs > 0;
    report_event(residual, 0, event_check::product, settled ? event_action::recomputed : event_action::uncorrectable);
    if (settled && same(third, once)) report_false_alarm();
    return third;
  }
};

// The entry points for a tile. They take scalars by value, which are passed in registers.

template <class Injector>
__device__ __noinline__ void judge_again(const line_launch<Injector>& launch, line_record& r, std::int64_t tile, int lines, int line,
                                         std::int64_t number, int attempt, double residual) {
  line_report<Injector>{launch, tile, lines, line, number}.judge(r, attempt, residual);
}

// Reports a line that was computed again and may be stored.
template <class Injector>
__device__ __noinline__ void report_line(const line_launch<Injector>& launch, const line_record& r, std::int64_t tile, int lines, int line,
                                         std::int64_t number) {
  const line_report<Injector> to{launch, tile, lines, line, number};
  to.report_event(r.residual, r.threshold, event_check::line, event_action::recomputed);
  if (r.same != 0) to.report_false_alarm();
}

template <class Injector, class T>
__device__ __noinline__ complex<T> settle_product(const line_launch<Injector>& launch, std::int64_t tile, int lines, int line,
                                                  std::int64_t number, complex<T> once, complex<T> twice, complex<T> third) {
  return line_report<Injector>{launch, tile, lines, line, number}.settle_product(once, twice, third);
}

// Reports a whole line whose check from end to end has failed. `line`: a line of its last pass.
template <class Injector>
__device__ __noinline__ void report_whole_line(const line_launch<Injector>& launch, std::int64_t tile, std::int64_t line, double residual,
                                               double threshold) {
  const line_report<Injector> to{launch, tile, 1, 0, line};
  to.report_event(residual, threshold, event_check::whole_line,
                  launch.arguments.repairs > 0 ? event_action::recomputed : event_action::uncorrectable);
}

template <class Injector>
__device__ __noinline__ void report_butterfly(const line_launch<Injector>& launch, std::int64_t tile, int lines, int line,
                                              std::int64_t number, double residual, double threshold, event_action action,
                                              bool false_alarm) {
  const line_report<Injector> to{launch, tile, lines, line, number};
  to.report_event(residual, threshold, event_check::butterfly, action);
  if (false_alarm) to.report_false_alarm();
}

}  // namespace ballast::fft::cuda
