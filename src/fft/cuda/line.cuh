// One pass over lines: load a tile, transform its lines in registers and shared memory, verify them, store them.
// Layer: fft/cuda kernels. Every plan is a sequence of these (policy.cpp, transform.cpp).
// Threads: thread t of a line holds butterflies t, t + T, … (T = P.threads); a block holds P.lines lines side by side. Which of the two
// runs faster over neighbouring threads is chosen for load and store apart, so that both coalesce.
// Shared memory, in this order: the exchange, partial sums of the checksums, one record a line; then what a policy has of the sums and
// arrivals of a cluster, or of a stage (policy.hpp has the offsets).
// Source: TurboFFT (PPoPP 2025) sections 3 and 4; T. Stockham, High-speed convolution and correlation, 1966; abft/threshold.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "abft/verify.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/injector.cuh"
#include "fft/cuda/butterfly.cuh"
#include "fft/cuda/butterfly_check.cuh"
#include "fft/cuda/policy.hpp"
#include "fft/cuda/weights.hpp"

namespace ballast::fft::cuda {

using ballast::cuda::bits;
using ballast::cuda::value_hash;

// What a kernel takes: its argument and, if it is instrumented, the faults.
template <class Injector>
struct line_launch {
  line_arguments arguments;
  Injector injector;
};
template <>
struct line_launch<inject::no_device_injector> {
  line_arguments arguments;
};

// What is known of a line between two computations of it. In shared memory. A lane that fails the line first writes it, then the one that
// judges the line again; while no lane has failed it, only `word` and `settled` mean something: k_pass and k_ready.
struct line_record {
  std::uint64_t hash;      // of the outputs of this computation, if asked for
  std::uint64_t previous;  // and of the one before
  double residual;         // of the first check that failed
  double threshold;        // squared
  double careful_square;   // ‖x‖², times norm_scale²
  double norm_scale;       // double data: what elements are multiplied with before they are squared, and its inverse
  double unscale;
  std::uint32_t word;      // k_pass: store it
  std::uint32_t detected;  // a check has failed and could be believed
  std::uint32_t settled;   // 0, k_judged, k_ready or k_settled
  std::uint32_t same;      // judged: bit by bit what it was when it failed, so that the check had been struck
};
static_assert(sizeof(line_record) <= k_record_bytes);
inline constexpr std::uint32_t k_judged = 1;   // whether to store it is decided,
inline constexpr std::uint32_t k_ready = 2;    // and may be done, now,
inline constexpr std::uint32_t k_settled = 3;  // and is

// What is rare is not inlined, and gets no pointer to the tile: its registers would have to lie in memory.
template <class Injector>
struct rare {
  const line_launch<Injector>& launch;
  std::int64_t tile;
  int lines;            // of a tile
  int line;             // in it
  std::int64_t number;  // of the line, in its pass

  template <int Count, class T>
  __device__ __forceinline__ void strike(inject::site where, T* data) const {
    if constexpr (Injector::enabled) {
      const line_arguments& a = launch.arguments;
      launch.injector.template strike<Count>(where, inject::device_place{a.first_tile + tile, a.all_tiles, a.pass, a.passes, line, lines},
                                             data);
    }
  }

  static __device__ void count(unsigned long long& counter) { atomicAdd(&counter, 1ull); }

  __device__ void report_event(double residual, double threshold, event_check check, event_action action) const {
    const line_arguments& a = launch.arguments;
    event_ring& ring = *a.events;
    count(action == event_action::uncorrectable ? ring.uncorrectable
          : action == event_action::recomputed  ? ring.recomputed
                                                : ring.corrected);
    const unsigned long long at = atomicAdd(&ring.written, 1ull);
    if (at >= k_ring_events) return;
    device_event e{};
    e.index = number + a.first_tile / a.tiles * (a.columns * a.middles * a.batches);
    e.residual = residual;
    e.threshold = threshold;
    e.time = arch::global_timer();
    e.what = static_cast<std::uint32_t>(a.pass) | static_cast<std::uint32_t>(check) << 8 | static_cast<std::uint32_t>(action) << 16;
    e.chunk = static_cast<std::uint32_t>(a.chunk);
    e.multiprocessor = static_cast<std::uint32_t>(arch::multiprocessor_id());
    e.seal = event_seal(e);
    if constexpr (Injector::enabled) {
      launch.injector.template strike<1>(inject::site::event_log, inject::device_place{0, 1, 0, 1, 0, 1}, &e.residual);
    }
    ring.events[at] = e;
  }

  // Decides about a line that was computed again, its norm by careful_norms.
  __device__ __forceinline__ void judge(line_record& r, int attempt, double residual) const {
    const line_arguments& a = launch.arguments;
    if (r.settled != 0) return;
    // In squares, like the first judgement, of everything times norm_scale: nothing overflows, and no root or quotient is taken.
    const double scaled = residual * r.norm_scale;
    abft::guarded_threshold tau;
    tau.value = a.slope[0] * a.slope[0] * r.careful_square + a.offset[0] * r.norm_scale * (a.offset[0] * r.norm_scale);
    tau.twin = a.slope[1] * a.slope[1] * r.careful_square + a.offset[1] * r.norm_scale * (a.offset[1] * r.norm_scale);
    strike<1>(inject::site::fft_threshold, &tau.value);
    std::uint32_t word = abft::verify(scaled * scaled, tau);
    strike<1>(inject::site::fft_comparison, &word);
    const bool same = r.hash == r.previous;
    // False for NaN and Inf: then the input itself is such, and only repetition can tell.
    const double limit = a.overflow * r.norm_scale * (a.overflow * r.norm_scale);
    const bool judged = r.careful_square <= limit && r.careful_square <= 1.7976931348623157e308;
    // What passes must come out a second time (run_verified); where it never does, there is an end.
    const bool good = (judged ? word == abft::k_pass : same) && attempt <= a.repairs + 2;
    if (good) {
      r.word = abft::k_pass;
      r.settled = k_judged;
      r.same = same ? 1 : 0;
      if (r.detected != 0) {
        if (a.repairs == 0) {  // detect only: a fault was seen, so this result is not to be believed
          r.word = abft::k_fail;
          report_event(r.residual, r.threshold, event_check::line, event_action::uncorrectable);
        }
      } else {  // for the event if it does not come out a second time
        r.residual = residual;
        r.threshold = tau.value * r.unscale * r.unscale;
      }
      return;
    }
    if (r.detected == 0 && (judged || attempt > 1)) {
      r.detected = 1;
      r.residual = residual;
      r.threshold = tau.value * r.unscale * r.unscale;
    }
    if (attempt > a.repairs + (r.detected != 0 ? 0 : 1)) {
      r.settled = k_judged;
      r.word = abft::k_fail;
      report_event(r.residual, r.threshold, event_check::line, event_action::uncorrectable);
    }
  }

  // Two evaluations of one product, with a factor and with its twin, differ in their bits. The third decides; unless only the payload of a
  // NaN differs, that is an event.
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
    if (settled && same(third, once)) count(launch.arguments.events->false_alarms);
    return third;
  }
};

// The entries to them: scalars by value, which travel in registers.
template <class Injector>
__device__ __noinline__ void judge_again(const line_launch<Injector>& launch, line_record& r, std::int64_t tile, int lines, int line,
                                         std::int64_t number, int attempt, double residual) {
  rare<Injector>{launch, tile, lines, line, number}.judge(r, attempt, residual);
}
// Of a line that was computed again and may be stored.
template <class Injector>
__device__ __noinline__ void report_line(const line_launch<Injector>& launch, const line_record& r, std::int64_t tile, int lines, int line,
                                         std::int64_t number) {
  const rare<Injector> told{launch, tile, lines, line, number};
  told.report_event(r.residual, r.threshold, event_check::line, event_action::recomputed);
  if (r.same != 0) told.count(launch.arguments.events->false_alarms);
}
template <class Injector, class T>
__device__ __noinline__ complex<T> settle_product(const line_launch<Injector>& launch, std::int64_t tile, int lines, int line,
                                                  std::int64_t number, complex<T> once, complex<T> twice, complex<T> third) {
  return rare<Injector>{launch, tile, lines, line, number}.settle_product(once, twice, third);
}

template <class Injector>
__device__ __noinline__ void report_butterfly(const line_launch<Injector>& launch, std::int64_t tile, int lines, int line,
                                              std::int64_t number, double residual, double threshold, event_action action,
                                              bool false_alarm) {
  const rare<Injector> told{launch, tile, lines, line, number};
  told.report_event(residual, threshold, event_check::butterfly, action);
  if (false_alarm) told.count(launch.arguments.events->false_alarms);
}

template <class T>
struct word_type {
  using type = T;
};

template <line_policy P, class Injector>
struct line_tile {
  using real = std::conditional_t<P.wide, double, float>;
  using number = complex<real>;
  static constexpr int k_last = P.stages - 1;
  static constexpr bool k_summed = P.sums();
  static constexpr bool k_verified = P.verifies();
  static constexpr bool k_repeats = P.check != check_form::none || P.shared_source || P.shared_target;  // takes several tiles, or one again
  static constexpr bool k_multiplied = P.load_factor != factor_form::none || P.load == load_form::spectrum;  // on the way in
  static constexpr bool k_linear = P.power_of_two(P.length) && P.power_of_two(P.lines) && P.power_of_two(P.threads) &&
                                   P.power_of_two(P.cluster) && (P.cluster == 1 || !P.mirrors() || P.threads % P.target_run() == 0);

  number x[P.held()];
  real encoded[4] = {};            // this thread's part of what aᵀy must be, for both vectors
  real square = 0;                 // and ‖x‖² of its elements
  number given[P.butterflies(0)];  // what each first butterfly was given, encoded
  bool doubted = false;            // a product of this thread with a factor was not the same twice

  const line_arguments& a;
  const line_launch<Injector>& launch;
  unsigned char* const shared = arch::shared_memory();
  std::uint32_t tile = 0;  // no device has room for 2^32 tiles
  std::uint32_t batch = 0, middle = 0;
  std::int64_t first_column = 0;
  unsigned thread_now = 0;
  std::int64_t shared_shift = 0;  // of what other blocks of this launch write or read, from where the addresses say to where it is

  __device__ explicit line_tile(const line_launch<Injector>& given) : a(given.arguments), launch(given) {}

