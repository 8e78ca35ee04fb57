// How an array is divided among the ranks of a group, and the exchange that turns one division into another.
// Layer: algorithm, over group/session.hpp. Source: docs/design/distributed.md, "FFT".
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include <ballast/fft_group.hpp>

#include "abft/seal.hpp"
#include "fft/sites.hpp"
#include "group/exchange.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

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

// The places of the elements of a box in its memory.
class places {
 public:
  explicit places(const box& in) : first_(in.first) {
    std::int64_t stride = 1;
    for (std::size_t i = 3; i-- > 0;) {
      const auto a = static_cast<std::size_t>(in.order[i]);
      stride_[a] = stride;
      stride *= in.count[a];
    }
  }
  std::int64_t stride(int axis) const { return stride_[static_cast<std::size_t>(axis)]; }
  // The place of the first element of a part of the box.
  std::int64_t of(const box& part) const {
    std::int64_t made = 0;
    for (std::size_t a = 0; a < 3; ++a) made += (part.first[a] - first_[a]) * stride_[a];
    return made;
  }

 private:
  lengths first_, stride_{};
};

// Calls line(place, number) for each line of a part of a box along the last axis of `order`: the place of its first element in the box's
// memory, and that element's number in the whole array.
template <class Line>
void each_line(const box& in, const box& part, const std::array<int, 3>& order, const lengths& shape, Line&& line) {
  const places at(in), all({.first = {}, .count = shape});
  const int slow = order[0], middle = order[1];
  const std::int64_t place = at.of(part), number = all.of(part);
  if (part.size() == 0) return;
  for (std::int64_t i = 0; i < part.count[static_cast<std::size_t>(slow)]; ++i)
    for (std::int64_t j = 0; j < part.count[static_cast<std::size_t>(middle)]; ++j)
      line(place + i * at.stride(slow) + j * at.stride(middle), number + i * all.stride(slow) + j * all.stride(middle));
}

// The elements of an array: complex or real.
template <class Element>
struct component {
  using type = Element;
};
template <class T>
struct component<std::complex<T>> {
  using type = T;
};

// The term of one element in the sum below: of one word, of two for complex numbers in double precision. A float fills half of its word.
template <class Element>
std::uint64_t term_of(const Element& x, std::int64_t number) {
  std::uint64_t words[(sizeof(x) + 7) / 8] = {};
  std::memcpy(words, &x, sizeof x);
  const auto at = static_cast<std::uint64_t>(number) * std::size(words);
  std::uint64_t made = abft::spread_hash(words[0], at);
  if constexpr (std::size(words) == 2) made += abft::spread_hash(words[1], at + 1);
  return made;
}

// The sum over a part of a box that follows its elements from the source of an exchange to the destination: of terms of their words and
// their numbers in the whole array, so that it depends on every place, but not on the order of reading. It reads in the order of the box's
// memory.
template <class Element>
std::uint64_t sum_of(const Element* data, const box& in, const box& part, const lengths& shape) {
  const int last = in.order[2];
  const std::int64_t count = part.count[static_cast<std::size_t>(last)];
  const std::int64_t step = places({.first = {}, .count = shape}).stride(last);
  std::uint64_t sum = 0;
  each_line(in, part, in.order, shape, [&](std::int64_t place, std::int64_t number) {
    const Element* from = data + place;  // the last axis of the order is contiguous
    for (std::int64_t e = 0; e < count; ++e) sum += term_of(from[e], number + e * step);
  });
  return sum;
}

// Copies a part of a box into memory of its own, in the order of the part: some elements along the box's contiguous axis for each along the
// part's, so that both are read and written by cache lines.
template <class Element>
void copy_part(const Element* from, const box& in, const box& part, Element* to) {
  constexpr std::int64_t tile = 16;
  const places source(in), target(part);
  const auto count = [&](int axis) { return part.count[static_cast<std::size_t>(axis)]; };
  from += source.of(part);
  const int near = in.order[2], last = part.order[2];
  if (near == last) {
    const int slow = part.order[0], middle = part.order[1];
    for (std::int64_t i = 0; i < count(slow); ++i)
      for (std::int64_t j = 0; j < count(middle); ++j)
        std::copy_n(from + i * source.stride(slow) + j * source.stride(middle), count(last),
                    to + i * target.stride(slow) + j * target.stride(middle));
    return;
  }
  const int other = 3 - near - last;
  const std::int64_t source_step = source.stride(last), target_step = target.stride(near);
  for (std::int64_t i = 0; i < count(other); ++i) {
    for (std::int64_t begin = 0; begin < count(near); begin += tile) {
      const std::int64_t size = std::min(tile, count(near) - begin);
      const Element* x = from + i * source.stride(other) + begin;
      Element* y = to + i * target.stride(other) + begin * target_step;
      for (std::int64_t e = 0; e < count(last); ++e)
        for (std::int64_t t = 0; t < size; ++t) y[t * target_step + e] = x[e * source_step + t];
    }
  }
}

