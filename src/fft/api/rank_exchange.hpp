// The exchange that turns one division of an array among the ranks of a group into another, by pieces.
// Layer: algorithm, over group/exchange.hpp. Source: docs/design/distributed.md, "FFT".
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <ballast/fft_group.hpp>

#include "fft/api/boxes.hpp"
#include "fft/sites.hpp"
#include "group/exchange.hpp"
#include "inject/injector.hpp"

namespace ballast::fft {

// Two divisions of an array, and the pieces in which the parts of the first travel: each has `length` elements of axis `cut`, the last one
// of a part fewer, or none.
struct turn_of_array {
  division_of_array was, becomes;
  int cut = 0;
  std::int64_t length = 1;
  std::int64_t pieces = 1;  // those of the longest part: so many exchanges on all ranks

  box piece(std::size_t rank, std::int64_t number) const {
    box made = was.of(rank);
    const auto a = static_cast<std::size_t>(cut);
    const std::int64_t begin = std::min(number * length, made.count[a]);
    made.first[a] += begin;
    made.count[a] = std::min(length, made.count[a] - begin);
    return made;
  }
};

// Pieces in which a rank sends about `block_bytes` to each of those that get something from it: they and the messages stay in the cache.
// Each runs over 1 to 7 or a multiple of 16 elements of the axis, so that stores along it fill cache lines.
inline turn_of_array turn_between(const division_of_array& was, const division_of_array& becomes, int cut, std::size_t ranks,
                                  std::int64_t element_bytes, std::int64_t block_bytes) {
  turn_of_array made{was, becomes, cut};
  const auto longest = [&](int axis) {
    const std::int64_t parts = axis == was.rows_axis ? was.rows : axis == was.columns_axis ? was.columns : 1;
    return (was.shape[static_cast<std::size_t>(axis)] + parts - 1) / parts;
  };
  const box first = was.of(0);
  std::int64_t takers = 0;
  for (std::size_t p = 0; p < ranks; ++p) takers += common(first, becomes.of(p)).size() > 0 ? 1 : 0;
  const std::int64_t rows = longest(cut), bytes = longest(0) * longest(1) * longest(2) * element_bytes;
  const std::int64_t wanted = std::clamp<std::int64_t>(bytes / (block_bytes * std::max<std::int64_t>(takers, 1)), 1, rows);
  made.length = (rows + wanted - 1) / wanted;
  if (made.length >= 8) made.length = std::min(rows, (made.length + 15) / 16 * 16);
  made.pieces = (rows + made.length - 1) / made.length;
  return made;
}

// Elements after each index of the slowest axis of a box, so that the elements of a line along that axis do not share sets of a cache.
template <class Element>
std::int64_t pad_of(const box& in) {
  constexpr std::int64_t line = 128, set = 1024;
  const std::int64_t bytes = places(in).stride(in.order[0]) * static_cast<std::int64_t>(sizeof(Element));
  return bytes > 0 && bytes % set == 0 ? line / static_cast<std::int64_t>(sizeof(Element)) : 0;
}

// One exchange, once. A rank packs for each other the elements of a piece that both have, in the order in which the other stores them, with
// their sum as the first word; the other makes the same sum over what it has stored. Elements that stay go directly, with both sums. A rank
// may compute the next piece while one is on its way; the messages are kept until they are confirmed, the pieces are not.
template <class Element>
class exchange_of_boxes {
  using number = typename component<Element>::type;
  static constexpr std::int64_t k_components = component<Element>::count;

 public:
  // Stores to `to`, where the part of this rank in the new division lies as `there` says.
  exchange_of_boxes(const turn_of_array& how, wire::exchange& over, Element* to, const places& there, bool verify,
                    inject::active_injector& injector)
      : how_(how),
        over_(over),
        ranks_(over.size()),
        me_(over.place()),
        next_(how.becomes.of(me_)),
        to_(to),
        there_(there),
        verify_(verify),
        injector_(injector) {}

