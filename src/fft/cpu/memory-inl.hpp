// Loads and stores of tiles. A load encodes the rows that it has just read, and computes seals of rows that come from the workspace. A read
// from the caller's memory computes the parity from a second load; a store to the caller's memory computes it from the registers after it.
// Layer: backend "cpu".
#include <atomic>
#include <cstring>

#include "fft/cpu/sums-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_MEMORY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_MEMORY_INL
#else
#define BALLAST_FFT_MEMORY_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// Two barriers for the compiler around the stores of x and y, which join a parity after them. The first makes both opaque, so that the
// stored registers are the only place of their values. The second makes what joins the parity come after the stores; x and y are inputs
// alone there, since the compiler would copy a register that may change, and a copy does not show what happens to the stored one.
HWY_INLINE void before_stores(V& x, V& y) {
#if HWY_TARGET != HWY_EMU128 && HWY_ARCH_X86
  __asm__ volatile("" : "+v"(x.raw), "+v"(y.raw));
#elif HWY_TARGET != HWY_EMU128 && HWY_ARCH_ARM
  __asm__ volatile("" : "+w"(x.raw), "+w"(y.raw));
#else
  __asm__ volatile("" : "+m"(x), "+m"(y));
#endif
}
HWY_INLINE void after_stores(word_vector& parity, const V& x, const V& y) {
#if HWY_TARGET != HWY_EMU128 && HWY_ARCH_X86
  __asm__ volatile("" : "+v"(parity.raw) : "v"(x.raw), "v"(y.raw) : "memory");
#elif HWY_TARGET != HWY_EMU128 && HWY_ARCH_ARM
  __asm__ volatile("" : "+w"(parity.raw) : "w"(x.raw), "w"(y.raw) : "memory");
#else
  __asm__ volatile("" : "+m"(parity) : "m"(x), "m"(y) : "memory");
#endif
}

// The same around the store of one register, for parities in memory.
template <class Register>
HWY_INLINE void before_store(Register& x) {
#if HWY_TARGET != HWY_EMU128 && HWY_ARCH_X86
  __asm__ volatile("" : "+v"(x.raw));
#elif HWY_TARGET != HWY_EMU128 && HWY_ARCH_ARM
  __asm__ volatile("" : "+w"(x.raw));
#else
  __asm__ volatile("" : "+m"(x));
#endif
}
template <class Register>
HWY_INLINE void after_store(const Register& x) {
#if HWY_TARGET != HWY_EMU128 && HWY_ARCH_X86
  __asm__ volatile("" : : "v"(x.raw) : "memory");
#elif HWY_TARGET != HWY_EMU128 && HWY_ARCH_ARM
  __asm__ volatile("" : : "w"(x.raw) : "memory");
#else
  __asm__ volatile("" : : "m"(x) : "memory");
#endif
}

// Forces later reads to load from memory instead of using values that the compiler holds in registers.
HWY_INLINE void read_again() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// ---- Loads ----

// Continues a parity by registers of two neighbouring signals; with vectors of one lane, of one.
HWY_INLINE word_vector join_lanes(word_vector made, V x, V y) {
  if constexpr (W == 1)
    return join(turn_left<k_lane_turn>(made), x, hn::Zero(D()));
  else
    return join_turned<k_lane_turn>(made, x, y);
}
// Continues a parity by one register of each signal of `part`.
HWY_INLINE word_vector join_signals(word_vector made, const T* part) {
  const D d;
  for (int l = 0; l < W; l += 2)
    made = join_lanes(made, hn::Load(d, part + l * W), l + 1 < W ? hn::Load(d, part + (l + 1) * W) : hn::Zero(d));
  return made;
}
// The parity of signals whose first `scalars` scalars, rounded up to whole registers, have joined `made`.
HWY_INLINE std::uint64_t joined_signals(word_vector made, std::int64_t scalars) {
  return joined<lane_order::signal>(made, (scalars + W - 1) / W * W - k_lane_turn);
}

