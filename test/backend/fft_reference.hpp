// What the FFT's backends are measured with: transforms in more precision than the data, the promised accuracy, and data of every kind.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <ballast/fft.hpp>

#include "abft/threshold.hpp"
#include "fft/wide.hpp"
#include "support/effort.hpp"

namespace ballast::fft {

template <class T>
using signal = std::vector<std::complex<T>>;
template <class T>
using exact = std::vector<std::complex<wide<T>>>;

template <class T>
constexpr double u = abft::unit_roundoff<T>;

template <class T>
signal<T> noise(std::int64_t n, std::uint64_t seed, T size = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  signal<T> x(static_cast<std::size_t>(n));
  for (auto& z : x) {
    const double re = normal(random);
    z = {static_cast<T>(re) * size, static_cast<T>(normal(random)) * size};
  }
  return x;
}

template <class T>
exact<T> widen(const signal<T>& x) {
  return exact<T>(x.begin(), x.end());
}

// ‖got − wanted‖₂ / ‖wanted‖₂.
template <class T>
double error(const std::complex<T>* got, const exact<T>& wanted, double scale = 1) {
  wide<T> difference = 0, size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += std::norm(std::complex<wide<T>>(got[i]) - wanted[i] * static_cast<wide<T>>(scale));
    size += std::norm(wanted[i] * static_cast<wide<T>>(scale));
  }
  return size == 0 ? static_cast<double>(std::sqrt(difference)) : static_cast<double>(std::sqrt(difference / size));
}

inline bool power_of_two(std::int64_t n) { return (n & (n - 1)) == 0; }

// The accuracy that the documentation promises.
template <class T>
double bound(std::int64_t n) {
  const double stages = std::max(1.0, std::log2(static_cast<double>(n)));
  return (power_of_two(n) ? 1 : 3) * u<T> * std::sqrt(stages);
}

template <class T>
problem line_problem(std::int64_t n, std::int64_t batch = 1, kind what = kind::c2c) {
  return {.kind = what, .precision = precision_of<T>, .shape = {n}, .batch = batch};
}

// An inverse transform by the forward one.
template <class T>
exact<T> inverse_dft(exact<T> x) {
  for (auto& z : x) z = std::conj(z);
  x = dft(std::move(x));
  for (auto& z : x) z = std::conj(z);
  return x;
}

// Every axis of a C-order array, or the first `axes` ones.
template <class T>
exact<T> dft_of_volume(exact<T> x, const std::vector<std::int64_t>& shape, bool inverse, std::size_t axes = 3) {
  std::int64_t inner = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; inner *= shape[axis]) {
    const std::int64_t n = shape[axis];
    if (axis >= axes) continue;
    for (std::int64_t start = 0; start < static_cast<std::int64_t>(x.size()); ++start) {
      if (start / inner % n != 0) continue;
      exact<T> line;
      for (std::int64_t j = 0; j < n; ++j) line.push_back(x[static_cast<std::size_t>(start + j * inner)]);
      line = inverse ? inverse_dft<T>(std::move(line)) : dft(std::move(line));
      for (std::int64_t j = 0; j < n; ++j) x[static_cast<std::size_t>(start + j * inner)] = line[static_cast<std::size_t>(j)];
    }
  }
  return x;
}

inline std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Effects larger than this many units of u·√(log₂N + 1)·‖y‖ (a clean transform's error is about 0.4 of one) are never missed: with
// thresholds of at most 11 units, the chance is (11/400)⁴ = 6·10⁻⁷.
inline constexpr double k_floor = 400;

// Clean data of every kind: `which` < k_fillings.
inline constexpr int k_fillings = 14;
template <class T>
void fill(signal<T>& x, int which, std::int64_t n, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::cauchy_distribution<double> cauchy;
  std::uniform_real_distribution<double> exponent(-10, 10);
  const bool single = sizeof(T) == 4;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto j = static_cast<std::int64_t>(i) % n;
    double re = normal(random), im = normal(random), size = 1;
    switch (which) {
      case 0: break;
      case 1: re = 1, im = 0; break;
      case 2: size = single ? 1e30 : 1e300; break;
      case 3: size = single ? 1e-30 : 1e-300; break;
      case 4: size = single ? 1e-41 : 1e-315; break;
      case 5: re = std::clamp(cauchy(random), -1e12, 1e12), im = std::clamp(cauchy(random), -1e12, 1e12); break;
      case 6: re = j == n / 3 ? 1 : 0, im = 0; break;
      case 7: size = std::pow(10, exponent(random)); break;
      case 8: re = std::cos(44 * static_cast<double>(j) / static_cast<double>(n)), im = 0; break;
      case 9: re = 1 + 1e-6 * re, im *= 1e-6; break;
      case 10: re = im = j % 2 == 0 ? 1 : -1; break;
      case 11: re = im = 0; break;
      case 12: size = static_cast<std::int64_t>(i) / n % 2 == 0 ? 1e-20 : 1e15; break;
      default: re = 0.1 + 1e-3 * static_cast<double>(j), im = 0.3; break;
    }
    x[i] = {static_cast<T>(re * size), static_cast<T>(im * size)};
  }
}

}  // namespace ballast::fft
