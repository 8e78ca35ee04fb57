// The arithmetic of the host's backends on complex numbers: panels, block reflectors, triangular solves and the sums of the checks, each
// against sums in long double or against LAPACK.
// Tolerances: a sum of m products errs by at most about √m u of the norms of its factors; a reflector that was computed of sums adds a few
// u.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "abft/threshold.hpp"
#include "qr/arithmetic/kernels.hpp"
#include "support/typed_suite.hpp"

extern "C" {
void cgeqrf_(const int*, const int*, std::complex<float>*, const int*, std::complex<float>*, std::complex<float>*, const int*, int*);
void zgeqrf_(const int*, const int*, std::complex<double>*, const int*, std::complex<double>*, std::complex<double>*, const int*, int*);
}

namespace ballast::qr {
namespace {

using long_complex = std::complex<long double>;

void lapack(int m, int n, std::complex<float>* A, std::complex<float>* tau) {
  std::vector<std::complex<float>> work(static_cast<std::size_t>(64 * n));
  const int size = static_cast<int>(work.size());
  int info = 0;
  cgeqrf_(&m, &n, A, &m, tau, work.data(), &size, &info);
  ASSERT_EQ(info, 0);
}
void lapack(int m, int n, std::complex<double>* A, std::complex<double>* tau) {
  std::vector<std::complex<double>> work(static_cast<std::size_t>(64 * n));
  const int size = static_cast<int>(work.size());
  int info = 0;
  zgeqrf_(&m, &n, A, &m, tau, work.data(), &size, &info);
  ASSERT_EQ(info, 0);
}

template <class S>
std::vector<S> random_numbers(index count, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<S> made(static_cast<std::size_t>(count));
  for (S& each : made) {
    const double re = normal(bits);
    each = static_cast<S>(std::complex<double>(re, normal(bits)));
  }
  return made;
}

template <class S>
double norm_of(const std::vector<S>& x) {
  long double sum = 0;
  for (const S& each : x) sum += std::norm(long_complex(each));
  return static_cast<double>(std::sqrt(sum));
}

template <class S>
struct named_kernels {
  std::string name;
  const kernels<S>* on;
};
template <class S>
std::vector<named_kernels<S>> both() {
  return {{"reference", &reference_kernels<S>()}, {"cpu", &cpu_kernels<S>()}};
}

// The factors of a panel, and V1 as a block reflector wants it.
template <class S>
struct panel {
  index m, w;
  std::vector<S> F, tau, T, V1;
  panel(index rows, index width) : m(rows), w(width), F(), tau(size(w)), T(size(w * w)), V1(size(w * w)) {}
  static std::size_t size(index count) { return static_cast<std::size_t>(count); }
  S v(index i, index j) const { return i < j ? S(0) : i == j ? S(1) : F[size(i + j * m)]; }
  block_reflector<S> H() {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) V1[size(i + j * w)] = v(i, j);
    }
    return {m, w, V1.data(), F.data() + w, m, T.data()};
  }
};

template <class S>
panel<S> factored(const kernels<S>& on, index m, index w, const std::vector<S>& A, bool alone = false) {
  panel<S> made(m, w);
  made.F = A;
  on.factor_panel(m, w, made.F.data(), m, made.tau.data(), made.T.data(), 2, true, alone);
  return made;
}

template <class S>
class complex_kernels : public testing::Test {
 protected:
  static constexpr double u = abft::unit_roundoff<real_of<S>>;
  static std::vector<std::pair<index, index>> shapes() {
    return {{1, 1}, {5, 3}, {4, 4}, {9, 9}, {40, 13}, {130, 32}, {70, 64}, {8200, 16}};
  }
};
using complex_types = testing::Types<std::complex<float>, std::complex<double>>;
TYPED_SUITE(complex_kernels, complex_types, test::number_names);

