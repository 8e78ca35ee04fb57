// Shared code of the tests of QR: kinds of matrices, the error measures of a factorization, the fixture of every backend, and faults.
// Tolerances: Householder QR is backward stable with ‖A − QR‖_F ≤ c·u·‖A‖_F, c a modest multiple of √n in practice (Higham, §19.3); the
// ratios below divide by max(m, n)·u like LAPACK's own tests, whose limit is 30.
// Layer: test harness. With BALLAST_TEST_QR_ON_CUDA the program runs on cuda by the emulator, otherwise on the host backends.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "qr/sites.hpp"
#include "run/settings.hpp"
#include "support/effort.hpp"
#include "support/qr_calls.hpp"

extern "C" {
void dgeqrf_(const int*, const int*, double*, const int*, double*, double*, const int*, int*);
void sgeqrf_(const int*, const int*, float*, const int*, float*, float*, const int*, int*);
}

namespace ballast::qr::subjects {

using index = std::int64_t;

template <class T>
using dense = matrix<T>;

template <class T>
dense<T> copy_of(matrix_view<const T> A, order how = order::column_major) {
  dense<T> made(A.rows, A.columns, how);
  for (index j = 0; j < A.columns; ++j) {
    for (index i = 0; i < A.rows; ++i) made(i, j) = A(i, j);
  }
  return made;
}

template <class T>
dense<T> random_matrix(index m, index n, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  dense<T> A(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) A(i, j) = static_cast<T>(normal(bits));
  }
  return A;
}

// The kinds of data on which no clean check may fail and no fault may pass.
inline const std::vector<std::string> k_kinds = {"normal",     "constant",      "tiny",         "huge",         "columns 1e±12",
                                                 "rows 1e±12", "columns 1e±30", "cauchy",       "hilbert",      "low rank",
                                                 "graded",     "zero",          "zero columns", "identity",     "subnormal",
                                                 "one row",    "integers",      "triangular",   "nearly equal", "extreme columns"};

template <class T>
dense<T> matrix_of_kind(const std::string& kind, index m, index n, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  dense<T> A = random_matrix<T>(m, n, seed + 1);
  const auto each = [&](auto&& f) {
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) A(i, j) = static_cast<T>(f(i, j, static_cast<double>(A(i, j))));
    }
  };
  const auto power = [](index i, int span) { return std::pow(10.0, static_cast<double>(i * 7919 % (2 * span + 1)) - span); };
  const bool single = sizeof(T) == 4;
  if (kind == "constant") each([](index, index, double) { return 1.7; });
  if (kind == "tiny") each([&](index, index, double x) { return x * 1e-30; });
  if (kind == "huge") each([&](index, index, double x) { return x * 1e30; });
  if (kind == "columns 1e±12") each([&](index, index j, double x) { return x * power(j, 12); });
  if (kind == "rows 1e±12") each([&](index i, index, double x) { return x * power(i, 12); });
  if (kind == "columns 1e±30") each([&](index, index j, double x) { return x * power(j, 30); });
  if (kind == "extreme columns")
    each([&](index, index j, double x) { return x * (j % 2 == 0 ? (single ? 1e-36 : 1e-290) : (single ? 1e36 : 1e290)); });
  if (kind == "cauchy") each([&](index, index, double x) { return std::clamp(x / normal(bits), -1e8, 1e8); });
  if (kind == "hilbert") each([](index i, index j, double) { return 1.0 / static_cast<double>(i + j + 1); });
  if (kind == "low rank") each([](index i, index j, double) { return static_cast<double>(i % 5) * 0.3 + static_cast<double>(j % 3); });
  if (kind == "graded") each([](index i, index j, double x) { return x * std::pow(2.0, -static_cast<double>(i + j)); });
  if (kind == "zero") each([](index, index, double) { return 0.0; });
  if (kind == "zero columns") each([](index, index j, double x) { return j % 3 == 1 ? 0.0 : x; });
  if (kind == "identity") each([](index i, index j, double) { return i == j ? 1.0 : 0.0; });
  if (kind == "subnormal") each([&](index, index, double x) { return x * (single ? 1e-40 : 1e-310); });
  if (kind == "one row") each([](index i, index, double x) { return i == 0 ? x : 0.0; });
  if (kind == "integers") each([](index, index, double x) { return std::round(3 * x); });
  if (kind == "triangular") each([](index i, index j, double x) { return i <= j ? x : 0.0; });
  if (kind == "nearly equal") each([&](index, index, double x) { return 1 + x * (single ? 1e-6 : 1e-14); });
  return A;
}

