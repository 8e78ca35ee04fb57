// The cases that the tests of K-Means' schemes on cuda run. The generator of their kernels reads the same list.
// Layer: backend tests.
#pragma once

#include <string>
#include <vector>

#include <ballast/kmeans.hpp>

#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/policy/tile_policies.hpp"
#include "kmeans/cuda/policy/tuning.hpp"
#include "simt/emulated_device.hpp"

namespace scheme_test {

using namespace ballast;

struct scheme_case {
  std::string scheme, token;

  kmeans::problem problem() const { return kmeans::parse_token(token); }
  kmeans::cuda::tile_scheme does() const { return *kmeans::cuda::scheme_named(scheme); }
  bool protects() const { return does().check != kmeans::cuda::tile_check::none; }
  bool wide() const { return problem().precision == precision::f64; }
  // Products of rounded operands.
  bool coarse() const { return !wide() && !does().naive && does().unit == kmeans::cuda::tile_unit::tensor; }
  kmeans::cuda::tile_problem tiles() const { return {wide(), problem().features, problem().clusters, does()}; }
};

// Every scheme in both precisions; one tile and several; depths of one interval of checks and of two; every tile of the rules with checks.
inline const std::vector<scheme_case>& cases() {
  static const std::vector<scheme_case> all = {
      {"naive", "kmeans_f32_m300_n5_k7"},
      {"naive", "kmeans_f64_m300_n5_k7"},
      {"gemm", "kmeans_f32_m150_n17_k70"},
      {"gemm", "kmeans_f64_m200_n9_k20"},
      {"fused", "kmeans_f32_m150_n17_k70"},
      {"fused", "kmeans_f64_m150_n9_k70"},
      {"broadcast", "kmeans_f32_m150_n17_k70"},
      {"broadcast", "kmeans_f64_m150_n9_k70"},
      {"tensor", "kmeans_f32_m300_n17_k7"},
      {"tensor", "kmeans_f32_m150_n40_k150"},
      {"tensor", "kmeans_f64_m150_n17_k70"},
      {"warp_checksum", "kmeans_f32_m150_n300_k150"},
      {"warp_checksum", "kmeans_f32_m300_n17_k7"},
      {"warp_checksum", "kmeans_f32_m150_n33_k60"},
      {"warp_checksum", "kmeans_f64_m130_n300_k20"},
      {"warp_checksum", "kmeans_f64_m150_n9_k70"},
      {"detect_recompute", "kmeans_f32_m150_n40_k150"},
      {"detect_recompute", "kmeans_f64_m150_n17_k20"},
      {"threadblock_checksum", "kmeans_f32_m150_n300_k60"},
      {"threadblock_checksum", "kmeans_f32_m150_n17_k25"},
      {"threadblock_checksum", "kmeans_f64_m150_n20_k70"},
  };
  return all;
}

// The kernels of a case, sums of `words` words.
inline std::vector<ballast::cuda::kernel_request> kernels(const scheme_case& what, int words, bool instrumented) {
  const kmeans::cuda::tile_problem tiles = what.tiles();
  auto made = kmeans::cuda::tile_kernels(
      tiles, kmeans::cuda::choose_tile(tiles, simt::emulated_capabilities(), &kmeans::cuda::tile_tuning::rules()), words, false,
      instrumented);
  made.push_back(kmeans::cuda::update_request({what.wide(), tiles.n, tiles.k, words, false, what.protects(), true}, instrumented));
  return made;
}

}  // namespace scheme_test