// Unless `parity` is null, adds the numbers to it from a second load, since nothing protects the first one.
HWY_INLINE void transpose_in(const T* base, std::int64_t lane_stride, int used, T* HWY_RESTRICT to, std::int64_t to_stride,
                             word_vector* parity = nullptr) {
  const D d;
  const auto lane = [&](int l) HWY_ATTR { return l < used ? hn::LoadU(d, base + l * lane_stride) : hn::Zero(d); };
  V v[W];
#pragma GCC unroll 16
  for (int l = 0; l < W; l += 2) {
    v[l] = lane(l);
    if (l + 1 < W) v[l + 1] = lane(l + 1);
    if (parity == nullptr) continue;
    read_again();
    *parity = join_lanes(*parity, lane(l), l + 1 < W ? lane(l + 1) : hn::Zero(d));
  }
  transpose(v);
#pragma GCC unroll 16
  for (int l = 0; l < W; ++l) hn::Store(v[l], d, to + l * to_stride);
}

std::uint64_t load_rows(const T* base, std::int64_t lane_stride, int used, std::int64_t scalars, T* tile, const encoder<T>& encode) {
  const std::int64_t rows = (scalars + 1) / 2;
  word_vector parity = hn::Zero(words());
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t end = HWY_MIN(scalars, 2 * (j + k_block));
    std::int64_t f = 2 * j;
    for (; f + W <= end; f += W) {
      const T* const from = base + f;
      T* const to = tile + f * W;
      if (HWY_LIKELY(used == W))
        transpose_in(from, lane_stride, W, to, W, encode.parity ? &parity : nullptr);
      else
        transpose_in(from, lane_stride, used, to, W, encode.parity ? &parity : nullptr);
    }
    if (f < end) {
      HWY_ALIGN T part[W * W] = {};
      HWY_ALIGN T turned[W * W];
      const auto read = [&] {
        for (int l = 0; l < used; ++l) std::memcpy(part + l * W, base + l * lane_stride + f, static_cast<std::size_t>(end - f) * sizeof(T));
      };
      read();
      transpose_in(part, W, W, turned, W);
      std::memcpy(tile + f * W, turned, static_cast<std::size_t>((end - f) * W) * sizeof(T));
      if (encode.parity) {
        read_again();
        read();
        parity = join_signals(parity, part);
      }
    }
    if (end == scalars && scalars % 2 != 0) hn::Store(hn::Zero(D()), D(), tile + scalars * W);
    encode_block(tile, j, HWY_MIN(static_cast<std::int64_t>(k_block), rows - j), encode);
  }
  end(encode, rows);
  return joined_signals(parity, scalars);
}

// Continues a parity by the complex numbers of a row of W lanes.
HWY_INLINE word_vector join_column(word_vector made, V low, V high) {
  const words d;
  constexpr int k_right = W == 1 ? 1 : W / 2 * k_lane_turn % k_bits;  // the rotation of the first word of `high`
  return hn::Xor3(turn_left<2>(made), hn::BitCast(d, low), turn_left<k_bits - k_right>(hn::BitCast(d, high)));
}
HWY_INLINE std::uint64_t joined_columns(word_vector made, std::int64_t rows) { return joined<lane_order::column>(made, 2 * rows - 2); }

std::uint64_t load_columns(const T* base, std::int64_t row_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode) {
  const D d;
  word_vector parity = hn::Zero(words());
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(k_block), rows - j);
    for (std::int64_t i = j; i < j + count; ++i) {
      const T* from = base + i * row_stride;
      V low, high;
      if (HWY_LIKELY(used == W)) {
        low = hn::LoadU(d, from);
        high = hn::LoadU(d, from + W);
        if (encode.parity) {
          read_again();
          parity = join_column(parity, hn::LoadU(d, from), hn::LoadU(d, from + W));
        }
      } else {
        HWY_ALIGN T part[2 * W] = {};
        std::memcpy(part, from, static_cast<std::size_t>(2 * used) * sizeof(T));
        low = hn::Load(d, part);
        high = hn::Load(d, part + W);
        read_again();
        std::memcpy(part, from, static_cast<std::size_t>(2 * used) * sizeof(T));
        parity = join_column(parity, hn::Load(d, part), hn::Load(d, part + W));
      }
      const complex_vector row = deinterleave(low, high);
      hn::Store(row.re, d, tile + i * k_row);
      hn::Store(row.im, d, tile + i * k_row + W);
    }
    encode_block(tile, j, count, encode);
  }
  end(encode, rows);
  return joined_columns(parity, rows);
}