struct ratios {
  double residual = 0;       // max over columns ‖(A − QR)_j‖ / (‖A_j‖ max(m, n) u): by column, so that scaling hides no error
  double orthogonality = 0;  // ‖I − QᵀQ‖_max / (max(m, n) u)
};

// Computes x ← x − τ v vᵀx, where v's first element is 1. Without sanitizers, because tests spend much of their time here.
#if defined(__GNUC__)
__attribute__((no_sanitize("address", "undefined")))
#endif
inline void
reflect(long double* x, const long double* v, index count, long double tau) {
  long double dot = x[0];
  for (index i = 1; i < count; ++i) dot += v[i] * x[i];
  dot *= tau;
  x[0] -= dot;
  for (index i = 1; i < count; ++i) x[i] -= v[i] * dot;
}

// Applies the stored reflectors one at a time in long double, without any code of the library.
template <class T>
ratios ratios_of(matrix_view<const T> A, matrix_view<const T> F, const std::vector<T>& tau) {
  const index m = A.rows, n = A.columns, k = std::min(m, n);
  const double u = abft::unit_roundoff<T>;
  const double size = static_cast<double>(std::max(m, n)) * u;
  ratios seen;
  std::vector<long double> V(static_cast<std::size_t>(m * k));  // v_j in column j
  const auto v = [&](index j) { return V.data() + j * m; };
  for (index j = 0; j < k; ++j) {
    for (index i = j + 1; i < m; ++i) v(j)[i] = F(i, j);
  }
  // Applies reflectors `last` to 0, or 0 to `last`. Reflectors after `last` would only meet zeros.
  const auto apply = [&](std::vector<long double>& x, index last, bool transposed) {
    for (index s = 0; s <= last; ++s) {
      const index j = transposed ? s : last - s;
      reflect(x.data() + j, v(j) + j, m - j, tau[static_cast<std::size_t>(j)]);
    }
  };
  for (index j = 0; j < n; ++j) {
    std::vector<long double> x(static_cast<std::size_t>(m), 0);
    for (index i = 0; i <= std::min(j, m - 1); ++i) x[static_cast<std::size_t>(i)] = F(i, j);
    apply(x, std::min(j, k - 1), false);
    long double off = 0, norm = 0;
    for (index i = 0; i < m; ++i) {
      off += std::pow(x[static_cast<std::size_t>(i)] - A(i, j), 2);
      norm += std::pow(static_cast<long double>(A(i, j)), 2);
    }
    // The smallest number of T limits the accuracy of a subnormal column.
    const long double floor = static_cast<long double>(m) * std::numeric_limits<T>::denorm_min();
    seen.residual = std::max(seen.residual, static_cast<double>((std::sqrt(off) - floor) / (std::sqrt(norm) + floor)) / size);
  }
  // Applies QᵀQ to unit vectors: the result differs from e_j if tau and v do not fit together.
  for (index j = 0; j < k; j += std::max<index>(1, k / 16)) {
    std::vector<long double> x(static_cast<std::size_t>(m), 0);
    x[static_cast<std::size_t>(j)] = 1;
    apply(x, j, false);
    apply(x, k - 1, true);
    x[static_cast<std::size_t>(j)] -= 1;
    for (const long double each : x) seen.orthogonality = std::max(seen.orthogonality, static_cast<double>(std::abs(each)) / size);
  }
  return seen;
}

template <class T>
struct factored {
  dense<T> F;
  std::vector<T> tau;
  ballast::report report;
};

template <class T>
factored<T> factor_in_place(matrix_view<const T> A, run::settings how) {
  factored<T> made{copy_of(A), std::vector<T>(static_cast<std::size_t>(std::min(A.rows, A.columns))), {}};
  how.throw_on_uncorrectable = false;
  made.report = geqrf(made.F.view(), made.tau, how);
  return made;
}

