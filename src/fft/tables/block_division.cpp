// The divisions of one axis, and their combinations.
#include "fft/tables/block_division.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <ballast/types.hpp>

namespace ballast::fft {
namespace {

constexpr std::int64_t k_odd_factors[] = {1, 3, 5, 9, 15};
constexpr std::int64_t k_shortest = 32;  // points of a block where there are several

block_division of_length(std::int64_t length, std::int64_t n, std::int64_t m) {
  const std::int64_t step = length - m + 1;
  return {length, step, (n + step - 1) / step};
}

// The divisions of one axis of which none has both shorter blocks and fewer points in all than another.
std::vector<block_division> candidates(std::int64_t n, std::int64_t m) {
  const std::int64_t whole = fast_length(n + m - 1);
  std::vector<block_division> all = {{whole, n, 1}};
  for (const std::int64_t odd : k_odd_factors) {
    for (std::int64_t length = 2 * odd; length < whole; length *= 2) {
      if (length >= k_shortest && length >= 2 * m) all.push_back(of_length(length, n, m));
    }
  }
  std::ranges::sort(all, {}, &block_division::length);
  std::vector<block_division> made;
  if (m == 1 && n >= k_shortest) made.push_back({1, 1, n});
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const block_division& each : all) {
    if (each.length * each.blocks >= least) continue;
    least = each.length * each.blocks;
    made.push_back(each);
  }
  return made;
}

// Bytes that a call moves, in units of an element. Transforms read and write their data once for each pass; the sums of blocks and the
// padding are a pass over the padded data besides the operand and the result, which do not depend on the division. With protection a
// second kernel reads again what each of those and the products read and wrote.
class device_cost {
 public:
  device_cost(precision type, bool complex, bool protect)
      : number_((type == precision::f32 ? 4.0 : 8.0) * (complex ? 2 : 1)),
        one_pass_(type == precision::f32 ? 16384 : 8192),
        check_(protect ? 1 : 0) {}

  double operator()(const std::vector<const block_division*>& axes) const {
    double points = 1, blocks = 1;
    int passes = 0;
    for (const block_division* each : axes) {
      points *= static_cast<double>(each->length);
      blocks *= static_cast<double>(each->blocks);
      passes += each->length == 1 ? 0 : each->length <= one_pass_ ? 1 : 2;
    }
    constexpr double k_cache = 24e6;  // bytes of a spectrum that stays in the device's cache beside what streams through it
    const double kernel_reads = points * number_ > k_cache ? 1 + check_ : 0;
    const double of_blocks = blocks * points * (4 + 4 * check_ + 4 * passes + kernel_reads);
    // The threads of a block of fewer points than these are idle in part.
    const double idle = blocks * std::max(0.0, 1024 - points) * 4;
    return of_blocks + idle + points * (1 + check_ + 2 * passes);
  }

 private:
  double number_;          // bytes
  std::int64_t one_pass_;  // points of the longest line that one pass transforms
  double check_;
};

}  // namespace

std::int64_t fast_length(std::int64_t least) {
  if (least == 1) return 1;
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t odd : k_odd_factors) {
    std::int64_t n = 2 * odd;
    while (n < least) n *= 2;
    best = std::min(best, n);
  }
  return best;
}

block_division divide(std::int64_t n, std::int64_t m) {
  block_division best{fast_length(n + m - 1), n, 1};
  const auto cost = [](const block_division& of) {
    const auto points = static_cast<double>(of.length);
    return static_cast<double>(of.blocks) * points * (std::log2(points) + 2);
  };
  const std::int64_t whole = best.length;
  for (std::int64_t length = k_shortest; length < whole; length *= 2) {
    if (length < 2 * m) continue;
    const block_division now = of_length(length, n, m);
    if (cost(now) < cost(best)) best = now;
  }
  return best;
}

std::vector<block_division> divide_for_device(const std::vector<std::int64_t>& n, const std::vector<std::int64_t>& m, precision type,
                                              bool complex, bool protect) {
  if (n.size() == 1) return {divide(n[0], m[0])};
  const device_cost cost(type, complex, protect);
  std::vector<std::vector<block_division>> of_axes;
  for (std::size_t i = 0; i < n.size(); ++i) of_axes.push_back(candidates(n[i], m[i]));
  // All combinations: axes with several candidates have at least 32 points, so they are few.
  std::vector<std::size_t> chosen(n.size(), 0);
  std::vector<const block_division*> now(n.size()), best;
  double least = std::numeric_limits<double>::infinity();
  for (;;) {
    for (std::size_t i = 0; i < n.size(); ++i) now[i] = &of_axes[i][chosen[i]];
    if (const double bytes = cost(now); bytes < least) {
      least = bytes;
      best = now;
    }
    std::size_t i = 0;
    while (i < n.size() && ++chosen[i] == of_axes[i].size()) chosen[i++] = 0;
    if (i == n.size()) break;
  }
  std::vector<block_division> made;
  for (const block_division* each : best) made.push_back(*each);
  return made;
}

}  // namespace ballast::fft
