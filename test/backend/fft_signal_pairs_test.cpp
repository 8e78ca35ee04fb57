// Real signals of odd length in batches on the cpu backend: each against a transform in more precision, for any neighbour.
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "abft/threshold.hpp"
#include "fft/cpu/choice.hpp"
#include "fft/problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "support/fft_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::fft {
namespace {

template <class T>
class fft_signal_pairs : public testing::Test {};
using precisions = testing::Types<float, double>;
TYPED_SUITE(fft_signal_pairs, precisions, test::number_names);

template <class T>
constexpr precision k_type = sizeof(T) == 4 ? precision::f32 : precision::f64;

// The bound of fft_property.cpp for lengths with large primes, times √1.5: the errors of a line are relative to both of its signals, and
// one is at most √2 as large as the other after it was scaled.
template <class T>
double bound(std::int64_t n) {
  return 1.28 * std::sqrt(1.5) * abft::unit_roundoff<T> * std::sqrt(std::log2(static_cast<double>(n)));
}

// Signals of n reals, `stride` apart, and their half spectra, as far apart, each as large as its factor says.
template <class T>
struct real_signals {
  real_signals(std::int64_t points, std::vector<double> factors, std::int64_t apart, protection guard = protection::correct)
      : n(points), batch(std::ssize(factors)), stride(apart), half(points / 2 + 1), where{.backend = backend::cpu, .protection = guard} {
    const std::vector<T> noise = test::noise<T>(n * batch, static_cast<std::uint64_t>(n));
    x.resize(static_cast<std::size_t>(n * stride * batch), T(7));
    exact.resize(static_cast<std::size_t>(batch));
    for (std::int64_t b = 0; b < batch; ++b) {
      std::vector<std::complex<wide<T>>> line;
      for (std::int64_t j = 0; j < n; ++j) {
        T& here = x[static_cast<std::size_t>((b * n + j) * stride)];
        here = noise[static_cast<std::size_t>(b * n + j)] * static_cast<T>(factors[static_cast<std::size_t>(b)]);
        line.emplace_back(here, 0);
      }
      exact[static_cast<std::size_t>(b)] = dft(line);
    }
  }
  problem of(kind what) const {
    problem made{.kind = what, .precision = k_type<T>, .shape = {n}, .batch = batch};
    if (stride > 1) {
      (what == kind::r2c ? made.input : made.output) = {{stride}, n * stride};
      (what == kind::r2c ? made.output : made.input) = {{stride}, half * stride};
    }
    return made;
  }
  // The relative error of signal b of a half spectrum.
  double spectrum_error(const std::vector<std::complex<T>>& y, std::int64_t b) const {
    double error = 0, size = 0;
    for (std::int64_t k = 0; k < half; ++k) {
      const auto want = exact[static_cast<std::size_t>(b)][static_cast<std::size_t>(k)];
      const std::complex<wide<T>> got = y[static_cast<std::size_t>((b * half + k) * stride)];
      error += static_cast<double>(std::norm(want - got));
      size += static_cast<double>(std::norm(want));
    }
    return error == 0 ? 0 : std::sqrt(error / size);  // nothing but zeros is right for zeros
  }
  std::int64_t n, batch, stride, half;
  execution where;
  std::vector<T> x;
  std::vector<std::vector<std::complex<wide<T>>>> exact;
};

template <class T>
void expect_accurate(std::int64_t n, const std::vector<double>& factors, std::int64_t stride) {
  SCOPED_TRACE(std::to_string(n) + " stride " + std::to_string(stride));
  real_signals<T> given(n, factors, stride);
  std::vector<std::complex<T>> y(static_cast<std::size_t>(given.half * stride * given.batch));
  plan forward(given.of(kind::r2c), given.where);
  ASSERT_EQ(forward.forward(std::span<const T>(given.x), std::span(y)).verdict, verdict::clean);
  for (std::int64_t b = 0; b < given.batch; ++b) EXPECT_LE(given.spectrum_error(y, b), bound<T>(n)) << b;

  // Back: the exact spectrum, rounded once, gives the signal.
  std::vector<std::complex<T>> spectrum(y.size());
  for (std::int64_t b = 0; b < given.batch; ++b) {
    for (std::int64_t k = 0; k < given.half; ++k) {
      const auto z = given.exact[static_cast<std::size_t>(b)][static_cast<std::size_t>(k)];
      spectrum[static_cast<std::size_t>((b * given.half + k) * stride)] = {static_cast<T>(z.real()), static_cast<T>(z.imag())};
    }
  }
  std::vector<T> back(given.x.size());
  plan inverse(given.of(kind::c2r), given.where);
  ASSERT_EQ(inverse.inverse(std::span<const std::complex<T>>(spectrum), std::span(back)).verdict, verdict::clean);
  for (std::int64_t b = 0; b < given.batch; ++b) {
    double error = 0, size = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>((b * n + j) * stride);
      error += std::pow(static_cast<double>(back[at]) - static_cast<double>(given.x[at]), 2);
      size += std::pow(static_cast<double>(given.x[at]), 2);
    }
    // The rounding of the spectrum adds at most u.
    EXPECT_LE(error == 0 ? 0 : std::sqrt(error / size), bound<T>(n) + abft::unit_roundoff<T>) << b;
  }
}