  // Sends piece `piece` of this rank, which is read before send() returns, and takes what others sent of the one before.
  void send(std::int64_t piece, const Element* from, const places& at) {
    const box mine = how_.piece(me_, piece);
    std::vector<wire::bytes> messages(ranks_);
    for (std::size_t p = 0; p < ranks_; ++p) {
      box part = common(mine, how_.becomes.of(p));
      if (part.size() == 0) continue;
      p == me_ ? keep(from, at, mine, part) : pack(from, at, mine, part, p, messages[p]);
    }
    if (piece > 0) take(piece - 1);
    std::vector<bool> awaited;
    awaited.reserve(ranks_);
    for (std::size_t p = 0; p < ranks_; ++p) awaited.push_back(come_from(p, piece).size() > 0);
    over_.begin_messages(std::move(messages), awaited);
  }

  // Takes what others sent of the last piece. Returns whether all blocks had their size, and all that was stored its sums.
  bool finish() {
    take(how_.pieces - 1);
    return right_;
  }

 private:
  box come_from(std::size_t p, std::int64_t piece) const { return common(how_.piece(p, piece), next_); }

  inject::position place_of(std::size_t other) const {
    return {.interval = static_cast<std::int64_t>(other), .intervals = static_cast<std::int64_t>(ranks_)};
  }

  // The sum over a part where it is stored in the order of `in`.
  std::uint64_t sum(const Element* data, const places& at, const box& in, box part) const {
    part.order = in.order;
    return sum_of(data, at, part, how_.was.shape);
  }

  // A strike of one line: the part is not contiguous.
  void strike_stored([[maybe_unused]] const box& part, [[maybe_unused]] std::size_t from) {
    if constexpr (inject::active_injector::enabled) {
      const int last = loops_of(part)[2];
      const std::int64_t count = there_.stride(last) == 1 ? part.count[static_cast<std::size_t>(last)] : 1;
      (void)injector_.strike(site::copy, place_of(from), reinterpret_cast<number*>(to_ + there_.of(part)), k_components * count);
    }
  }

  void pack(const Element* from, const places& at, const box& mine, const box& part, std::size_t to, wire::bytes& message) {
    std::uint64_t made = 0;
    const std::size_t begin = sizeof(wire::head) + sizeof made;
    message = over_.message_for(sizeof made + static_cast<std::size_t>(part.size()) * sizeof(Element));
    auto* const packed = reinterpret_cast<Element*>(message.data() + begin);
    copy_part(from, at, packed, places(part), part);
    if constexpr (inject::active_injector::enabled)
      (void)injector_.strike(site::block, place_of(to), reinterpret_cast<number*>(packed), k_components * part.size());
    if (verify_) made = sum(from, at, mine, part);
    std::memcpy(message.data() + sizeof(wire::head), &made, sizeof made);
  }

  // Stores what stays on this rank.
  void keep(const Element* from, const places& at, const box& mine, const box& part) {
    copy_part(from, at, to_, there_, part);
    strike_stored(part, me_);
    if (verify_ && sum(from, at, mine, part) != sum(to_, there_, next_, part)) right_ = false;
  }

  void take(std::int64_t piece) {
    std::vector<wire::bytes> came = over_.end_messages();
    for (std::size_t p = 0; p < ranks_; ++p) {
      if (p == me_) continue;
      right_ = unpack(came[p], come_from(p, piece), p) && right_;
      over_.forget(std::move(came[p]));
    }
  }

  bool unpack(const wire::bytes& message, const box& part, std::size_t from) {
    if (message.empty()) return part.size() == 0;
    const std::span<const std::byte> block = wire::body_of(message);
    if (part.size() == 0) return block.empty();
    std::uint64_t expected = 0;
    if (block.size() != sizeof expected + static_cast<std::size_t>(part.size()) * sizeof(Element)) return false;
    std::memcpy(&expected, block.data(), sizeof expected);
    copy_part(reinterpret_cast<const Element*>(block.data() + sizeof expected), places(part), to_, there_, part);
    strike_stored(part, from);
    return !verify_ || sum(to_, there_, next_, part) == expected;
  }

  const turn_of_array& how_;
  wire::exchange& over_;
  std::size_t ranks_, me_;
  box next_;
  Element* to_;
  places there_;
  bool verify_;
  inject::active_injector& injector_;
  bool right_ = true;
};

}  // namespace ballast::fft
