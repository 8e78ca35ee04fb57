// Counts the bank conflicts of accesses to shared memory, so that a policy can choose the layout with the fewest.
// Layer: foundation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace ballast::cuda {

// The words that the lanes of one warp access by one instruction. Negative: the lane accesses none.
using warp_access = std::vector<int>;

// Returns the number of words of `width` bytes, a power of two, that shared memory serves in one cycle: 128 bytes. Word w is in bank w
// modulo this number; lanes that access the same word share it.
constexpr int banks_of_words(int width) { return 128 / width; }

// Returns the cycles of one access. position(w): the position of word w in shared memory.
template <class Position>
int bank_cycles(const warp_access& words, int width, Position&& position) {
  const auto lanes = static_cast<std::size_t>(banks_of_words(width));
  int total = 0;
  for (std::size_t first = 0; first < words.size(); first += lanes) {
    // The distinct words of each bank form a linked list: `last` is its last word, `before` the previous one. Numbers start at 1; 0 is
    // none.
    std::array<unsigned char, 32> load{}, last{};
    std::array<unsigned char, 33> before;
    std::array<int, 33> seen;
    unsigned char distinct = 0;
    int most = 0;
    for (std::size_t i = first; i < std::min(words.size(), first + lanes); ++i) {
      if (words[i] < 0) continue;
      const int word = position(words[i]);
      const std::size_t bank = static_cast<std::size_t>(word) & (lanes - 1);
      unsigned char same = last[bank];
      while (same != 0 && seen[same] != word) same = before[same];
      if (same != 0) continue;
      ++distinct;
      seen[distinct] = word;
      before[distinct] = std::exchange(last[bank], distinct);
      most = std::max<int>(most, ++load[bank]);
    }
    total += most;
  }
  return total;
}

// Returns the mean cycles of an access, relative to the minimum. 1: no conflicts. Counting ends early once the result exceeds `most`: then
// it is some number above `most`.
template <class Position>
double bank_cost(std::span<const warp_access> all, int width, Position&& position, double most = std::numeric_limits<double>::infinity()) {
  double least = 0;
  for (const warp_access& words : all) {
    const int fewest = (static_cast<int>(words.size()) * width + 127) / 128;
    if (std::ranges::any_of(words, [](int w) { return w >= 0; })) least += fewest;
  }
  if (least == 0) return 1;
  double spent = 0;
  for (const warp_access& words : all) {
    spent += bank_cycles(words, width, position);
    if (spent / least > most) break;
  }
  return spent / least;
}

// Returns whether no access has a bank conflict. Faster than bank_cost if one has.
template <class Position>
bool conflict_free(std::span<const warp_access> all, int width, Position&& position) {
  const auto lanes = static_cast<std::size_t>(banks_of_words(width));
  for (const warp_access& words : all) {
    for (std::size_t first = 0; first < words.size(); first += lanes) {
      std::array<int, 32> held;  // the word that each bank serves
      held.fill(-1);
      for (std::size_t i = first; i < std::min(words.size(), first + lanes); ++i) {
        if (words[i] < 0) continue;
        const int word = position(words[i]);
        int& bank = held[static_cast<std::size_t>(word) & (lanes - 1)];
        if (bank >= 0 && bank != word) return false;
        bank = word;
      }
    }
  }
  return true;
}

}  // namespace ballast::cuda
