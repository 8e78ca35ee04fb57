// The attempt loop: compute a tile, verify it, compute it again, give it up. One judgement for host and device.
// Data that no checksum can judge (Inf, NaN, norms whose squares overflow) are judged by repetition: the same bits twice.
// Layer: foundation. Host/device-neutral.
// Source: docs/protection.md, "The guarantee".
#pragma once

#include <cstdint>
#include <cstring>

#include "abft/verify.hpp"
#include "core/counter_rng.hpp"
#include "core/macros.hpp"

namespace ballast::abft {

// How often a tile that fails is computed again before it counts as uncorrectable.
inline constexpr int k_repeats = 2;

// The largest finite number.
template <class T>
inline constexpr double k_largest = sizeof(T) == 4 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;

// Where ‖x‖² is summed in working precision, a sum outside of this range says nothing: it overflowed, or lost terms to underflow.
struct squares_range {
  double low;
  double high;
};
template <class T>
inline constexpr squares_range k_squares = sizeof(T) == 4 ? squares_range{1e-28, 1e37} : squares_range{1e-280, 1e300};

// A column whose norm is beyond 2^±this is multiplied by a power of two first: products and squares of the others stay in range.
template <class T>
inline constexpr int k_moderate_exponent = sizeof(T) == 4 ? 40 : 300;

// Data of a norm up to this cannot overflow where no intermediate result is more than `growth` times as large.
template <class T>
BALLAST_HD constexpr double overflow_norm(double growth) {
  return k_largest<T> / growth;
}

// The hash for finding::bits, of numbers in a fixed order. Every NaN counts as the same value: which one an operation gives is not
// determined.
class result_hash {
 public:
  template <class T>
  BALLAST_HD void add(T value) {
    std::uint64_t word = 1;
    if (value == value) {
      word = 0;
      std::memcpy(&word, &value, sizeof value);
    }
    made_ = core::mix64(made_ ^ word);
  }
  BALLAST_HD constexpr std::uint64_t bits() const { return made_ == 0 ? 1 : made_; }

 private:
  std::uint64_t made_ = 0x9e3779b97f4a7c15u;
};

// What the verification of one computation of a tile found.
struct finding {
  std::uint32_t word = k_pass;  // of verify()
  bool judged = true;           // false: no checksum can judge these data; `bits` decide and `word` is ignored
  bool corrected = false;       // passes because the place of a fault was found, the value rebuilt and verified again
  std::uint64_t bits = 0;       // hash of the result, never 0; 0: not computed. Unjudged results need it
  double residual = 0;
  double threshold = 0;
  std::int64_t index = -1;      // as in ballast::event
  const char* check = nullptr;  // the check that failed, where a tile has several: the event's site
};

// The word says failure and the numbers say pass: the comparison was struck, not the data.
BALLAST_HD constexpr bool comparison_struck(const finding& seen) {
  return seen.word != k_pass && seen.residual <= seen.threshold && -seen.residual <= seen.threshold;
}

// How the attempts at one tile ended. open: compute it again.
enum class outcome : std::uint8_t { open, clean, corrected, recomputed, uncorrectable };

// Whether the last computation is right and may be stored.
BALLAST_HD constexpr bool stands(outcome how) { return how != outcome::open && how != outcome::uncorrectable; }

// The decisions of an attempt loop, for loops that keep their state themselves: kernels keep it in registers and shared memory.

// Whether a computation is good: a judged one must pass; an unjudged one must have the bits of the computation before it (`same`).
BALLAST_HD constexpr bool is_good(bool judged, std::uint32_t word, bool same) { return judged ? word == k_pass : same; }

// Whether a tile is given up after computation `number` = 0, 1, …, which is not good. Without a failure so far (`failed`) it is the first
// one of data that no checksum can judge, which are always computed once more.
BALLAST_HD constexpr bool is_last(int number, int repeats, bool failed) { return number >= repeats + (failed ? 0 : 1); }

// The state of one tile over its attempts.
class attempts {
 public:
  // `repeats`: how often the tile may be computed again. 0 is protection::detect: the first failure is the last word.
  BALLAST_HD constexpr explicit attempts(int repeats) : repeats_(repeats) {}

  // Judges one more computation. A judged result must pass; an unjudged one must have the bits of one of the two computations before it, so
  // it is always computed at least twice, and the second may be the struck one. Its first computation is a failure only if the next one
  // gives something else.
  BALLAST_HD constexpr outcome judge(const finding& now) {
    const bool again = number_ > 0 && now.bits != 0 && now.bits == bits_;
    const bool same = again || (number_ > 1 && now.bits != 0 && now.bits == before_);
    const int number = number_++;
    failed_ = failed_ || (waiting_ && !again);
    same_ = again && !waiting_;  // the bits of an unjudged computation only confirm it
    waiting_ = !now.judged && !same;
    before_ = bits_;
    bits_ = now.bits;
    if (is_good(now.judged, now.word, same)) {
      if (failed_) return outcome::recomputed;
      if (!now.corrected) return outcome::clean;
      first_ = now;
      return outcome::corrected;
    }
    if (!failed_) first_ = now;
    failed_ = failed_ || now.judged;
    return is_last(number, repeats_, failed_) ? outcome::uncorrectable : outcome::open;
  }

  // Computes and verifies until the outcome is not open: once(number) makes computation `number` = 0, 1, … and returns its finding.
  template <class Once>
  BALLAST_HD constexpr outcome settle(Once&& once) {
    outcome how = outcome::open;
    while (how == outcome::open) how = judge(once(number_));
    return how;
  }

  // The first failure: what an event reports. Meaningful unless the outcome is clean.
  BALLAST_HD constexpr const finding& first() const { return first_; }

  // After outcome::recomputed: the last computation gave the bits of the one before, which had failed its check. The check was struck and
  // not the data.
  BALLAST_HD constexpr bool false_alarm() const { return failed_ && same_; }

 private:
  int repeats_;
  int number_ = 0;
  bool failed_ = false;
  bool waiting_ = false;  // for the repetition of an unjudged computation
  bool same_ = false;
  std::uint64_t bits_ = 0, before_ = 0;
  finding first_{};
};

}  // namespace ballast::abft