  __device__ __forceinline__ int line_of(bool columns) const {
    return static_cast<int>(columns ? thread() % P.lines : thread() / P.threads);
  }
  __device__ __forceinline__ int place_of(bool columns) const {
    return static_cast<int>(columns ? thread() / P.lines : thread() % P.threads);
  }
  // What takes several tiles, or one several times, must not keep addresses and what it reads of tables for all of them: there are not that
  // many registers.
  __device__ __forceinline__ void forget() {
    if constexpr (k_repeats) thread_now = arch::opaque(threadIdx.x);
  }
  __device__ __forceinline__ unsigned thread() const { return k_repeats ? thread_now : threadIdx.x; }

  // Of the block in its cluster, and of the thread in its tile.
  __device__ __forceinline__ int rank() const { return P.cluster == 1 ? 0 : static_cast<int>(blockIdx.x % P.cluster); }
  __device__ __forceinline__ int lane() const { return rank() * P.block() + static_cast<int>(threadIdx.x); }

  // The element of the line at place t + Ahead of this block's share, at load or store. Where the two are separable, what `Ahead` adds is
  // a constant.
  static constexpr bool k_separable = P.cluster == 1 || k_linear;
  template <int Ahead>
  __device__ __forceinline__ int source_element(int t) const {
    if constexpr (P.cluster > 1 && k_linear) return P.source_element(t, rank()) + P.source_element(Ahead, 0);
    return P.source_element(t + Ahead, rank());
  }
  template <int Ahead>
  __device__ __forceinline__ int target_element(int t) const {
    if constexpr (P.cluster > 1 && k_linear) return P.target_element(t, rank()) + P.target_element(Ahead, 0);
    return P.target_element(t + Ahead, rank());
  }

  __device__ __forceinline__ void select(std::int64_t wanted) {
    tile = static_cast<std::uint32_t>(wanted);
    forget();
    if constexpr (P.flat) {
      first_column = wanted * P.lines;
    } else {
      // 32-bit division is several times cheaper.
      const auto number = tile;
      const auto row = number / static_cast<std::uint32_t>(a.column_tiles);
      const auto outer = row / static_cast<std::uint32_t>(a.middles);
      first_column = static_cast<std::int64_t>(number - row * static_cast<std::uint32_t>(a.column_tiles)) * P.lines;
      batch = outer;
      middle = row - outer * static_cast<std::uint32_t>(a.middles);
    }
  }
  __device__ __forceinline__ std::int64_t number_of(int line) const {
    return (batch * a.middles + middle) * a.columns + first_column + line;
  }
  __device__ __forceinline__ bool valid(int line) const { return first_column + line < a.columns; }

  static __device__ __forceinline__ void barrier() {
    if constexpr (P.block() <= 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  template <int Count, class T>
  __device__ __forceinline__ void strike(inject::site where, int step, int steps, T* data, int thread, int threads) const {
    if constexpr (Injector::enabled) {
      launch.injector.template strike<Count>(where, inject::device_place{a.first_tile + tile, a.all_tiles, step, steps, thread, threads},
                                             data);
    }
  }

  // ---- load ------------------------------------------------------------------------------------------------------------------------

  static __device__ __forceinline__ number swapped(const number& z) {
    if constexpr (P.inverse) {
      return {z.im, z.re};
    } else {
      return z;
    }
  }

  template <class T>
  static __device__ __forceinline__ T load_element(const T* from) {
    if constexpr (P.shared_source) {
      return arch::load_keep(from);
    } else {
      return arch::load_streaming(from);
    }
  }
  template <class T>
  static __device__ __forceinline__ void store_element(T* to, const T& value) {
    if constexpr (P.shared_target) {
      arch::store_keep(to, value);
    } else {
      arch::store_streaming(to, value);
    }
  }

  static __device__ __forceinline__ bool same_bits(const number& once, const number& twice) {
    return ((bits(once.re) ^ bits(twice.re)) | (bits(once.im) ^ bits(twice.im))) == 0;
  }
  // Payloads of NaNs may differ; NaN fails anyway.
  __device__ __forceinline__ void doubt(const number& once, const number& twice) { doubted = doubted || !same_bits(once, twice); }

  // z · w, evaluated twice: the second time with the factor's twin, which another memory holds. A line that is verified before its store
  // fails if the two differ; elsewhere a third evaluation decides at once.
  template <class Twin>
  __device__ __forceinline__ number checked_product(const number& z, const number& w, int line, Twin&& twin) {
    const number once = z * w;
    if constexpr (P.check != check_form::none) {
      const number v = twin();
      const number twice = z * v;
      if constexpr (k_verified) {
        doubt(once, twice);
      } else if (!same_bits(once, twice)) {
        return settle_product<Injector>(launch, tile, P.lines, line, number_of(line), once, twice, z * v);
      }
    }
    return once;
  }

  // Of element i in the whole line, which is shorter than 2^32: modulo that.
  __device__ __forceinline__ std::int64_t position_at(const line_side& s, int i, int line) const {
    const auto short_of = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    return std::int64_t{static_cast<std::uint32_t>(i) * short_of(s.position_element) +
                        short_of(first_column + line) * short_of(s.position_column) + middle * short_of(s.position_middle)};
  }

  // A line z of N numbers that 2N reals are in pairs, and their spectrum X, X_o for o ≤ N: with w = e^{−πi/N} and z_N = z_0
  //   X_o = (z_o + z*_{N−o}) / 2 + t (z_o − z*_{N−o}), t = −i/2 · w^o;  z_o = X_o + X*_{N−o} + t (X_o − X*_{N−o}), t = i w^{−o},
  // the latter times 2, as inverse transforms are. `Inwards`: from X to z.
  template <bool Inwards>
  static __device__ __forceinline__ number with_image(const number& z, const number& image, const number& t, real one) {
    const number sum{multiply_add(one, z.re, image.re), multiply_add(one, z.im, -image.im)};
    const number difference{multiply_add(one, z.re, -image.re), multiply_add(one, z.im, image.im)};
    constexpr real part = Inwards ? real(1) : real(0.5);
    return product_sum(t, difference, number{part * sum.re, part * sum.im});
  }
  // The same, in checked lines twice: like checked_product.
  template <bool Inwards>
  __device__ __forceinline__ number with_image(const number& z, const number& image, const number& t, const number& twin) {
    if constexpr (P.check == check_form::none) {
      return with_image<Inwards>(z, image, t, real(1));
    } else {
      static_assert(k_verified);
      const number once = with_image<Inwards>(z, image, t, static_cast<real>(a.one[0]));
      doubt(once, with_image<Inwards>(z, image, twin, static_cast<real>(a.one[1])));
      return once;
    }
  }

  // Element i of a line at `base` that is not read as it lies: padded, real, half a spectrum, or times a factor.
  __device__ __forceinline__ number read(std::int64_t base, int i, int line) {
    const line_side& s = a.source;
    number z{real(0), real(0)};
    std::int64_t position = 0;
    if constexpr (P.load == load_form::half || P.padded || P.load_factor == factor_form::table) position = position_at(s, i, line);
    if constexpr (P.padded) {
      if (position >= a.loaded) return z;
    }
    const std::int64_t at = base + i * (P.source_step != 0 ? P.source_step : s.element);
    if constexpr (P.load == load_form::real) {
      z.re = load_element(static_cast<const real*>(a.in) + at);
    } else if constexpr (P.load == load_form::half) {
      // Elements beyond the half are conjugates of their mirror images; imaginary parts that must be zero are not looked at.
      const bool mirrored = 2 * position > a.whole;
      const std::int64_t step = mirrored ? a.whole - 2 * position : 0;
      z = load_element(static_cast<const number*>(a.in) + at + step * a.unit);
      if (mirrored) z.im = -z.im;
      if (position == 0 || 2 * position == a.whole) z.im = real(0);
    } else {
      z = load_element(static_cast<const number*>(a.in) + at);
    }
    z = swapped(z);
    if constexpr (P.load_factor == factor_form::table) {
      const auto factor_at = [&](const void* table) { return cached(static_cast<const number*>(table) + position); };
      z = checked_product(z, factor_at(a.load_table), line, [&] { return factor_at(a.load_twin); });
    }
    return z;
  }

  // ---- stage: tiles one after the other, the next one copied while this one is transformed ---------------------------------------------

  bool refills = false;  // the first exchange of a tile lets the next one be copied
  unsigned staged_parity = 0;
  bool from_stage = false;  // this computation reads the stage, a repeated one reads memory

  __device__ __forceinline__ number* stage_words() const { return reinterpret_cast<number*>(shared + P.stage_offset()); }
  __device__ __forceinline__ arch::mbarrier* stage_barrier() const {
    return reinterpret_cast<arch::mbarrier*>(shared + P.stage_offset() + P.tile_bytes());
  }

  // One thread asks for a tile: its lines lie together, and the last one may have fewer.
  __device__ __forceinline__ void copy_to_stage(std::int64_t wanted) const {
    const std::int64_t row = P.flat ? 0 : static_cast<std::uint32_t>(wanted) / static_cast<std::uint32_t>(a.column_tiles);
    const std::int64_t outer = P.flat ? 0 : static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(a.middles);
    const std::int64_t column = (wanted - row * a.column_tiles) * P.lines;
    const std::int64_t lines = a.columns - column < P.lines ? a.columns - column : P.lines;
    const std::int64_t base = column * P.length + (row - outer * a.middles) * a.source.middle + outer * a.source.batch;
    const auto bytes = static_cast<std::uint32_t>(lines * P.length * static_cast<std::int64_t>(sizeof(number)));
    arch::arrive_expect(stage_barrier(), bytes);
    arch::load_bulk(stage_words(), static_cast<const number*>(a.in) + base, bytes, stage_barrier());
  }

  __device__ __forceinline__ void read_stage() {
    constexpr int r = P.radix[0];
    constexpr int stride = P.length / r;
    arch::wait(stage_barrier(), staged_parity);
    staged_parity ^= 1;
    const int line = line_of(false);
    const bool inside = valid(line);
    const number* const from = stage_words() + line * P.length + place_of(false);
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      const bool mine = inside && (!P.ragged(0) || place_of(false) + q * P.threads < stride);
      unrolled<r>([&](auto ki) {
        constexpr int k = decltype(ki)::value;
        x[q * r + k] = mine ? swapped(from[q * P.threads + k * stride]) : number{real(0), real(0)};
      });
    });
  }

