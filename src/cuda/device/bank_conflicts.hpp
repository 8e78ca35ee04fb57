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

// The words that the lanes of one warp touch in one access. Negative: the lane touches none.
using warp_access = std::vector<int>;

// Of words of `width` bytes, a power of two, how many a cycle serves: 128 bytes. Word w is in bank w modulo this; lanes that touch the same
// word share it.
constexpr int banks_of_words(int width) { return 128 / width; }

// Cycles that one access takes. place(w): where word w lies.
template <class Place>
int bank_cycles(const warp_access& words, int width, Place&& place) {
  const auto lanes = static_cast<std::size_t>(banks_of_words(width));
  int total = 0;
  for (std::size_t first = 0; first < words.size(); first += lanes) {
    // The different words of each bank are a list: `last` is its end, `before` the one that came before; from 1, and 0 is none.
    std::array<unsigned char, 32> load{}, last{};
    std::array<unsigned char, 33> before;
    std::array<int, 33> seen;
    unsigned char distinct = 0;
    int most = 0;
    for (std::size_t i = first; i < std::min(words.size(), first + lanes); ++i) {
      if (words[i] < 0) continue;
      const int word = place(words[i]);
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

// Mean cycles of an access over the fewest that there can be. 1: no conflicts. What is over `most` is not counted to its end: the result
// then is some number over `most`.
template <class Place>
double bank_cost(std::span<const warp_access> all, int width, Place&& place, double most = std::numeric_limits<double>::infinity()) {
  double least = 0;
  for (const warp_access& words : all) {
    const int fewest = (static_cast<int>(words.size()) * width + 127) / 128;
    if (std::ranges::any_of(words, [](int w) { return w >= 0; })) least += fewest;
  }
  if (least == 0) return 1;
  double spent = 0;
  for (const warp_access& words : all) {
    spent += bank_cycles(words, width, place);
    if (spent / least > most) break;
  }
  return spent / least;
}

// Whether no access takes longer than it must. Sooner done than bank_cost where one does.
template <class Place>
bool conflict_free(std::span<const warp_access> all, int width, Place&& place) {
  const auto lanes = static_cast<std::size_t>(banks_of_words(width));
  for (const warp_access& words : all) {
    for (std::size_t first = 0; first < words.size(); first += lanes) {
      std::array<int, 32> held;  // the word that a bank is busy with
      held.fill(-1);
      for (std::size_t i = first; i < std::min(words.size(), first + lanes); ++i) {
        if (words[i] < 0) continue;
        const int word = place(words[i]);
        int& bank = held[static_cast<std::size_t>(word) & (lanes - 1)];
        if (bank >= 0 && bank != word) return false;
        bank = word;
      }
    }
  }
  return true;
}

}  // namespace ballast::cuda
