// The problem lists of the FFT's stages.
#include "problems.hpp"

#include <algorithm>
#include <cstdint>

#include <ballast/fft.hpp>

#include "fft/cuda/tune/bundle_catalogue.hpp"
#include "fft/problem.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {
namespace {

std::string c2c(const char* type, std::int64_t n, std::int64_t batch, bool inverse = false) {
  return "fft_c2c_" + std::string(type) + "_n" + std::to_string(n) + "_b" + std::to_string(batch) + (inverse ? "_inv" : "_fwd");
}

}  // namespace

std::vector<timed_problem> benchmark_set(bool quick) {
  std::vector<std::string> tokens = fft::cuda::benchmark_problems();
  if (quick) {
    // Powers of two with a sixteenth of the points, and fewer other lengths.
    tokens.clear();
    constexpr std::int64_t points = 1 << 24;
    for (const int e : {6, 10, 12, 13, 14, 15, 16, 17, 18, 20}) tokens.push_back(c2c("f32", std::int64_t{1} << e, points >> e));
    for (const int e : {10, 13, 14, 16, 20}) tokens.push_back(c2c("f64", std::int64_t{1} << e, points / 2 >> e));
    tokens.insert(tokens.end(), {"fft_c2c_f32_n1024_b8_fwd", "fft_c2c_f32_n131072_b1_fwd", "fft_r2c_f32_n400_b16384_fwd",
                                 "fft_c2c_f32_n1000_b16384_fwd", "fft_r2c_f32_n320x320_b16_fwd"});
  }
  std::vector<timed_problem> made;
  for (const std::string& token : tokens) {
    const bool latency = token == "fft_c2c_f32_n1024_b8_fwd" || token == "fft_c2c_f32_n131072_b1_fwd";
    const bool all = !latency && (token.starts_with("fft_c2c_f32_n1024_") || token.starts_with("fft_c2c_f32_n65536_"));
    const fft::problem problem = fft::parse_token(token).problem;
    const bool divided = problem.kind == fft::kind::c2c && problem.shape.size() == 1 && problem.shape[0] >= 1 << 17;
    made.push_back({token, latency, all ? k_other_schemes : divided ? std::vector<std::string>{"end_to_end"} : std::vector<std::string>{}});
  }
  return made;
}

std::vector<std::string> accuracy_set(bool quick) {
  std::vector<std::string> made;
  for (const char* type : {"f32", "f64"}) {
    for (int e = 1; e <= 20; ++e) {
      if (quick && e % 3 != 1) continue;
      const std::int64_t n = std::int64_t{1} << e;
      const std::int64_t batch = std::max<std::int64_t>((std::int64_t{1} << 18) / n, 2) + 1;
      made.push_back(c2c(type, n, batch));
      if (e == 4 || e == 10 || e == 15 || e == 18) made.push_back(c2c(type, n, batch, true));
    }
    // Odd radices, products of them, primes by convolution, and long lengths of both.
    for (const std::int64_t n :
         {3, 5, 6, 7, 11, 13, 30, 101, 121, 169, 360, 1000, 1331, 2310, 4099, 10007, 30030, 65537, 100003, 1000000}) {
      if (quick && n != 3 && n != 360 && n != 1331 && n != 4099) continue;
      made.push_back(c2c(type, n, std::max<std::int64_t>((std::int64_t{1} << 17) / n, 2) + 1, n % 3 == 1));
    }
    for (const std::int64_t n : {2, 3, 8, 15, 101, 400, 1024, 4096, 4099, 65536, 262144}) {
      if (quick && n != 400 && n != 101 && n != 65536) continue;
      const std::string tail =
          std::string(type) + "_n" + std::to_string(n) + "_b" + std::to_string(std::max<std::int64_t>((std::int64_t{1} << 17) / n, 2) + 1);
      made.push_back("fft_r2c_" + tail + "_fwd");
      made.push_back("fft_c2r_" + tail + "_inv");
    }
    for (const char* shape : {"64x96_b7", "1024x1024_b1", "7x11x13_b5", "64x64x64_b3"}) {
      if (!quick) made.push_back("fft_c2c_" + std::string(type) + "_n" + shape + "_fwd");
    }
    for (const char* shape : {"17x33_b9", "20x30x40_b3"}) {
      made.push_back("fft_c2c_" + std::string(type) + "_n" + shape + "_inv");
      made.push_back("fft_r2c_" + std::string(type) + "_n" + shape + "_fwd");
      made.push_back("fft_c2r_" + std::string(type) + "_n" + shape + "_inv");
    }
  }
  if (!quick) {
    for (int e = 21; e <= 25; ++e) made.push_back(c2c("f32", std::int64_t{1} << e, e < 24 ? 3 : 1, e == 22));
    for (int e = 21; e <= 24; ++e) made.push_back(c2c("f64", std::int64_t{1} << e, e < 23 ? 3 : 1, e == 22));
    made.insert(made.end(), {"fft_r2c_f32_n320x320_b33_fwd", "fft_r2c_f32_n108x108x120_b1_fwd", "fft_c2c_f64_n200x200x200_b1_fwd",
                             "fft_c2c_f64_n256x256x256_b1_fwd"});
  }
  return made;
}

