// The random weights of QR's checks. The equispaced ones of its checksum columns are in abft/weights.hpp.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>

#include "abft/weights.hpp"
#include "core/counter_rng.hpp"

namespace ballast::qr {

// Streams of random weights; the seed is any number.
inline constexpr std::uint64_t k_weight_seed = 0x5152;
enum weight_stream : std::uint64_t { k_certificate_stream, k_orthogonality_stream, k_checkpoint_stream };

// In ±[1, 2).
inline double random_signed(weight_stream which, std::uint64_t i) {
  const double size = abft::random_weight(k_weight_seed, which, i);
  return core::random_bits(k_weight_seed, which + 16, i) & 1 ? -size : size;
}

}  // namespace ballast::qr