std::int64_t load_blocks(const T* base, std::int64_t block_stride, int used, std::int64_t rows, T* tile, const T* seals,
                         std::int64_t seal_stride, const encoder<T>& encode) {
  std::int64_t damaged = 0;
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += W) {
    const T* from = base + j / W * block_stride;
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(W), rows - j);
    if (HWY_LIKELY(count == W)) {
      transpose_in(from, k_row, used, tile + j * k_row, k_row);
      transpose_in(from + W, k_row, used, tile + j * k_row + W, k_row);
    } else {
      HWY_ALIGN T turned[W * k_row];
      transpose_in(from, k_row, used, turned, k_row);
      transpose_in(from + W, k_row, used, turned + W, k_row);
      std::memcpy(tile + j * k_row, turned, static_cast<std::size_t>(count * k_row) * sizeof(T));
    }
    // Seals and sums are computed from the numbers in the tile, not from those read from the workspace.
    const std::int64_t ready = j + count;
    if (ready % k_block != 0 && ready != rows) continue;
    const std::int64_t first = (ready - 1) / k_block * k_block;
    T found[k_block / W];
    encode_block(tile, first, ready - first, encode, seals == nullptr ? nullptr : found);
    if (seals == nullptr) continue;
    for (std::int64_t i = first; i < ready; i += W) {
      if (std::bit_cast<word_of<T>>(found[(i - first) / W]) != std::bit_cast<word_of<T>>(seals[i / W * seal_stride])) ++damaged;
    }
  }
  return damaged;
}

// ---- Stores ----

// Stores v[0] … v[used − 1], `stride` apart. Adds all W registers to the parity after the store: if a register changed before its store,
// the parity shows it.
template <bool Stream>
HWY_INLINE void store_lanes(V* HWY_RESTRICT v, int used, T* base, std::int64_t stride, word_vector& parity) {
  const D d;
#pragma GCC unroll 16
  for (int l = 0; l < W; l += 2) {
    V pair[2] = {v[l], l + 1 < W ? v[l + 1] : hn::Zero(d)};
    before_stores(pair[0], pair[1]);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      if (l + i >= HWY_MIN(W, used)) continue;
      if constexpr (Stream)
        hn::Stream(pair[i], d, base + (l + i) * stride);
      else
        hn::StoreU(pair[i], d, base + (l + i) * stride);
    }
    after_stores(parity, pair[0], pair[1]);
    parity = join_lanes(parity, pair[0], pair[1]);
  }
}

std::uint64_t store_rows(const T* tile, std::int64_t scalars, int used, T* base, std::int64_t lane_stride, bool stream) {
  const D d;
  std::int64_t f = 0;
  word_vector parity = hn::Zero(words());
  for (; f + W <= scalars; f += W) {
    V v[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) v[i] = hn::Load(d, tile + (f + i) * W);
    transpose(v);
    if (HWY_UNLIKELY(used != W))
      store_lanes<false>(v, used, base + f, lane_stride, parity);
    else if (stream)
      store_lanes<true>(v, W, base + f, lane_stride, parity);
    else
      store_lanes<false>(v, W, base + f, lane_stride, parity);
  }
  if (f < scalars) {
    const std::int64_t left = scalars - f;
    for (std::int64_t i = f; i < scalars; ++i) {
      for (int l = 0; l < used; ++l) base[l * lane_stride + i] = tile[i * W + l];
    }
    read_again();
    HWY_ALIGN T part[W * W] = {};
    for (int l = 0; l < used; ++l) std::memcpy(part + l * W, base + l * lane_stride + f, static_cast<std::size_t>(left) * sizeof(T));
    for (int l = used; l < W; ++l) {
      for (std::int64_t i = 0; i < left; ++i) part[l * W + i] = tile[(f + i) * W + l];
    }
    parity = join_signals(parity, part);
  }
  return joined_signals(parity, scalars);
}

