// A campaign: a sequence of strikes at random registers and times in the calls of one subject, and the outcome of each.
// Layer: test program.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ballast/types.hpp>

#include "interrupt.hpp"
#include "location.hpp"
#include "registers.hpp"
#include "subject.hpp"

namespace ballast::strike {

// The struck bits. numbers: exponent, sign or one of the six upper mantissa bits of a number in a vector register. bits: any bit of a
// vector register. masks: any bit of a mask register. general: any bit of a general register, or of a general register that the compiler
// has moved to a vector register: addresses and counters, which no checksum covers. none: the thread is interrupted without a change, which
// must have no effect.
enum class target : std::uint8_t { numbers, bits, masks, general, none };
inline constexpr int k_targets = 5;
std::string_view to_string(target value);

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
std::string_view to_string(outcome value);

struct strike {
  target what = target::numbers;
  register_bit where;
  moment when;
  code_address instruction;  // the next instruction at the time of the strike
  code_address caller;       // the caller in this program, if the instruction is in a system library
  outcome result = outcome::masked;
  effect change;
  std::uint64_t detected = 0;
  int signal = 0;
};

struct plan {
  std::int64_t strikes = 1000;
  std::uint64_t seed = 1;
  int threads = 2;
  double seconds = 1e9;  // time limit
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
  std::vector<strike> worth_a_look;  // all strikes except masked, repaired and rounding
  std::int64_t missed = 0;           // strikes whose timer expired after the call, or while the thread had no work
  std::int64_t processes = 0;
  double clean_error = 0, call_seconds = 0, seconds = 0;
  std::string scheme;
  const tally& of(target which) const { return tallies[static_cast<std::size_t>(which)]; }
};

// Runs a campaign. Throws std::runtime_error if calls without strikes are not clean or not reproducible.
record strike_subject(const std::string& name, protection how, const plan& wanted);

}  // namespace ballast::strike
