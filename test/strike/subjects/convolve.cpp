// Convolution as a subject of strikes: random data, of which each result is compared with its sum.
#include <cmath>
#include <complex>
#include <optional>
#include <string>

#include <ballast/convolve.hpp>
#include <ballast/error.hpp>

#include "subject.hpp"
#include "support/convolution_token.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::strike {
namespace {

// Reads a convolution of one dimension.
fft::convolution_problem read_token(std::string_view text) {
  fft::convolution_problem made = test::parse_convolution(text);
  if (made.first.size() != 1) throw invalid_argument_error("expected a convolution of one dimension, got \"" + std::string(text) + '"');
  return made;
}

template <class T>
class convolve_subject final : public subject {
 public:
  explicit convolve_subject(const fft::convolution_problem& problem) : problem_(problem), words_(problem.complex ? 2 : 1) {
    using W = wide<T>;
    using number = std::complex<W>;
    const std::int64_t n = problem.first[0], m = problem.second[0];
    first_ = normal<T>(n * words_, 1);
    second_ = normal<T>(m * words_, 2);
    const auto element = [&](const std::vector<T>& of, std::int64_t i) {
      const auto at = static_cast<std::size_t>(i * words_);
      return number(of[at], words_ == 2 ? of[at + 1] : T(0));
    };
    const bool same = problem.mode == fft::convolution_mode::same, valid = problem.mode == fft::convolution_mode::valid;
    const std::int64_t begin = same ? (m - 1) / 2 : valid ? std::min(n, m) - 1 : 0;
    results_ = same ? n : valid ? std::abs(n - m) + 1 : n + m - 1;
    std::vector<W> reference;
    double squares[3] = {};
    for (std::int64_t k = begin; k < begin + results_; ++k) {
      number sum = 0;
      for (std::int64_t l = std::max<std::int64_t>(0, k - n + 1); l < std::min(m, k + 1); ++l) {
        const number h = element(second_, problem.correlate ? m - 1 - l : l);
        sum += element(first_, k - l) * (problem.correlate ? std::conj(h) : h);
      }
      reference.push_back(sum.real());
      if (words_ == 2) reference.push_back(sum.imag());
      squares[2] += static_cast<double>(std::norm(sum));
    }
    for (const T value : first_) squares[0] += static_cast<double>(value) * static_cast<double>(value);
    for (const T value : second_) squares[1] += static_cast<double>(value) * static_cast<double>(value);
    const double size = std::sqrt(squares[0] * squares[1]) + std::sqrt(squares[2]);
    const double floor = test::k_floor * k_unit_roundoff<T> * std::sqrt(std::log2(4.0 * static_cast<double>(n + m)) + 1) * size;
    judged_.emplace(std::move(reference), results_ * words_, std::vector<double>{floor});
  }

  void prepare(const execution& where) override {
    plan_.emplace(problem_, where);
    a_.set(first_);
    b_.set(second_);
  }
  void reset() override { output_.set_zero(results_ * words_); }
  report run(const call& now) override {
    if (words_ == 1) return plan_->run(std::span<const T>(a_.all()), std::span<const T>(b_.all()), output_.all(), now);
    const auto points = [](std::span<T> words) { return std::span(reinterpret_cast<std::complex<T>*>(words.data()), words.size() / 2); };
    return plan_->run(std::span<const std::complex<T>>(points(a_.all())), std::span<const std::complex<T>>(points(b_.all())),
                      points(output_.all()), now);
  }
  void keep() override { judged_->keep(output_.read()); }
  effect judge() override {
    effect seen;
    judged_->judge(output_.read(), seen);
    return seen;
  }
  double clean_error() const override { return judged_->clean_error(); }

 private:
  fft::convolution_problem problem_;
  std::int64_t words_, results_ = 0;
  std::vector<T> first_, second_;
  operand<T> a_, b_, output_;
  std::optional<judged_parts<T>> judged_;
  std::optional<fft::convolution> plan_;
};

}  // namespace

std::unique_ptr<subject> make_convolve(std::string_view token) {
  const fft::convolution_problem problem = read_token(token);
  if (problem.precision == precision::f32) return std::make_unique<convolve_subject<float>>(problem);
  return std::make_unique<convolve_subject<double>>(problem);
}

}  // namespace ballast::strike
