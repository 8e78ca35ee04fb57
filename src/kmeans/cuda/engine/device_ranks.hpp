// The exchanges of the devices of a group: numbers of each device's own points, joined in the order of rows; integer sums; verdicts.
// Layer: backend "cuda" of K-Means, host. docs/design/distributed.md, "Devices".
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "abft/seal.hpp"
#include "abft/verify.hpp"
#include "core/memory.hpp"
#include "group/exchange.hpp"
#include "run/recorder.hpp"

namespace ballast::kmeans::cuda {

// The operations, by which ranks see that all do the same.
enum class joined : std::uint64_t {
  settle = 1,
  agree,
  ranges,
  refused,
  sums,
  squares,
  points,
  positions,
  weight,
  potentials,
  potential,
  candidates,
  drawn,
  weighed,
  start,
  stretch,
  pass,
  labelled,
  host_sums,
  end,
  farthest,
  inertia
};

class device_ranks {
 public:
  // `over` null: the call has no group, and no other member but the conversion is called.
  device_ranks(wire::exchange* over, run::recorder& seen) : over_(over), seen_(seen) {}
  explicit operator bool() const { return over_ != nullptr; }
  std::size_t place() const { return over_->place(); }
  std::size_t size() const { return over_->size(); }
  // Returns whether a fault on any rank is uncorrectable, as far as all ranks know it alike.
  bool failed() const { return failed_; }

  // The arrays of all ranks, in their order. `seal`: of what all ranks must hold alike.
  template <class Value>
  std::vector<core::vector<Value>> parts(joined what, std::span<const Value> own, std::uint64_t seal = 0) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const std::int64_t flag = seen_.uncorrectable() ? 1 : 0;
    wire::bytes block(sizeof flag + own.size_bytes());
    std::memcpy(block.data(), &flag, sizeof flag);
    if (!own.empty()) std::memcpy(block.data() + sizeof flag, own.data(), own.size_bytes());
    expect(what, seal);
    std::vector<core::vector<Value>> made;
    for (const wire::bytes& each : over_->gather(std::span<const std::byte>(block))) {
      std::int64_t seen = 0;
      std::memcpy(&seen, each.data(), sizeof seen);
      failed_ = failed_ || seen != 0;
      core::vector<Value>& part = made.emplace_back((each.size() - sizeof seen) / sizeof(Value));
      if (!part.empty()) std::memcpy(part.data(), each.data() + sizeof seen, part.size() * sizeof(Value));
    }
    return made;
  }
  // The same in one array.
  template <class Value>
  core::vector<Value> all(joined what, const core::vector<Value>& own, std::uint64_t seal = 0) {
    core::vector<Value> made;
    for (const core::vector<Value>& each : parts(what, std::span<const Value>(own), seal))
      made.insert(made.end(), each.begin(), each.end());
    return made;
  }
  // Replaces words by their sums over all ranks, modulo 2⁶⁴, and returns the `own` of every rank.
  std::vector<std::uint64_t> add(joined what, std::span<unsigned long long> words, std::uint64_t own = 0, std::uint64_t seal = 0) {
    std::vector<std::int64_t> message(words.size() + size() + 1, 0);
    if (!words.empty()) std::memcpy(message.data(), words.data(), words.size_bytes());
    message[words.size() + place()] = static_cast<std::int64_t>(own);
    message.back() = seen_.uncorrectable() ? 1 : 0;
    expect(what, seal);
    over_->add(message);
    failed_ = failed_ || message.back() != 0;
    if (!words.empty()) std::memcpy(words.data(), message.data(), words.size_bytes());
    return {message.begin() + static_cast<std::ptrdiff_t>(words.size()), message.end() - 1};
  }
  // Returns whether `own` is true on all ranks.
  bool everywhere(joined what, bool own, std::uint64_t seal = 0) {
    for (const std::uint64_t each : add(what, {}, own ? 1 : 0, seal))
      if (each == 0) return false;
    return true;
  }
  // See engine::agreed.
  abft::finding agreed(const abft::finding& own) {
    abft::finding made = own;
    if (!everywhere(joined::agree, own.word == abft::k_pass) && made.word == abft::k_pass) {
      made.word = abft::k_fail;
      made.check = "group.verdict";
    }
    if (own.judged) return made;
    abft::result_hash bits;
    for (const std::uint64_t each : add(joined::agree, {}, own.bits)) bits.add(static_cast<std::int64_t>(each));
    made.bits = bits.bits();
    return made;
  }

 private:
  void expect(joined what, std::uint64_t seal) {
    over_->expect_alike(abft::chained(abft::chained(0x6465766963657321u, static_cast<std::uint64_t>(what)), seal));
  }

  wire::exchange* over_;
  run::recorder& seen_;
  bool failed_ = false;
};

}  // namespace ballast::kmeans::cuda
