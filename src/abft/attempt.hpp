// The attempt loop: computes a tile and verifies it; after a failure it computes the tile again, or gives up.
// Host and device share its decisions.
// No checksum can judge some data (Inf, NaN, norms whose squares overflow). For these, two computations must give the same bits.
// Layer: foundation. Host/device-neutral.
// Source: docs/protection.md, "The guarantee".
#pragma once

#include <cstdint>

#include "abft/seal.hpp"
#include "abft/verify.hpp"
#include "core/macros.hpp"

namespace ballast::abft {

// The number of recomputations of a failing tile before it counts as uncorrectable.
inline constexpr int k_repeats = 2;

// The range in which a sum ‖x‖² in working precision is valid. A sum outside of it has overflowed, or has lost terms to underflow.
struct squares_range {
  double low;
  double high;
};
template <class T>
inline constexpr squares_range k_squares = sizeof(T) == 4 ? squares_range{1e-28, 1e37} : squares_range{1e-280, 1e300};

// A column whose norm is outside of 2^±k_moderate_exponent is scaled by a power of two first. Products and squares of all other columns
// stay in range without scaling.
template <class T>
inline constexpr int k_moderate_exponent = sizeof(T) == 4 ? 40 : 300;

// Instead of the exponent of the largest number: a column of zeros; a column with Inf or NaN. Farther from 0 than all exponents and shifts.
inline constexpr int k_zero_column = -(1 << 20);
inline constexpr int k_odd_column = 1 << 20;
BALLAST_HD constexpr bool has_exponent(int e) { return e > k_zero_column && e < k_odd_column; }

// Returns the exponent of the power of two that scales a column whose norm, or largest element, has exponent e: 0 for most columns.
template <class T>
BALLAST_HD constexpr int moderating_shift(int e) {
  return has_exponent(e) && (e > k_moderate_exponent<T> || e < -k_moderate_exponent<T>) ? -e : 0;
}

// The same for columns whose elements are multiplied, but never squared: op(Q) X and R⁻¹ X. Small elements beside large ones keep their
// digits, since a column is scaled down only where products would overflow: the elements of R are below 2^k_moderate_exponent, and those of
// R⁻¹ X, where R's condition number is below 1/u, at most 1/u times as large as X's.
template <class T>
BALLAST_HD constexpr int product_shift(int e) {
  constexpr int most = sizeof(T) == 4 ? 100 : 960;
  return !has_exponent(e) ? 0 : e > most ? most - e : e < -k_moderate_exponent<T> ? -e : 0;
}

// Returns the largest norm at which data cannot overflow, if no intermediate result is more than `growth` times as large as the norm.
template <class T>
BALLAST_HD constexpr double overflow_norm(double growth) {
  return k_largest<T> / growth;
}

// The result of verifying one computation of a tile.
struct finding {
  std::uint32_t word = k_pass;  // the return value of verify()
  bool judged = true;           // false: no checksum can judge these data; `bits` decide and `word` is ignored
  bool corrected = false;       // true: a fault was located, its value rebuilt, and the tile verified again
  std::uint64_t bits = 0;       // the hash of the result, never 0; 0: not computed. Unjudged results need it
  double residual = 0;
  double threshold = 0;
  std::int64_t index = -1;      // as in ballast::event
  const char* check = nullptr;  // the check that failed, if a tile has several: the event's site
};

// Returns true if the word says failure although the numbers pass: the fault struck the comparison, not the data.
BALLAST_HD constexpr bool comparison_struck(const finding& seen) {
  return seen.word != k_pass && seen.residual <= seen.threshold && -seen.residual <= seen.threshold;
}

// The outcome of the attempts at one tile. open: the tile must be computed again.
enum class outcome : std::uint8_t { open, clean, corrected, recomputed, uncorrectable };

// Returns whether the last computation is right and may be stored.
BALLAST_HD constexpr bool stands(outcome how) { return how != outcome::open && how != outcome::uncorrectable; }

// The decisions of an attempt loop, for loops that keep their own state: kernels keep it in registers and shared memory.

// Returns whether a computation is good. A judged one must pass; an unjudged one must have the bits of the previous computation (`same`).
BALLAST_HD constexpr bool is_good(bool judged, std::uint32_t word, bool same) { return judged ? word == k_pass : same; }

// Returns whether a tile is given up after computation `number` = 0, 1, …, which is not good. If no computation has failed so far
// (`failed`), this is the first computation of data that no checksum can judge, and such data are always computed once more.
BALLAST_HD constexpr bool is_last(int number, int repeats, bool failed) { return number >= repeats + (failed ? 0 : 1); }

// The state of one tile over its attempts.
class attempts {
 public:
  // `repeats`: the number of allowed recomputations. 0 is protection::detect: the first failure is final.
  BALLAST_HD constexpr explicit attempts(int repeats) : repeats_(repeats) {}

  // Judges one more computation. A judged result must pass. An unjudged result must have the bits of one of the two previous computations:
  // so it is always computed at least twice, and a fault may have struck the second one. Its first computation counts as a failure only if
  // the next one gives other bits.
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

  // Computes and verifies until the outcome is not open: once(number) performs computation `number` = 0, 1, … and returns its finding.
  template <class Once>
  BALLAST_HD constexpr outcome settle(Once&& once) {
    outcome how = outcome::open;
    while (how == outcome::open) how = judge(once(number_));
    return how;
  }

  // Returns the first failure, which an event reports. Meaningful unless the outcome is clean.
  BALLAST_HD constexpr const finding& first() const { return first_; }

  // After outcome::recomputed: returns whether the last computation gave the bits of the previous one, which had failed its check. Then the
  // fault struck the check and not the data.
  BALLAST_HD constexpr bool false_alarm() const { return failed_ && same_; }

 private:
  int repeats_;
  int number_ = 0;
  bool failed_ = false;
  bool waiting_ = false;  // true: an unjudged computation waits for its repetition
  bool same_ = false;
  std::uint64_t bits_ = 0, before_ = 0;
  finding first_{};
};

}  // namespace ballast::abft
