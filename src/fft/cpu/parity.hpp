// Parities: exclusive ors of the words of numbers on their way between memory and a tile, each rotated by a number of bits that depends on
// its place. docs/design/fft.md ("Parities") says what they see. The vector code is in seals-inl.hpp.
//
// Tile:  scalar row s (2j: the real parts of row j, 2j + 1: the imaginary ones) and lane l. The word is rotated to the right by
//        s + lane_turn · l bits. So the words of a register differ in their rotations, in the order of the tile as in that of memory.
// Chunk: scalar s of lane l of a dense array (composite/). The word is rotated to the right by chunk_turn · s + l bits: the words of a
//        register of neighbouring lanes differ, as do 16 neighbours of one signal.
// Run:   scalar number p of a signal, or of a run. All words with the same p mod W join one word without a rotation; the parity is a hash
//        of these W words.
// Layer: backend "cpu".
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/counter_rng.hpp"

namespace ballast::fft::cpu {

inline constexpr int k_max_lanes = 16;

template <class T>
using word_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
inline constexpr int k_word_bits = 8 * static_cast<int>(sizeof(T));

// The rotation from one lane of a tile to the next. W lanes are W rotations more than a whole number of turns, so the sum over lanes and
// that over rows can be continued alike; with 3 the rotations within a register of (re, im) pairs are spread best.
template <class T>
constexpr int lane_turn(int lanes) {
  return (1 + 3 * k_word_bits<T> / lanes) % k_word_bits<T>;
}

// The rotation from one scalar of a signal to the next in a chunk.
template <class T>
inline constexpr int chunk_turn = k_word_bits<T> / k_max_lanes;

template <class T>
word_of<T> turned(word_of<T> word, std::int64_t right) {
  return std::rotr(word, static_cast<int>(right & (k_word_bits<T> - 1)));
}

// Returns the parity of `count` scalars whose words are rotated by first, first + step, … bits to the right.
template <class T>
std::uint64_t joined_scalars(const T* from, std::int64_t count, std::int64_t first, std::int64_t step) {
  word_of<T> made = 0;
  for (std::int64_t i = 0; i < count; ++i) made ^= turned<T>(std::bit_cast<word_of<T>>(from[i]), first + i * step);
  return made;
}

// The parity of a tile from its scalars, in any order of the lanes; each lane takes the rows from the first one on.
template <class T>
class parity_by_lanes {
 public:
  void row(int lane, T re, T im) {
    word_of<T>& to = words_[static_cast<std::size_t>(lane)];
    to = std::rotl(to, 2) ^ std::rotl(std::bit_cast<word_of<T>>(re), 1) ^ std::bit_cast<word_of<T>>(im);
  }
  // Returns the parity of a tile of `rows` rows of `lanes` lanes.
  std::uint64_t joined(std::int64_t rows, int lanes) const {
    word_of<T> made = 0;
    for (int l = 0; l < lanes; ++l)
      made ^= turned<T>(words_[static_cast<std::size_t>(l)], std::int64_t{lane_turn<T>(lanes)} * l + 2 * rows - 1);
    return made;
  }

 private:
  std::array<word_of<T>, k_max_lanes> words_ = {};
};

// The words of a run, and their hash. A change of one word changes the hash. One mask over any words of a register changes as many words of
// the run, so it escapes once in 2⁶⁴ at most.
template <class T>
struct alignas(64) run_words {
  static constexpr std::size_t k_pieces = k_max_lanes * sizeof(T) / 8;
  static constexpr auto k_factors = [] {
    std::array<std::uint64_t, k_pieces> odd{};
    for (std::size_t i = 0; i < k_pieces; ++i) odd[i] = core::mix64(i + 1) | 1;
    return odd;
  }();
  word_of<T> lane[2 * k_max_lanes] = {};

  // Scalars `place` … of a run or signal.
  void add(const T* from, std::int64_t count, std::int64_t place, int lanes) {
    for (std::int64_t i = 0; i < count; ++i) lane[(place + i) % lanes] ^= std::bit_cast<word_of<T>>(from[i]);
  }
  // Vectors may join from any word on: what lies beyond word `lanes` − 1 belongs to the first ones.
  std::uint64_t hash(int lanes) {
    for (int l = 0; l < lanes; ++l) {
      lane[l] ^= lane[lanes + l];
      lane[lanes + l] = 0;
    }
    std::uint64_t pieces[k_pieces];
    std::memcpy(pieces, lane, sizeof pieces);
    std::uint64_t made = 0;
    for (std::size_t i = 0; i < k_pieces; ++i) made += (pieces[i] ^ pieces[i] >> 31) * k_factors[i];
    return made;
  }
};

}  // namespace ballast::fft::cpu
