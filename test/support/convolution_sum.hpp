// A result of a convolution by its definition.
// Layer: test harness. Needs no package, so that test/gpu and the strikes can use it.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ballast/convolve.hpp>

namespace ballast::test {

// The product of lengths.
inline std::int64_t points_of(const std::vector<std::int64_t>& lengths) {
  std::int64_t made = 1;
  for (const std::int64_t n : lengths) made *= n;
  return made;
}

// The results of a convolution of numbers of type T, complex ones as pairs, one at a time in precision W: a sum over the elements of the
// operand that has fewer of them. x, h: the operands; they stay the caller's.
template <class W, class T>
class convolution_sum {
 public:
  convolution_sum(const fft::convolution_problem& what, const std::vector<T>& x, const std::vector<T>& h)
      : what_(what), x_(x), h_(h), swapped_(points_of(what.second) > points_of(what.first)), terms_(points_of(few())) {
    for (std::size_t i = 0; i < what.first.size(); ++i) {
      const std::int64_t n = what.first[i], m = what.second[i];
      const bool same = what.mode == fft::convolution_mode::same, valid = what.mode == fft::convolution_mode::valid;
      begin_.push_back(same ? (m - 1) / 2 : valid ? std::min(n, m) - 1 : 0);
      shape_.push_back(same ? n : valid ? std::max(n, m) - std::min(n, m) + 1 : n + m - 1);
    }
  }

  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t results() const { return points_of(shape_); }

  // Result number k, in C order.
  std::complex<W> operator()(std::int64_t k) const {
    const std::vector<std::int64_t>& many = swapped_ ? what_.second : what_.first;
    std::complex<W> sum = 0;
    for (std::int64_t l = 0; l < terms_; ++l) {
      std::int64_t rest_k = k, rest_l = l, place = 0, stride = 1;
      bool inside = true;
      for (std::size_t i = shape_.size(); i-- > 0; stride *= many[i]) {
        const std::int64_t j = rest_k % shape_[i] + begin_[i] - rest_l % few()[i];
        rest_k /= shape_[i];
        rest_l /= few()[i];
        inside = inside && j >= 0 && j < many[i];
        place += j * stride;
      }
      if (inside) sum += element(!swapped_, l) * element(swapped_, place);
    }
    return sum;
  }

  // ‖x‖‖h‖, the other part of an error's scale besides the norm of the result.
  double norms() const {
    const auto square = [](const std::vector<T>& of) {
      double sum = 0;
      for (const T value : of) sum += static_cast<double>(value) * static_cast<double>(value);
      return sum;
    };
    return std::sqrt(square(x_) * square(h_));
  }

 private:
  const std::vector<std::int64_t>& few() const { return swapped_ ? what_.first : what_.second; }
  std::complex<W> element(bool of_second, std::int64_t i) const {
    const std::vector<T>& of = of_second ? h_ : x_;
    const auto count = static_cast<std::int64_t>(of.size()) / (what_.complex ? 2 : 1);
    const bool turned = of_second && what_.correlate;
    const auto at = static_cast<std::size_t>((turned ? count - 1 - i : i) * (what_.complex ? 2 : 1));
    const W imaginary = what_.complex ? W(of[at + 1]) : W(0);
    return {W(of[at]), turned ? -imaginary : imaginary};
  }

  const fft::convolution_problem& what_;
  const std::vector<T>&x_, &h_;
  bool swapped_;
  std::int64_t terms_;
  std::vector<std::int64_t> begin_, shape_;
};

}  // namespace ballast::test
