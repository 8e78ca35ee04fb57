// Which faults to inject into a call: the fault models, one request, and a list of requests.
// Layer: foundation. Passed by execution::faults; only the instrumented library acts on it.
// Source of the models: NVBitFI's fault classes; what production GPUs show (arXiv 2605.04213): many-bit, Inf/NaN and warp-wide faults.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inject/sites.hpp"

namespace ballast::inject {

// What happens to the struck word(s). All act on the bit pattern, so they apply to integers as well.
// bit_flip: one bit. two_bits: two adjacent bits. random_bits: 3 to 8 different bits. random_value: every bit drawn anew. zero: all bits 0.
// stuck_at: the most significant exponent bit (integers: bit 30 or `bit`) is forced to the opposite of what a first visit finds, and
// again to that value at every later visit: a persistent fault. infinity, negative_infinity, nan: that value (integers: their
// bit pattern). vector_mask: up to 16 neighbouring words, each with the same bits flipped: a warp or a vector register.
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
  inject::site site = site::fft_output;
  inject::model model = model::bit_flip;
  int count = 1;  // how many faults, each in a place of its own drawn from the seed
  std::uint64_t seed = 0;
  int bit = -1;            // which bit (0 = least significant) for bit_flip, two_bits, vector_mask and stuck_at; −1: drawn from the seed
  std::int64_t visit = 0;  // strike at this visit of the place (0 = the first): for instance the iteration of K-Means
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

// Reads "site=S,model=M,count=N,seed=S,bit=B,visit=V,interval=I" (site is required, the rest has defaults).
// Throws invalid_argument_error that names what is wrong and, for a site or model, what there is.
request parse_request(std::string_view text);

}  // namespace ballast::inject