// A = H [R; 0], and T + Tᴴ = Tᴴ VᴴV T, by which H is unitary.
TYPED_TEST(complex_kernels, a_panel_has_the_product_and_a_unitary_factor) {
  using S = TypeParam;
  for (const auto& [name, on] : both<S>()) {
    for (const auto& [m, w] : this->shapes()) {
      const std::string where = fmt::format("{} {} × {}", name, m, w);
      const std::vector<S> A = random_numbers<S>(m * w, static_cast<std::uint64_t>(m + w));
      panel<S> made = factored(*on, m, w, A);
      const auto at = [](index i) { return static_cast<std::size_t>(i); };
      std::vector<long_complex> G(at(w * w)), TR(at(w * w));  // VᴴV, and T V1ᴴ R
      for (index j = 0; j < w; ++j) {
        EXPECT_EQ(made.F[at(j + j * m)].imag(), 0) << where;  // LAPACK's convention
        for (index i = 0; i < w; ++i) {
          for (index r = std::max(i, j); r < m; ++r) G[at(i + j * w)] += std::conj(long_complex(made.v(r, i))) * long_complex(made.v(r, j));
        }
      }
      double worst = 0;
      for (index j = 0; j < w; ++j) {
        for (index i = 0; i < w; ++i) {
          long_complex sum = -long_complex(made.T[at(i + j * w)]) - std::conj(long_complex(made.T[at(j + i * w)]));
          for (index k = 0; k <= i; ++k) {
            long_complex row = 0;
            for (index l = 0; l <= j; ++l) row += G[at(k + l * w)] * long_complex(made.T[at(l + j * w)]);
            sum += std::conj(long_complex(made.T[at(k + i * w)])) * row;
          }
          worst = std::max(worst, static_cast<double>(std::abs(sum)));
        }
      }
      EXPECT_LE(worst, 20 * std::sqrt(static_cast<double>(m)) * this->u) << where;
      // H [R; 0] − A, with H C = C − V (T (V1ᴴ R)).
      for (index j = 0; j < w; ++j) {
        std::vector<long_complex> y(at(w));
        for (index k = 0; k < w; ++k) {
          for (index r = k; r <= j; ++r) y[at(k)] += std::conj(long_complex(made.v(r, k))) * long_complex(made.F[at(r + j * m)]);
        }
        for (index i = 0; i < w; ++i) {
          for (index k = i; k < w; ++k) TR[at(i + j * w)] += long_complex(made.T[at(i + k * w)]) * y[at(k)];
        }
      }
      std::vector<long_complex> off(A.size());
      for (index j = 0; j < w; ++j) {
        for (index i = 0; i < m; ++i) {
          long_complex sum = (i <= j ? long_complex(made.F[at(i + j * m)]) : long_complex(0)) - long_complex(A[at(i + j * m)]);
          for (index k = 0; k < std::min(w, i + 1); ++k) sum -= long_complex(made.v(i, k)) * TR[at(k + j * w)];
          off[at(i + j * m)] = sum;
        }
      }
      EXPECT_LE(norm_of(off), 10 * std::sqrt(static_cast<double>(m)) * this->u * norm_of(A)) << where;
    }
  }
}

TYPED_TEST(complex_kernels, a_panel_is_lapacks) {
  using S = TypeParam;
  for (const auto& [name, on] : both<S>()) {
    for (const auto& [m, w] : this->shapes()) {
      if (m == w && m > 1) continue;  // a square matrix has an ill-conditioned last row
      const std::vector<S> A = random_numbers<S>(m * w, static_cast<std::uint64_t>(3 * m + w));
      const panel<S> made = factored(*on, m, w, A);
      std::vector<S> F = A, tau(made.tau.size());
      lapack(static_cast<int>(m), static_cast<int>(w), F.data(), tau.data());
      double off = 0;
      for (std::size_t i = 0; i < F.size(); ++i) off = std::max(off, static_cast<double>(std::abs(F[i] - made.F[i])));
      for (std::size_t j = 0; j < tau.size(); ++j) off = std::max(off, static_cast<double>(std::abs(tau[j] - made.tau[j])));
      // Both are off by c·u·κ of the leading columns; random ones have κ of some tens.
      EXPECT_LE(off, 500 * static_cast<double>(m) * this->u) << name << " " << m << " × " << w;
    }
  }
}

