// The names of subjects, their random data, and the comparison of results.
#include "subject.hpp"

#include <cstring>
#include <random>

#include <ballast/error.hpp>

namespace ballast::strike {

std::span<const std::string_view> default_subjects() {
  // FFT in one pass (lengths 4096 and 1000), in two passes, and of reals; K-Means; the three operations of QR. The sizes give calls of
  // about a millisecond, so that many calls are possible.
  static constexpr std::string_view all[] = {"fft_c2c_f32_n4096_b64_fwd",  "fft_c2c_f64_n4096_b32_fwd",  "fft_c2c_f32_n1000_b256_fwd",
                                             "fft_c2c_f64_n1000_b128_fwd", "fft_c2c_f32_n131072_b2_fwd", "fft_c2c_f64_n131072_b1_fwd",
                                             "fft_r2c_f32_n4096_b128_fwd", "fft_r2c_f64_n4096_b64_fwd",  "fft_r2c_f32_n1000_b512_fwd",
                                             "fft_r2c_f64_n1000_b256_fwd", "kmeans_f32_m8000_n32_k64",   "kmeans_f64_m8000_n32_k64",
                                             "geqrf_f32_m384_n256",        "geqrf_f64_m384_n256",        "ormqr_f32_m384_n256",
                                             "ormqr_f64_m384_n256",        "gels_f32_m384_n256",         "gels_f64_m384_n256"};
  return all;
}

std::unique_ptr<subject> make_subject(std::string_view name) {
  if (name.starts_with("fft_")) return make_fft(name);
  if (name.starts_with("kmeans_")) return make_kmeans(name);
  for (const std::string_view operation : {"geqrf", "ormqr", "gels"}) {
    if (name.starts_with(operation) && name.size() > operation.size() && name[operation.size()] == '_')
      return make_qr(operation, "qr" + std::string(name.substr(operation.size())));
  }
  throw invalid_argument_error(
      "expected a problem such as fft_c2c_f32_n4096_b64_fwd, kmeans_f32_m8000_n32_k64, geqrf_f32_m384_n256, ormqr_… or "
      "gels_…, got \"" +
      std::string(name) + '"');
}

template <class T>
std::vector<T> normal(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  std::vector<T> made(static_cast<std::size_t>(count));
  for (T& each : made) each = static_cast<T>(draw(random));
  return made;
}

template <class T>
void judged_parts<T>::judge(const T* got, effect& seen) const {
  if (std::memcmp(got, kept_.data(), kept_.size() * sizeof(T)) == 0) return;
  seen.same = false;
  for (std::size_t part = 0; part < floors_.size(); ++part) {
    const std::size_t first = part * static_cast<std::size_t>(length_);
    double sum = 0;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(length_); ++i) {
      const double change = static_cast<double>(got[i]) - static_cast<double>(kept_[i]);
      sum += change * change;
    }
    seen.add(std::sqrt(sum), rounding_, floors_[part]);
  }
}

template std::vector<float> normal<float>(std::int64_t, std::uint64_t);
template std::vector<double> normal<double>(std::int64_t, std::uint64_t);
template class judged_parts<float>;
template class judged_parts<double>;

}  // namespace ballast::strike
