// Random numbers of QR's checks, the same on the host and on a device.
// Layer: algorithm, backend-free. Host/device-neutral.
#pragma once

#include <cstdint>

#include "abft/weights.hpp"
#include "core/counter_rng.hpp"
#include "core/macros.hpp"

namespace ballast::qr {

// Streams of random weights. The seed is an arbitrary constant.
inline constexpr std::uint64_t k_weight_seed = 0x5152;
enum weight_stream : std::uint64_t {
  k_certificate_stream,
  k_orthogonality_stream,
  k_checkpoint_stream,
  k_sign_stream,
  k_ratio_stream,
  k_application_stream,  // and the next k_vectors − 1
  k_batch_stream = 12,   // and the next one
  k_condition_stream = 14,
  k_rank_stream = 15,
  k_second_rank_stream = 16
};

// Number of random vectors a that check an application of Q. Two vectors miss one in a hundred faults of five thresholds in size, four miss
// one in ten thousand.
inline constexpr int k_vectors = 4;

// Returns a random number in ±[1, 2): 52 random bits, and one for the sign.
BALLAST_HD inline double random_signed(std::uint64_t which, std::uint64_t i) {
  const std::uint64_t bits = core::random_bits(k_weight_seed, which, i);
  return __builtin_bit_cast(double, std::uint64_t{1023} << 52 | bits >> 12 | bits << 63);
}

}  // namespace ballast::qr
