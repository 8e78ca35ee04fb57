// The messages of a group and their seals.
// Layer: group. docs/design/distributed.md has the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "abft/seal.hpp"
#include "abft/word_sums.hpp"

namespace ballast::wire {

using bytes = std::vector<std::byte>;

// data: a block of a step. received: it has come whole. wanted: it has not; send it again; copy = 1: what it carries of other ranks was
// damaged. waiting: the answer of a rank that has not come to this step. left: the answer of one that never sends that block, since it has
// left the call; copy as in given_up. origin_wanted: send your own block of a gather itself. origin: that block, a message in a message.
// given_up: the sender has left the call after this epoch; copy = 1: a block came damaged group_options::tries times. regroup: ranks are
// lost; the body lists them.
enum class kind : std::uint64_t { data = 0xda7a, received, wanted, waiting, left, origin_wanted, origin, given_up, regroup };

// The receiver of a message to all.
inline constexpr std::uint64_t k_all = ~std::uint64_t{0};

// The head of a message: words of 64 bits, so that no bit of it is outside of the seal.
struct head {
  std::uint64_t what = 0;        // kind
  std::uint64_t generation = 0;  // the number of lost ranks
  std::uint64_t call = 0;        // the number of the call, for data
  std::uint64_t epoch = 0;       // the number of the exchange since the group has this generation
  std::uint64_t from = 0, to = 0;
  std::uint64_t copy = 0;      // 0: sent for the first time
  std::uint64_t digest = 0;    // a hash of the data that all ranks must hold alike
  std::uint64_t length = 0;    // bytes of the body
  std::uint64_t sums[2] = {};  // two sums over the body: abft::weighted_sums
  std::uint64_t seal = 0;      // a hash of the words above
};

inline std::uint64_t seal_of_head(const head& value) {
  std::uint64_t words[sizeof(head) / 8];
  std::memcpy(words, &value, sizeof value);
  abft::result_hash made;
  for (std::size_t i = 0; i + 1 < std::size(words); ++i) made.add(words[i]);
  return made.bits();
}

inline std::span<const std::byte> body_of(std::span<const std::byte> message) { return message.subspan(sizeof(head)); }

// Stores a head, whose length, sums and seal are computed here, before the body of a message.
inline void seal_message(head value, bytes& message) {
  const std::span<const std::byte> body = body_of(message);
  value.length = body.size();
  abft::weighted_sums(body, value.sums);
  value.seal = seal_of_head(value);
  std::memcpy(message.data(), &value, sizeof value);
}

// Makes a message of a head and a body.
inline bytes make_message(const head& value, std::span<const std::byte> body) {
  bytes made(sizeof value + body.size());
  if (!body.empty()) std::memcpy(made.data() + sizeof value, body.data(), body.size());
  seal_message(value, made);
  return made;
}

// Changes the copy number of a message that is sent again.
inline void set_copy(bytes& message, std::uint64_t number) {
  head value;
  std::memcpy(&value, message.data(), sizeof value);
  value.copy = number;
  value.seal = seal_of_head(value);
  std::memcpy(message.data(), &value, sizeof value);
}

// Reads the head of a message. Returns whether it is whole.
inline bool read_head(std::span<const std::byte> message, head& value) {
  if (message.size() < sizeof value) return false;
  std::memcpy(&value, message.data(), sizeof value);
  return value.seal == seal_of_head(value) && value.length == message.size() - sizeof value;
}

inline bool body_is_whole(std::span<const std::byte> message, const head& value) {
  std::uint64_t sums[2];
  abft::weighted_sums(body_of(message), sums);
  return sums[0] == value.sums[0] && sums[1] == value.sums[1];
}

}  // namespace ballast::wire
