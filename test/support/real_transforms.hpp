// The matrices of real-to-real transforms, for references in higher precision.
// Layer: test harness. Needs no package, so that test/gpu can use it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include <ballast/fft.hpp>

namespace ballast::test {

// Row k of the matrix of a real transform: y_k = Σ_j L_kj x_j, by the definition in ballast/fft.hpp.
template <class W>
W real_element(fft::real_kind kind, std::int64_t n, std::int64_t k, std::int64_t j) {
  using enum fft::real_kind;
  const auto cosine = [](std::int64_t a, std::int64_t b, std::int64_t circle) {
    return std::cos(2 * std::numbers::pi_v<W> * static_cast<W>(a * b % circle) / static_cast<W>(circle));
  };
  const auto sine = [](std::int64_t a, std::int64_t b, std::int64_t circle) {
    return std::sin(2 * std::numbers::pi_v<W> * static_cast<W>(a * b % circle) / static_cast<W>(circle));
  };
  switch (kind) {
    case r2hc: return 2 * k <= n ? cosine(j, k, n) : -sine(j, n - k, n);
    case hc2r: return j == 0 || 2 * j == n ? cosine(j, k, n) : 2 * j < n ? 2 * cosine(j, k, n) : -2 * sine(n - j, k, n);
    case dht: return cosine(j, k, n) + sine(j, k, n);
    case dct1: return (j == 0 || j == n - 1 ? 1 : 2) * cosine(j, k, 2 * (n - 1));
    case dct2: return 2 * cosine(2 * j + 1, k, 4 * n);
    case dct3: return (j == 0 ? 1 : 2) * cosine(j, 2 * k + 1, 4 * n);
    case dct4: return 2 * cosine(2 * j + 1, 2 * k + 1, 8 * n);
    case dst1: return 2 * sine(j + 1, k + 1, 2 * (n + 1));
    case dst2: return 2 * sine(2 * j + 1, k + 1, 4 * n);
    case dst3: return (j == n - 1 ? 1 : 2) * sine(j + 1, 2 * k + 1, 4 * n);
    case dst4: return 2 * sine(2 * j + 1, 2 * k + 1, 8 * n);
  }
  return 0;
}

}  // namespace ballast::test
