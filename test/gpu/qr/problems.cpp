// The problems of the stages of QR, their data, and rows of times.
#include <algorithm>
#include <complex>
#include <type_traits>

#include "core/parallel.hpp"
#include "each_case.hpp"
#include "qr_stages.hpp"
#include "samples.hpp"

namespace ballast::gpu_check::factors {

std::vector<std::string> verified_set(bool quick) {
  std::vector<std::string> made;
  for (const char* type : {"f64", "f32"}) {
    for (const char* shape :
         {"m1_n1", "m33_n20", "m20_n33", "m300_n200", "m1000_n700", "m2000_n500", "m200_n900", "m5000_n64", "m60000_n40"})
      made.push_back(std::string("qr_") + type + "_" + shape);
    for (const char* shape : {"m8_n8_b500", "m16_n16_b100", "m32_n20_b100", "m64_n64_b50", "m20_n100_b20", "m200_n60_b10", "m256_n128_b3",
                              "m256_n256_b3", "m1000_n20_b20", "m300_n8_b100", "m4000_n40_b20"})
      made.push_back(std::string("qr_") + type + "_" + shape);
    if (quick) continue;
    for (const char* shape : {"m2500_n2300", "m40000_n96", "m300000_n24", "m6000_n1500", "m1000000_n32", "m1000000_n128", "m100000_n1000"})
      made.push_back(std::string("qr_") + type + "_" + shape);
  }
  return made;
}

std::vector<std::string> sanitized_set() {
  return {"qr_f64_m300_n90",   "qr_f32_m90_n130",     "qr_f64_m1500_n90",   "qr_f32_m1500_n90",  "qr_f64_m16_n16_b6",
          "qr_f32_m64_n40_b4", "qr_f64_m100_n256_b2", "qr_f64_m400_n20_b3", "qr_f32_m9000_n6_b2"};
}

std::vector<std::string> timed_set(bool quick) {
  std::vector<std::string> made = {"qr_f64_m1024_n1024", "qr_f64_m2048_n2048", "qr_f64_m4096_n4096", "qr_f32_m1024_n1024",
                                   "qr_f32_m4096_n4096"};
  for (const char* type : {"f64", "f32"}) {
    for (const char* shape : {"m64_n64_b1000", "m8_n8_b10000", "m32_n32_b4000", "m128_n128_b1000", "m256_n256_b1000"})
      made.push_back(std::string("qr_") + type + "_" + shape);
  }
  if (quick) return made;
  for (const char* more :
       {"qr_f64_m8192_n8192", "qr_f32_m8192_n8192", "qr_f64_m1000000_n32", "qr_f64_m1000000_n128", "qr_f64_m100000_n1000",
        "qr_f32_m1000000_n32", "qr_f32_m1000000_n128", "qr_f32_m100000_n1000", "qr_f64_m4096_n16384", "qr_f64_m16384_n16384",
        "qr_f32_m16384_n16384", "qr_f64_m32768_n32768", "qr_f32_m32768_n32768"})
    made.emplace_back(more);
  return made;
}

// Square, as in the paper; small ones first, so that a time limit cuts the longest ones.
std::vector<std::string> paper_set(bool quick) {
  std::vector<std::string> made;
  for (const int n : quick ? std::vector<int>{1024, 4096} : std::vector<int>{1024, 2048, 4096, 8192, 16384}) {
    const std::string size = std::to_string(n);
    for (const char* type : {"f64", "f32"})
      made.push_back(std::string("qr_").append(type).append("_m").append(size).append("_n").append(size));
  }
  return made;
}

std::vector<std::string> repaired_set(bool quick) {
  if (quick) return {"qr_f64_m4096_n4096", "qr_f32_m4096_n4096"};
  return {"qr_f64_m8192_n8192", "qr_f32_m8192_n8192", "qr_f64_m16384_n16384", "qr_f32_m16384_n16384"};
}

double flops_of(const qr::problem& what) {
  const double large = static_cast<double>(std::max(what.rows, what.columns)),
               small = static_cast<double>(std::min(what.rows, what.columns));
  return (what.complex ? 8 : 2) * small * small * (large - small / 3) * static_cast<double>(what.batch);
}

void print_times(const timed& what, const std::vector<double>& milliseconds, double flops, const std::string& refused) {
  row line(what.type);
  line.add("token", what.token).add("operation", what.operation).add("variant", what.variant);
  if (milliseconds.empty() || !refused.empty()) {
    line.add("refused", refused.empty() ? "no time was left" : refused);
  } else {
    add_milliseconds(line, milliseconds).add("tflops", flops / median(milliseconds) * 1e-9);
  }
  line.print();
}

template <class T>
std::vector<T> matrix_of(const qr::problem& what, std::uint64_t seed) {
  std::vector<T> made(static_cast<std::size_t>(what.rows * what.columns * what.batch));
  constexpr std::size_t each = std::size_t{1} << 18;
  core::parallel_for(core::thread_count(0), static_cast<std::int64_t>((made.size() + each - 1) / each), [&](std::int64_t part, int) {
    const std::size_t first = static_cast<std::size_t>(part) * each;
    for (std::size_t e = first; e < std::min(first + each, made.size()); ++e) {
      if constexpr (std::is_floating_point_v<T>) {
        made[e] = static_cast<T>(nearly_normal(seed, 0, e));
      } else {
        using R = typename T::value_type;
        made[e] = T(static_cast<R>(nearly_normal(seed, 0, 2 * e)), static_cast<R>(nearly_normal(seed, 0, 2 * e + 1)));
      }
    }
  });
  return made;
}

template std::vector<float> matrix_of(const qr::problem&, std::uint64_t);
template std::vector<double> matrix_of(const qr::problem&, std::uint64_t);
template std::vector<std::complex<float>> matrix_of(const qr::problem&, std::uint64_t);
template std::vector<std::complex<double>> matrix_of(const qr::problem&, std::uint64_t);

}  // namespace ballast::gpu_check::factors
