// Parities of numbers on their way between memory and a tile (parity.hpp), and seals of data that wait in the workspace: checksum words
// that change with every bit of these data. Layer: backend "cpu".
#include <cstring>

#include "fft/cpu/kernels.hpp"
#include "fft/cpu/vectors-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_SEALS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_SEALS_INL
#else
#define BALLAST_FFT_SEALS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

using words = hn::RebindToUnsigned<D>;
using word = hn::TFromD<words>;
using word_vector = hn::Vec<words>;
constexpr int k_bits = 8 * static_cast<int>(sizeof(T));

// ---- Parities ----

constexpr int k_lane_turn = lane_turn<T>(W);

// Returns `made` rotated by Bits to the left, for 0 ≤ Bits.
template <int Bits>
HWY_INLINE word_vector turn_left(word_vector made) {
  if constexpr (Bits % k_bits == 0)
    return made;
  else
    return hn::RotateRight<k_bits - Bits % k_bits>(made);
}

// Joins two registers in the order of memory without a rotation.
HWY_INLINE word_vector join(word_vector made, V x, V y) {
  const words d;
  return hn::Xor3(made, hn::BitCast(d, x), hn::BitCast(d, y));
}

// Joins two registers that follow each other, with a rotation of `Turn` bits from each to the next.
template <int Turn>
HWY_INLINE word_vector join_turned(word_vector made, V x, V y) {
  const words d;
  return hn::Xor3(turn_left<2 * Turn>(made), turn_left<Turn>(hn::BitCast(d, x)), hn::BitCast(d, y));
}

// The rotations of the lanes of a register, to the right: of a row of a tile, of scalars of a signal, of complex numbers of neighbouring
// lanes, of scalars of a signal of a chunk.
enum class lane_order : std::uint8_t { row, signal, column, chunk };
template <lane_order Order>
struct lane_turns {
  alignas(64) word right[W];
  constexpr lane_turns() : right{} {
    for (int l = 0; l < W; ++l) {
      const int turns = Order == lane_order::row      ? k_lane_turn * l
                        : Order == lane_order::signal ? l
                        : Order == lane_order::column ? l % 2 + k_lane_turn * (l / 2)
                                                      : chunk_turn<T> * l;
      right[l] = static_cast<word>(turns % k_bits);
    }
  }
};

// Returns the exclusive or of the lanes, each rotated by its turns and `more` bits to the right.
template <lane_order Order>
HWY_INLINE std::uint64_t joined(word_vector made, std::int64_t more) {
  const words d;
  static constexpr lane_turns<Order> k_turns;
  const auto most = hn::Set(d, word{k_bits - 1});
  const auto right = hn::And(hn::Add(hn::Load(d, k_turns.right), hn::Set(d, static_cast<word>(more & (k_bits - 1)))), most);
  const auto left = hn::And(hn::Sub(hn::Set(d, word{k_bits}), right), most);
  HWY_ALIGN word lanes[W];
  hn::Store(hn::Or(hn::Shr(made, right), hn::Shl(made, left)), d, lanes);
  word all = 0;
#pragma GCC unroll 16
  for (int l = 0; l < W; ++l) all ^= lanes[l];
  return all;
}

// Continues the parity of the rows of a tile.
HWY_INLINE word_vector join_row(word_vector made, V re, V im) { return join_turned<1>(made, re, im); }

HWY_INLINE word_vector parity_so_far(const lane_sums& sums) { return hn::LoadU(words(), reinterpret_cast<const word*>(sums.parity)); }
HWY_INLINE void keep_parity(word_vector made, lane_sums& sums) { hn::StoreU(made, words(), reinterpret_cast<word*>(sums.parity)); }

HWY_INLINE void put_parity(std::uint64_t made, lane_sums& sums) {
  std::memset(sums.parity, 0, sizeof sums.parity);
  sums.parity[0] = made;
}

// Replaces what the rows 0 … rows − 1 of a tile have joined by its parity.
HWY_INLINE void end_parity(lane_sums& sums, std::int64_t rows) {
  put_parity(joined<lane_order::row>(parity_so_far(sums), 2 * rows - 1), sums);
}

