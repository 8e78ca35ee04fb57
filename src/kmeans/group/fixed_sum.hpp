// Sums in fixed point, which are the same bits for any order and any division of their terms.
// Layer: K-Means, ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace ballast::kmeans::ranks {

// A sum is two integers: (high · 2^q + low) · 2^−2q. A term is rounded to a multiple of 2^−2q, so a sum of m terms is wrong by at most
// m · 2^−(2q+1). q = 48 for up to 2¹² terms, 40 for 2²⁰, 30 for 2³⁰: with 2q = 80 binary places, one term of 1 in a million loses
// nothing that a double of it has.
struct fixed_sum {
  std::int64_t high = 0, low = 0;
};

class fixed_point {
 public:
  // `terms`: the most terms of a sum.
  explicit fixed_point(std::int64_t terms)
      : q_(std::clamp(60 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(terms, 1)))), 8, 48)),
        coarse_(std::ldexp(1.5, 52 - q_)),
        fine_(std::ldexp(1.5, 52 - 2 * q_)) {}

  // Adds a term, at most 4 in magnitude. A sum with 1.5 · 2^(52 − q) is rounded to a multiple of 2^−q, and holds it as an integer in its
  // low bits. The rest is at most half of such a multiple.
  void add(double term, std::int64_t& high, std::int64_t& low) const {
    const double up = term + coarse_;
    const double down = (term - (up - coarse_)) + fine_;
    high = wrapped(high, up, coarse_);
    low = wrapped(low, down, fine_);
  }
  void add(double term, fixed_sum& to) const { add(term, to.high, to.low); }

  // Returns a sum as a double, rounded once.
  double value(std::int64_t high, std::int64_t low) const {
    const auto joined = static_cast<__int128>(static_cast<unsigned __int128>(static_cast<__int128>(high)) << q_) + low;
    return std::ldexp(static_cast<double>(joined), -2 * q_);
  }
  double value(const fixed_sum& sum) const { return value(sum.high, sum.low); }

 private:
  static std::int64_t wrapped(std::int64_t sum, double shifted, double by) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + std::bit_cast<std::uint64_t>(shifted) -
                                     std::bit_cast<std::uint64_t>(by));
  }

  int q_;
  double coarse_, fine_;
};

// Returns sums of integers, which wrap.
inline std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
inline fixed_sum operator+(const fixed_sum& a, const fixed_sum& b) { return {wrapping_sum(a.high, b.high), wrapping_sum(a.low, b.low)}; }

}  // namespace ballast::kmeans::ranks
