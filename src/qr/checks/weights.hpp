// The weights of QR's checksum columns.
// Layer: algorithm, backend-free.
// Source: docs/design/qr.md, "Weights".
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>

#include "abft/weights.hpp"
#include "core/counter_rng.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/random.hpp"

namespace ballast::qr {

// Weights ε_l and ε_l ρ_l of the two checksums over columns first … first + count − 1, before the columns are equilibrated. ε_l = ±1, half
// of them each, so that the common part of equal columns cancels. ρ_l is equispaced in size with both signs, as far apart as possible, in
// random order. To both checksums, a change of several columns of a row, smooth or not, then looks like a random one.
struct column_weights {
  core::vector<double> sign, ratio;

  column_weights(std::int64_t first, std::int64_t count)
      : sign(static_cast<std::size_t>(count)), ratio(static_cast<std::size_t>(count)), order_(static_cast<std::size_t>(count)) {
    shuffle(k_sign_stream, first);
    for (std::size_t l = 0; l < sign.size(); ++l) sign[l] = order_[l] % 2 == 0 ? 1 : -1;
    shuffle(k_ratio_stream, first);
    const double smallest = abft::equispaced_weight(0, (count + 1) / 2);
    for (std::size_t l = 0; l < ratio.size(); ++l) {
      const std::uint32_t size = order_[l] / 2 + 1;  // in units of the smallest
      ratio[l] = (order_[l] % 2 == 0 ? smallest : -smallest) * static_cast<double>(size);
    }
  }

 private:
  // Computes a random permutation of 0 … count − 1 (Fisher–Yates): from the last place down, each element is swapped with itself or with
  // one before it. Random keys and a sort took 4 µs for a hundred columns, most of the time of encoding on the host.
  void shuffle(std::uint64_t stream, std::int64_t first) {
    std::iota(order_.begin(), order_.end(), 0u);
    for (std::uint64_t l = order_.size(); l-- > 1;) {
      const std::uint64_t bits = core::random_bits(k_weight_seed, stream, static_cast<std::uint64_t>(first) + l) >> 32;
      std::swap(order_[l], order_[bits * (l + 1) >> 32]);
    }
  }

  core::vector<std::uint32_t> order_;
};

}  // namespace ballast::qr