std::vector<std::string> huge_set() { return {c2c("f32", std::int64_t{1} << 27, 1), c2c("f32", std::int64_t{1} << 29, 1)}; }

std::vector<std::string> fault_set(bool quick) {
  if (quick) return {"fft_c2c_f32_n1024_b67_fwd", "fft_c2c_f64_n65536_b3_fwd"};
  return {"fft_c2c_f32_n1024_b67_fwd",   "fft_c2c_f32_n64_b1001_fwd",   "fft_c2c_f32_n8192_b9_inv",  "fft_c2c_f32_n65536_b5_fwd",
          "fft_c2c_f32_n1048576_b2_fwd", "fft_c2c_f64_n1024_b67_fwd",   "fft_c2c_f64_n65536_b3_fwd", "fft_c2c_f64_n1048576_b1_inv",
          "fft_c2c_f32_n1000_b67_fwd",   "fft_c2c_f32_n4099_b9_fwd",    "fft_r2c_f32_n400_b161_fwd", "fft_c2r_f64_n4096_b17_inv",
          "fft_c2c_f64_n64x96_b7_fwd",   "fft_r2c_f32_n20x30x40_b3_fwd"};
}

std::vector<std::string> scheme_set() { return {"fft_c2c_f32_n1024_b67_fwd", "fft_c2c_f64_n65536_b3_fwd"}; }

std::vector<std::string> strike_set(bool quick) {
  std::vector<std::string> made = {"fft_c2c_f32_n1024_b64_fwd", "fft_r2c_f32_n400_b128_fwd"};
  if (!quick)
    made.insert(made.end(),
                {"fft_c2c_f32_n1000_b64_fwd", "fft_c2c_f32_n8192_b8_fwd", "fft_c2c_f64_n1024_b32_fwd", "fft_c2c_f32_n262144_b1_fwd",
                 "fft_c2c_f64_n65536_b1_fwd", "fft_c2c_f32_n1009_b32_fwd", "fft_r2c_f32_n1000_b64_fwd", "fft_c2r_f64_n1000_b32_inv",
                 "fft_dct2_f32_n500_b64_fwd", "fft_dst4_f64_n500_b32_fwd", "convolve_real_f32_n4096_m65_full",
                 "convolve_complex_f64_n600_m400_same", "convolve_real_f32_n186x186_m3x3_same", "correlate_complex_f64_n60x60_m5x9_full"});
  if (tested != backend::cuda) return made;  // other backends do not have the scheme
  made.push_back("end_to_end_fft_c2c_f32_n131072_b1_fwd");
  if (!quick) made.push_back("end_to_end_fft_c2c_f64_n65536_b1_inv");
  return made;
}

std::vector<std::string> sanitizer_set() {
  return {"fft_c2c_f32_n8_b37_fwd",    "fft_c2c_f32_n1024_b5_fwd",   "fft_c2c_f64_n4096_b3_inv",  "fft_c2c_f32_n32768_b3_fwd",
          "fft_c2c_f64_n16384_b2_fwd", "fft_c2c_f32_n524288_b1_fwd", "fft_c2c_f32_n1000_b5_fwd",  "fft_c2c_f32_n1009_b3_fwd",
          "fft_r2c_f32_n400_b7_fwd",   "fft_c2r_f64_n100_b7_inv",    "fft_c2c_f64_n12x18_b3_fwd", "fft_r2c_f32_n6x10x14_b3_fwd"};
}

}  // namespace ballast::gpu_check
