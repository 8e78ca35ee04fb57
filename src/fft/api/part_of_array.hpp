// Copies between an array of the caller and the part of it that one device of a group computes.
// Layer: algorithm, over the boxes of a group.
#pragma once

#include <cstdint>
#include <cstring>

#include <ballast/fft_group.hpp>

#include "fft/api/boxes.hpp"

namespace ballast::fft {

// Copies and compares, three times at most. Returns whether the copy has the bits. The ranks have agreed on their report before: it does
// not name a copy that was repeated.
inline bool copies_alike(void* to, const void* from, std::size_t bytes) {
  for (int trial = 0; trial < 3 && bytes > 0; ++trial) {
    std::memcpy(to, from, bytes);
    if (std::memcmp(to, from, bytes) == 0) return true;
  }
  return bytes == 0;
}

// Calls stretch(place in the whole box, place in the part, count) for each stretch of elements of a part that are neighbours in the memory
// of the whole, which has the same order of axes.
template <class Stretch>
void each_stretch(const box& whole, const box& part, Stretch&& stretch) {
  const places at(whole);
  const auto count = [&](const box& of, int axis) { return of.count[static_cast<std::size_t>(axis)]; };
  int depth = 2;  // the stretches have the axes of order[depth] and later
  std::int64_t length = count(part, part.order[2]);
  while (depth > 0 && count(part, part.order[static_cast<std::size_t>(depth)]) == count(whole, part.order[static_cast<std::size_t>(depth)]))
    length *= count(part, part.order[static_cast<std::size_t>(--depth)]);
  const std::int64_t slow = depth > 0 ? count(part, part.order[0]) : 1, middle = depth > 1 ? count(part, part.order[1]) : 1;
  for (std::int64_t i = 0; i < slow; ++i)
    for (std::int64_t j = 0; j < middle; ++j)
      stretch(at.of(part) + i * at.stride(part.order[0]) + j * at.stride(part.order[1]), (i * middle + j) * length, length);
}

}  // namespace ballast::fft