// The parity of a run, by registers.
struct run_parity : run_words<T> {
  // Adds registers whose first lanes had scalar `place`, or places that are whole vectors away.
  HWY_INLINE void add(word_vector made, std::int64_t place, int set = 0) {
    const words d;
    word* const to = this->lane[set] + place % W;
    hn::StoreU(hn::Xor(hn::LoadU(d, to), made), d, to);
    this->has_second = this->has_second || set == 1;
  }
  // Adds a register of k_in_block scalars from scalar `place` on.
  template <class Register>
  HWY_INLINE void add_block(Register made, std::int64_t place, int set = 0) {
    const hn::CappedTag<word, k_in_block> d;
    word* const to = this->lane[set] + place % W;
    hn::StoreU(hn::Xor(hn::LoadU(d, to), hn::BitCast(d, made)), d, to);
    this->has_second = this->has_second || set == 1;
  }
  HWY_INLINE void add_scalars(const T* from, std::int64_t count, std::int64_t place, int set = 0) {
    this->run_words<T>::add(from, count, place, W, set);
  }
  HWY_INLINE std::uint64_t done() { return this->hash(W); }
};

// ---- Blocks ----

// The seal of a block of `rows` ≤ W rows: the exclusive or of all its words, where the word in row r and lane l is rotated by (rows − 1 −
// r) + (2W − rows − l) bits, and imaginary parts by half a word more. Rows and lanes contribute alike, so the transposed block has the same
// seal. One changed word always shows. Equal flips in all words of a register show too, as they hit different bits.
HWY_INLINE word_vector seal_next(word_vector seal, const complex_vector& row) {
  const words d;
  return hn::Xor3(hn::RotateRight<k_bits - 1>(seal), hn::BitCast(d, row.re), hn::RotateRight<k_bits / 2>(hn::BitCast(d, row.im)));
}

HWY_INLINE void store_seal(word_vector seal, std::int64_t rows, int used, T* to) {
  const words d;
  const auto left = hn::Sub(hn::Set(d, static_cast<word>(2 * W - rows)), hn::Iota(d, 0));
  const auto right = hn::Sub(hn::Set(d, static_cast<word>(k_bits)), left);
  const auto turned = hn::Or(hn::Shl(seal, left), hn::Shr(seal, right));
  HWY_ALIGN word lanes[W];
  hn::Store(hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(used)), turned), d, lanes);
  // Joins two words of f32 at a time.
  constexpr int k_pairs = W * static_cast<int>(sizeof(T)) / 8;
  std::uint64_t joined = 0;
  if constexpr (k_pairs == 0) std::memcpy(&joined, lanes, sizeof(T));
#pragma GCC unroll 8
  for (int l = 0; l < k_pairs; ++l) {
    std::uint64_t pair;
    std::memcpy(&pair, reinterpret_cast<const char*>(lanes) + 8 * l, sizeof pair);
    joined ^= pair;
  }
  const word made = static_cast<word>(sizeof(T) == 4 ? joined ^ joined >> 32 : joined);
  std::memcpy(to, &made, sizeof made);
}

// Seals every W rows (fewer in the last block); only the first `used` lanes count.
void seal_blocks(const T* HWY_RESTRICT tile, std::int64_t rows, int used, T* HWY_RESTRICT seals) {
  for (std::int64_t j = 0; j < rows; j += W) {
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(W), rows - j);
    word_vector seal = hn::Zero(words());
    for (std::int64_t i = j; i < j + count; ++i) seal = seal_next(seal, complex_at(tile, i));
    store_seal(seal, count, used, seals + j / W);
  }
}

// ---- Rows ----

// One step of the seal of rows. It is a bijection of the seal and of each word, so a single changed word always shows. The rotation
// prevents flips of one bit position in several words from cancelling.
template <class VU>
HWY_INLINE VU extend(VU seal, VU re, VU im) {
  return hn::Xor(hn::RotateRight<5>(hn::Add(seal, re)), im);
}

void seal_rows(const T* tile, std::int64_t rows, T* seal) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  auto made = hn::Zero(du);
  for (std::int64_t i = 0; i < rows; ++i)
    made = extend(made, hn::BitCast(du, hn::Load(d, tile + i * k_row)), hn::BitCast(du, hn::Load(d, tile + i * k_row + W)));
  hn::StoreU(hn::BitCast(d, made), d, seal);
}

void extend_seals(const T* tile, std::int64_t rows, const T* from, T* to) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto next = extend(hn::BitCast(du, hn::LoadU(d, from + i * W)), hn::BitCast(du, hn::Load(d, tile + i * k_row)),
                             hn::BitCast(du, hn::Load(d, tile + i * k_row + W)));
    hn::StoreU(hn::BitCast(d, next), d, to + i * W);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