template <class T>
void lapack(dense<T>& A, std::vector<T>& tau) {
  const int m = static_cast<int>(A.rows()), n = static_cast<int>(A.columns()), lwork = 64 * n;
  std::vector<T> work(static_cast<std::size_t>(lwork));
  int info = 0;
  if constexpr (sizeof(T) == 4) {
    sgeqrf_(&m, &n, A.data(), &m, tau.data(), work.data(), &lwork, &info);
  } else {
    dgeqrf_(&m, &n, A.data(), &m, tau.data(), work.data(), &lwork, &info);
  }
  ASSERT_EQ(info, 0);
}

template <class T, backend Backend>
struct setting {
  using real = T;
  static constexpr backend which = Backend;
};

template <class Setting>
class qr : public testing::Test {
 protected:
  using T = typename Setting::real;
  static constexpr backend which = Setting::which;
  static run::settings how(std::string_view scheme = "") { return {.backend = which, .threads = 2, .scheme = scheme}; }
  static std::vector<std::pair<index, index>> shapes() {
    std::vector<std::pair<index, index>> all = {{1, 1}, {5, 1}, {1, 5}, {2, 2}, {16, 7}, {7, 16}, {40, 40}, {70, 33}, {33, 70}, {65, 64}};
    if (which == backend::cuda && test::sampled()) all = {{1, 1}, {5, 1}, {1, 5}, {16, 7}, {33, 70}, {65, 40}, {210, 20}};
    if (which == backend::cuda && !test::sampled()) all.insert(all.end(), {{210, 20}, {100, 90}});  // several thread blocks
    if (which == backend::cpu) all.insert(all.end(), {{150, 130}, {130, 200}, {300, 300}, {6000, 24}, {9000, 40}, {8000, 17}});
    if (which == backend::cpu && !test::sampled()) all.push_back({5000, 200});
    return all;
  }
  // Every kind with every shape. On the emulator a sample has a third of these pairs, and in double precision another third; it keeps every
  // kind and every shape.
  struct kind_and_shape {
    std::string kind;
    index m, n;
  };
  static std::vector<kind_and_shape> kinds_and_shapes(const std::vector<std::string>& kinds) {
    std::vector<kind_and_shape> all;
    std::size_t number = sizeof(T) == 8 ? 1 : 0;
    for (const std::string& kind : kinds) {
      std::size_t pair = number++;
      for (const auto& [m, n] : shapes()) {
        if (which != backend::cuda || !test::sampled() || pair++ % 3 == 0) all.push_back({kind, m, n});
      }
    }
    return all;
  }
  // Returns the number of rounds to run: all, or a part on the slow emulator.
  static std::uint64_t rounds(std::uint64_t all) {
    return which == backend::cuda ? std::max<std::uint64_t>(1, all / (test::sampled() ? 16 : 3)) : all;
  }
};

#if defined(BALLAST_TEST_QR_ON_CUDA)
inline const std::vector<const char*> k_schemes = {"block_checksum", "qr_update", "hybrid"};
inline const std::vector<backend> k_backends = {backend::cuda};
// The schemes for long lists of faults. In a sample, hybrid covers all sites of qr_update on the device except the panel, which
// block_checksum covers.
inline std::vector<const char*> struck_schemes() {
  return test::sampled() ? std::vector<const char*>{"block_checksum", "hybrid"} : k_schemes;
}
using settings = testing::Types<setting<float, backend::cuda>, setting<double, backend::cuda>>;
#else
inline const std::vector<const char*> k_schemes = {"block_checksum", "qr_update"};
inline const std::vector<backend> k_backends = {backend::reference, backend::cpu};
inline std::vector<const char*> struck_schemes() { return k_schemes; }
using settings = testing::Types<setting<float, backend::reference>, setting<double, backend::reference>, setting<float, backend::cpu>,
                                setting<double, backend::cpu>>;
#endif