// A single complex number becomes real: H = 1 − τ has absolute value 1. A real number stays.
TYPED_TEST(complex_kernels, a_panel_without_rows_below_becomes_real) {
  using S = TypeParam;
  for (const auto& [name, on] : both<S>()) {
    const panel<S> turned = factored<S>(*on, 1, 1, {S(3, -4)});
    EXPECT_LE(std::abs(turned.F[0] - S(-5)), 8 * this->u) << name;
    EXPECT_LE(std::abs(turned.tau[0] - S(real_of<S>(1.6), real_of<S>(-0.8))), 4 * this->u) << name;
    const panel<S> kept = factored<S>(*on, 1, 1, {S(-5, 0)});
    EXPECT_EQ(kept.F[0], S(-5)) << name;
    EXPECT_EQ(kept.tau[0], S(0)) << name;
  }
}

TYPED_TEST(complex_kernels, a_block_reflector_and_its_conjugate_transpose_undo_each_other) {
  using S = TypeParam;
  const index n = 7;
  for (const auto& [name, on] : both<S>()) {
    for (const auto& [m, w] : this->shapes()) {
      panel<S> made = factored(*on, m, w, random_numbers<S>(m * w, 5));
      const block_reflector<S> H = made.H();
      std::vector<S> T(made.T.size());
      on->triangular_factor(H, made.tau.data(), T.data());
      double off = 0;
      for (std::size_t i = 0; i < T.size(); ++i) off = std::max(off, static_cast<double>(std::abs(T[i] - made.T[i])));
      EXPECT_LE(off, 20 * std::sqrt(static_cast<double>(m)) * this->u) << name << " " << m << " × " << w;
      const std::vector<S> C = random_numbers<S>(m * n, 6);
      std::vector<S> X = C, W(static_cast<std::size_t>(w * n));
      for (const bool transposed : {true, false}) {
        on->product(H, n, X.data(), m, W.data());
        on->update(H, transposed, n, W.data(), X.data(), m);
        if (transposed) {
          EXPECT_NEAR(norm_of(X), norm_of(C), 10 * std::sqrt(static_cast<double>(m)) * this->u * norm_of(C)) << name;
          EXPECT_GT(std::abs(X[0] - C[0]), 1e-3) << name;
        }
      }
      for (std::size_t i = 0; i < X.size(); ++i) X[i] -= C[i];
      EXPECT_LE(norm_of(X), 20 * std::sqrt(static_cast<double>(m)) * this->u * norm_of(C)) << name << " " << m << " × " << w;
    }
  }
}

TYPED_TEST(complex_kernels, triangular_systems_and_products) {
  using S = TypeParam;
  const index n = 37, k = 5;
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  for (const auto& [name, on] : both<S>()) {
    std::vector<S> U = random_numbers<S>(n * n, 8);
    for (index i = 0; i < n; ++i) U[at(i + i * n)] *= real_of<S>(20);
    const std::vector<S> B = random_numbers<S>(n * k, 9);
    for (const bool transposed : {false, true}) {
      std::vector<S> X = B;
      on->solve(transposed, n, k, U.data(), n, X.data(), n);
      for (index c = 0; c < k; ++c) {
        for (index i = 0; i < n; ++i) {
          long_complex sum = -long_complex(B[at(i + c * n)]);
          double size = static_cast<double>(std::abs(sum));
          for (index l = transposed ? 0 : i; l < (transposed ? i + 1 : n); ++l) {
            const long_complex each = transposed ? std::conj(long_complex(U[at(l + i * n)])) : long_complex(U[at(i + l * n)]);
            sum += each * long_complex(X[at(l + c * n)]);
            size += static_cast<double>(std::abs(each * long_complex(X[at(l + c * n)])));
          }
          EXPECT_LE(static_cast<double>(std::abs(sum)), 4 * n * this->u * size) << name << transposed;
        }
      }
    }
    std::vector<S> C(at(k * k)), D = random_numbers<S>(n * k, 10);
    const std::vector<S> before = D;
    on->cross_product(n, k, k, B.data(), n, before.data(), n, C.data(), k);
    on->subtract_product(n, k, k, B.data(), n, C.data(), k, D.data(), n);
    for (index j = 0; j < k; ++j) {
      for (index i = 0; i < k; ++i) {
        long_complex sum = 0;
        for (index l = 0; l < n; ++l) sum += std::conj(long_complex(B[at(l + i * n)])) * long_complex(before[at(l + j * n)]);
        EXPECT_LE(std::abs(sum - long_complex(C[at(i + j * k)])), 40 * n * this->u) << name;
      }
      for (index i = 0; i < n; ++i) {
        long_complex sum = before[at(i + j * n)];
        for (index l = 0; l < k; ++l) sum -= long_complex(B[at(i + l * n)]) * long_complex(C[at(l + j * k)]);
        EXPECT_LE(std::abs(sum - long_complex(D[at(i + j * n)])), 400 * n * this->u) << name;
      }
    }
  }
}