std::uint64_t store_columns(const T* tile, std::int64_t rows, int used, T* base, std::int64_t row_stride, bool stream) {
  const D d;
  word_vector parity = hn::Zero(words());
  for (std::int64_t i = 0; i < rows; ++i) {
    const complex_vector row = complex_at(tile, i);
    T* to = base + i * row_stride;
    V low, high;
    interleave(row, low, high);
    before_stores(low, high);
    if (HWY_UNLIKELY(used != W)) {
      hn::BlendedStore(low, hn::FirstN(d, static_cast<std::size_t>(HWY_MIN(2 * used, W))), d, to);
      if (2 * used > W) hn::BlendedStore(high, hn::FirstN(d, static_cast<std::size_t>(2 * used - W)), d, to + W);
    } else if (stream) {
      hn::Stream(low, d, to);
      hn::Stream(high, d, to + W);
    } else {
      hn::StoreU(low, d, to);
      hn::StoreU(high, d, to + W);
    }
    after_stores(parity, low, high);
    parity = join_column(parity, low, high);
  }
  return joined_columns(parity, rows);
}

// Stores scalars from one run to another, a multiple of 2W.
template <bool Stream>
HWY_INLINE void store_vectors(const T* from, std::int64_t scalars, T* to, word_vector& parity) {
  const D d;
#pragma GCC unroll 2
  for (std::int64_t i = 0; i < scalars; i += 2 * W) {
    V low = hn::LoadU(d, from + i), high = hn::LoadU(d, from + i + W);
    before_stores(low, high);
    if constexpr (Stream) {
      hn::Stream(low, d, to + i);
      hn::Stream(high, d, to + i + W);
    } else {
      hn::StoreU(low, d, to + i);
      hn::StoreU(high, d, to + i + W);
    }
    after_stores(parity, low, high);
    parity = join(parity, low, high);
  }
}

// Stores one vector.
HWY_INLINE void store_vector(const T* from, T* to, bool stream, word_vector& parity) {
  const D d;
  V stored = hn::LoadU(d, from), none = hn::Zero(d);
  before_stores(stored, none);
  if (stream)
    hn::Stream(stored, d, to);
  else
    hn::StoreU(stored, d, to);
  after_stores(parity, stored, none);
  parity = hn::Xor(parity, hn::BitCast(words(), stored));
}

// Stores scalars that fill no vectors, number `place` of a run and those after it: blocks of 128 bits, which join the parity as registers
// after their store, and scalars, which join it from a second read. A call of the C library instead would wait for the stores before it.
HWY_INLINE void store_rest(const T* from, std::int64_t scalars, T* to, run_parity& run, std::int64_t place, int set = 0) {
  const hn::CappedTag<T, k_in_block> block;
  std::int64_t i = 0;
  for (; i + k_in_block <= scalars; i += k_in_block) {
    auto stored = hn::LoadU(block, from + i);
    before_store(stored);
    hn::StoreU(stored, block, to + i);
    after_store(stored);
    run.add_block(stored, place + i, set);
  }
  for (std::int64_t j = i; j < scalars; ++j) to[j] = from[j];
  read_again();
  if (i < scalars) run.add_scalars(to + i, scalars - i, place + i, set);
}

// Returns the scalars before the first whole vector of a run from `to` on.
HWY_INLINE std::int64_t scalars_before_vectors(const T* to) {
  constexpr auto bytes = static_cast<std::uintptr_t>(W) * sizeof(T);
  return static_cast<std::int64_t>((bytes - reinterpret_cast<std::uintptr_t>(to) % bytes) % bytes / sizeof(T));
}

void stream_run(const T* from, std::int64_t scalars, T* to) {
  const D d;
  std::int64_t i = HWY_MIN(scalars, scalars_before_vectors(to));
  std::memcpy(to, from, static_cast<std::size_t>(i) * sizeof(T));
  for (; i + W <= scalars; i += W) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  std::memcpy(to + i, from + i, static_cast<std::size_t>(scalars - i) * sizeof(T));
}

// ---- Parities of a tile ----

std::uint64_t join_rows(const T* tile, std::int64_t first, std::int64_t last) {
  word_vector parity = hn::Zero(words());
  for (std::int64_t i = first; i < last; ++i) {
    const complex_vector row = complex_at(tile, i);
    parity = join_row(parity, row.re, row.im);
  }
  return joined<lane_order::row>(parity, 2 * last - 1);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
