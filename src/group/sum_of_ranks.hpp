// Sums of integers over the ranks of a group, whose seals are sums, too: what a rank adds or passes on is checked against what the ranks
// that the numbers come from have said.
// Layer: group. docs/design/distributed.md, "Relays".
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "group/message.hpp"

namespace ballast::wire {

// Two weighted sums of words: linear, so those of a sum of messages are the sums of theirs.
void weigh(std::span<const std::uint64_t> words, std::uint64_t (&sums)[2]);

// The words of a rank, in segments, and what is added to them. After each segment come four words, which are added as the others are: the
// sum of marks, one of each rank whose words are in it; the sum of the ranks' digests; two weighted sums over all these.
class sum_of_ranks {
 public:
  // words: `segments` ≥ 1 parts of about the same size. mark, digest: those of this rank.
  sum_of_ranks(std::span<const std::int64_t> words, std::size_t segments, std::uint64_t mark, std::uint64_t digest);

  std::size_t segments() const { return segments_; }
  std::size_t parts() const { return parts_.size(); }
  // The sums of segments [first, last), as a block for another rank.
  std::span<const std::byte> block(std::size_t first, std::size_t last) const;
  // The same, made again from this rank's words and the first parts − 1 of those that came.
  bytes again(std::size_t first, std::size_t last, std::size_t parts) const;
  // Returns whether a block of these segments has the right length; whether its words are the sum over the ranks whose marks are `marks`.
  bool fits(std::size_t first, std::size_t last, std::span<const std::byte> block) const;
  bool is_whole(std::size_t first, std::size_t last, std::span<const std::byte> block, std::uint64_t marks) const;
  // Keeps a block that fits. add() adds those that have not been added; add_again() makes the sums of the newest block's segments from all
  // that is kept.
  void keep(std::size_t first, std::size_t last, bytes block);
  void add();
  void add_again();
  // Replaces the sums by those of a block.
  void become(std::size_t first, std::size_t last, std::span<const std::byte> block);
  // The digests that are in a segment.
  std::uint64_t digests(std::size_t segment) const { return cells_[end_of_words(segment) + 1]; }
  std::vector<std::int64_t> words(std::size_t first, std::size_t last) const;

 private:
  static constexpr std::size_t k_seal = 4;
  struct part {
    std::size_t first, last;
    bytes block;
    std::uint64_t cell(std::size_t i) const {
      std::uint64_t made = 0;
      std::memcpy(&made, block.data() + 8 * i, sizeof made);
      return made;
    }
  };
  std::size_t begin(std::size_t segment) const { return segment * count_ / segments_ + segment * k_seal; }
  std::size_t end_of_words(std::size_t segment) const { return begin(segment + 1) - k_seal; }

  std::size_t count_, segments_;
  std::vector<std::uint64_t> cells_;
  std::vector<part> parts_;  // the own words, then the blocks that came
  std::size_t added_ = 1;
};

}  // namespace ballast::wire
