// Convolution as a subject of strikes: random data, of which each result is compared with its sum.
#include <cmath>
#include <complex>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include <ballast/convolve.hpp>

#include "subject.hpp"
#include "support/convolution_token.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::strike {
namespace {

// Calls visit(index) for each index of an array of `lengths`, the last axis fastest.
template <class Visit>
void for_each_index(const std::vector<std::int64_t>& lengths, const Visit& visit) {
  std::vector<std::int64_t> index(lengths.size(), 0);
  for (;;) {
    visit(index);
    std::size_t axis = lengths.size();
    while (axis > 0 && ++index[axis - 1] == lengths[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

// The place of an index in an array of `lengths` in C order, or −1 if it is outside.
std::int64_t place(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& index) {
  std::int64_t made = 0;
  for (std::size_t axis = 0; axis < lengths.size(); ++axis) {
    if (index[axis] < 0 || index[axis] >= lengths[axis]) return -1;
    made = made * lengths[axis] + index[axis];
  }
  return made;
}

std::int64_t product(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{1}, std::multiplies<>());
}

template <class T>
class convolve_subject final : public subject {
 public:
  explicit convolve_subject(const fft::convolution_problem& problem) : problem_(problem), words_(problem.complex ? 2 : 1) {
    using W = wide<T>;
    using number = std::complex<W>;
    const std::int64_t n = product(problem.first), m = product(problem.second);
    first_ = normal<T>(n * words_, 1);
    second_ = normal<T>(m * words_, 2);
    const auto element = [&](const std::vector<T>& of, std::int64_t i) {
      const auto at = static_cast<std::size_t>(i * words_);
      return number(of[at], words_ == 2 ? of[at + 1] : T(0));
    };
    const bool same = problem.mode == fft::convolution_mode::same, valid = problem.mode == fft::convolution_mode::valid;
    std::vector<std::int64_t> begin, lengths;
    for (std::size_t axis = 0; axis < problem.first.size(); ++axis) {
      const std::int64_t a = problem.first[axis], b = problem.second[axis];
      begin.push_back(same ? (b - 1) / 2 : valid ? std::min(a, b) - 1 : 0);
      lengths.push_back(same ? a : valid ? std::abs(a - b) + 1 : a + b - 1);
    }
    results_ = product(lengths);
    std::vector<W> reference;
    double squares[3] = {};
    for_each_index(lengths, [&](const std::vector<std::int64_t>& k) {
      number sum = 0;
      for_each_index(problem.second, [&](const std::vector<std::int64_t>& l) {
        std::vector<std::int64_t> from(k);
        for (std::size_t axis = 0; axis < from.size(); ++axis) from[axis] += begin[axis] - l[axis];
        const std::int64_t i = place(problem.first, from), j = place(problem.second, l);
        if (i < 0) return;
        const number h = element(second_, problem.correlate ? m - 1 - j : j);
        sum += element(first_, i) * (problem.correlate ? std::conj(h) : h);
      });
      reference.push_back(sum.real());
      if (words_ == 2) reference.push_back(sum.imag());
      squares[2] += static_cast<double>(std::norm(sum));
    });
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