// Lengths around whole vectors, chunks and runs.
TYPED_TEST(complex_kernels, the_sums_of_the_checks) {
  using S = TypeParam;
  using wide = wide_of<S>;
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  const double unit = abft::unit_roundoff<double>;
  for (const auto& [name, on] : both<S>()) {
    for (const index m : {1, 2, 3, 7, 8, 9, 255, 256, 257, 700}) {
      for (const index w : {1, 2, 3, 4, 5, 9}) {
        const std::vector<S> X = random_numbers<S>(m * w, 11);
        for (int count = 1; count <= 4; ++count) {
          const std::string where = fmt::format("{} {} × {}, {}", name, m, w, count);
          const double limit = 16 * static_cast<double>(m + w) * unit;
          const std::vector<wide> y = random_numbers<wide>(m * count, 12), z = random_numbers<wide>(w * count, 13);
          std::vector<wide> sums = z, rest = y, weighted = y;
          std::vector<double> weights(at(w * count));
          for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = z[i].real();
          on->dot(m, w, X.data(), m, count, y.data(), m, sums.data(), w);
          on->subtract(m, w, X.data(), m, count, z.data(), w, rest.data(), m);
          on->subtract_weighted(m, w, X.data(), m, count, weights.data(), w, weighted.data(), m);
          for (index q = 0; q < count; ++q) {
            for (index j = 0; j < w; ++j) {
              long_complex sum = z[at(j + q * w)];
              for (index i = 0; i < m; ++i) sum += std::conj(long_complex(X[at(i + j * m)])) * long_complex(y[at(i + q * m)]);
              ASSERT_LE(std::abs(sum - long_complex(sums[at(j + q * w)])), limit) << where;
            }
            for (index i = 0; i < m; ++i) {
              long_complex sum = y[at(i + q * m)], real_sum = sum;
              for (index j = 0; j < w; ++j) {
                sum -= long_complex(X[at(i + j * m)]) * long_complex(z[at(j + q * w)]);
                real_sum -= long_complex(X[at(i + j * m)]) * static_cast<long double>(weights[at(j + q * w)]);
              }
              ASSERT_LE(std::abs(sum - long_complex(rest[at(i + q * m)])), limit) << where;
              ASSERT_LE(std::abs(real_sum - long_complex(weighted[at(i + q * m)])), limit) << where;
            }
          }
        }
        std::vector<double> squares(at(w), 1.0), weights(at(2 * m)), moments(at(4 * w), 0.0);
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + 1.0 / static_cast<double>(i + 2);
        on->squares(m, w, X.data(), m, squares.data());
        on->moments(m, w, X.data(), m, weights.data(), moments.data(), w);
        for (index j = 0; j < w; ++j) {
          long double expected[4] = {};
          for (index i = 0; i < 2 * m; ++i) {
            const long double x = reals(X.data() + j * m)[i], by = weights[at(i)];
            expected[0] += x;
            expected[1] += x * by;
            expected[2] += x * by * by;
            expected[3] += x * x;
          }
          // Sums of 2m terms of one sign, one after the other: √(2m) u of their sum.
          const double limit = 4 * std::sqrt(2.0 * static_cast<double>(m)) * unit * static_cast<double>(1 + expected[3]);
          ASSERT_NEAR(squares[at(j)], static_cast<double>(1 + expected[3]), limit) << name;
          for (index q = 0; q < 4; ++q) ASSERT_NEAR(moments[at(j + q * w)], static_cast<double>(expected[q]), 2 * limit) << name << q;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::qr
