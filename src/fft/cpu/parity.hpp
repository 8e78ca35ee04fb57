// Parities: exclusive ors of the words of numbers on their way between memory and a tile, each rotated by a number of bits that depends on
// its place. docs/design/fft.md ("Parities") says what they see. The vector code is in seals-inl.hpp.
//
// Tile:  scalar row s (2j: the real parts of row j, 2j + 1: the imaginary ones) and lane l. The word is rotated to the right by
//        s + lane_turn · l bits. So the words of a register differ in their rotations, in the order of the tile as in that of memory.
// Chunk: scalar s of lane l of a dense array (composite/). The word is rotated to the right by chunk_turn · s + l bits: the words of a
//        register of neighbouring lanes differ, as do 16 neighbours of one signal.
// Run:   scalar number p of a signal, or of a run. All words with the same p mod W join one word without a rotation; the parity is a hash
//        of these W words. Signals that are no whole vectors have two sets of W words, as a register may hold the end of one signal and the
//        beginning of the next one: signals with even numbers join the first set, those with odd numbers the second one.
// Layer: backend "cpu".
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "core/counter_rng.hpp"

namespace ballast::fft::cpu {

inline constexpr int k_max_lanes = 16;

template <class T>
using word_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
inline constexpr int k_word_bits = 8 * static_cast<int>(sizeof(T));

// The rotation from one lane of a tile to the next. W lanes are W rotations more than a whole number of turns, so the sum over lanes and
// that over rows can be continued alike. The factors spread the rotations within registers best (docs/design/fft.md).
template <class T>
constexpr int lane_turn(int lanes) {
  const int factor = sizeof(T) == 4 && lanes == 8 ? 2 : 3;
  return (1 + factor * k_word_bits<T> / lanes) % k_word_bits<T>;
}

// The rotation from one scalar of a signal to the next in a chunk, and the number of scalars after which they repeat.
template <class T>
inline constexpr int chunk_turn = sizeof(T) == 4 ? 9 : 12;
template <class T>
inline constexpr int chunk_period = k_word_bits<T> / std::gcd(k_word_bits<T>, chunk_turn<T>);

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

// Returns how many sets of words signals of `scalars` scalars have.
constexpr int sets_of_run(std::int64_t scalars, int lanes) { return scalars % lanes == 0 ? 1 : 2; }

// The words of a run, and their hash. A change of one word changes the hash. One mask over any words of a register changes as many words of
// the run, so it escapes once in 2⁶⁴ at most.
template <class T>
struct alignas(64) run_words {
  static constexpr int k_most_pieces = k_max_lanes * static_cast<int>(sizeof(T)) / 8;
  static constexpr auto k_factors = [] {
    std::array<std::uint64_t, 2 * k_most_pieces> odd{};
    for (std::size_t i = 0; i < odd.size(); ++i) odd[i] = core::mix64(i + 1) | 1;
    return odd;
  }();
  word_of<T> lane[2][2 * k_max_lanes] = {};
  bool has_second = false;

  // Scalars `place` … of a run or signal.
  void add(const T* from, std::int64_t count, std::int64_t place, int lanes, int set) {
    has_second = has_second || set == 1;
    for (std::int64_t i = 0; i < count; ++i) lane[set][(place + i) % lanes] ^= std::bit_cast<word_of<T>>(from[i]);
  }
  std::uint64_t hash(int lanes) { return hash_of(0, lanes) + (has_second ? hash_of(1, lanes) : 0); }

 private:
  // Vectors may join from any word on: what lies beyond word `lanes` − 1 belongs to the first ones.
  std::uint64_t hash_of(int set, int lanes) {
    word_of<T>* const words = lane[set];
    for (int l = 0; l < lanes; ++l) {
      words[l] ^= words[lanes + l];
      words[lanes + l] = 0;
    }
    const int count = std::max(1, lanes * static_cast<int>(sizeof(T)) / 8);
    std::uint64_t made = 0;
    for (int i = 0; i < count; ++i) {
      std::uint64_t piece;
      std::memcpy(&piece, reinterpret_cast<const char*>(words) + 8 * i, sizeof piece);
      made += (piece ^ piece >> 31) * k_factors[static_cast<std::size_t>(set * k_most_pieces + i)];
    }
    return made;
  }
};

}  // namespace ballast::fft::cpu
