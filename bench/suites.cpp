// The lists; those of transforms are made from lengths.
#include "suites.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace ballast::bench {
namespace {

const std::vector<std::string> k_clusters_and_matrices = {"kmeans_f32_m131072_n128_k128",
                                                          "kmeans_f32_m131072_n8_k8",
                                                          "kmeans_f32_m1000000_n16_k64",
                                                          "kmeans_f32_m131072_n64_k1024",
                                                          "kmeans_f64_m131072_n128_k128",
                                                          "kmeans_f32_m100000_n10000_k20_csr",
                                                          "kmeans_f32_m100000_n10000_k100_csr",
                                                          "kmeans_bf16_m131072_n128_k128",
                                                          "kmeans_f32_m131072_n128_k128_spherical",
                                                          "kmeans_f32_m20000_n16_k10_mini1000",
                                                          "kmeans_f32_m100000_n64_k256_mini1024",
                                                          "qr_f64_m1024_n1024",
                                                          "qr_f64_m2048_n2048",
                                                          "qr_f64_m4096_n4096",
                                                          "qr_f64_m20000_n500",
                                                          "qr_f64_m200000_n64",
                                                          "qr_f32_m2048_n2048",
                                                          "qr_c64_m1024_n1024",
                                                          "qr_c128_m1024_n1024",
                                                          "qr_c128_m20000_n200",
                                                          "geqp3_f64_m1024_n1024",
                                                          "geqp3_f64_m2048_n2048",
                                                          "geqp3_f32_m2048_n2048",
                                                          "gelsy_f64_m1024_n1024",
                                                          "convolve_real_f32_n1048576_m257_same",
                                                          "convolve_complex_f64_n512x512_m33x33_same"};

// Batches of so many points in all: 32 MiB of complex numbers in f32, larger than a third-level cache of today together with the output.
constexpr std::int64_t k_points = std::int64_t{1} << 22;

void add(std::vector<std::string>& to, const std::string& kind, const std::string& precision, const std::vector<std::int64_t>& shape,
         std::int64_t batch) {
  to.push_back(fmt::format("fft_{}_{}_n{}_b{}_{}", kind, precision, fmt::join(shape, "x"), batch, kind == "c2r" ? "inv" : "fwd"));
}

void add_filled(std::vector<std::string>& to, const std::string& kind, const std::string& precision,
                const std::vector<std::int64_t>& shape) {
  std::int64_t points = 1;
  for (const std::int64_t each : shape) points *= each;
  add(to, kind, precision, shape, std::max<std::int64_t>(1, k_points / points));
}

std::vector<std::string> transforms() {
  std::vector<std::string> made;
  for (const std::string precision : {"f32", "f64"}) {
    for (int log = 3; log <= 24; ++log) add_filled(made, "c2c", precision, {std::int64_t{1} << log});
    // Mixed and prime lengths.
    for (const std::int64_t n : {12, 97, 100, 360, 1000, 1009, 1920, 4099, 10000, 44100, 65537, 100003})
      add_filled(made, "c2c", precision, {n});
    // Single signals.
    for (const std::int64_t n : {64, 1024, 16384, 262144}) add(made, "c2c", precision, {n}, 1);
    for (const std::string kind : {"r2c", "c2r"}) {
      for (const std::int64_t n : {256, 1000, 4096, 262144}) add_filled(made, kind, precision, {n});
      add_filled(made, kind, precision, {320, 320});
      add_filled(made, kind, precision, {128, 128, 128});
    }
    add(made, "r2c", precision, {4096}, 1);
    for (const std::int64_t n : {64, 512, 2048}) add_filled(made, "c2c", precision, {n, n});
    add_filled(made, "c2c", precision, {480, 640});
    for (const std::int64_t n : {32, 100, 128}) add_filled(made, "c2c", precision, {n, n, n});
    for (const std::string kind : {"dct1", "dct2", "dct3", "dct4", "dst2"})
      add_filled(made, kind, precision, {kind == "dct1" ? 1025 : 1024});
    add_filled(made, "dct2", precision, {512, 512});
  }
  return made;
}

}  // namespace

std::vector<std::string> problems_of(std::string_view suite) {
  if (suite == "cpu") return k_clusters_and_matrices;
  if (suite == "fft") return transforms();
  return {"fft_c2c_f32_n64_b1024_fwd",    "fft_c2c_f64_n4099_b16_fwd",  "fft_r2c_f32_n4096_b64_fwd", "fft_c2r_f64_n320x320_b2_inv",
          "fft_c2c_f32_n32x32x32_b4_fwd", "fft_dct2_f64_n1024_b64_fwd", "fft_c2c_f64_n262144_b1_fwd"};
}

}  // namespace ballast::bench
