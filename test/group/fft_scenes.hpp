// Transforms on groups for tests: their data, the definition, and the places of elements in the boxes of ranks.
// Layer: backend tests.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <numbers>
#include <ostream>
#include <utility>
#include <vector>

#include <ballast/fft_group.hpp>

#include "core/counter_rng.hpp"

namespace ballast::fft::on_groups {

using extended = std::complex<long double>;

// A transform: data of this shape, divided so. block_bytes: what a rank sends to another at once; 0: the usual.
struct scene {
  const char* name;
  std::vector<std::int64_t> shape;
  distribution how;
  std::int64_t block_bytes = 0;
};

inline std::ostream& operator<<(std::ostream& to, const scene& what) {
  to << what.name << ", shape";
  for (const std::int64_t each : what.shape) to << ' ' << each;
  return to << ", " << (what.how.order == result_order::natural ? "natural" : "transposed") << (what.how.real ? ", real" : "")
            << (what.block_bytes > 0 ? ", in pieces" : "");
}

// Numbers in row-major order: for real data without imaginary parts.
template <class T>
std::vector<std::complex<T>> random_numbers(const scene& what) {
  std::int64_t count = 1;
  for (const std::int64_t each : what.shape) count *= each;
  std::vector<std::complex<T>> made;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    made.emplace_back(static_cast<T>(core::random_uniform(1, 0, at) - 0.5),
                      what.how.real ? T(0) : static_cast<T>(core::random_uniform(1, 1, at) - 0.5));
  }
  return made;
}

// The definition along each axis in turn, summed in extended precision.
template <class T>
std::vector<extended> transform_of(const std::vector<std::complex<T>>& x, const std::vector<std::int64_t>& shape) {
  std::vector<extended> made(x.begin(), x.end());
  std::int64_t stride = 1;
  for (std::size_t a = shape.size(); a-- > 0; stride *= shape[a]) {
    const std::int64_t n = shape[a];
    std::vector<extended> next(made.size());
    for (std::int64_t e = 0; e < static_cast<std::int64_t>(made.size()); ++e) {
      const std::int64_t k = e / stride % n, first = e - k * stride;
      for (std::int64_t j = 0; j < n; ++j) {
        const long double angle = -2 * std::numbers::pi_v<long double> * static_cast<long double>(k * j % n) / static_cast<long double>(n);
        next[static_cast<std::size_t>(e)] += std::polar(1.0L, angle) * made[static_cast<std::size_t>(first + j * stride)];
      }
    }
    made.swap(next);
  }
  return made;
}

// Calls use(place in the box's memory, element of each axis).
template <class Use>
void each_element(const box& part, Use&& use) {
  std::int64_t place = 0;
  std::array<std::int64_t, 3> at{};
  const auto [slow, middle, last] = part.order;
  for (at[slow] = part.first[slow]; at[slow] < part.first[slow] + part.count[slow]; ++at[slow])
    for (at[middle] = part.first[middle]; at[middle] < part.first[middle] + part.count[middle]; ++at[middle])
      for (at[last] = part.first[last]; at[last] < part.first[last] + part.count[last]; ++at[last])
        use(static_cast<std::size_t>(place++), at);
}

// The number of an element of the data, or of the spectrum, among all in row-major order.
inline std::size_t number_of(const scene& what, const std::vector<std::int64_t>& shape, const std::array<std::int64_t, 3>& at,
                             bool spectrum) {
  if (what.shape.size() == 1) return static_cast<std::size_t>(spectrum ? at[0] + shape[0] * at[1] : at[0] * shape[1] + at[1]);
  std::int64_t made = 0;
  for (std::size_t a = 0; a < shape.size(); ++a) made = made * shape[a] + at[a];
  return static_cast<std::size_t>(made);
}

}  // namespace ballast::fft::on_groups
