// Counts the bank conflicts of accesses to shared memory, so that a policy can choose the layout with the fewest.
// Layer: foundation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace ballast::cuda {

// The words that the lanes of one warp touch in one access. Negative: the lane touches none.
using warp_access = std::vector<int>;

// Of words of `width` bytes, how many a cycle serves: 128 bytes. Word w is in bank w modulo this; lanes that touch the same word share it.
constexpr int banks_of_words(int width) { return 128 / width; }

// Cycles that one access takes. place(w): where word w lies.
template <class Place>
int bank_cycles(const warp_access& words, int width, Place&& place) {
  const auto lanes = static_cast<std::size_t>(banks_of_words(width));
  int total = 0;
  for (std::size_t first = 0; first < words.size(); first += lanes) {
    std::array<int, 32> load{};
    std::array<int, 32> seen;
    std::size_t distinct = 0;
    int most = 0;
    for (std::size_t i = first; i < std::min(words.size(), first + lanes); ++i) {
      if (words[i] < 0) continue;
      const int word = place(words[i]);
      const auto end = seen.begin() + static_cast<std::ptrdiff_t>(distinct);
      if (std::find(seen.begin(), end, word) != end) continue;
      seen[distinct++] = word;
      most = std::max(most, ++load[static_cast<std::size_t>(word) % lanes]);
    }
    total += most;
  }
  return total;
}

// Mean cycles of an access over the fewest that there can be. 1: no conflicts.
template <class Place>
double bank_cost(std::span<const warp_access> all, int width, Place&& place) {
  double spent = 0;
  double least = 0;
  for (const warp_access& words : all) {
    if (std::ranges::all_of(words, [](int w) { return w < 0; })) continue;
    spent += bank_cycles(words, width, place);
    const int fewest = (static_cast<int>(words.size()) * width + 127) / 128;
    least += fewest;
  }
  return least == 0 ? 1 : spent / least;
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
        int& bank = held[static_cast<std::size_t>(word) % lanes];
        if (bank >= 0 && bank != word) return false;
        bank = word;
      }
    }
  }
  return true;
}

}  // namespace ballast::cuda
