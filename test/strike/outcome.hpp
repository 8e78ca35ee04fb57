// The outcome of a strike, and counts of outcomes.
// Layer: test program. Needs no package.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ballast/report.hpp>

#include "subjects/subject.hpp"

namespace ballast::strike {

// Stores as much of a text as an array holds; it may live in memory that processes share.
template <std::size_t N>
void put(char (&to)[N], std::string_view text) {
  to[text.copy(to, N - 1)] = '\0';
}

// masked: the result has the bits of the clean call, and no check failed. repaired: a check failed, and the result is right up to the
// floor. wrongly_repaired: a check failed, the verdict is good, and the error is above the floor. uncorrectable: the call reported it.
// failed: another exception. crashed: ended by a signal. hung: did not end. The silent outcomes: no check failed and the result differs, by
// at most one rounding error (rounding), by at most the floor (below_floor), by more (material).
enum class outcome : std::uint8_t {
  masked,
  repaired,
  wrongly_repaired,
  uncorrectable,
  failed,
  crashed,
  hung,
  rounding,
  below_floor,
  material
};
inline constexpr int k_outcomes = 10;

inline std::string_view to_string(outcome value) {
  static constexpr std::string_view names[k_outcomes] = {"masked",  "repaired", "wrongly repaired", "uncorrectable", "failed",
                                                         "crashed", "hung",     "rounding",         "below floor",   "material"};
  return names[static_cast<std::size_t>(value)];
}

struct tally {
  std::int64_t strikes = 0;
  std::array<std::int64_t, k_outcomes> outcomes{};
  std::int64_t of(outcome which) const { return outcomes[static_cast<std::size_t>(which)]; }
  void add(outcome which) {
    ++strikes;
    ++outcomes[static_cast<std::size_t>(which)];
  }
};

// The result of a call.
struct seen_call {
  bool threw = false;
  report said;
  effect change;
};

inline outcome classify(const seen_call& seen) {
  if (seen.threw) return outcome::failed;
  if (seen.said.verdict == verdict::uncorrectable) return outcome::uncorrectable;
  const bool right = seen.change.same || seen.change.floors <= 1;
  if (seen.said.detected > 0) return right ? outcome::repaired : outcome::wrongly_repaired;
  if (seen.change.same) return outcome::masked;
  return !right ? outcome::material : seen.change.roundings <= 1 ? outcome::rounding : outcome::below_floor;
}

}  // namespace ballast::strike
