// The faults to inject into a call: the fault models, one request, and a list of requests.
// Layer: foundation. Passed as execution::faults; only the instrumented library acts on it.
// Source of the models: NVBitFI's fault classes, and faults seen on production GPUs (arXiv 2605.04213): many-bit, Inf/NaN and warp-wide.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inject/site.hpp"

namespace ballast::inject {

// The change of the struck word or words. All models act on the bit pattern, so they apply to integers as well.
// bit_flip: one bit. two_bits: two adjacent bits. random_bits: 3 to 8 different bits. random_value: every bit drawn anew. zero: all bits 0.
// stuck_at: the most significant exponent bit (integers: bit 30 or `bit`) is forced to the opposite of its value at the first visit, and to
// the same value at every later visit: a persistent fault. infinity, negative_infinity, nan: that value (integers: its bit pattern).
// vector_mask: the same bit is flipped in up to 16 neighbouring words: a warp or a vector register.
enum class model : std::uint8_t {
  bit_flip,
  two_bits,
  random_bits,
  random_value,
  zero,
  stuck_at,
  infinity,
  negative_infinity,
  nan,
  vector_mask
};

inline constexpr std::array<std::string_view, 10> k_model_names = {
    "bit_flip", "two_bits", "random_bits", "random_value", "zero", "stuck_at", "infinity", "negative_infinity", "nan", "vector_mask"};

struct request {
  inject::site site = {};  // must be set
  inject::model model = model::bit_flip;
  int count = 1;  // the number of faults, each at a position of its own drawn from the seed
  std::uint64_t seed = 0;
  int bit = -1;            // the bit (0 = least significant) for bit_flip, two_bits, vector_mask and stuck_at; −1: drawn from the seed
  std::int64_t visit = 0;  // strike at this visit of the position (0 = the first), for instance at this iteration of K-Means
  std::int64_t interval = -1;  // strike this interval (tile, block, panel); −1: drawn from the seed
};

class plan {
 public:
  plan() = default;
  explicit plan(std::vector<request> requests) : requests_(std::move(requests)) {}
  const std::vector<request>& requests() const { return requests_; }
  void add(const request& wanted) { requests_.push_back(wanted); }

 private:
  std::vector<request> requests_;
};

// Parses "site=S,model=M,count=N,seed=S,bit=B,visit=V,interval=I" (site is required, the rest has defaults).
// Throws invalid_argument_error, which names the mistake and, for a site or model, the possible values.
request parse_request(std::string_view text);

}  // namespace ballast::inject
