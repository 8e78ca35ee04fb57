// Seals of data that wait in the workspace: checksum words that change with every bit of these data.
// Layer: backend "cpu".
#include <cstring>

#include "abft/seal.hpp"
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

HWY_INLINE word_vector join(word_vector parity, V x, V y) {
  const words d;
  return hn::Xor3(parity, hn::BitCast(d, x), hn::BitCast(d, y));
}

HWY_INLINE void add_parity(word_vector parity, lane_sums& sums) {
  const words d;
  word* const to = reinterpret_cast<word*>(sums.parity);
  hn::StoreU(hn::Xor(hn::LoadU(d, to), parity), d, to);
}

// Returns the exclusive or of all lanes of a parity.
HWY_INLINE std::uint64_t joined(word_vector parity) {
  lane_sums sums;
  std::memset(sums.parity, 0, sizeof sums.parity);
  hn::StoreU(parity, words(), reinterpret_cast<word*>(sums.parity));
  return parity_of<T>(sums);
}

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
  const word made = static_cast<word>(abft::parity_word<T>(joined));
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
