// Loads the elements of a line from memory into registers, and stores them.
// Layer: fft/cuda kernels; a part of line.cuh.
#pragma once

#include "cuda/block/read_ahead.cuh"
#include "cuda/block/vector.cuh"
#include "fft/cuda/kernel/line_real.cuh"

namespace ballast::fft::cuda {

// A verified line reads its elements twice: once as data and once for the checksums, the second time with the second copies of the factors.
// A wrong value from memory or from a table is then in only one of the two.
enum class reading { data, checksums };

template <line_policy P, class Injector>
struct line_memory : line_real<P, Injector> {
  using below = line_real<P, Injector>;
  using below::a;
  using below::ahead_parity;
  using below::batch;
  using below::checked_product;
  using below::constant;
  using below::factor;
  using below::first_column;
  using below::forget;
  using below::from_buffer;
  using below::k_last;
  using below::k_verified;
  using below::line_of;
  using below::middle;
  using below::position_at;
  using below::position_of;
  using below::refills;
  using below::shared;
  using below::shared_shift;
  using below::source_element;
  using below::strike_factor;
  using below::swapped;
  using below::target_element;
  using below::target_position;
  using below::tile;
  using below::valid;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  // Large blocks have too few registers for both readings at once: half of the second one waits until the other half is summed. Lines whose
  // outputs alone are multiplied by a table spill with this delay, and do not spill without it.
  static constexpr bool k_crowded = P.block() > 256 && P.block() * P.held() * P.scalar_bytes() * 2 > 65536 &&
                                    (P.store_factor != factor_form::table || P.load_factor == factor_form::table);
  // Half of the second one waits as well, and the next butterfly waits for all of it, where both readings leave too few registers: for two
  // butterflies of 16 numbers at a constant distance, and for odd radices, which compute with as many registers as they have numbers. Other
  // lines spill with this delay.
  static constexpr bool k_near = P.source_unit || P.source_step != 0;  // elements of a line are at constant distances
  static constexpr bool k_tight = [] {
    constexpr int r = P.radix[0];
    constexpr int registers = 65536 / ((P.block() + 31) / 32 * 32 * P.min_blocks);
    constexpr bool large = P.butterflies(0) > 1 && r >= 16 && k_near;
    constexpr int computing = r % 2 != 0 ? r * P.scalar_bytes() / 2 : large ? 1 : -registers;
    return !k_crowded && P.held() * P.scalar_bytes() + computing > registers;
  }();
  // Threads with several butterflies of which some are missing: no branch is around loads, as a thread without a butterfly reads the
  // elements of the last one, which no sum takes. All of the second reading is issued first, before anything is computed; the first one
  // follows when registers are free, and then comes from L1. With branches, or where the assembler chooses the order, loads of a butterfly
  // wait for the sums of another one, and so a thread waits for memory twice. Other lines keep the branches: an odd radix spills without
  // them, and so do elements at distances that are no constants.
  static constexpr bool k_sums_first =
      k_verified && P.ragged(0) && P.butterflies(0) > 1 && P.radix[0] % 2 == 0 && k_near && !k_crowded && !k_tight;

  template <reading For, class T>
  static __device__ __forceinline__ T load_element(const T* from) {
    return ballast::cuda::load_data<P.shared_source, P.sums(), For == reading::checksums>(from);
  }
  template <reading For>
  __device__ __forceinline__ number read_complex(std::int64_t at) const {
    return load_element<For>(static_cast<const number*>(a.in) + at);
  }
  template <reading For>
  __device__ __forceinline__ number read_real(std::int64_t at) const {
    return {load_element<For>(static_cast<const real*>(a.in) + at), real(0)};
  }
  // Reads an element of a Hermitian line: those beyond the half are conjugates of their mirror images. Ignores imaginary parts that must be
  // zero.
  template <reading For>
  __device__ __forceinline__ number read_half(std::int64_t at, std::int64_t position) const {
    const bool mirrored = 2 * position > a.whole;
    const std::int64_t step = mirrored ? a.whole - 2 * position : 0;
    number z = read_complex<For>(at + step * a.unit);
    if (mirrored) z.im = -z.im;
    if (position == 0 || 2 * position == a.whole) z.im = real(0);
    return z;
  }

  // Reads element i of a line at `base`, if it cannot be read directly: padded, real, half a spectrum, or times a factor.
  template <reading For>
  __device__ __forceinline__ number read(std::int64_t base, int i, int line) const {
    const line_side& s = a.source;
    number z{real(0), real(0)};
    std::int64_t position = 0;
    if constexpr (P.load == load_form::half || P.padded || P.load_factor == factor_form::table) position = position_at(s, i, line);
    if constexpr (P.padded) {
      if (position >= a.loaded) return z;
    }
    const std::int64_t at = base + i * (P.source_step != 0 ? P.source_step : s.element);
    if constexpr (P.fallback) {
      z = below::has(k_form_load_real)   ? read_real<For>(at)
          : below::has(k_form_load_half) ? read_half<For>(at, position)
                                         : read_complex<For>(at);
    } else if constexpr (P.load == load_form::real) {
      z = read_real<For>(at);
    } else if constexpr (P.load == load_form::half) {
      z = read_half<For>(at, position);
    } else {
      z = read_complex<For>(at);
    }
    z = swapped(z);
    if constexpr (P.load_factor == factor_form::table) {
      if constexpr (P.fallback) {
        if (a.load_table == nullptr) return z;
      }
      const auto factor_at = [&](const void* table) { return cached(static_cast<const number*>(table) + position); };
      if constexpr (k_verified) {
        z = z * factor_at(For == reading::data ? a.load_table : a.load_twin);
      } else {
        z = checked_product(z, factor_at(a.load_table), line, [&] { return factor_at(a.load_twin); });
      }
    }
    return z;
  }

