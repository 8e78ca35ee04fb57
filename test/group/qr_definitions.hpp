// QR and least squares on groups for tests: data, and the definitions.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <ballast/view.hpp>

#include "core/counter_rng.hpp"

namespace ballast::qr::on_groups {

template <class T>
matrix<T> random_matrix(std::int64_t m, std::int64_t n, std::uint64_t seed) {
  matrix<T> made(m, n);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      made(i, j) =
          static_cast<T>(std::ldexp(2 * core::random_uniform(seed, 0, static_cast<std::uint64_t>(i * n + j)) - 1, static_cast<int>(j % 5)));
  return made;
}

template <class T>
double norm(const matrix<T>& a) {
  double sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e) sum += static_cast<double>(a.data()[e]) * static_cast<double>(a.data()[e]);
  return std::sqrt(sum);
}

template <class T>
bool same(const matrix<T>& a, const matrix<T>& b) {
  return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data());
}

// A = Q R, QᵀQ = I, X and QᵀB by their definitions, summed in double. `found` has q, r, x and projected. A Householder factorization and an
// application of Q err by at most n u of each column's norm for random data, and there are two of each.
template <class T, class Outcome>
void expect_definitions(const matrix<T>& A, const matrix<T>& B, const Outcome& found, const std::string& what) {
  const std::int64_t m = A.rows(), n = A.columns();
  const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53, limit = 4 * static_cast<double>(n) * u;
  double residual = 0, skew = 0, gradient = 0, projection = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t e = 0; e <= j; ++e) sum += static_cast<double>(found.q(i, e)) * static_cast<double>(found.r(e, j));
      residual += std::pow(sum - static_cast<double>(A(i, j)), 2);
    }
  }
  EXPECT_LE(std::sqrt(residual), limit * norm(A)) << what;
  for (std::int64_t a = 0; a < n; ++a) {
    for (std::int64_t b = 0; b < n; ++b) {
      double sum = a == b ? -1 : 0;
      for (std::int64_t i = 0; i < m; ++i) sum += static_cast<double>(found.q(i, a)) * static_cast<double>(found.q(i, b));
      skew += sum * sum;
    }
    for (std::int64_t c = 0; c < B.columns(); ++c) {
      double sum = 0, product = 0;
      for (std::int64_t i = 0; i < m; ++i) {
        double rest = -static_cast<double>(B(i, c));
        for (std::int64_t e = 0; e < n; ++e) rest += static_cast<double>(A(i, e)) * static_cast<double>(found.x(e, c));
        sum += static_cast<double>(A(i, a)) * rest;
        product += static_cast<double>(found.q(i, a)) * static_cast<double>(B(i, c));
      }
      gradient += sum * sum;
      projection += std::pow(product - static_cast<double>(found.projected(a, c)), 2);
    }
  }
  EXPECT_LE(std::sqrt(skew), limit * std::sqrt(static_cast<double>(n))) << what;
  EXPECT_LE(std::sqrt(projection), limit * norm(B)) << what;
  // Backward stable: X is exact for an A that differs by limit · ‖A‖, so Aᵀ(A X − B) is below that times ‖A‖ (‖A‖ ‖X‖ + ‖B‖).
  EXPECT_LE(std::sqrt(gradient), limit * norm(A) * (norm(A) * norm(found.x) + norm(B))) << what;
}

}  // namespace ballast::qr::on_groups
