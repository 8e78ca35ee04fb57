// A problem of the FFT with its data and the expected transform, for the backend tests.
// Layer: test harness.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "fft/problem.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::test {

// Arrays consist of words (real numbers), in the strided layout of the problem.
template <class T>
class subject {
 public:
  static constexpr T k_untouched = 77;  // the value of outputs before they are written

  fft::problem problem;
  fft::direction way;
  fft::geometry shape;
  std::vector<T> in;

  subject(const fft::problem& what, fft::direction where_to, std::uint64_t seed)
      : problem(what), way(where_to), shape(fft::resolve(problem)) {
    const std::int64_t words = words_of_signal(shape.input);
    std::vector<T> packed = noise<T>(words * shape.batch, seed);
    // A half spectrum of one axis has imaginary parts that must be 0 (elements 0 and n/2). The library must ignore them, so set them to
    // large values.
    if (shape.kind == fft::kind::c2r && problem.shape.size() == 1) {
      for (std::int64_t b = 0; b < shape.batch; ++b) {
        packed[static_cast<std::size_t>(b * words + 1)] = T(1e6);
        if (problem.shape[0] % 2 == 0) packed[static_cast<std::size_t>(b * words + words - 1)] = T(-1e6);
      }
    }
    set(std::move(packed));
  }

  std::int64_t points() const { return shape.points(); }
  std::int64_t signals() const { return shape.batch; }
  std::int64_t out_words() const { return words_of_signal(shape.output); }  // words of one signal
  double scale() const { return scale_of(problem, way); }
  bool can_be_in_place() const { return shape.kind == fft::kind::c2c && shape.input == shape.output; }

  // Sets the packed words of all signals. The gaps between strided elements are NaN, because no code may read them.
  void set(std::vector<T> packed) {
    wanted_.clear();
    in = unpack(shape.input, shape.batch, packed, std::numeric_limits<T>::quiet_NaN());
  }

  std::vector<T> fresh() const { return std::vector<T>(static_cast<std::size_t>(words_of_side(shape.output)), k_untouched); }

  report run(const fft::plan& by, const T* from, T* to, const call& now = quiet_call()) const {
    return execute<T>(by, shape, way, from, to, now);
  }
  report run(const fft::plan& by, std::vector<T>& out, const call& now = quiet_call()) const { return run(by, in.data(), out.data(), now); }
  pending_report enqueue(const fft::plan& by, const T* from, T* to, const call& now = quiet_call()) const {
    return test::enqueue<T>(by, shape, way, from, to, now);
  }

  // Returns the packed words of signal b of an output.
  std::vector<T> got(const std::vector<T>& out, std::int64_t b) const {
    fft::side one = shape.output;
    return pack(one, 1, out.data() + b * one.distance * (one.real ? 1 : 2));
  }
  // Returns their expected values.
  const std::vector<fft::wide<T>>& wanted(std::int64_t b) const {
    wanted_.resize(static_cast<std::size_t>(shape.batch));
    auto& one = wanted_[static_cast<std::size_t>(b)];
    if (!one) one = reference<T>(problem, way, shape, in.data(), b);
    return *one;
  }
  double error(const std::vector<T>& out, std::int64_t b) const {
    return distance_of(got(out, b).data(), wanted(b).data(), out_words()).relative();
  }
  // Returns the largest allowed `error`.
  double allowed() const { return error_bound_of_kind(problem) + (scale() == 1 ? 0 : unit_roundoff(problem.precision)); }

  // Checks that the gaps between the elements of `out` are unchanged.
  void expect_gaps_kept(const std::vector<T>& out) const {
    const std::vector<T> ones(static_cast<std::size_t>(out_words() * shape.batch), T(1));
    const std::vector<T> written = unpack(shape.output, shape.batch, ones, T(0));
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(written[i] != 0 || out[i] == k_untouched) << i;
  }

 private:
  mutable std::vector<std::optional<std::vector<fft::wide<T>>>> wanted_;
};

// Compares bitwise, so that NaN equals itself.
template <class T>
bool same(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

// Returns ‖words‖₂.
template <class T>
double norm_of(const std::vector<T>& words) {
  double squares = 0;
  for (const T x : words) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares);
}

}  // namespace ballast::test