  // Contiguous tiles are prefetched: the next tile is copied into shared memory while the current one is transformed.
  using tile_buffer = ballast::cuda::read_ahead<number, P.tile_bytes()>;
  __device__ __forceinline__ tile_buffer ahead() const { return {shared + P.ahead_offset()}; }

  // Requests a tile of contiguous lines; called by one thread. The last tile of a row may have fewer lines.
  __device__ __forceinline__ void request(std::int64_t wanted) const {
    const std::int64_t row = P.flat ? 0 : static_cast<std::uint32_t>(wanted) / static_cast<std::uint32_t>(a.column_tiles);
    const std::int64_t outer = P.flat ? 0 : static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(a.middles);
    const std::int64_t column = (wanted - row * a.column_tiles) * P.lines;
    const std::int64_t lines = a.columns - column < P.lines ? a.columns - column : P.lines;
    const std::int64_t base = column * P.length + (row - outer * a.middles) * a.source.middle + outer * a.source.batch;
    const auto bytes = static_cast<std::uint32_t>(lines * P.length * static_cast<std::int64_t>(sizeof(number)));
    ahead().expect(bytes);
    ahead().copy(ahead().words(), static_cast<const number*>(a.in) + base, bytes);
  }

  // Call it after the first barrier of a tile: every thread has then read its elements, so the buffer is free for the next tile.
  __device__ __forceinline__ void refill() {
    if constexpr (P.staged) {
      if (threadIdx.x == 0 && refills && tile + gridDim.x < a.tiles) request(tile + gridDim.x);
      refills = false;
    }
  }

  // The location from which this thread reads the elements of its line.
  struct source_position {
    std::int64_t base;
    int line;
    int t;
    bool inside;
  };
  __device__ __forceinline__ source_position source() const {
    // If lines are verified, lines beyond the last one read the first line, which avoids a branch; they are neither judged nor stored.
    const int own = line_of(P.in_columns);
    const int line = k_verified && !valid(own) ? 0 : own;
    std::int64_t base = (first_column + line) * a.source.column + middle * a.source.middle + batch * a.source.batch;
    if constexpr (P.shared_source) base += shared_shift;
    return {base, line, position_of(P.in_columns), k_verified || valid(own)};
  }

  // Returns whether butterfly Q of this thread in the first stage is inside the line, and the line inside the data.
  template <int Q>
  static __device__ __forceinline__ bool has_elements(const source_position& from_here, index<Q>) {
    return from_here.inside && (!P.ragged(0) || from_here.t + Q * P.threads < P.share() / P.radix[0]);
  }

  // Returns whether this thread reads elements for butterfly Q.
  template <int Q>
  static __device__ __forceinline__ bool reads_elements(const source_position& from_here, index<Q> q) {
    return k_sums_first || has_elements(from_here, q);
  }

  // Calls body(m, z) for element m = 0 … radix − 1 of butterfly Q of this thread in the first stage, if reads_elements(). If the butterfly
  // is beyond the line, they are those of the last one.
  template <reading For, int Q, class Body>
  __device__ __forceinline__ void each_element(const source_position& from_here, index<Q>, Body&& body) const {
    constexpr int r = P.radix[0];
    constexpr int stride = P.length / r;
    constexpr int count = P.share() / r;
    constexpr bool limited = k_sums_first && (Q + 1) * P.threads > count;
    constexpr int more = limited ? 0 : Q * P.threads;
    const int t = limited ? min(from_here.t + Q * P.threads, count - 1) : from_here.t;
    if constexpr (P.staged) {
      if (from_buffer) {
        const number* const from = ahead().words() + (line_of(false) * P.length + t + more);
        unrolled<r>([&](auto m) {
          const number* const at = from + decltype(m)::value * stride;
          body(m, this->swapped(For == reading::checksums ? arch::load_shared_itself(at) : *at));
        });
        return;
      }
    }
    const std::int64_t base = from_here.base;
    const int j = source_element(t, index<more>{});
    if constexpr (P.load == load_form::complex && !P.padded && P.load_factor == factor_form::none) {
      const std::int64_t element = P.source_unit ? 1 : P.source_step != 0 ? P.source_step : a.source.element;
      const number* const from = static_cast<const number*>(a.in) + (base + j * element);
      unrolled<r>([&](auto m) { body(m, this->swapped(load_element<For>(from + decltype(m)::value * stride * element))); });
    } else if constexpr (P.load == load_form::spectrum) {
      static_assert(P.source_unit && !P.padded && P.load_factor == factor_form::none);
      static_assert(P.check == check_form::none || k_verified, "only a verified line has a second reading, which covers this step");
      const number* const from = static_cast<const number*>(a.in) + base;
      const number own = cached(static_cast<const number*>(For == reading::data ? a.load_table : a.load_twin) + j);
      unrolled<r>([&](auto mi) {
        constexpr int m = decltype(mi)::value;
        number turn = below::constant(root_of_unity(m, 2 * r));
        if constexpr (For == reading::checksums) turn = {arch::opaque(turn.re), arch::opaque(turn.im)};
        number z = load_element<For>(from + (j + m * stride));
        number image = load_element<For>(from + (P.length - j - m * stride));
        // Ignore imaginary parts that must be zero.
        if constexpr (m == 0) {
          if (j == 0) z.im = image.im = real(0);
        }
        body(mi, this->swapped(below::template with_image<true>(z, image, own * conjugate(turn))));
      });
    } else {
      unrolled<r>([&](auto m) { body(m, this->template read<For>(base, j + decltype(m)::value * stride, from_here.line)); });
    }
  }

