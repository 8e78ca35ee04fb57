// The names of subjects, their random data, and the comparison of results.
#include "subject.hpp"

#include <cstring>
#include <random>

#include <ballast/error.hpp>

namespace ballast::strike {

subject_name parse_subject(std::string_view name) {
  if (name.starts_with("fft_")) return {.operation = "fft", .token = std::string(name)};
  for (const std::string_view layout : {"strided", "split"}) {
    if (name.starts_with(std::string(layout) + "_fft_"))
      return {.operation = "fft", .token = std::string(name.substr(layout.size() + 1)), .layout = std::string(layout)};
  }
  for (const std::string_view scheme : {"end_to_end", "qr_update"}) {
    if (!name.starts_with(std::string(scheme) + '_')) continue;
    subject_name parsed = parse_subject(name.substr(scheme.size() + 1));
    if (!parsed.scheme.empty() || !parsed.token.starts_with(scheme == "end_to_end" ? "fft_" : "qr_")) break;
    parsed.scheme = scheme;
    return parsed;
  }
  if (name.starts_with("convolve_") || name.starts_with("correlate_")) return {.operation = "convolve", .token = std::string(name)};
  for (const std::string_view operation :
       {"kmeans", "predict", "transform", "geqrf", "geqp3", "ormqr_right", "ormqr", "orgqr", "gelsy", "gels"}) {
    if (!name.starts_with(operation) || name.size() <= operation.size() || name[operation.size()] != '_') continue;
    const bool clusters = operation == "kmeans" || operation == "predict" || operation == "transform";
    return {.operation = std::string(operation), .token = (clusters ? "kmeans" : "qr") + std::string(name.substr(operation.size()))};
  }
  throw invalid_argument_error(
      "expected a problem such as fft_c2c_f32_n4096_b64_fwd, strided_fft_…, split_fft_…, end_to_end_fft_…, "
      "convolve_real_f32_n4096_m33_full, kmeans_f32_m8000_n32_k64, "
      "predict_…, "
      "transform_…, geqrf_f32_m384_n256, geqp3_…, "
      "ormqr_…, ormqr_right_…, orgqr_…, gels_…, gelsy_… or qr_update_geqrf_…, got \"" +
      std::string(name) + '"');
}

std::unique_ptr<subject> make_subject(std::string_view name, backend on) {
  const subject_name parsed = parse_subject(name);
  if (parsed.operation == "fft") return make_fft(parsed.token, on, parsed.scheme, parsed.layout);
  if (parsed.operation == "convolve") return make_convolve(parsed.token);
  return parsed.token.starts_with("kmeans_") ? make_kmeans(parsed.operation, parsed.token)
                                             : make_qr(parsed.operation, parsed.token, parsed.scheme);
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
void judged_parts<T>::judge(const std::vector<T>& got, effect& seen) const {
  if (std::memcmp(got.data(), kept_.data(), kept_.size() * sizeof(T)) == 0) return;
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
