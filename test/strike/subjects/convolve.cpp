// Convolution as a subject of strikes: random data, of which each result is compared with its sum.
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/convolve.hpp>
#include <ballast/execution.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>

#include "subject.hpp"
#include "support/convolution_sum.hpp"
#include "support/convolution_token.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::strike {
namespace {

template <class T>
class convolve_subject final : public subject {
 public:
  explicit convolve_subject(const fft::convolution_problem& problem) : problem_(problem), words_(problem.complex ? 2 : 1) {
    first_ = normal<T>(test::points_of(problem.first) * words_, 1);
    second_ = normal<T>(test::points_of(problem.second) * words_, 2);
    const test::convolution_sum<wide<T>, T> sum(problem_, first_, second_);
    results_ = sum.results();
    std::vector<wide<T>> reference;
    double square = 0;
    for (std::int64_t k = 0; k < results_; ++k) {
      const std::complex<wide<T>> made = sum(k);
      reference.push_back(made.real());
      if (words_ == 2) reference.push_back(made.imag());
      square += static_cast<double>(std::norm(made));
    }
    double points = 4;  // a padded block has at most as many
    for (std::size_t i = 0; i < problem.first.size(); ++i) points *= static_cast<double>(problem.first[i] + problem.second[i]);
    const double floor = test::k_floor * k_unit_roundoff<T> * std::sqrt(std::log2(points) + 1) * (sum.norms() + std::sqrt(square));
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
  int number_bits() const override { return 8 * sizeof(T); }

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
  const fft::convolution_problem problem = test::parse_convolution(token);
  if (problem.precision == precision::f32) return std::make_unique<convolve_subject<float>>(problem);
  return std::make_unique<convolve_subject<double>>(problem);
}

}  // namespace ballast::strike
