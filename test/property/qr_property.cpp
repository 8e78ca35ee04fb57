// Properties of every factorization: A = QR with orthonormal Q, R of the leading columns, invariance under powers of two, verdicts.
#include <algorithm>
#include <cmath>
#include <complex>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "run/settings.hpp"
#include "support/qr_calls.hpp"

namespace ballast::qr {
namespace {

using index = std::int64_t;

// m × n, elements of mixed size and sign, zeros among them.
template <class T>
matrix<T> any_matrix(index m, index n) {
  matrix<T> A(m, n, order::column_major);
  for (index j = 0; j < n; ++j) {
    const int scale = *rc::gen::inRange(-20, 20);
    for (index i = 0; i < m; ++i) {
      const auto component = [&] {
        return static_cast<real_of<T>>(std::ldexp(static_cast<double>(*rc::gen::inRange(-1000, 1001)), scale));
      };
      if constexpr (is_complex<T>) {
        const auto re = component();
        A(i, j) = T(re, component());
      } else {
        A(i, j) = component();
      }
    }
  }
  return A;
}

run::settings any_execution() {
  return {.backend = *rc::gen::element(backend::reference, backend::cpu),
          .threads = *rc::gen::inRange(1, 4),
          .scheme = *rc::gen::element(std::string_view("block_checksum"), std::string_view("qr_update"))};
}

template <class T>
void gives_back_its_matrix() {
  const index m = *rc::gen::inRange(1, 40), n = *rc::gen::inRange(1, 40);
  const matrix<T> A = any_matrix<T>(m, n);
  const run::settings how = any_execution();
  const auto made = factor(A.view(), how);
  RC_ASSERT(made.report.verdict == verdict::clean);
  const matrix<T> Q = q_of(made, how).values, R = made.r();
  using wide = wide_of<T>;
  const double u = abft::unit_roundoff<real_of<T>>;
  for (index j = 0; j < n; ++j) {
    double norm = 0, off = 0;
    for (index i = 0; i < m; ++i) {
      wide sum = static_cast<wide>(A(i, j));
      for (index l = 0; l < R.rows(); ++l) sum -= static_cast<wide>(Q(i, l)) * static_cast<wide>(R(l, j));
      off += square_of(sum);
      norm += square_of(A(i, j));
    }
    RC_ASSERT(std::sqrt(off) <= 10 * static_cast<double>(std::max(m, n)) * u * std::sqrt(norm));
  }
  for (index a = 0; a < Q.columns(); ++a) {
    for (index b = 0; b <= a; ++b) {
      wide sum = a == b ? -1 : 0;
      for (index i = 0; i < m; ++i) sum += conjugate(static_cast<wide>(Q(i, a))) * static_cast<wide>(Q(i, b));
      RC_ASSERT(std::abs(sum) <= 10 * static_cast<double>(m) * u);
    }
  }
  for (index j = 0; j < R.rows(); ++j) RC_ASSERT(imaginary_part(R(j, j)) == 0);
}

RC_GTEST_PROP(qr, f32_gives_back_its_matrix, ()) { gives_back_its_matrix<float>(); }
RC_GTEST_PROP(qr, f64_gives_back_its_matrix, ()) { gives_back_its_matrix<double>(); }
RC_GTEST_PROP(qr, c64_gives_back_its_matrix, ()) { gives_back_its_matrix<std::complex<float>>(); }
RC_GTEST_PROP(qr, c128_gives_back_its_matrix, ()) { gives_back_its_matrix<std::complex<double>>(); }

// Powers of two commute with every rounding: reflectors are the same to the bit, and R is scaled.
RC_GTEST_PROP(qr, columns_may_be_scaled_by_powers_of_two, ()) {
  const index m = *rc::gen::inRange(1, 30), n = *rc::gen::inRange(1, 30);
  const matrix<double> A = any_matrix<double>(m, n);
  const run::settings how = any_execution();
  matrix<double> B = A;
  std::vector<int> power(static_cast<std::size_t>(n));
  for (index j = 0; j < n; ++j) {
    power[static_cast<std::size_t>(j)] = *rc::gen::inRange(-600, 600);
    for (index i = 0; i < m; ++i) B(i, j) = std::ldexp(A(i, j), power[static_cast<std::size_t>(j)]);
  }
  const auto a = factor(A.view(), how), b = factor(B.view(), how);
  RC_ASSERT(b.report.verdict == verdict::clean);
  const double u = abft::unit_roundoff<double>;
  for (index j = 0; j < n; ++j) {
    double norm = 0;
    for (index i = 0; i < m; ++i) norm += A(i, j) * A(i, j);
    for (index i = 0; i <= std::min(j, m - 1); ++i)
      RC_ASSERT(std::abs(std::ldexp(b.storage(i, j), -power[static_cast<std::size_t>(j)]) - a.storage(i, j)) <= 1e6 * u * std::sqrt(norm) ||
                std::abs(a.storage(std::min(i, n - 1), std::min(i, n - 1))) <= 1e6 * u * std::sqrt(norm));
  }
}

// R of the first columns does not depend on the columns to the right.
RC_GTEST_PROP(qr, leading_columns_stand_alone, ()) {
  const index m = *rc::gen::inRange(2, 30), n = *rc::gen::inRange(2, 30);
  const matrix<double> A = any_matrix<double>(m, n);
  const index k = *rc::gen::inRange<index>(1, n);
  const run::settings how = any_execution();
  const auto all = factor(A.view(), how), some = factor(matrix_view<const double>(A.view().block(0, 0, m, k)), how);
  for (index j = 0; j < k; ++j) {
    double norm = 0, other = 0;
    for (index i = 0; i < m; ++i) norm += A(i, j) * A(i, j);
    for (index i = 0; i <= std::min(j, m - 1); ++i)
      other += some.storage(i, j) * some.storage(i, j) - all.storage(i, j) * all.storage(i, j);
    RC_ASSERT(std::abs(other) <= 1e-12 * norm);
  }
}

// Any fault of any model at any data site: repaired, or reported, never silent and never a crash.
RC_GTEST_PROP(qr, a_fault_is_repaired_or_reported, ()) {
  const index m = *rc::gen::inRange(2, 30), n = *rc::gen::inRange(2, 30);
  const matrix<double> A = any_matrix<double>(m, n);
  run::settings how = any_execution();
  const auto clean = factor(A.view(), how);
  std::vector<inject::site> sites;
  for (const inject::site_row& row : inject::sites()) {
    if (row.operation() == "qr") sites.push_back(row.site);
  }
  inject::request wanted;
  wanted.site = *rc::gen::elementOf(sites);
  wanted.model = static_cast<inject::model>(*rc::gen::inRange<int>(0, static_cast<int>(inject::k_model_names.size())));
  wanted.seed = *rc::gen::arbitrary<std::uint64_t>();
  wanted.count = *rc::gen::inRange(1, 4);
  const inject::plan faults({wanted});
  how.faults = &faults;
  how.throw_on_uncorrectable = false;
  const auto struck = factor(A.view(), how);
  if (struck.report.verdict == verdict::uncorrectable) {
    RC_ASSERT(wanted.model == inject::model::stuck_at);
    return;
  }
  // Q and R may differ where A is nearly rank-deficient; that they make A may not.
  const matrix<double> Q = struck.q({.backend = how.backend}).values, R = struck.r();
  for (index j = 0; j < n; ++j) {
    double norm = 0, off = 0;
    for (index i = 0; i < m; ++i) {
      double sum = A(i, j);
      for (index l = 0; l < R.rows(); ++l) sum -= Q(i, l) * R(l, j);
      off += sum * sum;
      norm += A(i, j) * A(i, j);
    }
    RC_ASSERT(std::sqrt(off) <= 1e-12 * std::sqrt(norm));
  }
}

}  // namespace
}  // namespace ballast::qr
