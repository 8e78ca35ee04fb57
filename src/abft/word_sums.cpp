// The sums of word_sums.hpp, by vectors where Highway is used.
// Layer: foundation.
#include "abft/word_sums.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "abft/seal.hpp"

#if defined(BALLAST_HAS_CPU)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "abft/word_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::abft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using words_tag = hn::ScalableTag<std::uint64_t>;
using word_vector = hn::Vec<words_tag>;

// Σ k v_k and Σ v_k of the vectors v_0, v_1, … that it is given.
class running_sums {
 public:
  HWY_INLINE running_sums() : sum_(hn::Zero(words_tag())), before_(hn::Zero(words_tag())) {}
  HWY_INLINE void add(word_vector v) {
    before_ = hn::Add(before_, sum_);
    sum_ = hn::Add(sum_, v);
  }
  // Σ (base + k step) v_k of K vectors, by lanes.
  HWY_INLINE word_vector weighted(word_vector base, std::uint64_t step, std::uint64_t vectors) const {
    const words_tag d;
    const word_vector last = hn::Add(base, hn::Set(d, step * (vectors - 1)));
    return hn::Sub(hn::Mul(last, sum_), hn::Mul(hn::Set(d, step), before_));
  }

 private:
  word_vector sum_, before_;
};

// Loads words of so many bytes.
template <int Bytes>
HWY_INLINE word_vector load(const std::byte* from) {
  using word = std::conditional_t<Bytes == 8, std::uint64_t, std::uint32_t>;
#if HWY_TARGET == HWY_SCALAR
  word alone = 0;
  std::memcpy(&alone, from, Bytes);
  return hn::Set(words_tag(), std::uint64_t{alone});
#else
  const hn::Rebind<word, words_tag> narrow;
  const hn::Repartition<std::uint8_t, decltype(narrow)> any;
  const auto v = hn::BitCast(narrow, hn::LoadU(any, reinterpret_cast<const std::uint8_t*>(from)));
  if constexpr (Bytes == 8)
    return v;
  else
    return hn::PromoteTo(words_tag(), v);
#endif
}

// Stores Σ (2 i + 1) w_i and the same of w_i ^ w_i >> 31 over a multiple of the lanes; returns the number of words.
std::size_t weighted_vectors(const std::byte* bytes, std::size_t words, std::uint64_t (&sums)[2]) {
  const words_tag d;
  const std::size_t lanes = hn::Lanes(d), vectors = words / lanes;
  running_sums plain, folded;
  for (std::size_t k = 0; k < vectors; ++k) {
    const word_vector v = load<8>(bytes + 8 * k * lanes);
    plain.add(v);
    folded.add(hn::Xor(v, hn::ShiftRight<31>(v)));
  }
  const word_vector lane = hn::Iota(d, 0), base = hn::Add(hn::Add(lane, lane), hn::Set(d, 1));
  sums[0] = hn::GetLane(hn::SumOfLanes(d, plain.weighted(base, 2 * lanes, vectors)));
  sums[1] = hn::GetLane(hn::SumOfLanes(d, folded.weighted(base, 2 * lanes, vectors)));
  return vectors * lanes;
}

// spread_hash without its weight.
HWY_INLINE word_vector spread(word_vector v) {
  const words_tag d;
  const word_vector mixed = hn::Mul(hn::Add(v, hn::Set(d, 1)), hn::Set(d, 0x9e3779b97f4a7c15u));
  return hn::Xor(mixed, hn::ShiftRight<32>(mixed));
}

