// How an array is divided among the ranks of a group, where the elements of its parts lie, and copies and sums of parts of them.
// Layer: algorithm. Source: docs/design/distributed.md, "FFT".
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include <ballast/fft_group.hpp>

#include "abft/word_sums.hpp"

namespace ballast::fft {

using lengths = std::array<std::int64_t, 3>;

// The division of an array among all ranks: parts[a] of axis a, where part r of the first divided axis and part c of the second belong to
// rank r · columns + c.
struct division_of_array {
  lengths shape = {1, 1, 1};
  std::array<int, 3> order = {0, 1, 2};
  int rows_axis = 0;      // divided into `rows` parts
  int columns_axis = -1;  // divided into `columns` parts; −1: none
  std::int64_t rows = 1, columns = 1;

  box of(std::size_t rank) const {
    box made;
    made.count = shape;
    made.order = order;
    const auto cut = [&](int axis, std::int64_t part, std::int64_t parts) {
      if (axis < 0) return;
      const auto a = static_cast<std::size_t>(axis);
      const auto begin = [&](std::int64_t p) { return static_cast<std::int64_t>(static_cast<__int128>(shape[a]) * p / parts); };
      made.first[a] = begin(part);
      made.count[a] = begin(part + 1) - begin(part);
    };
    const auto place = static_cast<std::int64_t>(rank);
    cut(rows_axis, place / columns, rows);
    cut(columns_axis, place % columns, columns);
    return made;
  }
};

// The elements that two boxes have in common, in the layout of `to`.
inline box common(const box& from, const box& to) {
  box made = to;
  for (std::size_t a = 0; a < 3; ++a) {
    made.first[a] = std::max(from.first[a], to.first[a]);
    made.count[a] = std::max<std::int64_t>(0, std::min(from.first[a] + from.count[a], to.first[a] + to.count[a]) - made.first[a]);
  }
  return made;
}

// The places of the elements of a box in its memory. It lies there without gaps, except for `pad` elements after each index of its slowest
// axis.
class places {
 public:
  explicit places(const box& in, std::int64_t pad = 0) : first_(in.first) {
    const auto count = [&](std::size_t i) { return in.count[static_cast<std::size_t>(in.order[i])]; };
    std::int64_t stride = 1;
    for (std::size_t i = 3; i-- > 0;) {
      if (i == 0) stride += pad;
      stride_[static_cast<std::size_t>(in.order[i])] = stride;
      stride *= count(i);
    }
    for (std::size_t a = 0; a < 3; ++a) extent_ += (in.count[a] - 1) * stride_[a];
    if (in.size() == 0) extent_ = 0;
  }
  // The places of a part of the box in memory that begins with its first element.
  places from(const box& part) const {
    places made = *this;
    made.first_ = part.first;
    made.extent_ = 1;
    for (std::size_t a = 0; a < 3; ++a) made.extent_ += (part.count[a] - 1) * stride_[a];
    if (part.size() == 0) made.extent_ = 0;
    return made;
  }
  std::int64_t stride(int axis) const { return stride_[static_cast<std::size_t>(axis)]; }
  // The place of the first element of a part of the box.
  std::int64_t of(const box& part) const {
    std::int64_t made = 0;
    for (std::size_t a = 0; a < 3; ++a) made += (part.first[a] - first_[a]) * stride_[a];
    return made;
  }
  // The elements of memory from the first one of the box to the last.
  std::int64_t extent() const { return extent_; }

 private:
  lengths first_, stride_{};
  std::int64_t extent_ = 1;
};

// The elements of an array: complex or real.
template <class Element>
struct component {
  using type = Element;
  static constexpr std::int64_t count = 1;
};
template <class T>
struct component<std::complex<T>> {
  using type = T;
  static constexpr std::int64_t count = 2;
};

// The order of the axes of a part in loops over its elements: that of its memory, with axes of one element first.
inline std::array<int, 3> loops_of(const box& part) {
  std::array<int, 3> made = part.order;
  std::stable_partition(made.begin(), made.end(), [&](int axis) { return part.count[static_cast<std::size_t>(axis)] == 1; });
  return made;
}

// The sum over a part of a box that follows its elements from the source of an exchange to the destination: of terms of their words and
// their numbers in the whole array, so that it depends on every place, but not on the order of reading. It reads in the order of `part`.
// An element is one word, or two if it is a complex number in double precision; a float fills half of its word.
template <class Element>
std::uint64_t sum_of(const Element* data, const places& at, const box& part, const lengths& shape) {
  constexpr int bytes = sizeof(Element) < 8 ? 4 : 8;
  constexpr std::int64_t words = sizeof(Element) / bytes;
  const places all({.first = {}, .count = shape});
  const std::array<int, 3> loops = loops_of(part);
  abft::word_loops over;
  for (std::size_t i = 0; i < 3; ++i) {
    over.count[i] = part.count[static_cast<std::size_t>(loops[i])];
    over.stride[i] = words * at.stride(loops[i]);
    over.place[i] = words * all.stride(loops[i]);
  }
  over.count[3] = words;
  over.stride[3] = over.place[3] = 1;
  over.first = words * all.of(part);
  return part.size() == 0 ? 0 : abft::spread_sum<bytes>(reinterpret_cast<const std::byte*>(data + at.of(part)), over);
}

// Copies a part from one memory to another: stretches that are contiguous in both, or, if the axes are ordered otherwise there, some
// elements along the source's fastest axis for each along the destination's, so that both are read and written by cache lines. The order of
// `part` is that of the destination.
template <class Element>
void copy_part(const Element* from, const places& source, Element* to, const places& target, const box& part) {
  if (part.size() == 0) return;
  constexpr std::int64_t tile = 16;
  const std::array<int, 3> loops = loops_of(part);
  const auto [slow, middle, last] = loops;
  const auto count = [&](int axis) { return part.count[static_cast<std::size_t>(axis)]; };
  from += source.of(part);
  to += target.of(part);
  int near = last;
  for (const int axis : loops)
    if (count(axis) > 1 && source.stride(axis) < source.stride(near)) near = axis;
  if (near == last && source.stride(last) == 1 && target.stride(last) == 1) {
    std::int64_t length = count(last), rows = count(middle);
    if (source.stride(middle) == length && target.stride(middle) == length) length *= std::exchange(rows, 1);
    for (std::int64_t i = 0; i < count(slow); ++i)
      for (std::int64_t j = 0; j < rows; ++j)
        std::memcpy(static_cast<void*>(to + i * target.stride(slow) + j * target.stride(middle)),
                    from + i * source.stride(slow) + j * source.stride(middle), static_cast<std::size_t>(length) * sizeof(Element));
    return;
  }
  if (near == last) near = middle;
  const int other = 3 - near - last;
  for (std::int64_t i = 0; i < count(other); ++i) {
    for (std::int64_t begin = 0; begin < count(near); begin += tile) {
      const std::int64_t size = std::min(tile, count(near) - begin);
      const Element* const x = from + i * source.stride(other) + begin * source.stride(near);
      Element* const y = to + i * target.stride(other) + begin * target.stride(near);
      for (std::int64_t e = 0; e < count(last); ++e)
        for (std::int64_t t = 0; t < size; ++t)
          y[t * target.stride(near) + e * target.stride(last)] = x[e * source.stride(last) + t * source.stride(near)];
    }
  }
}

}  // namespace ballast::fft
