// A campaign: strikes one after the other at random registers and times of the calls of one subject, and what became of each.
// Layer: test program.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ballast/types.hpp>

#include "interrupt.hpp"
#include "place.hpp"
#include "registers.hpp"
#include "subject.hpp"

namespace ballast::strike {

// What is struck. numbers: exponent, sign or one of the six upper mantissa bits of a number in a vector register. bits: any bit of one.
// masks: any bit of a mask register. general: any bit of a general register, or of one that the compiler keeps in a vector register:
// addresses and counters, which no checksum covers. none: the thread is interrupted all the same; nothing may come of it.
enum class target : std::uint8_t { numbers, bits, masks, general, none };
inline constexpr int k_targets = 5;
std::string_view to_string(target value);

// masked: the result is that of the clean call, bit by bit, and no check fired. repaired: a check fired and the result is right, to the
// floor. wrongly_repaired: a check fired, the verdict is good, and the result is wrong by more. uncorrectable: said so. failed: an
// exception of another kind. crashed: ended by a signal. hung: did not end. silent: no check fired and the result is another, by at most
// one rounding error (rounding), by at most the floor (below_floor), by more (material).
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
std::string_view to_string(outcome value);

struct strike {
  target what = target::numbers;
  register_bit where;
  moment when;
  code_address instruction;  // the next one at the time of the strike
  code_address caller;       // in this program, where the instruction is in a library of the system
  outcome result = outcome::masked;
  effect change;
  std::uint64_t detected = 0;
  int signal = 0;
};

struct plan {
  std::int64_t strikes = 1000;
  std::uint64_t seed = 1;
  int threads = 2;
  double seconds = 1e9;  // stop after so many
};

struct tally {
  std::int64_t strikes = 0;
  std::array<std::int64_t, k_outcomes> outcomes{};
  std::int64_t of(outcome which) const { return outcomes[static_cast<std::size_t>(which)]; }
};

struct record {
  std::string subject;
  ballast::protection protection = ballast::protection::correct;
  std::array<tally, k_targets> tallies;
  std::vector<strike> worth_a_look;  // all but masked, repaired and rounding
  std::int64_t missed = 0;           // the call was over, or the thread did not work, when its time came
  std::int64_t processes = 0;
  double clean_error = 0, call_seconds = 0, seconds = 0;
  std::string scheme;
  const tally& of(target which) const { return tallies[static_cast<std::size_t>(which)]; }
};

// Throws std::runtime_error if clean calls are not clean and the same each time.
record strike_subject(const std::string& name, protection how, const plan& wanted);

}  // namespace ballast::strike
