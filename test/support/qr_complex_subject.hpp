// Shared code of the tests of complex QR: matrices, the error measures of a factorization in long double, the fixture of the backends that
// take complex numbers. Tolerances are those of real matrices (qr_subject.hpp): a complex reflector is two real ones, and the ratios below
// have max(m, n) u as their unit, as LAPACK's own tests.
// Layer: test harness.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "qr/arithmetic/scalar.hpp"
#include "support/qr_subject.hpp"

namespace ballast::qr::subjects {

using long_complex = std::complex<long double>;

template <class S>
inline constexpr double k_unit = abft::unit_roundoff<real_of<S>>;

inline std::size_t place(index i) { return static_cast<std::size_t>(i); }

// Both components of that kind.
template <class S>
dense<S> complex_of_kind(const std::string& kind, index m, index n, std::uint64_t seed) {
  using real = real_of<S>;
  const dense<real> re = matrix_of_kind<real>(kind, m, n, seed), im = matrix_of_kind<real>(kind, m, n, seed + 77);
  dense<S> A(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < m; ++i) A(i, j) = S(re(i, j), im(i, j));
  }
  return A;
}

template <class S>
dense<S> random_complex(index m, index n, std::uint64_t seed) {
  return complex_of_kind<S>("normal", m, n, seed);
}

// Applies H_j = I − τ v vᴴ, or its conjugate transpose, to x.
template <class S>
void reflect_complex(std::vector<long_complex>& x, matrix_view<const S> F, index j, const S& tau, bool transposed) {
  long_complex dot = x[place(j)];
  for (index i = j + 1; i < F.rows; ++i) dot += times(std::conj(long_complex(F(i, j))), x[place(i)]);
  dot = times(transposed ? std::conj(long_complex(tau)) : long_complex(tau), dot);
  x[place(j)] -= dot;
  for (index i = j + 1; i < F.rows; ++i) x[place(i)] -= times(long_complex(F(i, j)), dot);
}

// x ← Q x, or Qᴴ x.
template <class S>
void apply_reflectors(std::vector<long_complex>& x, matrix_view<const S> F, const std::vector<S>& tau, bool transposed) {
  const index k = static_cast<index>(tau.size());
  for (index s = 0; s < k; ++s) {
    const index j = transposed ? s : k - 1 - s;
    reflect_complex<S>(x, F, j, tau[place(j)], transposed);
  }
}

template <class S>
ratios complex_ratios_of(matrix_view<const S> A, matrix_view<const S> F, const std::vector<S>& tau) {
  const index m = A.rows, n = A.columns, k = std::min(m, n);
  const double size = static_cast<double>(std::max(m, n)) * k_unit<S>;
  ratios seen;
  for (index j = 0; j < n; ++j) {
    std::vector<long_complex> x(place(m));
    for (index i = 0; i <= std::min(j, m - 1); ++i) x[place(i)] = F(i, j);
    apply_reflectors<S>(x, F, tau, false);
    long double off = 0, norm = 0;
    for (index i = 0; i < m; ++i) {
      off += std::norm(x[place(i)] - long_complex(A(i, j)));
      norm += std::norm(long_complex(A(i, j)));
    }
    // The smallest number limits the accuracy of a subnormal column.
    const long double floor = 2 * static_cast<long double>(m) * std::numeric_limits<real_of<S>>::denorm_min();
    seen.residual = std::max(seen.residual, static_cast<double>((std::sqrt(off) - floor) / (std::sqrt(norm) + floor)) / size);
  }
  for (index j = 0; j < k; j += std::max<index>(1, k / 16)) {
    std::vector<long_complex> x(place(m));
    x[place(j)] = 1;
    apply_reflectors<S>(x, F, tau, false);
    apply_reflectors<S>(x, F, tau, true);
    x[place(j)] -= 1;
    for (const long_complex& each : x) seen.orthogonality = std::max(seen.orthogonality, static_cast<double>(std::abs(each)) / size);
  }
  return seen;
}

// C as the mathematics has it: reflectors one by one in long double. C op(Q) = (op(Q)ᴴ Cᴴ)ᴴ.
template <class S>
dense<S> complex_applied(side where, transpose op, const dense<S>& F, const std::vector<S>& tau, const dense<S>& C) {
  const bool left = where == side::left;
  dense<S> made = C;
  for (index c = 0; c < (left ? C.columns() : C.rows()); ++c) {
    std::vector<long_complex> x(place(left ? C.rows() : C.columns()));
    for (index i = 0; i < static_cast<index>(x.size()); ++i) x[place(i)] = left ? long_complex(C(i, c)) : std::conj(long_complex(C(c, i)));
    apply_reflectors<S>(x, F.view(), tau, (op == transpose::yes) == left);
    for (index i = 0; i < static_cast<index>(x.size()); ++i)
      (left ? made(i, c) : made(c, i)) = static_cast<S>(left ? x[place(i)] : std::conj(x[place(i)]));
  }
  return made;
}

template <class Setting>
class qr_complex : public testing::Test {
 protected:
  using S = typename Setting::real;
  using real = real_of<S>;
  static constexpr backend which = Setting::which;
  static constexpr double u = k_unit<S>;
  // On cuda a named scheme asks for the engine of large matrices, also for a small one.
  static run::settings how(std::string_view scheme = which == backend::cuda ? "block_checksum" : "") {
    return {.backend = which, .threads = 2, .scheme = scheme};
  }
  // Seeds of a test: the emulator takes some tenths of a second for a call.
  static constexpr std::uint64_t seeds(std::uint64_t many) { return which == backend::cuda ? (many + 3) / 4 : many; }
  static std::vector<std::pair<index, index>> shapes() {
    std::vector<std::pair<index, index>> all = {{1, 1}, {5, 1}, {1, 5}, {2, 2}, {16, 7}, {7, 16}, {40, 40}, {70, 33}, {33, 70}, {65, 64}};
    if (which == backend::cpu) all.insert(all.end(), {{150, 130}, {130, 200}, {200, 200}, {6000, 24}, {5000, 17}});
    return all;
  }
  static problem problem_here(index m, index n, index batch = 1) { return {precision_of<real>, m, n, batch, true}; }
};

#if defined(BALLAST_TEST_QR_ON_CUDA)
using complex_settings = testing::Types<setting<std::complex<float>, backend::cuda>, setting<std::complex<double>, backend::cuda>>;
#else
using complex_settings = testing::Types<setting<std::complex<float>, backend::reference>, setting<std::complex<double>, backend::reference>,
                                        setting<std::complex<float>, backend::cpu>, setting<std::complex<double>, backend::cpu>>;
#endif
// The scheme hybrid of cuda: qr_cuda_complex_schemes_test.cpp.
inline constexpr const char* k_complex_schemes[] = {"block_checksum", "qr_update"};

}  // namespace ballast::qr::subjects