// J. Longley, An appraisal of least squares programs, 1967; certified values: NIST StRD.
inline constexpr double k_longley[16][7] = {
    {60323, 83.0, 234289, 2356, 1590, 107608, 1947},  {61122, 88.5, 259426, 2325, 1456, 108632, 1948},
    {60171, 88.2, 258054, 3682, 1616, 109773, 1949},  {61187, 89.5, 284599, 3351, 1650, 110929, 1950},
    {63221, 96.2, 328975, 2099, 3099, 112075, 1951},  {63639, 98.1, 346999, 1932, 3594, 113270, 1952},
    {64989, 99.0, 365385, 1870, 3547, 115094, 1953},  {63761, 100.0, 363112, 3578, 3350, 116219, 1954},
    {66019, 101.2, 397469, 2904, 3048, 117388, 1955}, {67857, 104.6, 419180, 2822, 2857, 118734, 1956},
    {68169, 108.4, 442769, 2936, 2798, 120445, 1957}, {66513, 110.8, 444546, 4681, 2637, 121950, 1958},
    {68655, 112.6, 482704, 3813, 2552, 123366, 1959}, {69564, 114.2, 502601, 3931, 2514, 125368, 1960},
    {69331, 115.7, 518173, 4806, 2572, 127852, 1961}, {70551, 116.9, 554894, 4007, 2827, 130081, 1962}};
inline constexpr double k_certified[7] = {-3482258.63459582, 15.0618722713733,       -0.358191792925910E-01, -2.02022980381683,
                                          -1.03322686717359, -0.511041056535807E-01, 1829.15146461355};

inline void longley(dense<double>& A, dense<double>& b) {
  A = dense<double>(16, 7, order::column_major);
  b = dense<double>(16, 1, order::column_major);
  for (index i = 0; i < 16; ++i) {
    b(i, 0) = k_longley[i][0];
    A(i, 0) = 1;
    for (index j = 1; j < 7; ++j) A(i, j) = k_longley[i][j];
  }
}

// All results of a user: factors, Q and a least-squares solution, with one plan of faults.
template <class T>
struct everything {
  dense<T> F;
  std::vector<T> tau;
  dense<T> Q;
  report seen;
};

template <class T>
everything<T> compute(matrix_view<const T> A, run::settings how, const inject::plan* faults) {
  how.faults = faults;
  how.throw_on_uncorrectable = false;
  auto made = factor(A, how);
  everything<T> all{std::move(made.storage), std::move(made.tau), {}, made.report};
  if (A.rows >= A.columns && all.seen.verdict != verdict::uncorrectable) {
    all.Q = copy_of<T>(all.F.view());
    all.seen.merge(orgqr(all.Q.view(), all.tau, how));
  }
  return all;
}

// Returns the largest relative change of a column, in units of u. Numbers are real or complex.
template <class S>
double change(const dense<S>& a, const dense<S>& b) {
  double worst = 0;
  for (index j = 0; j < a.columns(); ++j) {
    double norm = 0, off = 0;
    for (index i = 0; i < a.rows(); ++i) {
      norm += square_of(b(i, j));
      off += square_of(static_cast<wide_of<S>>(a(i, j)) - static_cast<wide_of<S>>(b(i, j)));
    }
    if (off != off) return off;
    worst = std::max(worst, std::sqrt(off / std::max(norm, 1e-300)));
  }
  return worst / abft::unit_roundoff<real_of<S>>;
}

inline inject::request fault(inject::site where, inject::model what, std::uint64_t seed) {
  inject::request made;
  made.site = where;
  made.model = what;
  made.seed = seed;
  if (what == inject::model::bit_flip || what == inject::model::two_bits || what == inject::model::vector_mask) made.bit = 61;
  return made;
}

// Returns the sites that a call without pivoting reaches with this scheme.
inline std::vector<inject::site> sites(std::string_view scheme = "") {
  std::vector<inject::site> all;
  for (const inject::site_row& row : inject::sites()) {
    if (row.site == site::transfer && scheme != "hybrid") continue;
    if (row.site == site::column_norm || row.site == site::pivot || row.site == site::permutation) continue;
    if (row.operation() == "qr" || row.operation().empty()) all.push_back(row.site);
  }
  return all;
}

}  // namespace ballast::qr::subjects
