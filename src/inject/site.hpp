// The names of the places where faults can be injected. Host and device code share this part of the catalogue in sites.hpp.
// Layer: foundation.
#pragma once

#include <cstdint>

namespace ballast::inject {

enum class site : std::uint8_t {
  fft_input,
  fft_twiddle,
  fft_stage,
  fft_intermediate,
  fft_output,
  fft_checksum,
  fft_threshold,
  fft_comparison,
  kmeans_range,
  kmeans_frame,
  kmeans_tolerance,
  kmeans_points,
  kmeans_norm,
  kmeans_product,
  kmeans_minimum,
  kmeans_index,
  kmeans_label,
  kmeans_sum,
  kmeans_count,
  kmeans_total,
  kmeans_centroid,
  kmeans_shift,
  kmeans_inertia,
  kmeans_checksum,
  kmeans_threshold,
  kmeans_comparison,
  qr_transfer,
  qr_panel,
  qr_reflector,
  qr_tau,
  qr_t,
  qr_product,
  qr_trailing,
  qr_r,
  qr_q,
  qr_checksum,
  qr_threshold,
  qr_comparison,
  qr_corrector,
  event_log,
};

}  // namespace ballast::inject