// Neighbours of other sizes, also none at all, and numbers that no pair takes.
const std::vector<double> k_factors = {1, 1, 1e-3, 40, 0, 1, 1, 0, 1e-9, 1e9, 1e-30, 1, 1e14, 3, 1};

TYPED_TEST(fft_signal_pairs, are_accurate_at_every_length) {
  for (std::int64_t n = 3; n < 280; n += 2) expect_accurate<TypeParam>(n, k_factors, n % 3 == 0 ? 2 : 1);
  for (const std::int64_t n : {1001, 1013, 1053, 1155, 1215}) expect_accurate<TypeParam>(n, k_factors, n % 3 == 0 ? 2 : 1);
  for (const std::int64_t n : {243, 875, 2187, 4375, 8191, 15015}) {
    expect_accurate<TypeParam>(n, {1, 1e-4, 5}, 1);
    expect_accurate<TypeParam>(n, {1, 1e-4, 5}, 3);
  }
}

TYPED_TEST(fft_signal_pairs, are_what_the_rule_chooses_and_the_estimate_prefers) {
  using cpu::method;
  for (const kind what : {kind::r2c, kind::c2r}) {
    const auto chosen = [&](std::int64_t n, std::int64_t batch) {
      return cpu::choose_by_rule(resolve({.kind = what, .shape = {n}, .batch = batch}), k_type<TypeParam>).how;
    };
    EXPECT_EQ(chosen(1013, 2), method::signal_pairs);
    // Two lines for reals in a tile, or pairs where the rule makes a matrix of so few signals, which depends on the lanes of a vector.
    const bool matrix =
        cpu::choose_by_rule(resolve({.kind = kind::c2c, .shape = {1001}, .batch = 2}), k_type<TypeParam>).how == method::matrix;
    EXPECT_EQ(chosen(1001, 2), matrix ? method::signal_pairs : method::tile);
    EXPECT_EQ(chosen(1001, 64), method::tile);  // lines for reals
    EXPECT_EQ(chosen(15015, 2), method::signal_pairs);
    EXPECT_EQ(chosen(1001, 1), method::tile);
    EXPECT_EQ(chosen(997, 64), method::tile);  // too short
    EXPECT_EQ(chosen(1000, 64), method::tile);
    const geometry many = resolve({.kind = what, .shape = {1013}, .batch = 4096});
    const auto seconds = [&](method how) { return cpu::estimated_seconds(many, k_type<TypeParam>, {.how = how}, 2, true); };
    EXPECT_LT(seconds(method::signal_pairs), seconds(method::tile));
  }
}

TYPED_TEST(fft_signal_pairs, a_signal_that_is_not_finite_stays_alone) {
  using T = TypeParam;
  for (const std::int64_t n : {1013, 1155}) {
    for (const T value : {std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::max()}) {
      real_signals<T> given(n, {1, 1, 1, 1, 1}, 1);
      given.x[static_cast<std::size_t>(n + 7)] = value;
      std::vector<std::complex<T>> y(static_cast<std::size_t>(given.half * given.batch));
      plan forward(given.of(kind::r2c), given.where);
      ASSERT_EQ(forward.forward(std::span<const T>(given.x), std::span(y)).verdict, verdict::clean);
      for (const std::int64_t b : {0, 2, 3, 4}) EXPECT_LE(given.spectrum_error(y, b), bound<T>(n)) << b;
    }
  }
}

}  // namespace
}  // namespace ballast::fft
