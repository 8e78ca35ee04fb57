// Sums over ranks with their seals. See sum_of_ranks.hpp.
#include "group/sum_of_ranks.hpp"

#include <utility>

namespace ballast::wire {

void weigh(std::span<const std::uint64_t> words, std::uint64_t (&sums)[2]) {
  std::uint64_t plain = 0, weighted = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    plain += words[i];
    weighted += words[i] * (0x9e3779b97f4a7c15u * (2 * i + 1));
  }
  sums[0] = plain;
  sums[1] = weighted;
}

sum_of_ranks::sum_of_ranks(std::span<const std::int64_t> words, std::size_t segments, std::uint64_t mark, std::uint64_t digest)
    : count_(words.size()), segments_(segments), cells_(begin(segments)) {
  for (std::size_t s = 0; s < segments; ++s) {
    const std::size_t from = begin(s), to = end_of_words(s);
    for (std::size_t i = from; i < to; ++i) cells_[i] = static_cast<std::uint64_t>(words[i - k_seal * s]);
    cells_[to] = mark;
    cells_[to + 1] = digest;
    std::uint64_t sums[2];
    weigh(std::span(cells_).subspan(from, to + 2 - from), sums);
    cells_[to + 2] = sums[0];
    cells_[to + 3] = sums[1];
  }
  const std::span<const std::byte> own = block(0, segments);
  parts_.push_back({0, segments, {own.begin(), own.end()}});
}

std::span<const std::byte> sum_of_ranks::block(std::size_t first, std::size_t last) const {
  return std::as_bytes(std::span(cells_).subspan(begin(first), begin(last) - begin(first)));
}

bytes sum_of_ranks::again(std::size_t first, std::size_t last, std::size_t parts) const {
  std::vector<std::uint64_t> sums(begin(last) - begin(first), 0);
  for (std::size_t p = 0; p < parts; ++p)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += parts_[p].cell(begin(first) - begin(parts_[p].first) + i);
  const std::span<const std::byte> made = std::as_bytes(std::span(sums));
  return {made.begin(), made.end()};
}

bool sum_of_ranks::fits(std::size_t first, std::size_t last, std::span<const std::byte> block) const {
  return block.size() == 8 * (begin(last) - begin(first));
}

bool sum_of_ranks::is_whole(std::size_t first, std::size_t last, std::span<const std::byte> block, std::uint64_t marks) const {
  std::vector<std::uint64_t> segment;
  for (std::size_t s = first; s < last; ++s) {
    segment.resize(begin(s + 1) - begin(s));
    std::memcpy(segment.data(), block.data() + 8 * (begin(s) - begin(first)), 8 * segment.size());
    const std::size_t words = segment.size() - k_seal;
    std::uint64_t sums[2];
    weigh(std::span(segment).first(words + 2), sums);
    if (segment[words] != marks || segment[words + 2] != sums[0] || segment[words + 3] != sums[1]) return false;
  }
  return true;
}

void sum_of_ranks::keep(std::size_t first, std::size_t last, bytes block) { parts_.push_back({first, last, std::move(block)}); }

void sum_of_ranks::add() {
  for (; added_ < parts_.size(); ++added_) {
    const part& each = parts_[added_];
    for (std::size_t i = 0; i < each.block.size() / 8; ++i) cells_[begin(each.first) + i] += each.cell(i);
  }
}

void sum_of_ranks::add_again() {
  const part& newest = parts_.back();
  become(newest.first, newest.last, again(newest.first, newest.last, parts_.size()));
}

void sum_of_ranks::become(std::size_t first, std::size_t last, std::span<const std::byte> block) {
  std::memcpy(cells_.data() + begin(first), block.data(), 8 * (begin(last) - begin(first)));
}

std::vector<std::int64_t> sum_of_ranks::words(std::size_t first, std::size_t last) const {
  std::vector<std::int64_t> made;
  for (std::size_t s = first; s < last; ++s)
    for (std::size_t i = begin(s); i < end_of_words(s); ++i) made.push_back(static_cast<std::int64_t>(cells_[i]));
  return made;
}

}  // namespace ballast::wire
