// Shared code of the tests of QR with column pivoting, for real and complex numbers: calls, matrices, and the rule of the pivots in long
// double.
// Layer: test harness.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "support/qr_complex_subject.hpp"

namespace ballast::qr::subjects {

// A number in long double.
template <class T>
using longest = std::conditional_t<is_complex<T>, long_complex, long double>;

#if defined(BALLAST_TEST_QR_COMPLEX)
using pivot_settings = complex_settings;
#elif defined(BALLAST_TEST_QR_ON_CUDA)
using pivot_settings = settings;
#else
using pivot_settings = testing::Types<setting<float, backend::reference>, setting<double, backend::reference>,
                                      setting<std::complex<float>, backend::reference>, setting<std::complex<double>, backend::reference>,
                                      setting<float, backend::cpu>, setting<double, backend::cpu>,
                                      setting<std::complex<float>, backend::cpu>, setting<std::complex<double>, backend::cpu>>;
#endif

// Every kind of data, in both components of complex numbers.
template <class T>
dense<T> any_of_kind(const std::string& kind, index m, index n, std::uint64_t seed) {
  if constexpr (is_complex<T>)
    return complex_of_kind<T>(kind, m, n, seed);
  else
    return matrix_of_kind<T>(kind, m, n, seed);
}

template <class T>
dense<T> any_random(index m, index n, std::uint64_t seed) {
  if constexpr (is_complex<T>)
    return random_complex<T>(m, n, seed);
  else
    return random_matrix<T>(m, n, seed);
}

template <class T>
ratios any_ratios(const dense<T>& A, const dense<T>& F, const std::vector<T>& tau) {
  if constexpr (is_complex<T>)
    return complex_ratios_of<T>(A.view(), F.view(), tau);
  else
    return ratios_of<T>(A.view(), F.view(), tau);
}

// iʲ, which changes no rounding; 1 for real numbers.
template <class T>
wide_of<T> turn(index j) {
  if constexpr (is_complex<T>)
    return std::array<wide_of<T>, 4>{{{1, 0}, {0, 1}, {-1, 0}, {0, -1}}}[place(j % 4)];
  else
    return 1;
}

// A of rank r: a product of random matrices.
template <class T>
dense<T> low_rank(index m, index n, index r, std::uint64_t seed) {
  const dense<T> left = any_random<T>(m, r, seed), right = any_random<T>(r, n, seed + 1);
  dense<T> A(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) {
      wide_of<T> sum = 0;
      for (index l = 0; l < r; ++l) sum += static_cast<wide_of<T>>(left(i, l)) * static_cast<wide_of<T>>(right(l, j));
      A(i, j) = static_cast<T>(sum);
    }
  }
  return A;
}

// ---------------------------------------------------------------------------------------------------------------------------- calls

template <class T>
struct pivoted {
  dense<T> F;
  std::vector<T> tau;
  std::vector<index> pivots;
  report seen;
};

template <class T>
pivoted<T> factor_in_order(const dense<T>& A, run::settings how, const inject::plan* faults = nullptr) {
  how.throw_on_uncorrectable = false;
  const inject::scope scope(faults);
  pivoted<T> made{A, std::vector<T>(place(std::min(A.rows(), A.columns()))), std::vector<index>(place(A.columns())), {}};
  made.seen = geqp3(made.F.view(), made.pivots, made.tau, how.where(), how.now());
  return made;
}

template <class T>
struct solved {
  dense<T> A, X;
  std::vector<index> pivots;
  index rank = -1;
  report seen;
};

template <class T>
solved<T> solve(const dense<T>& A, const dense<T>& B, double rcond, run::settings how, const inject::plan* faults = nullptr) {
  how.throw_on_uncorrectable = false;
  const inject::scope scope(faults);
  solved<T> made{
      A, dense<T>(std::max(A.rows(), A.columns()), B.columns(), order::column_major), std::vector<index>(place(A.columns())), -1, {}};
  for (index j = 0; j < B.columns(); ++j) std::copy_n(B.data() + j * B.rows(), B.rows(), made.X.data() + j * made.X.rows());
  made.seen = gelsy(made.A.view(), made.X.view(), made.pivots, rcond, made.rank, how.where(), how.now());
  return made;
}

// ------------------------------------------------------------------------------------------------------------------------- the rule

template <class T>
dense<T> in_order(const dense<T>& A, const std::vector<index>& order) {
  dense<T> made(A.rows(), A.columns(), order::column_major);
  for (index j = 0; j < A.columns(); ++j) std::copy_n(A.data() + order[place(j)] * A.rows(), A.rows(), made.data() + j * A.rows());
  return made;
}

inline bool is_permutation(std::vector<index> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t j = 0; j < order.size(); ++j) {
    if (order[j] != static_cast<index>(j)) return false;
  }
  return true;
}

// Returns the largest excess of a column's norm below row k over |R_kk|, in units of the norms of both columns times max(m, n) u, in long
// double. 10⁻⁶ of the pivot is not counted: norms that near to each other may change places.
template <class T>
double excess(const dense<T>& F) {
  const index m = F.rows(), n = F.columns(), steps = std::min(m, n);
  const auto size = [&](index i, index j) { return std::abs(static_cast<longest<T>>(F(i, j))); };
  std::vector<long double> norms(place(n));
  double worst = 0;
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i <= std::min(j, steps - 1); ++i) norms[place(j)] = std::hypot(norms[place(j)], size(i, j));
  }
  for (index j = 0; j < n; ++j) {
    long double norm = 0;
    for (index k = std::min(j, steps - 1); k >= 0; --k) {
      norm = std::hypot(norm, size(k, j));
      if (k == j) continue;
      const long double pivot = size(k, k), over = norm - pivot * (1 + 1e-6L);
      const long double unit = (norms[place(j)] + norms[place(k)]) * static_cast<long double>(std::max(m, n)) * k_unit<T>;
      if (over > 0) worst = std::max(worst, static_cast<double>(over / (unit + std::numeric_limits<real_of<T>>::denorm_min())));
    }
  }
  return worst;
}

}  // namespace ballast::qr::subjects
