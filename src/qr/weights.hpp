// The weights of QR's checksum columns.
// Layer: algorithm, backend-free.
// Source: docs/design/qr.md, "Weights".
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "abft/weights.hpp"
#include "core/counter_rng.hpp"
#include "qr/random.hpp"

namespace ballast::qr {

// Weights ε_l and ε_l ρ_l of the two checksums over columns first … first + count − 1, before the columns are equilibrated. ε_l = ±1, half
// of them each, so that what equal columns have in common cancels. ρ_l: equispaced in size with both signs, as far apart as places can be,
// in random order. A change of several columns of a row, smooth or not, is then to both as a change at random.
struct column_weights {
  std::vector<double> sign, ratio;

  column_weights(std::int64_t first, std::int64_t count) {
    const std::vector<std::int64_t> a = shuffled(k_sign_stream, first, count), b = shuffled(k_ratio_stream, first, count);
    const double smallest = abft::equispaced_weight(0, (count + 1) / 2);
    for (std::size_t l = 0; l < a.size(); ++l) {
      sign.push_back(a[l] % 2 == 0 ? 1 : -1);
      const std::int64_t size = b[l] / 2 + 1;  // in units of the smallest
      ratio.push_back((b[l] % 2 == 0 ? smallest : -smallest) * static_cast<double>(size));
    }
  }

 private:
  // 0 … count − 1 in random order: from the last place on, each changes with one of those in front of it or itself. By random keys and a
  // sort it took 4 µs for a hundred columns, most of the time of encoding on the host.
  static std::vector<std::int64_t> shuffled(std::uint64_t stream, std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    for (std::uint64_t l = order.size(); l-- > 1;) {
      const std::uint64_t bits = core::random_bits(k_weight_seed, stream, static_cast<std::uint64_t>(first) + l) >> 32;
      std::swap(order[l], order[bits * (l + 1) >> 32]);
    }
    return order;
  }
};

}  // namespace ballast::qr