  // Call it before elements are read.
  __device__ __forceinline__ void start_reading() {
    forget();
    if constexpr (P.staged) {
      if (from_buffer) ahead().wait(ahead_parity);
    }
  }

  // Loads the elements of this thread's butterflies of the first stage.
  __device__ __forceinline__ void fetch_elements() {
    const source_position here = source();
    unrolled<P.butterflies(0)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      constexpr int r = P.radix[0];
      if (reads_elements(here, qi)) {
        this->template each_element<reading::data>(here, qi, [&](auto m, const number& z) { this->x[q * r + decltype(m)::value] = z; });
      } else {
        unrolled<r>([&](auto m) { this->x[q * r + decltype(m)::value] = number{real(0), real(0)}; });
      }
    });
  }

  // Stores this thread's outputs of its line.
  __device__ __forceinline__ void store() {
    const line_side& s = a.target;
    constexpr int r = P.radix[k_last];
    constexpr int stride = P.length / r;
    using out_type = typename std::conditional_t<P.store == store_form::real, type_of<real>, type_of<number>>::type;
    const int line = line_of(P.out_columns);
    const int t = position_of(P.out_columns);
    const std::int64_t element = P.target_unit ? 1 : P.target_step != 0 ? P.target_step : s.element;
    std::int64_t base = (first_column + line) * s.column + middle * s.middle + batch * s.batch;
    if constexpr (P.shared_target) base += shared_shift;
    unrolled<P.butterflies(k_last)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      if (P.ragged(k_last) && t + q * P.threads >= P.share() / r) return;
      const int j = target_element(t, index<q * P.threads>{});
      out_type* const to = static_cast<out_type*>(a.out) + (base + j * element);
      unrolled<r>([&](auto ki) {
        constexpr int k = decltype(ki)::value;
        if constexpr (P.truncated) {
          if (this->target_position(j + k * stride, line) >= this->a.stored) return;
        }
        number y = x[q * r + k];
        if constexpr (!P.folds() && P.store_factor != factor_form::none && P.store_factor != factor_form::separated) {
          if (!P.fallback || this->a.store_table != nullptr) {
            number w = this->factor(this->a.store_table, j + k * stride, line);
            if constexpr (q == 0 && k == 0) this->strike_factor(w);
            y = this->checked_product(y, w, line, [&] { return this->factor(this->a.store_twin, j + k * stride, line); });
          }
        }
        const number z = swapped(y);
        if constexpr (P.repair == repair_form::last) {
          static_assert(P.store == store_form::complex);
          const number before = arch::load_itself(reinterpret_cast<const number*>(to + k * stride * element));
          this->changed = this->changed || !below::same_bits(before, z);
        }
        if constexpr (P.mirrors()) {
          if (k == 0 && j == 0) {
            const auto store_real = [&](number* at, real value) {
              if constexpr (P.sums()) {  // the zero is in no sum
                ballast::cuda::store_data<P.shared_target, true>(&at->re, value);
                arch::store_zero(&at->im);
              } else {
                ballast::cuda::store_data<P.shared_target, false>(at, number{value, real(0)});
              }
            };
            store_real(to, z.re);
            store_real(to + P.length * element, z.im);
            return;
          }
        }
        if constexpr (P.fallback) {
          if (this->has(k_form_store_real)) {
            const std::int64_t at = base + (j + k * stride) * element;
            return ballast::cuda::store_data<P.shared_target, P.sums()>(static_cast<real*>(this->a.out) + at, z.re);
          }
        }
        if constexpr (P.store == store_form::real) {
          ballast::cuda::store_data<P.shared_target, P.sums()>(to + k * stride * element, z.re);
        } else {
          ballast::cuda::store_data<P.shared_target, P.sums()>(to + k * stride * element, z);
        }
      });
    });
  }
};

}  // namespace ballast::fft::cuda
