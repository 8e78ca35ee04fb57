// The weights of QR's checksum columns.
// Layer: algorithm, backend-free.
// Source: docs/design/qr.md, "Weights".
#pragma once

#include <algorithm>
#include <cstdint>
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
    const std::int64_t half = (count + 1) / 2;
    for (std::size_t l = 0; l < a.size(); ++l) {
      sign.push_back(a[l] % 2 == 0 ? 1 : -1);
      ratio.push_back((b[l] % 2 == 0 ? 1 : -1) * abft::equispaced_weight(b[l] / 2, half));
    }
  }

 private:
  static std::vector<std::int64_t> shuffled(std::uint64_t stream, std::int64_t first, std::int64_t count) {
    std::vector<std::pair<std::uint64_t, std::int64_t>> keyed;
    for (std::int64_t l = 0; l < count; ++l)
      keyed.emplace_back(core::random_bits(k_weight_seed, stream, static_cast<std::uint64_t>(first + l)), l);
    std::sort(keyed.begin(), keyed.end());
    std::vector<std::int64_t> order;
    for (const auto& each : keyed) order.push_back(each.second);
    return order;
  }
};

}  // namespace ballast::qr