// Turns the division `was` of an array into `becomes`. A rank packs for each other the elements that both have, in the order in which the
// other stores them, with their sum as the first word; the other makes the same sum over what it has stored. The verdicts are gathered: if
// the sums of one rank differ, all pack and exchange again, at most twice; the source stays until then.
template <class Element>
class exchange_of_boxes {
  using number = typename component<Element>::type;
  static constexpr std::int64_t k_components = sizeof(Element) / sizeof(number);

 public:
  exchange_of_boxes(const division_of_array& was, const division_of_array& becomes, wire::exchange& over)
      : was_(was), becomes_(becomes), over_(over), mine_(was.of(over.place())), next_(becomes.of(over.place())) {}

  void run(const Element* from, Element* to, run::recorder& seen, protection wanted, inject::active_injector& injector) const {
    const auto ranks = static_cast<std::size_t>(over_.size());
    const auto once = [&](int) {
      std::vector<wire::bytes> blocks;
      std::vector<std::span<const std::byte>> views;
      for (std::size_t p = 0; p < ranks; ++p) blocks.push_back(pack(from, p, injector));
      views.reserve(ranks);
      for (const wire::bytes& each : blocks) views.emplace_back(each);
      std::vector<bool> awaited;
      for (std::size_t p = 0; p < ranks; ++p) awaited.push_back(common(was_.of(p), next_).size() > 0);
      const std::vector<wire::bytes> came = over_.some_to_some(views, awaited);
      bool right = true;
      for (std::size_t p = 0; p < ranks; ++p) right = unpack(came[p], p, to, wanted != protection::off, injector) && right;
      abft::finding found;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.word = right ? abft::k_pass : abft::k_fail;
      if (wanted == protection::off) return found;
      seen.checked(ranks);
      const std::int64_t verdict[] = {right ? 0 : 1};
      for (const auto& each : over_.gather(std::span<const std::int64_t>(verdict)))
        if (each[0] != 0) found.word = abft::k_fail;
      return found;
    };
    if (wanted == protection::off) {
      (void)once(0);
      return;
    }
    (void)run::attempt(seen, wanted, "group.transpose", 0, once);
  }

 private:
  wire::bytes pack(const Element* from, std::size_t to, inject::active_injector& injector) const {
    const box part = common(mine_, becomes_.of(to));
    if (part.size() == 0) return {};
    wire::bytes made(sizeof(std::uint64_t) + static_cast<std::size_t>(part.size()) * sizeof(Element));
    auto* const packed = reinterpret_cast<Element*>(made.data() + sizeof(std::uint64_t));
    copy_part(from, mine_, part, packed);
    if constexpr (inject::active_injector::enabled)
      (void)injector.strike(site::block, {.interval = static_cast<std::int64_t>(to), .intervals = static_cast<std::int64_t>(over_.size())},
                            reinterpret_cast<number*>(packed), k_components * part.size());
    const std::uint64_t sum = sum_of(from, mine_, part, was_.shape);
    std::memcpy(made.data(), &sum, sizeof sum);
    return made;
  }

  // Returns whether the block has its size, and what was stored has its sum.
  bool unpack(const wire::bytes& block, std::size_t from, Element* to, bool verify, inject::active_injector& injector) const {
    const box part = common(was_.of(from), next_);
    if (part.size() == 0) return block.empty();
    std::uint64_t expected = 0;
    if (block.size() != sizeof expected + static_cast<std::size_t>(part.size()) * sizeof(Element)) return false;
    std::memcpy(&expected, block.data(), sizeof expected);
    const std::byte* packed = block.data() + sizeof expected;
    const std::int64_t count = part.count[static_cast<std::size_t>(part.order[2])];
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Element);
    each_line(next_, part, part.order, becomes_.shape, [&](std::int64_t place, std::int64_t) {
      std::memcpy(to + place, packed, bytes);
      packed += bytes;
    });
    if constexpr (inject::active_injector::enabled) {
      // A strike of one line: the part is not contiguous.
      (void)injector.strike(site::copy, {.interval = static_cast<std::int64_t>(from), .intervals = static_cast<std::int64_t>(over_.size())},
                            reinterpret_cast<number*>(to + places(next_).of(part)), k_components * count);
    }
    return !verify || sum_of(to, next_, part, becomes_.shape) == expected;
  }

  division_of_array was_, becomes_;
  wire::exchange& over_;
  box mine_, next_;
};

}  // namespace ballast::fft