  // The elements of this thread's butterflies of the first stage.
  __device__ __forceinline__ void fetch_elements() {
    forget();
    if constexpr (P.staged) {
      if (from_stage) {
        from_stage = false;
        return read_stage();
      }
    }
    constexpr int r = P.radix[0];
    constexpr int places = P.share() / r;
    constexpr int stride = P.length / r;
    const int own_line = line_of(P.in_columns);
    const int t = place_of(P.in_columns);
    // Where a line beyond the last one is neither judged nor stored, it is a copy of the first, so that nothing has to be asked.
    constexpr bool copied = k_verified;
    const int line = copied && !valid(own_line) ? 0 : own_line;
    const bool inside = copied || valid(line);
    std::int64_t base = (first_column + line) * a.source.column + middle * a.source.middle + batch * a.source.batch;
    if constexpr (P.shared_source) base += shared_shift;
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      const bool mine = inside && (!P.ragged(0) || t + q * P.threads < places);
      const int j = source_element<q * P.threads>(t);
      if (!mine) {
        unrolled<r>([&](auto ki) { x[q * r + decltype(ki)::value] = number{real(0), real(0)}; });
      } else if constexpr (P.load == load_form::complex && !P.padded && P.load_factor == factor_form::none) {
        const std::int64_t element = P.source_unit ? 1 : P.source_step != 0 ? P.source_step : a.source.element;
        const number* const from = static_cast<const number*>(a.in) + (base + j * element);
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          x[q * r + k] = swapped(load_element(from + k * stride * element));
        });
      } else if constexpr (P.load == load_form::spectrum) {
        static_assert(P.source_unit && !P.padded && P.load_factor == factor_form::none);
        const number* const from = static_cast<const number*>(a.in) + base;
        const number own = cached(static_cast<const number*>(a.load_table) + j);
        const number twin = P.check == check_form::none ? own : cached(static_cast<const number*>(a.load_twin) + j);
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          constexpr unit_root turn = root_of_unity(k, 2 * r);
          number z = load_element(from + (j + k * stride));
          number image = load_element(from + (P.length - j - k * stride));
          // Imaginary parts that must be zero are not looked at.
          if constexpr (k == 0) {
            if (j == 0) z.im = image.im = real(0);
          }
          x[q * r + k] = swapped(with_image<true>(z, image, own * conjugate(constant(turn)), twin * conjugate(constant(turn))));
        });
      } else {
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          x[q * r + k] = read(base, j + k * stride, line);
        });
      }
    });
  }

  // `loaded` runs when they are encoded.
  __device__ __forceinline__ void load() {
    load([] {});
  }
  template <class Body>
  __device__ __forceinline__ void load(Body&& loaded) {
    fetch_elements();
    if constexpr (k_summed) encode_inputs();
    loaded();
    strike<2 * P.butterflies(0) * P.radix[0]>(inject::site::fft_input, a.pass, a.passes, &x[0].re, lane(), P.lanes());
  }

  // Before the first butterflies: ‖x‖², and what they are given with constant weights (weights.hpp).
  __device__ __forceinline__ void encode_inputs() {
    constexpr int r = P.radix[0];
    square = 0;
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      number sum[2] = {{real(0), real(0)}, {real(0), real(0)}};
      unrolled<r>([&](auto mi) {
        constexpr int m = decltype(mi)::value;
        const number z = x[q * r + m];
        square = multiply_add(z.re, z.re, multiply_add(z.im, z.im, square));
        constexpr input_weights<r> w;
        if constexpr (P.stages == 1) {
          sum[0] = product_sum(constant(w.line[0][m]), z, sum[0]);
          sum[1] = product_sum(constant(w.line[1][m]), z, sum[1]);
        } else {
          sum[m % 2] = product_sum(constant(w.butterfly[m]), z, sum[m % 2]);
        }
      });
      if constexpr (P.stages == 1) {
        const complex_pair<real> own = cached_pair(static_cast<const real*>(a.verify));
        add_pair(encoded, own.first * sum[0], own.second * sum[1], q == 0);
      } else {
        given[q] = sum[0] + sum[1];
      }
    });
    if constexpr (k_verified && P.stages == 1 && k_multiplied) fail_if_doubted(encoded[0]);
  }

  // Behind the first butterflies: their results z with the weights that the rest of the transform has for them, and how far they are from
  // what they should be, Σ s′ₖ zₖ − Σ ŝₘ xₘ, times the same factor of their butterfly.
  __device__ __forceinline__ void encode_results() {
    constexpr int r = P.radix[0];
    constexpr int places = P.share() / r;
    constexpr int all = P.length / r;
    constexpr int centre = weight_centre(r);
    const int t = place_of(P.in_columns);
    for (int v = 0; v < 4; ++v) encoded[v] = 0;
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (P.ragged(0) && t + q * P.threads >= places) return;
      const int j = source_element<q * P.threads>(t);
      const real* const table = static_cast<const real*>(a.encode);
      const complex_pair<real> own = cached_pair(table + 4 * j);
      const number step = cached(reinterpret_cast<const number*>(table + 4 * all) + j);
      const number* const z = x + q * r;
      const number up = upper<r, centre, r - 1>(z, step);
      const number down = lower<r, 0, centre>(z, step);
      number made{real(0), real(0)};
      unrolled<r>([&](auto ki) {
        constexpr int k = decltype(ki)::value;
        constexpr real size = static_cast<real>(butterfly_weight_size(r, k));
        const number one = quarter_turns<butterfly_weight_quarters(r, k)>(z[k]);
        made = {multiply_add(size, one.re, made.re), multiply_add(size, one.im, made.im)};
      });
      const number sum = product_sum(conjugate(step), down, up) + (made - given[q]);
      add_pair(encoded, own.first * sum, own.second * sum, q == 0);
    });
    if constexpr (k_verified && k_multiplied) fail_if_doubted(encoded[0]);
  }

  // One number for each vector.
  static __device__ __forceinline__ void add_pair(real (&to)[4], const number& first, const number& second, bool begins) {
    to[0] = begins ? first.re : to[0] + first.re;
    to[1] = begins ? first.im : to[1] + first.im;
    to[2] = begins ? second.re : to[2] + second.re;
    to[3] = begins ? second.im : to[3] + second.im;
  }

  static __device__ __forceinline__ number constant(const unit_root& w) { return {static_cast<real>(w.re), static_cast<real>(w.im)}; }

  // A sum that no check can pass.
  __device__ __forceinline__ void fail_if_doubted(real& sum) {
    if (doubted) sum = std::numeric_limits<real>::quiet_NaN();
    doubted = false;
  }

  // ---- transform -------------------------------------------------------------------------------------------------------------------

  template <int S>
  __device__ __forceinline__ void multiply_by_twiddles(int t) {
    constexpr int r = P.radix[S];
    constexpr int p = P.before(S);
    const number* table = static_cast<const number*>(a.twiddles) + P.twiddle_offset(S);
    unrolled<P.butterflies(S)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      const int j = t + q * P.threads;
      constexpr int own = P.before_share(S);
      int row = P.ragged(S) && j >= P.share() / r ? 0 : j % own;
      if constexpr (P.cluster > 1 && S > P.cluster_after)
        row = k_linear ? target_element<q * P.threads % own>(t % own) : P.target_element(row, rank());
      number w[r];
      unrolled<r - 1>([&](auto ki) {
        constexpr int k = decltype(ki)::value + 1;
        if constexpr (P.squares(S) && (k & (k - 1)) != 0) {
          constexpr int high = k > 8 ? 8 : k > 4 ? 4 : 2;
          w[k] = w[high] * w[k - high];
        } else {
          w[k] = cached(table + row + (k - 1) * p);
        }
      });
      if constexpr (q == 0)
        strike<2 * (r - 1)>(inject::site::fft_twiddle, a.first_twiddle + S - 1, a.twiddle_steps, &w[1].re, lane(), P.lanes());
      unrolled<r - 1>([&](auto ki) {
        constexpr int k = decltype(ki)::value + 1;
        x[q * r + k] = x[q * r + k] * w[k];
      });
    });
  }

  template <int S>
  static BALLAST_HD constexpr int slot(int i, int line) {
    constexpr exchange_layout e = P.exchange[S];
    const int word = e.columns ? e.place(i) * P.lines + line : line * e.place(P.share()) + e.place(i);
    int at = word;
    if constexpr (e.mask[0] != 0) at ^= (word >> e.shift[0]) & e.mask[0];
    if constexpr (e.mask[1] != 0) at ^= (word >> e.shift[1]) & e.mask[1];
    return at;
  }

  // Whether slots are apart by constants: those of elements of one run, and those of elements whole runs apart.
  template <int S>
  static constexpr bool k_straight = P.exchange[S].pad != 0;

  // With powers of two the slots of a thread differ from its first one by constants: those bits of a constant that no bit of the first slot
  // can coincide with are added, the low ones, which swizzling mixes, by exclusive or.
  static constexpr int k_mixed = 15;

  template <int Constant, class Word>
  static __device__ __forceinline__ Word& word_at(unsigned char* first, int offset) {
    constexpr int low = (Constant & k_mixed) * static_cast<int>(sizeof(Word));
    constexpr int high = (Constant & ~k_mixed) * static_cast<int>(sizeof(Word));
    return *reinterpret_cast<Word*>(first + ((offset ^ low) + high));
  }

  // Where the results of butterfly j of a stage with radix r and p = before begin: j in its two digits, with r times the room for the
  // upper.
  static BALLAST_HD constexpr int spread(int j, int p, int r) { return (j - j % p) * r + j % p; }

  // Behind the first barrier of a tile every thread has read its elements.
  template <int S>
  __device__ __forceinline__ void refill_stage() {
    if constexpr (P.staged && S == 0) {
      if (threadIdx.x == 0 && refills && tile + gridDim.x < a.tiles) copy_to_stage(tile + gridDim.x);
      refills = false;
    }
  }

  // Where result k of this block's butterfly j of stage S = cluster_after goes: the block, and the place in its share.
  static BALLAST_HD constexpr int block_of_result(int j, int k) {
    constexpr int p = P.before(P.cluster_after);
    return P.rank_of_residue(j % p + k * p);
  }
  static BALLAST_HD constexpr int place_of_result(int j, int k, int rank) {
    constexpr int p = P.before(P.cluster_after);
    return (rank * P.source_run() + j / p) * P.target_run() + P.place_of_residue(j % p + k * p);
  }

  // Every word that arrives counts its bytes on the barrier of the block that it is for, which waits for its own words only.
  unsigned arrival_parity = 0;
  __device__ __forceinline__ arch::mbarrier* arrival() const { return reinterpret_cast<arch::mbarrier*>(shared + P.arrival_offset()); }

  template <int S, class Word, class Part>
  __device__ __forceinline__ void write_to_cluster(int from, Part&& part) {
    constexpr int r = P.radix[S];
    if (threadIdx.x == 0) arch::arrive_expect(arrival(), static_cast<std::uint32_t>(P.share() * sizeof(Word)));
    const int first = slot<S>(place_of_result(from, 0, rank()), 0) * static_cast<int>(sizeof(Word));
    const int first_block = block_of_result(from, 0);
    constexpr int p = P.before(S);
    const int row = place_of_result(from, 0, rank()) / P.target_run() * P.target_run();
    const int first_negative =
        !P.mirrors() ? 0 : slot<S>(row + P.target_run() / 2 + (p - from % p) % (P.target_run() / 2), 0) * static_cast<int>(sizeof(Word));
    unrolled<P.butterflies(S)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      const int j = from + q * P.threads;
      if (!P.ragged(S) || j < P.share() / r) {
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          if constexpr (k_linear && P.mirrors() && p % (P.target_run() / 2) == 0 && P.threads % p == 0) {
            // Residues of the upper half are negatives: p − from % p of the last ones. That 0 is its own, for which half of the distance
            // stands in, is the remainder of the rank.
            constexpr int half = P.target_run() / 2;
            constexpr bool negative = 2 * k >= r;
            constexpr int blocks = (negative ? r - 1 - k : k) * (p / half);
            const int residue = negative ? p - from % p : from % p;
            Word& to = word_at<slot<S>(place_of_result(q * P.threads, 0, 0), 0), Word>(shared, negative ? first_negative : first);
            arch::store_async(&to, (blocks + residue / half) % P.cluster, part(x[q * r + k]), arrival());
          } else if constexpr (k_linear && !P.mirrors()) {
            // Without carries: the bits of `from` and those of q and k are apart.
            constexpr int ahead = block_of_result(q * P.threads, k);
            Word& to = word_at<slot<S>(place_of_result(q * P.threads, k, 0), 0), Word>(shared, first);
            if constexpr (P.target_run() % P.before(S) == 0) {
              arch::store_async(&to, ahead, part(x[q * r + k]), arrival());
            } else {
              arch::store_async(&to, first_block + ahead, part(x[q * r + k]), arrival());
            }
          } else {
            Word* const to = reinterpret_cast<Word*>(shared) + slot<S>(place_of_result(j, k, rank()), 0);
            arch::store_async(to, block_of_result(j, k), part(x[q * r + k]), arrival());
          }
        });
      }
    });
  }

  // Until the results that are to be read next are there.
  template <int S>
  __device__ __forceinline__ void written() {
    if constexpr (P.cluster > 1 && S == P.cluster_after) {
      arch::wait_cluster(arrival(), arrival_parity);
      arrival_parity ^= 1;
    } else {
      barrier();
    }
  }

  // Results of stage S, from the threads that have them to those that need them next: for stage S + 1, or to store.
  template <int S>
  __device__ __forceinline__ void exchange() {
    constexpr int r = P.radix[S];
    constexpr int p = P.before_share(S);
    constexpr bool ends = S == k_last;
    constexpr int next = ends ? r : P.radix[ends ? S : S + 1];
    constexpr int stride = P.share() / next;
    constexpr int count = ends ? P.butterflies(S) : P.butterflies(ends ? S : S + 1);
    constexpr bool next_ragged = ends ? P.ragged(S) : P.ragged(ends ? S : S + 1);
    constexpr bool from_columns = S == 0 ? P.in_columns : P.out_columns;
    const int from_line = line_of(from_columns);
    const int from = place_of(from_columns);
    const int to_line = line_of(P.out_columns);
    const int to = place_of(P.out_columns);
    constexpr bool leaves = P.cluster > 1 && S == P.cluster_after;
    const auto write = [&](auto word, auto&& part) {
      using type = typename decltype(word)::type;
      if constexpr (leaves) return write_to_cluster<S, type>(from, part);
      const int first = slot<S>(spread(from, p, r), from_line) * static_cast<int>(sizeof(type));
      unrolled<P.butterflies(S)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        const int j = from + q * P.threads;
        if (!P.ragged(S) || j < P.share() / r) {
          unrolled<r>([&](auto ki) {
            constexpr int k = decltype(ki)::value;
            if constexpr (k_linear) {
              word_at<slot<S>(spread(q * P.threads, p, r) + k * p, 0), type>(shared, first) = part(x[q * r + k]);
            } else {
              constexpr int ahead = k_straight<S> ? k * p * (P.exchange[S].columns ? P.lines : 1) : 0;
              reinterpret_cast<type*>(shared)[slot<S>(spread(j, p, r) + (k_straight<S> ? 0 : k * p), from_line) + ahead] =
                  part(x[q * r + k]);
            }
          });
        }
      });
    };
    const auto fetch = [&](auto word, auto&& put) {
      using type = typename decltype(word)::type;
      const int first = slot<S>(to, to_line) * static_cast<int>(sizeof(type));
      unrolled<count>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        const int j = to + q * P.threads;
        if (!next_ragged || j < stride) {
          unrolled<next>([&](auto ki) {
            constexpr int k = decltype(ki)::value;
            if constexpr (k_linear) {
              put(x[q * next + k], word_at<slot<S>(q * P.threads + k * stride, 0), type>(shared, first));
            } else {
              constexpr int ahead = k_straight<S> ? slot<S>(k * stride, 0) : 0;
              put(x[q * next + k], reinterpret_cast<type*>(shared)[slot<S>(j + (k_straight<S> ? 0 : k * stride), to_line) + ahead]);
            }
          });
        }
      });
    };
    if constexpr (leaves) arch::cluster_wait();  // the other blocks have read what they had
    if constexpr (P.split) {
      write(word_type<real>{}, [](const number& z) { return z.re; });
      written<S>();
      refill_stage<S>();
      real im[P.held()];
      unrolled<P.held()>([&](auto i) { im[decltype(i)::value] = x[decltype(i)::value].im; });
      fetch(word_type<real>{}, [](number& z, real word) { z.re = word; });
      if constexpr (leaves) {
        arch::cluster_sync();  // read everywhere
      } else {
        barrier();
      }
      unrolled<P.held()>([&](auto i) {
        // Exchanged next; the real parts that have arrived stay.
        const real kept = x[decltype(i)::value].re;
        x[decltype(i)::value] = {kept, im[decltype(i)::value]};
      });
      write(word_type<real>{}, [](const number& z) { return z.im; });
      written<S>();
      fetch(word_type<real>{}, [](number& z, real word) { z.im = word; });
      if constexpr (!ends && S + 1 < k_last) barrier();  // before the next exchange writes
    } else {
      if constexpr (S > 0 && !leaves) barrier();  // what the exchange before wrote has been read
      write(word_type<number>{}, [](const number& z) { return z; });
      written<S>();
      refill_stage<S>();
      fetch(word_type<number>{}, [](number& z, const number& word) { z = word; });
    }
  }

  template <int S>
  __device__ __forceinline__ void stage() {
    constexpr int r = P.radix[S];
    const int t = place_of(S == 0 ? P.in_columns : P.out_columns);
    if constexpr (P.cluster > 1 && S == P.cluster_after) arch::cluster_arrive();  // what is here has been read
    if constexpr (S > 0) multiply_by_twiddles<S>(t);
    if constexpr (S == k_last)
      strike<2 * P.butterflies(S) * r>(inject::site::fft_intermediate, a.pass, a.passes, &x[0].re, lane(), P.lanes());
    if constexpr (P.check == check_form::thread) {
      checked_butterflies<S>();
    } else {
      unrolled<P.butterflies(S)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        butterfly<r>(x + q * r);
      });
      strike<2 * P.butterflies(S) * r>(inject::site::fft_stage, a.first_stage + S, a.stages, &x[0].re, lane(), P.lanes());
    }
    if constexpr (S == 0 && S < k_last && k_summed) {
      // Neither begun while the butterflies still go on nor ended after the exchange has begun: it would take more registers than there
      // are, but where a thread has so many numbers that few threads share them. There the overlap hides latency.
      constexpr bool crowded =
          P.held() * P.scalar_bytes() <= 64 || (P.store_factor == factor_form::table && P.load_factor == factor_form::none);
      if constexpr (crowded && P.in_columns) arch::finish_first(square < real(0));
      encode_results();
      if constexpr (crowded) arch::finish_first(square < real(0));
    }
    if constexpr (S < k_last || (P.remaps() && P.stages == 1)) exchange<S>();
    if constexpr (S < k_last) stage<S + 1>();
  }

  __device__ __forceinline__ void transform() { stage<0>(); }

  // The butterflies of stage S, each verified and computed again from what it was given until it passes.
  template <int S>
  __device__ __forceinline__ void checked_butterflies() {
    constexpr int r = P.radix[S];
    constexpr int count = P.butterflies(S);
    constexpr double tiny = P.wide ? 1e-250 : 1e-30;
    constexpr double huge = P.wide ? 1e250 : 1e30;
    constexpr bool columns = S == 0 ? P.in_columns : P.out_columns;
    const int line = line_of(columns);
    number given[count * r];
    std::uint64_t hash[count] = {};
    std::uint32_t open = 0;
    std::uint32_t detected = 0;
    unrolled<count>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (!P.ragged(S) || place_of(columns) + q * P.threads < P.share() / r) open |= 1u << q;
    });
    unrolled<count * r>([&](auto i) { given[decltype(i)::value] = x[decltype(i)::value]; });
    for (int attempt = 0; open != 0; ++attempt) {
      unrolled<count>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        if ((open >> q & 1) == 0) return;
        unrolled<r>([&](auto k) { x[q * r + decltype(k)::value] = given[q * r + decltype(k)::value]; });
        butterfly<r>(x + q * r);
      });
      strike<2 * count * r>(inject::site::fft_stage, a.first_stage + S, a.stages, &x[0].re, lane(), P.lanes());
      unrolled<count>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        if ((open >> q & 1) == 0) return;
        const int step = a.first_stage + S;
        const int here = lane();
        auto seen = residual_of<r>(given + q * r, x + q * r);
        const double square = static_cast<double>(seen.square);
        abft::guarded_threshold tau = butterfly_limit<r, real>(square, a.kappa);
        if constexpr (q == 0) strike<1>(inject::site::fft_checksum, step, a.stages, &seen.size, here, P.lanes());
        if constexpr (q == 0) strike<1>(inject::site::fft_threshold, step, a.stages, &tau.value, here, P.lanes());
        std::uint32_t word = abft::verify(seen.size * seen.size, tau);
        const bool judged = square >= tiny && square <= huge;
        if (!judged && !(square == 0 && seen.size == 0)) word = abft::k_fail;
        if constexpr (q == 0) strike<1>(inject::site::fft_comparison, step, a.stages, &word, here, P.lanes());
        if (word == abft::k_pass && attempt == 0) {
          open &= ~(1u << q);
          return;
        }
        // What is out of range is judged by repetition.
        std::uint64_t now = 0;
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          now += value_hash(x[q * r + k].re, 2 * k) + value_hash(x[q * r + k].im, 2 * k + 1);
        });
        const bool same = attempt > 0 && now == hash[q];
        hash[q] = now;
        if (word == abft::k_pass || (!judged && same)) {
          open &= ~(1u << q);
          if ((detected >> q & 1) != 0 || attempt > 1)
            report_butterfly<Injector>(launch, tile, P.lines, line, number_of(line), seen.size, tau.value, event_action::recomputed, same);
          return;
        }
        if (judged) detected |= 1u << q;
        if (attempt > a.repairs || (judged && a.repairs == 0)) {
          open &= ~(1u << q);
          report_butterfly<Injector>(launch, tile, P.lines, line, number_of(line), seen.size, tau.value, event_action::uncorrectable,
                                     false);
        }
      });
    }
  }

  // ---- store -----------------------------------------------------------------------------------------------------------------------

  // body(register, output, butterfly, element) for every output that this thread holds.
  template <class Body>
  __device__ __forceinline__ void outputs(Body&& body) const {
    constexpr int r = P.radix[k_last];
    constexpr int stride = P.length / r;
    const int t = place_of(P.out_columns);
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (!P.ragged(k_last) || t + q * P.threads < P.share() / r) {
        const int j = target_element<q * P.threads>(t);
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          body(index<q * r + k>{}, j + k * stride, index<q>{}, index<k>{});
        });
      }
    });
  }

  __device__ __forceinline__ std::int64_t target_position(int o, int line) const { return position_at(a.target, o, line); }

  // What output o is multiplied with at its store.
  __device__ __forceinline__ number factor(const void* table, int o, int line) const {
    const number* const words = static_cast<const number*>(table);
    if constexpr (P.twiddles()) {
      // No whole line has 2^32 points. A line beyond the last one has no factors.
      const std::int64_t column = !P.folds() || valid(line) ? first_column + line : 0;
      const std::uint32_t power = static_cast<std::uint32_t>(column) * static_cast<std::uint32_t>(o);
      const number coarse = cached(words + (power >> a.fine_bits));
      const number fine = cached(words + a.coarse_size + (power & ((1u << a.fine_bits) - 1)));
      return coarse * fine;
    } else {
      // Lines beyond the last one are multiplied, too, where all are verified first; their place in the table would be beyond its end.
      const int there = k_verified && !valid(line) ? 0 : line;
      return cached(words + target_position(o, there));
    }
  }

  // Scale, multiply by the factors that the check covers, and the checksums of the outputs.
  __device__ __forceinline__ void finish(real (&sum)[4]) {
    if constexpr (P.scaled) {
      const real scale = static_cast<real>(a.scale);
      unrolled<P.held()>([&](auto i) {
        constexpr int at = decltype(i)::value;
        x[at] = {x[at].re * scale, x[at].im * scale};
      });
    }
    static_assert(!P.twiddles() || P.cluster == 1);
    if constexpr (P.store_factor == factor_form::separated) {
      multiply_separated();
    } else if constexpr (P.folds()) {
      const int line = line_of(P.out_columns);
      outputs([&](auto at, int o, auto q, auto k) {
        number w = factor(a.store_table, o, line);
        if constexpr (decltype(q)::value == 0 && decltype(k)::value == 0) strike_factor(w);
        this->x[decltype(at)::value] = this->x[decltype(at)::value] * w;
      });
    }
    strike<2 * P.butterflies(k_last) * P.radix[k_last]>(inject::site::fft_output, a.pass, a.passes, &x[0].re, lane(), P.lanes());
    if constexpr (k_summed) {
      // Else the factors of the sums are looked up while those of the store still wait: more registers than there are.
      if constexpr (P.folds() && !P.wide) arch::finish_first(square < real(0));
      sum_outputs(sum);
    }
    if constexpr (k_verified && P.store_factor == factor_form::table) {
      multiply_outputs();
      fail_if_doubted(sum[0]);
    }
    if constexpr (P.mirrors()) {
      make_spectrum();
      if constexpr (k_verified) fail_if_doubted(sum[0]);
    }
  }

  // From the line that reals are in pairs to their spectrum: each output with its mirror image, which another thread has. The last element,
  // real like the first, takes the place of the first one's imaginary part until both are stored.
  __device__ __forceinline__ void make_spectrum() {
    static_assert(!P.in_columns && !P.out_columns && !P.inverse && !P.truncated && P.target_unit && P.store_factor == factor_form::none);
    static_assert(P.cluster == 1 || P.target_run() % 2 == 0);
    constexpr int r = P.radix[k_last];
    forget();
    // Every output goes to the place of its mirror image, so that a thread finds there what belongs to its own.
    constexpr int apart = P.share() / r;
    const int first = line_of(false) * P.share();
    const int t = place_of(false);
    const auto send = [&](auto word, auto&& part) {
      auto* const to = reinterpret_cast<typename decltype(word)::type*>(shared) + first;
      unrolled<P.butterflies(k_last)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        const int i = t + q * P.threads;
        if (P.ragged(k_last) && i >= apart) return;
        to[P.image_place(i, rank())] = part(x[q * r]);
        // Places of the further ones go down as those of their images go up.
        auto* const next = to + P.image_place(i + apart, rank());
        unrolled<r - 1>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          next[-k * apart] = part(x[q * r + k + 1]);
        });
      });
      barrier();
    };
    number images[P.held()];
    const auto receive = [&](auto word, auto&& put) {
      const auto* const from = reinterpret_cast<const typename decltype(word)::type*>(shared) + first + t;
      outputs([&](auto at, int, auto q, auto k) {
        put(images[decltype(at)::value], from[decltype(q)::value * P.threads + decltype(k)::value * apart]);
      });
    };
    barrier();  // what the last exchange wrote has been read
    if constexpr (P.split) {
      send(word_type<real>{}, [](const number& z) { return z.re; });
      receive(word_type<real>{}, [](number& z, real word) { z.re = word; });
      barrier();
      send(word_type<real>{}, [](const number& z) { return z.im; });
      receive(word_type<real>{}, [](number& z, real word) { z.im = word; });
    } else {
      send(word_type<number>{}, [](const number& z) { return z; });
      receive(word_type<number>{}, [](number& z, const number& word) { z = word; });
    }
    number own{}, twin{};
    outputs([&](auto at, int o, auto q, auto ki) {
      constexpr int k = decltype(ki)::value;
      constexpr unit_root turn = root_of_unity(k, 2 * r);
      if constexpr (k == 0) {
        own = cached(static_cast<const number*>(a.store_table) + o);
        if constexpr (decltype(q)::value == 0) strike_factor(own);
        if constexpr (P.check != check_form::none) twin = cached(static_cast<const number*>(a.store_twin) + o);
      }
      number& z = this->x[decltype(at)::value];
      const number made = with_image<false>(z, images[decltype(at)::value], own * constant(turn), twin * constant(turn));
      if constexpr (k == 0) {
        if (o == 0) {
          const auto ends = [&](double one) {
            const real unit = static_cast<real>(one);
            return number{multiply_add(unit, z.re, z.im), multiply_add(unit, z.re, -z.im)};
          };
          if constexpr (P.check != check_form::none) doubt(ends(a.one[0]), ends(a.one[1]));
          z = ends(a.one[0]);
          return;
        }
      }
      z = made;
    });
  }

  // By the factors of the next pass, each the product of what its butterfly and its number in that have.
  __device__ __forceinline__ void multiply_separated() {
    static_assert(P.check == check_form::none || P.folds());
    constexpr int r = P.radix[k_last];
    constexpr int stride = P.length / r;
    const int line = line_of(P.out_columns);
    const int t = place_of(P.out_columns);
    const auto columns = static_cast<std::uint32_t>(a.columns);
    const std::uint32_t column = valid(line) ? static_cast<std::uint32_t>(first_column) + static_cast<std::uint32_t>(line) : 0;
    const number* const of_result = static_cast<const number*>(a.store_table) + r * column;
    const number* const of_butterfly = static_cast<const number*>(a.store_table) + r * columns + column;
    // The sums of a checked line leave few registers beside doubles.
    const auto read = [](const number* from) {
      if constexpr (P.wide && k_verified) {
        return cached_late(from);
      } else {
        return cached(from);
      }
    };
    number first[P.butterflies(k_last)];
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      // Beyond the line: any factor.
      const int j = P.ragged(k_last) && t + q * P.threads >= stride ? 0 : t + q * P.threads;
      first[q] = read(of_butterfly + j * columns);
    });
    const auto multiply = [&](auto ki, const number& second) {
      constexpr int k = decltype(ki)::value;
      unrolled<P.butterflies(k_last)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        number w = k == 0 ? first[q] : first[q] * second;
        if constexpr (q == 0 && k == 0) strike_factor(w);
        x[q * r + k] = x[q * r + k] * w;
      });
    };
    // Two at once, but not so many that there are no registers for them.
    if constexpr (r % 2 == 0 && !P.wide && !(k_verified && P.butterflies(k_last) != 2)) {
      unrolled<r / 2>([&](auto i) {
        constexpr int k = 2 * decltype(i)::value;
        const complex_pair<real> both = cached_pair(reinterpret_cast<const real*>(of_result + k));
        multiply(index<k>{}, both.first);
        multiply(index<k + 1>{}, both.second);
      });
    } else {
      multiply(index<0>{}, first[0]);
      unrolled<r - 1>([&](auto i) { multiply(index<decltype(i)::value + 1>{}, read(of_result + decltype(i)::value + 1)); });
    }
  }

  // By factors that no checksum covers: tables of anything.
  __device__ __forceinline__ void multiply_outputs() {
    const int line = line_of(P.out_columns);
    outputs([&](auto at, int o, auto q, auto k) {
      if constexpr (P.truncated) {
        if (target_position(o, line) >= a.stored) return;
      }
      number& y = this->x[decltype(at)::value];
      number w = factor(a.store_table, o, line);
      if constexpr (decltype(q)::value == 0 && decltype(k)::value == 0) strike_factor(w);
      y = checked_product(y, w, line, [&] { return factor(a.store_twin, o, line); });
    });
  }

  __device__ __forceinline__ void strike_factor(number& w) const {
    strike<2>(inject::site::fft_twiddle, a.first_twiddle + P.stages - 1, a.twiddle_steps, &w.re, lane(), P.lanes());
  }

  // z · i^quarters.
  template <int Quarters>
  static __device__ __forceinline__ number quarter_turns(const number& z) {
    if constexpr (Quarters == 0) {
      return z;
    } else if constexpr (Quarters == 1) {
      return {-z.im, z.re};
    } else if constexpr (Quarters == 2) {
      return {-z.re, -z.im};
    } else {
      return {z.im, -z.re};
    }
  }
  // z · i^e(k), k of `Count`.
  template <int Count, int K>
  static __device__ __forceinline__ number turned(const number& z) {
    return quarter_turns<weight_quarters(Count, K)>(z);
  }

  // aᵀy of both vectors; of folded factors aᵀ(f⁻¹∘z), z = f∘y what is stored.
  __device__ __forceinline__ void sum_outputs(real (&sum)[4]) const {
    constexpr int r = P.radix[k_last];
    constexpr int half = weight_half(r);
    constexpr int stride = P.length / r;
    const int t = place_of(P.out_columns);
    number step{};
    if constexpr (P.folds()) step = conjugate(factor(a.store_twin, stride, line_of(P.out_columns)));
    for (int v = 0; v < 4; ++v) sum[v] = 0;
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (P.ragged(k_last) && t + q * P.threads >= P.share() / r) return;
      const int j = target_element<q * P.threads>(t);
      const number* const y = x + q * r;
      number low{real(0), real(0)};
      number high{real(0), real(0)};
      if constexpr (!P.folds()) {
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          number& to = k < half ? low : high;
          to = to + turned<r, k>(y[k]);
        });
      } else if constexpr (r <= 8) {
        const number middle = conjugate(factor(a.store_twin, j + half * stride, line_of(P.out_columns)));
        low = middle * (conjugate(step) * lower<r, 0, half>(y, step));
        if constexpr (half < r) high = middle * upper<r, half, r - 1>(y, step);
      } else {
        low = unfolded<0, half>(y, j, step);
        high = unfolded<half, r - half>(y, j, step);
      }
      const complex_pair<real> own = cached_pair(static_cast<const real*>(a.verify) + 4 * j);
      add_pair(sum, own.first * (low + high), own.second * (low - high), q == 0);
    });
  }

  static __device__ __forceinline__ number conjugate(const number& z) { return {z.re, -z.im}; }
  static __device__ __forceinline__ number product_sum(const number& x, const number& y, const number& z) {
    return {multiply_add(x.re, y.re, multiply_add(-x.im, y.im, z.re)), multiply_add(x.re, y.im, multiply_add(x.im, y.re, z.im))};
  }

  // Horner's scheme for results i^e(k) z_k of a butterfly of `Radix`: Σ stepᵏ⁻ᴼⁿᵉ of the numbers One … Last; Σ step*ᴼⁿᵉ⁻¹⁻ᵏ of First … One
  // − 1.
  template <int Radix, int One, int Last>
  static __device__ __forceinline__ number upper(const number* z, const number& step) {
    number sum = turned<Radix, Last>(z[Last]);
    unrolled<Last - One>([&](auto i) {
      constexpr int k = Last - 1 - decltype(i)::value;
      sum = product_sum(step, sum, turned<Radix, k>(z[k]));
    });
    return sum;
  }
  template <int Radix, int First, int One>
  static __device__ __forceinline__ number lower(const number* z, const number& step) {
    number sum = turned<Radix, First>(z[First]);
    unrolled<One - First - 1>([&](auto i) {
      constexpr int k = First + 1 + decltype(i)::value;
      sum = product_sum(conjugate(step), sum, turned<Radix, k>(z[k]));
    });
    return sum;
  }

  // Σ f_k⁻¹ i^e(k) z_k of the results First … of last butterfly j: they are a constant distance apart in the line, so their factors are a
  // geometric sequence. Each eight of them by Horner's scheme in both directions from the middle one, whose factor is looked up, by the
  // twins of the tables: `step` is at most in its fourth power, whose error is four of its own.
  // abft::fft_line_growth has what this adds to rounding.
  template <int First, int Count>
  __device__ __forceinline__ number unfolded(const number* z, int j, const number& step) const {
    constexpr int count = Count < 8 ? Count : 8;
    constexpr int centre = First + count / 2;
    constexpr int r = P.radix[k_last];
    number up = upper<r, centre, First + count - 1>(z, step);
    if constexpr (First < centre) up = product_sum(conjugate(step), lower<r, First, centre>(z, step), up);
    const number middle = factor(a.store_twin, j + centre * (P.length / r), line_of(P.out_columns));
    number sum = conjugate(middle) * up;
    if constexpr (Count > count) sum = sum + unfolded<First + count, Count - count>(z, j, step);
    return sum;
  }

  __device__ __forceinline__ void store() {
    const line_side& s = a.target;
    constexpr int r = P.radix[k_last];
    constexpr int stride = P.length / r;
    using out_type = typename std::conditional_t<P.store == store_form::real, word_type<real>, word_type<number>>::type;
    const int line = line_of(P.out_columns);
    const int t = place_of(P.out_columns);
    const std::int64_t element = P.target_unit ? 1 : P.target_step != 0 ? P.target_step : s.element;
    std::int64_t base = (first_column + line) * s.column + middle * s.middle + batch * s.batch;
    if constexpr (P.shared_target) base += shared_shift;
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (P.ragged(k_last) && t + q * P.threads >= P.share() / r) return;
      const int j = target_element<q * P.threads>(t);
      out_type* const to = static_cast<out_type*>(a.out) + (base + j * element);
      unrolled<r>([&](auto ki) {
        constexpr int k = decltype(ki)::value;
        if constexpr (P.truncated) {
          if (target_position(j + k * stride, line) >= a.stored) return;
        }
        number y = x[q * r + k];
        if constexpr (!k_verified && P.store_factor != factor_form::none && P.store_factor != factor_form::separated) {
          number w = factor(a.store_table, j + k * stride, line);
          if constexpr (q == 0 && k == 0) strike_factor(w);
          y = checked_product(y, w, line, [&] { return factor(a.store_twin, j + k * stride, line); });
        }
        const number z = swapped(y);
        if constexpr (P.mirrors()) {
          if (k == 0 && j == 0) {
            store_element(to, number{z.re, real(0)});
            store_element(to + P.length * element, number{z.im, real(0)});
            return;
          }
        }
        if constexpr (P.store == store_form::real) {
          store_element(to + k * stride * element, z.re);
        } else {
          store_element(to + k * stride * element, z);
        }
      });
    });
  }

  // ---- verify ----------------------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ unsigned char* partials() const { return shared + P.partial_offset(); }
  __device__ __forceinline__ line_record* records() const {
    return reinterpret_cast<line_record*>(shared + P.partial_offset() + P.partial_bytes());
  }

  // Partial sums lie as [slot][line], the four values together, then likewise ‖x‖²; those of the encoded input, if other threads hold the
  // outputs of a line, behind the others, with ‖x‖².
  static constexpr int k_out_slots = P.out_slots();
  static constexpr int k_in_slots = P.in_slots();
  template <class Value>
  struct alignas(16) four {
    Value at[4];
  };
  template <bool Encoded, class Value>
  __device__ __forceinline__ four<Value>* partial_values(int slot, int line) const {
    return reinterpret_cast<four<Value>*>(partials()) + ((Encoded ? k_out_slots : 0) + slot) * P.lines + line;
  }
  template <class Value>
  __device__ __forceinline__ Value* partial_norm(int slot, int line) const {
    return reinterpret_cast<Value*>(partials()) + 4 * (k_out_slots + k_in_slots) * P.lines + slot * P.lines + line;
  }

  // The lanes that this thread's warp has.
  static __device__ __forceinline__ unsigned warp_mask() {
    if constexpr (P.whole_warps()) return 0xffffffffu;
    const int rest = P.block() - static_cast<int>(threadIdx.x / 32 * 32);
    return rest >= 32 ? 0xffffffffu : (1u << rest) - 1;
  }
  // What a lane `distance` away brings; 0 if there is no such lane.
  template <class Value>
  static __device__ __forceinline__ Value from_partner(Value value, int distance) {
    if constexpr (P.whole_warps()) return __shfl_xor_sync(0xffffffffu, value, distance);
    const unsigned mask = warp_mask();
    const int own = static_cast<int>(threadIdx.x % 32);
    const bool there = (mask >> (own ^ distance) & 1) != 0;
    const Value other = __shfl_sync(mask, value, there ? own ^ distance : own);
    return there ? other : Value(0);
  }
  // Over `Lanes` lanes that are `Near` apart: all of them have the sums.
  template <int Lanes, int Near, class Value>
  static __device__ __forceinline__ void add_lanes(Value (&value)[4], Value& norm) {
    unrolled<4>([&](auto level) {
      constexpr int d = Near << decltype(level)::value;
      if constexpr (d < Near * Lanes) {
        for (int v = 0; v < 4; ++v) value[v] += from_partner(value[v], d);
        norm += from_partner(norm, d);
      }
    });
    if constexpr (Lanes == 32) {
      for (int v = 0; v < 4; ++v) value[v] += from_partner(value[v], 16 * Near);
      norm += from_partner(norm, 16 * Near);
    }
  }

  // The warps that a line lies in.
  template <bool Columns>
  static __device__ __forceinline__ int slots_of(int line) {
    if constexpr (P.cluster == 1 && P.lines > 1 && P.lanes_of_line(Columns) == 0)
      return ((line + 1) * P.threads - 1) / 32 - line * P.threads / 32 + 1;
    return P.partials(Columns);
  }
  // This thread's.
  template <bool Columns>
  __device__ __forceinline__ int slot_of() const {
    constexpr int lanes = P.lanes_of_line(Columns);
    const int warp = static_cast<int>(thread()) / 32;
    return Columns       ? (lanes > 1 ? warp : place_of(true))
           : lanes == 32 ? place_of(false) / 32
           : lanes > 0   ? 0
                         : warp - line_of(false) * P.threads / 32;
  }

  template <bool Encoded, class Value>
  __device__ __forceinline__ void put(int slot, int line, const Value (&value)[4], Value norm) const {
    *partial_values<Encoded, Value>(slot, line) = four<Value>{{value[0], value[1], value[2], value[3]}};
    if constexpr (Encoded || !P.remaps()) *partial_norm<Value>(slot, line) = norm;
  }

  // Adds up `value` and `norm` over the lanes of a warp that share a line, and writes the sums to the line's partial sums. In working
  // precision, as all sums of a line: abft::fft_line_growth.
  template <bool Columns, bool Encoded, class Value>
  __device__ __forceinline__ void deposit(Value (&value)[4], Value norm) const {
    constexpr int lanes = P.lanes_of_line(Columns);
    constexpr int near = Columns ? P.lines : 1;  // distance of neighbouring lanes of a line
    constexpr bool normed = Encoded || !P.remaps();
    const int line = line_of(Columns);
    const int t = place_of(Columns);
    const int slot = slot_of<Columns>();
    if constexpr (lanes == 0) {
      // Runs of lanes: each adds what is d lanes ahead, if that is in its run.
      const int own = static_cast<int>(threadIdx.x % 32);
      const int left = P.threads - t < 32 - own ? P.threads - t : 32 - own;  // lanes of the run from here on
      unrolled<5>([&](auto level) {
        constexpr int d = 1 << decltype(level)::value;
        if constexpr (d < P.threads) {
          const bool inside = d < left;
          const int from = inside ? own + d : own;
          for (int v = 0; v < 4; ++v) {
            const Value other = __shfl_sync(warp_mask(), value[v], from);
            if (inside) value[v] += other;
          }
          const Value other = __shfl_sync(warp_mask(), norm, from);
          if (inside) norm += other;
        }
      });
      if (own == 0 || t == 0) put<Encoded>(slot, line, value, norm);
    } else if constexpr (lanes == 1 || !P.whole_warps()) {
      add_lanes<lanes, near>(value, norm);
      if (Columns ? threadIdx.x % 32 < P.lines || lanes == 1 : t % lanes == 0) put<Encoded>(slot, line, value, norm);
    } else {
      // Half of the lanes go on with half of the values, twice; then each lane has one value to sum.
      Value* const to = partial_values<Encoded, Value>(slot, line)->at;
      const int lane = t % lanes;
      const bool upper = lane >= lanes / 2;
      Value half[2];
      for (int v = 0; v < 2; ++v) {
        const Value other = __shfl_xor_sync(0xffffffffu, upper ? value[v] : value[2 + v], near * lanes / 2);
        half[v] = (upper ? value[2 + v] : value[v]) + other;
      }
      if constexpr (lanes == 2) {
        to[upper ? 2 : 0] = half[0];
        to[upper ? 3 : 1] = half[1];
        if constexpr (normed) {
          norm += __shfl_xor_sync(0xffffffffu, norm, near);
          if (!upper) *partial_norm<Value>(slot, line) = norm;
        }
      } else {
        const bool odd = lane % (lanes / 2) >= lanes / 4;
        Value one = (odd ? half[1] : half[0]) + __shfl_xor_sync(0xffffffffu, odd ? half[0] : half[1], near * lanes / 4);
        if constexpr (!normed || lanes == 4) {
          for (int d = near * lanes / 8; d >= near; d /= 2) one += __shfl_xor_sync(0xffffffffu, one, d);
          if (lane % (lanes / 4) == 0) to[lane / (lanes / 4)] = one;
          if constexpr (normed) {
            for (int d = near * lanes / 2; d >= near; d /= 2) norm += __shfl_xor_sync(0xffffffffu, norm, d);
            if (lane == 0) *partial_norm<Value>(slot, line) = norm;
          }
        } else {
          // Then half of them with the value and half with the norm.
          for (int d = near * lanes / 2; d >= near * lanes / 4; d /= 2) norm += __shfl_xor_sync(0xffffffffu, norm, d);
          const bool last = lane % (lanes / 4) >= lanes / 8;
          const Value other = __shfl_xor_sync(0xffffffffu, last ? one : norm, near * lanes / 8);
          one = (last ? norm : one) + other;
          for (int d = near * lanes / 16; d >= near; d /= 2) one += __shfl_xor_sync(0xffffffffu, one, d);
          constexpr int values = 4 * (k_out_slots + k_in_slots) * P.lines;
          const int number = slot * P.lines + line;
          const int word = last ? values + number : 4 * number + (Encoded ? 4 * k_out_slots * P.lines : 0) + lane / (lanes / 4);
          Value* const place = reinterpret_cast<Value*>(partials()) + word;
          if (lane % (lanes / 8) == 0 && (!last || lane < lanes / 4)) *place = one;
        }
      }
    }
  }

  // Adds up the slots of a line from First on: of its warps, less the encoded ones, or, First > 0, of its blocks. Without Outputs those are
  // in `value` already.
  template <bool Outputs, int First, class Value>
  __device__ __forceinline__ void add_slots(int line, Value (&value)[4], Value& norm) const {
    constexpr int count = !Outputs ? 0 : First > 0 ? P.cluster : P.partials(P.out_columns);
    // Lanes that share a line share its slots, where each would have more than a few.
    constexpr int near = P.out_columns ? P.lines : 1;
    constexpr int lanes = !P.whole_warps() || P.lanes_of_line(P.out_columns) == 0 ? 1 : P.lanes_of_line(P.out_columns);
    constexpr int most = count > k_in_slots ? count : k_in_slots;
    constexpr int few = P.wide ? 2 : 4;
    constexpr int share = [] {
      int n = 1;
      while (n < lanes && n * few < most) n *= 2;
      return n;
    }();
    const int first = share == 1 ? 0 : place_of(P.out_columns) % share;
    Value sum[4] = {};
    Value square = 0;
    if constexpr (k_in_slots > 0) {
      const Value scale = P.scaled ? static_cast<Value>(static_cast<real>(a.scale)) : Value(1);
      each_slot<k_in_slots, share>(first, slots_of<P.in_columns>(line), [&](int i) {
        const four<Value> one = *partial_values<true, Value>(i, line);
        for (int v = 0; v < 4; ++v) sum[v] += one.at[v];
        square += *partial_norm<Value>(i, line);
      });
      for (int v = 0; v < 4; ++v) sum[v] *= -scale;
    }
    if constexpr (Outputs) {
      each_slot<count, share>(first, First > 0 ? count : slots_of<P.out_columns>(line), [&](int i) {
        const four<Value> one = *partial_values<false, Value>(First + i, line);
        for (int v = 0; v < 4; ++v) sum[v] += one.at[v];
        if constexpr (!P.remaps()) square += *partial_norm<Value>(First + i, line);
      });
    }
    if constexpr (share > 1) add_lanes<share, near>(sum, square);
    for (int v = 0; v < 4; ++v) value[v] = Outputs ? sum[v] : value[v] + sum[v];
    norm = square;
  }

  // body(i) for first, first + Share, … below `count`, which is at most Count.
  template <int Count, int Share, class Body>
  static __device__ __forceinline__ void each_slot(int first, int count, Body&& body) {
    if constexpr (Count <= 4 * Share) {
      unrolled<(Count + Share - 1) / Share>([&](auto at) {
        constexpr int ahead = Share * decltype(at)::value;
        if (first + ahead < count) body(first + ahead);
      });
    } else {
#pragma unroll 1
      for (int i = first; i < count; i += Share) body(i);
    }
  }

  // From this thread's part of aᵀy − bᵀx and ‖x‖² to those of its line, the same in all its threads: they add up the same numbers in the
  // same order. One barrier at most, in clusters one more of theirs.
  template <class Value>
  __device__ __forceinline__ void add_line(Value (&value)[4], Value& norm) const {
    constexpr int near = P.out_columns ? P.lines : 1;
    const int line = line_of(P.out_columns);
    if constexpr (P.within_warp(P.out_columns)) {
      add_lanes<P.lanes_of_line(P.out_columns), near>(value, norm);
      if constexpr (k_in_slots > 0) {
        barrier();
        add_slots<false, 0>(line, value, norm);
      }
    } else {
      deposit<P.out_columns, false>(value, norm);
      barrier();
      constexpr int own = P.partials(P.out_columns);
      if constexpr (P.cluster == 1) {
        add_slots<true, 0>(line, value, norm);
      } else {
        // The first warp tells all blocks.
        if (threadIdx.x < 32) {
          add_slots<true, 0>(0, value, norm);
          if (threadIdx.x < P.cluster) {
            four<Value>* const to = partial_values<false, Value>(own + rank(), 0);
            if constexpr (P.wide) {
              arch::store_remote(reinterpret_cast<number*>(to), threadIdx.x, number{value[0], value[1]});
              arch::store_remote(reinterpret_cast<number*>(to) + 1, threadIdx.x, number{value[2], value[3]});
            } else {
              arch::store_remote(to, threadIdx.x, four<Value>{{value[0], value[1], value[2], value[3]}});
            }
            arch::store_remote(partial_norm<Value>(own + rank(), 0), threadIdx.x, norm);
          }
          __syncwarp();
        }
        arch::cluster_sync();
        add_slots<true, own>(0, value, norm);
      }
    }
  }

  // |Re ρ| + |Im ρ| of one vector or of the other: the larger one, or whichever is not a number.
  template <class Value>
  static __device__ __forceinline__ Value larger_residual(const Value (&value)[4]) {
    const Value first = fabs(value[0]) + fabs(value[1]);
    const Value second = fabs(value[2]) + fabs(value[3]);
    return first <= second ? second : first == first && second != second ? second : first;
  }

  // One lane of each line: what only one may do, and what faults in the check strike.
  __device__ __forceinline__ bool leads() const { return place_of(P.out_columns) == 0 && rank() == 0; }

  // Both checksums of the finished tile against the encoded ones: the residual of this thread's line, and its ‖x‖².
  __device__ __forceinline__ void residual_of_line(const real (&sum)[4], real& residual, real& norm) const {
    real value[4];
    if constexpr (P.remaps()) {
      for (int v = 0; v < 4; ++v) value[v] = sum[v];
      norm = 0;
    } else {
      const real scale = P.scaled ? static_cast<real>(a.scale) : real(1);
      for (int v = 0; v < 4; ++v) value[v] = multiply_add(-scale, encoded[v], sum[v]);
      norm = square;
    }
    add_line(value, norm);
    if constexpr (Injector::enabled) {
      if (leads()) strike<4>(inject::site::fft_checksum, a.pass, a.passes, value, line_of(P.out_columns), P.lines);
    }
    residual = larger_residual(value);
  }

  // Until a lane fails it, a line passes.
  __device__ __forceinline__ void expect_all() const {
    constexpr bool within = P.within_warp(P.out_columns);
    const int line = within ? line_of(P.out_columns) : static_cast<int>(threadIdx.x);
    if (within ? place_of(P.out_columns) == 0 : line < P.lines) {
      records()[line].word = abft::k_pass;
      records()[line].settled = k_ready;
    }
    if constexpr (within) __syncwarp(warp_mask());
  }

  // This lane's verdict of its line. All lanes of a line come to the same one, unless one of them is struck.
  __device__ __forceinline__ bool passes(real residual_here, real norm_here) const {
    const int line = line_of(P.out_columns);
    const double residual = static_cast<double>(residual_here);
    const double norm_square = static_cast<double>(norm_here);
    // Squares of elements far from 1 leave the range of the precision: only a computation with careful norms can be judged then.
    constexpr double tiny = P.wide ? 1e-250 : 1e-30;
    constexpr double huge = P.wide ? 1e250 : 1e30;
    const bool in_range = norm_square >= tiny && norm_square <= huge;  // false for NaN
    abft::guarded_threshold tau;                                       // squared, so that no root has to be taken
    tau.value = a.slope[0] * a.slope[0] * norm_square + a.offset[0] * a.offset[0];
    tau.twin = a.slope[1] * a.slope[1] * norm_square + a.offset[1] * a.offset[1];
    if constexpr (Injector::enabled) {
      if (leads()) strike<1>(inject::site::fft_threshold, a.pass, a.passes, &tau.value, line, P.lines);
    }
    std::uint32_t word = abft::verify(residual * residual, tau);
    if (!in_range && !(norm_square == 0 && residual == 0)) word = abft::k_fail;
    if constexpr (Injector::enabled) {
      if (leads()) strike<1>(inject::site::fft_comparison, a.pass, a.passes, &word, line, P.lines);
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

  // Whether any lane has failed a line: everybody learns the same, as the attempt loop has barriers.
  __device__ __forceinline__ bool vote(bool open) const {
    if constexpr (P.cluster > 1) {
      __syncwarp();
      arch::cluster_sync();
      return records()->settled == 0;
    } else if constexpr (P.block() <= 32) {
      const bool any = __any_sync(warp_mask(), open) != 0;
      __syncwarp();
      return any;
    } else {
      return __syncthreads_or(open) != 0;
    }
  }

  // Lines that did not pass, after another computation of the tile.
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

  // Adds up a value of each thread over the threads of a line, in the order of these, into `member` of the line's record: rare, so
  // serially, through the memory of the exchange. Not by atomics: those of 64 bits in shared memory are loops that lanes leave one by one,
  // and compilers have been seen to let them run into the next barrier like that (NVRTC 13.0, sm_90a: an illegal instruction).
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
      // Through the partial sums of the first block, which are not needed now.
      static_assert(P.partial_bytes() >= static_cast<std::int64_t>(P.cluster * sizeof(Value)));
      Value* const gathered = reinterpret_cast<Value*>(partials());
      if (threadIdx.x == 0) arch::store_remote(gathered + rank(), 0, records()->*member);
      arch::cluster_sync();
      if (rank() == 0 && threadIdx.x == 0) {
        Value sum = 0;
        for (int i = 0; i < P.cluster; ++i) sum += gathered[i];
        records()->*member = sum;
      }
      arch::cluster_sync();
    }
  }

  // Hash of the outputs of each line, for comparing two computations.
  __device__ __forceinline__ void hash_outputs() {
    barrier();
    for (int line = static_cast<int>(threadIdx.x); line < P.lines; line += P.block()) records()[line].previous = records()[line].hash;
    std::uint64_t hash = 0;
    outputs([&](auto at, int o, auto, auto) {
      // Whatever the payload of a NaN: compilers may order the operands of two computations in two ways.
      const auto settled = [](real part) { return part == part ? part : std::numeric_limits<real>::quiet_NaN(); };
      const number z = x[decltype(at)::value];
      const auto at_output = 2 * static_cast<std::uint64_t>(o);
      hash += value_hash(settled(z.re), at_output) + value_hash(settled(z.im), at_output + 1);
    });
    barrier();
    add_up<P.out_columns>(hash, &line_record::hash);
  }

  __device__ __forceinline__ void compute(real (&sum)[4]) {
    load();
    transform();
    if constexpr (P.remaps() && k_summed) {
      real in[4];
      for (int v = 0; v < 4; ++v) in[v] = encoded[v];
      deposit<P.in_columns, true>(in, square);
      forget();
    }
    finish(sum);
  }

  // ‖x‖² of every line from its input, so that it neither overflows nor underflows.
  __device__ __forceinline__ void careful_norms() {
    fetch_elements();
    const double scale = records()[line_of(P.in_columns)].norm_scale;
    double sum = 0;
    unrolled<P.butterflies(0) * P.radix[0]>([&](auto i) {
      const number z = x[decltype(i)::value];
      sum += static_cast<double>(z.re) * scale * (static_cast<double>(z.re) * scale);
      sum += static_cast<double>(z.im) * scale * (static_cast<double>(z.im) * scale);
    });
    add_up<P.in_columns>(sum, &line_record::careful_square);
  }

  // Of lines that were judged and come out as they did then, says that they may be stored; others are judged again. Returns whether any is.
  __device__ __forceinline__ bool confirm() const {
    const auto decide = [&](int line) {
      line_record& r = records()[line];
      if (r.settled == k_ready) r.settled = k_settled;
      if (r.settled == k_judged) {
        const bool same = r.word != abft::k_pass || r.hash == r.previous;
        r.settled = same ? k_ready : 0;
        if (!same) r.detected = 1;  // one of the two computations was struck, whatever the check said
      }
      return r.settled == 0;
    };
    if constexpr (P.cluster > 1) {  // the first block knows the hash of all
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

  // Events of the lines that confirm() has let through.
  __device__ __forceinline__ void report_confirmed() const {
    const int line = line_of(P.out_columns);
    const line_record& r = records()[line];
    if (leads() && valid(line) && r.settled == k_ready && r.word == abft::k_pass && r.detected != 0)
      report_line<Injector>(launch, r, tile, P.lines, line, number_of(line));
  }

  // The tile: verified before it is stored. With a line that failed all are computed again, twice each time: first it is judged, then,
  // if it passed and is the same again, stored. While one is judged again nothing is kept: there are not that many registers. Lines that
  // were stored are loaded again, too, but not looked at.
  // Nothing is stored before all verdicts are known, and a line only if all its threads pass it.
  __device__ __forceinline__ void run_verified() {
    constexpr bool one_sided = P.check == check_form::one_sided;
    expect_all();
    for (int step = 0;; ++step) {
      real sum[4];
      // Phases of the barrier so far: one a computation, two if exchanges are split.
      if constexpr (P.cluster > 1) arrival_parity = P.split ? 0u : static_cast<unsigned>(step) & 1u;
      compute(sum);
      if (step > 0) hash_outputs();
      if (step % 2 != 0) {
        judge_repeated(sum, (step + 1) / 2);
        continue;
      }
      bool open = false;
      bool mine = false;  // to be stored
      if (step == 0) {
        if constexpr (one_sided) {
          if (valid(line_of(P.out_columns))) store();
        }
        real residual = 0;
        real norm = 0;
        forget();
        residual_of_line(sum, residual, norm);
        open = vote(!passes(residual, norm));
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

template <line_policy P, class Injector>
__global__ void __launch_bounds__(P.block(), P.min_blocks) line_kernel(const __grid_constant__ line_launch<Injector> given) {
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  line_tile<P, Injector> tile(given);
  if constexpr (P.cluster > 1) {
    // The barrier of the cluster in front of the first exchange makes it known. One tile: blocks that took several were slower.
    if (threadIdx.x == 0) {
      arch::init_mbarrier(tile.arrival(), 1);
      arch::fence_mbarrier_init();
    }
    tile.select(blockIdx.x / P.cluster);
    tile.run();
    return;
  }
  if constexpr (P.staged) {
    if (threadIdx.x == 0) {
      arch::init_mbarrier(tile.stage_barrier(), 1);
      arch::fence_mbarrier_init();
      if (blockIdx.x < given.arguments.tiles) tile.copy_to_stage(blockIdx.x);
    }
    line_tile<P, Injector>::barrier();
  }
  // Where tiles are not copied ahead there is a block for each. Unchecked kernels have the loop nevertheless, as NVRTC 13.0 keeps within
  // the registers with it, unless they begin with a product with a table.
  if constexpr (P.staged || (P.check == check_form::none && P.load_factor == factor_form::none)) {
    for (std::uint32_t at = blockIdx.x; at < given.arguments.tiles; at = tile.tile + gridDim.x) {
      tile.select(at);
      if constexpr (P.staged) {
        tile.from_stage = true;
        tile.refills = true;
      }
      tile.run();
      if (tile.tile + gridDim.x < given.arguments.tiles) line_tile<P, Injector>::barrier();
    }
  } else {
    tile.select(blockIdx.x);
    tile.run();
  }
}

}  // namespace ballast::fft::cuda