// Rows of words that are neighbours in memory: elements of W words, whose places follow each other; those of elements are place[2] apart.
// The words after the last whole vector are gathered into one, and their lanes beyond them are left out.
template <int W, int Bytes>
HWY_INLINE std::uint64_t rows_of(const std::byte* words, const word_loops& over) {
  const words_tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto length = static_cast<std::size_t>(over.count[2]) * W, vectors = length / lanes, rest = length % lanes;
  const auto next = static_cast<std::uint64_t>(over.place[2]);
  const std::uint64_t step = 2 * next * (lanes / W);  // the weight grows by this from one vector to the next
  HWY_ALIGN std::uint64_t offsets[HWY_MAX_BYTES / 8];
  for (std::size_t l = 0; l < lanes; ++l) offsets[l] = 2 * (l / W * next + l % W) + 1;
  const word_vector offset = hn::Load(d, offsets);
  const auto mask = hn::FirstN(d, rest);
  word_vector sum = hn::Zero(d);
  for (std::int64_t i = 0; i < over.count[0]; ++i) {
    for (std::int64_t j = 0; j < over.count[1]; ++j) {
      const std::byte* const row = words + Bytes * (i * over.stride[0] + j * over.stride[1]);
      const auto place = static_cast<std::uint64_t>(over.first + i * over.place[0] + j * over.place[1]);
      running_sums seen;
      for (std::size_t k = 0; k < vectors; ++k) seen.add(spread(load<Bytes>(row + Bytes * k * lanes)));
      if (rest > 0) {
        std::byte left[HWY_MAX_BYTES] = {};
        std::memcpy(left, row + Bytes * vectors * lanes, Bytes * rest);
        seen.add(hn::IfThenElseZero(mask, spread(load<Bytes>(left))));
      }
      sum = hn::Add(sum, seen.weighted(hn::Add(offset, hn::Set(d, 2 * place)), step, vectors + (rest > 0 ? 1 : 0)));
    }
  }
  return 0x9e3779b97f4a7c15u * hn::GetLane(hn::SumOfLanes(d, sum));
}

std::uint64_t spread_rows(const std::byte* words, int bytes, const word_loops& over) {
  if (bytes == 4) return rows_of<1, 4>(words, over);
  return over.count[3] == 1 ? rows_of<1, 8>(words, over) : rows_of<2, 8>(words, over);
}
std::int64_t lanes_of_words() { return static_cast<std::int64_t>(hn::Lanes(words_tag())); }

}  // namespace HWY_NAMESPACE
}  // namespace ballast::abft
HWY_AFTER_NAMESPACE();
#endif

#if !defined(BALLAST_HAS_CPU) || HWY_ONCE
namespace ballast::abft {

namespace {

#if defined(BALLAST_HAS_CPU)
HWY_EXPORT(spread_rows);
HWY_EXPORT(weighted_vectors);
HWY_EXPORT(lanes_of_words);

// Returns whether the words of a row are neighbours in memory, in elements of one word, or of two if a vector has whole ones.
bool has_rows_of_vectors(int bytes, const word_loops& over) {
  const std::int64_t width = over.count[3];
  if (over.stride[2] != width) return false;
  return width == 1 ||
         (bytes == 8 && width == 2 && over.stride[3] == 1 && over.place[3] == 1 && HWY_DYNAMIC_DISPATCH(lanes_of_words)() % 2 == 0);
}
#endif

}  // namespace

template <int Bytes>
std::uint64_t spread_sum(const std::byte* words, const word_loops& over) {
#if defined(BALLAST_HAS_CPU)
  if (has_rows_of_vectors(Bytes, over)) return HWY_DYNAMIC_DISPATCH(spread_rows)(words, Bytes, over);
#endif
  const auto& [count, stride, place, first] = over;
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count[0]; ++i) {
    for (std::int64_t j = 0; j < count[1]; ++j) {
      for (std::int64_t e = 0; e < count[2]; ++e) {
        for (std::int64_t w = 0; w < count[3]; ++w) {
          std::uint64_t word = 0;
          std::memcpy(&word, words + Bytes * (i * stride[0] + j * stride[1] + e * stride[2] + w * stride[3]), Bytes);
          sum += spread_hash(word, static_cast<std::uint64_t>(first + i * place[0] + j * place[1] + e * place[2] + w * place[3]));
        }
      }
    }
  }
  return sum;
}

template std::uint64_t spread_sum<4>(const std::byte*, const word_loops&);
template std::uint64_t spread_sum<8>(const std::byte*, const word_loops&);

void weighted_sums(std::span<const std::byte> bytes, std::uint64_t (&sums)[2]) {
  std::uint64_t a = 0, b = 0;
  std::size_t word = 0;
#if defined(BALLAST_HAS_CPU)
  if (bytes.size() >= 256) {
    word = HWY_DYNAMIC_DISPATCH(weighted_vectors)(bytes.data(), bytes.size() / 8, sums);
    a = sums[0];
    b = sums[1];
  }
#endif
  for (std::size_t i = 8 * word; i < bytes.size(); i += 8, ++word) {
    std::uint64_t w = 0;
    std::memcpy(&w, bytes.data() + i, bytes.size() - i < 8 ? bytes.size() - i : 8);
    a += w * (2 * word + 1);
    b += (w ^ w >> 31) * (2 * word + 1);
  }
  sums[0] = a * 0x9e3779b97f4a7c15u;
  sums[1] = b * 0xd6e8feb86659fd93u;
}

}  // namespace ballast::abft
#endif
