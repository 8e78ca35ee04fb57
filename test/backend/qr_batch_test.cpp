// Batches of small matrices on every backend, in one program on those of the host, in the other (BALLAST_TEST_QR_ON_CUDA) on cuda by the
// emulator: accuracy against long double sums, LAPACK's storage, strides, hostile data without an alarm, faults at every site, arguments.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_subject.hpp"

namespace ballast::qr {
namespace {

using index = std::int64_t;
using namespace subjects;

// `count` contiguous column-major matrices.
template <class T>
struct batch {
  index m = 0, n = 0, count = 0;
  std::vector<T> data;

  batch(index rows, index columns, index matrices) : m(rows), n(columns), count(matrices), data(at(rows * columns * matrices)) {}
  matrix_batch_view<T> view() { return batch_of(column_major(data.data(), m, n), count); }
  matrix_batch_view<const T> view() const { return batch_of(column_major(data.data(), m, n), count); }
  matrix_view<const T> operator[](index b) const { return view()[b]; }
  static std::size_t at(index i) { return static_cast<std::size_t>(i); }
};

template <class T>
batch<T> random_batch(index m, index n, index count, std::uint64_t seed) {
  batch<T> made(m, n, count);
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  for (T& each : made.data) each = static_cast<T>(normal(bits));
  return made;
}

template <class T>
batch<T> batch_of_kind(const std::string& kind, index m, index n, index count) {
  batch<T> made(m, n, count);
  for (index b = 0; b < count; ++b) {
    const dense<T> one = matrix_of_kind<T>(kind, m, n, static_cast<std::uint64_t>(5 + b));
    std::copy_n(one.data(), one.size(), made.data.begin() + b * m * n);
  }
  return made;
}

template <class T>
struct factored_batch {
  batch<T> F;
  std::vector<T> tau;
  ballast::report report;
  std::vector<T> tau_of(index b) const {
    const index k = std::min(F.m, F.n);
    return {tau.begin() + b * k, tau.begin() + (b + 1) * k};
  }
};

template <class T>
factored_batch<T> factor_each(const batch<T>& A, run::settings how) {
  how.throw_on_uncorrectable = false;
  factored_batch<T> made{A, std::vector<T>(batch<T>::at(std::min(A.m, A.n) * A.count)), {}};
  made.report = geqrf(made.F.view(), made.tau, how);
  return made;
}

template <class T>
ratios worst_of(const batch<T>& A, const factored_batch<T>& made) {
  ratios worst;
  for (index b = 0; b < A.count; ++b) {
    const ratios seen = ratios_of<T>(A[b], made.F[b], made.tau_of(b));
    if (!(seen.residual <= worst.residual)) worst.residual = seen.residual;
    if (!(seen.orthogonality <= worst.orthogonality)) worst.orthogonality = seen.orthogonality;
  }
  return worst;
}

template <class Setting>
class qr_batch : public testing::Test {
 protected:
  using T = typename Setting::real;
  static constexpr backend which = Setting::which;
  static run::settings how(const inject::plan* faults = nullptr) {
    return {.backend = which, .threads = 2, .throw_on_uncorrectable = false, .faults = faults};
  }
  // Each takes another kernel of cuda, or another way through one.
  static std::vector<std::pair<index, index>> shapes() {
    std::vector<std::pair<index, index>> all = {{1, 1},  {8, 8},   {5, 3},   {3, 5},   {13, 7}, {16, 16},
                                                {32, 9}, {31, 32}, {64, 64}, {40, 60}, {65, 20}};
    if (!test::sampled()) all.insert(all.end(), {{7, 130}, {128, 128}, {256, 5}, {200, 60}, {256, 100}, {130, 200}});
    if (test::sampled()) all.insert(all.end(), {{140, 70}, {9, 140}});
    return all;
  }
  static bool on_cuda() { return which == backend::cuda; }
};

TYPED_TEST_SUITE(qr_batch, settings, names);

TYPED_TEST(qr_batch, factors_every_shape_accurately) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : this->shapes()) {
    const index count = m * n < 2000 ? 9 : 2;
    const batch<T> A = random_batch<T>(m, n, count, static_cast<std::uint64_t>(m * 1000 + n));
    const factored_batch<T> made = factor_each(A, this->how());
    EXPECT_EQ(made.report.verdict, verdict::clean) << m << " × " << n << to_json(made.report);
    EXPECT_EQ(made.report.backend, this->which);
    EXPECT_EQ(made.report.problem, to_token({precision_of<T>, m, n, count}));
    EXPECT_EQ(made.report.checks, static_cast<std::uint64_t>(2 * count));
    const ratios seen = worst_of(A, made);
    EXPECT_LT(seen.residual, 10) << m << " × " << n;
    EXPECT_LT(seen.orthogonality, 10) << m << " × " << n;
    // The same numbers without protection.
    run::settings bare = this->how();
    bare.protection = protection::off;
    const factored_batch<T> same = factor_each(A, bare);
    EXPECT_EQ(same.F.data, made.F.data) << m << " × " << n;
    EXPECT_EQ(same.tau, made.tau) << m << " × " << n;
    EXPECT_EQ(same.report.checks, 0u);
  }
}

TYPED_TEST(qr_batch, factors_every_kind_of_data_accurately_and_without_alarm) {
  using T = typename TestFixture::T;
  for (const std::string& kind : k_kinds) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{8, 8}, {20, 13}, {13, 20}, {60, 40}}) {
      const batch<T> A = batch_of_kind<T>(kind, m, n, this->on_cuda() ? 2 : 5);
      const factored_batch<T> made = factor_each(A, this->how());
      EXPECT_EQ(made.report.verdict, verdict::clean) << kind << " " << m << " × " << n << to_json(made.report);
      EXPECT_EQ(made.report.detected, 0u) << kind;
      const ratios seen = worst_of(A, made);
      EXPECT_LT(seen.residual, 30) << kind << " " << m << " × " << n;
      EXPECT_LT(seen.orthogonality, 30) << kind << " " << m << " × " << n;
    }
  }
}

TYPED_TEST(qr_batch, agrees_with_lapacks_conventions) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(12, 6, 3, 4);
  for (index i = 3; i < 12; ++i) A.data[static_cast<std::size_t>(i + 12 * 2)] = 0;  // R's third column, as A's first two, has other numbers
  for (index e = 0; e < 12 * 6; ++e) A.data[static_cast<std::size_t>(72 + e)] = T(e % 13 == 0);  // an identity: no tails
  const factored_batch<T> made = factor_each(A, this->how());
  for (index j = 0; j < 6; ++j) {
    EXPECT_EQ(made.tau[static_cast<std::size_t>(6 + j)], 0);
    for (index i = 0; i < 12; ++i) EXPECT_EQ(made.F[1](i, j), T(i == j));
    // β has the opposite sign of the diagonal's number, 1 ≤ τ ≤ 2.
    EXPECT_GE(made.tau[static_cast<std::size_t>(j)], 1);
    EXPECT_LE(made.tau[static_cast<std::size_t>(j)], 2);
  }
  EXPECT_LT(made.F[0](0, 0) * A[0](0, 0), 0);
}

TYPED_TEST(qr_batch, leaves_what_lies_between_strided_elements_alone) {
  using T = typename TestFixture::T;
  const index m = 9, n = 5, count = 4;
  const batch<T> A = random_batch<T>(m, n, count, 8);
  // Rows are contiguous, with gaps, and the matrices interleave: elements of one are `count` apart.
  std::vector<T> memory(static_cast<std::size_t>(m * (n + 2) * count), T(77));
  const matrix_batch_view<T> strided{memory.data(), count, m, n, (n + 2) * count, count, 1};
  for (index b = 0; b < count; ++b) {
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) strided[b](i, j) = A[b](i, j);
    }
  }
  std::vector<T> tau(static_cast<std::size_t>(n * count));
  EXPECT_EQ(geqrf(strided, tau, this->how()).verdict, verdict::clean);
  const factored_batch<T> made = factor_each(A, this->how());
  EXPECT_EQ(tau, made.tau);
  for (index b = 0; b < count; ++b) {
    for (index i = 0; i < m; ++i) {
      for (index j = 0; j < n; ++j) EXPECT_EQ(strided[b](i, j), made.F[b](i, j));
      for (index j = n; j < n + 2; ++j) EXPECT_EQ(memory[static_cast<std::size_t>((i * (n + 2) + j) * count + b)], T(77));
    }
  }
}

// NaN in a column spreads to the columns to its right, and to no other matrix. This is no fault.
TYPED_TEST(qr_batch, inf_and_nan_pass_through_and_are_no_fault) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(10, 6, 3, 5);
  A.data[60 + 10 * 3 + 4] = std::numeric_limits<T>::quiet_NaN();
  A.data[120] = std::numeric_limits<T>::infinity();
  const factored_batch<T> made = factor_each(A, this->how());
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  EXPECT_EQ(made.report.detected, 0u);
  const batch<T> clean = random_batch<T>(10, 6, 3, 5);
  const factored_batch<T> expected = factor_each(clean, this->how());
  for (index e = 0; e < 60 + 30; ++e) EXPECT_EQ(made.F.data[static_cast<std::size_t>(e)], expected.F.data[static_cast<std::size_t>(e)]);
  EXPECT_TRUE(std::isnan(made.F[1](9, 3)));
}

// op(Q) of a batch, on both sides, against the reflectors one after the other in long double.
TYPED_TEST(qr_batch, applies_and_forms_q) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{8, 5}, {16, 9}, {30, 30}, {70, 20}, {150, 140}}) {
    if (test::sampled() && this->on_cuda() && m > 100) continue;
    const index k = std::min(m, n), count = 3;
    const factored_batch<T> made = factor_each(random_batch<T>(m, n, count, 6), this->how());
    const auto apply = [&](index b, std::vector<long double>& x, bool transposed) {
      for (index s = 0; s < k; ++s) {
        const index j = transposed ? s : k - 1 - s;
        const auto v = [&](index i) { return i == j ? 1.0L : static_cast<long double>(made.F[b](i, j)); };
        long double dot = 0;
        for (index i = j; i < m; ++i) dot += v(i) * x[static_cast<std::size_t>(i)];
        for (index i = j; i < m; ++i)
          x[static_cast<std::size_t>(i)] -= v(i) * dot * static_cast<long double>(made.tau_of(b)[static_cast<std::size_t>(j)]);
      }
    };
    const double tolerance = 20 * static_cast<double>(m) * abft::unit_roundoff<T>;
    for (const side where : {side::left, side::right}) {
      for (const transpose op : {transpose::no, transpose::yes}) {
        // Small matrices also with more columns than a team has: teams of one warp then have other numbers of them.
        const index p = m <= 16 ? 20 : 7;
        const batch<T> C = where == side::left ? random_batch<T>(m, p, count, 9) : random_batch<T>(p, m, count, 9);
        batch<T> X = C;
        const report seen = ormqr(where, op, std::as_const(made.F).view(), made.tau, X.view(), this->how());
        EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        EXPECT_GT(seen.checks, 0u);
        for (index b = 0; b < count; ++b) {
          for (index c = 0; c < p; ++c) {
            std::vector<long double> x;
            for (index i = 0; i < m; ++i) x.push_back(where == side::left ? C[b](i, c) : C[b](c, i));
            apply(b, x, (op == transpose::yes) == (where == side::left));
            for (index i = 0; i < m; ++i)
              ASSERT_NEAR(where == side::left ? X[b](i, c) : X[b](c, i), static_cast<double>(x[static_cast<std::size_t>(i)]), tolerance)
                  << m << " × " << n;
          }
        }
      }
    }
    batch<T> Q(m, k, count);
    for (index b = 0; b < count; ++b) std::copy_n(made.F.data.begin() + b * m * n, m * k, Q.data.begin() + b * m * k);
    const report formed = orgqr(Q.view(), made.tau, this->how());
    EXPECT_EQ(formed.verdict, verdict::clean) << to_json(formed);
    for (index b = 0; b < count; ++b) {
      for (index c = 0; c < k; ++c) {
        std::vector<long double> x(static_cast<std::size_t>(m));
        x[static_cast<std::size_t>(c)] = 1;
        apply(b, x, false);
        for (index i = 0; i < m; ++i) ASSERT_NEAR(Q[b](i, c), static_cast<double>(x[static_cast<std::size_t>(i)]), tolerance);
      }
    }
  }
}

// The solution's residual is orthogonal to A's columns (m ≥ n), or zero, and X lies in the span of A's rows (m < n).
TYPED_TEST(qr_batch, solves_least_squares_of_both_shapes) {
  using T = typename TestFixture::T;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{8, 8}, {24, 10}, {10, 24}, {64, 33}, {33, 64}}) {
    const index count = 3, p = 3, most = std::max(m, n);
    const batch<T> A = random_batch<T>(m, n, count, 12);
    batch<T> F = A, X = random_batch<T>(most, p, count, 13);
    const batch<T> B = X;
    const report seen = gels(F.view(), X.view(), this->how());
    EXPECT_EQ(seen.verdict, verdict::clean) << m << " × " << n << to_json(seen);
    for (index b = 0; b < count; ++b) {
      for (index c = 0; c < p; ++c) {
        std::vector<long double> r;
        long double scale = 1;
        for (index i = 0; i < m; ++i) {
          long double sum = B[b](i, c);
          for (index j = 0; j < n; ++j) {
            sum -= static_cast<long double>(A[b](i, j)) * static_cast<long double>(X[b](j, c));
            scale = std::max(scale, std::abs(static_cast<long double>(X[b](j, c))));
          }
          r.push_back(sum);
        }
        const double tolerance = 100 * static_cast<double>(most * most) * abft::unit_roundoff<T> * static_cast<double>(scale);
        for (index j = 0; m >= n && j < n; ++j) {
          long double along = 0;
          for (index i = 0; i < m; ++i) along += r[static_cast<std::size_t>(i)] * static_cast<long double>(A[b](i, j));
          ASSERT_NEAR(static_cast<double>(along), 0, tolerance) << m << " × " << n;
        }
        for (index i = 0; m < n && i < m; ++i) ASSERT_NEAR(static_cast<double>(r[static_cast<std::size_t>(i)]), 0, tolerance);
      }
    }
    if (m >= n) continue;
    // The solution of least norm is that of the single call.
    for (index b = 0; b < count; ++b) {
      dense<T> one = copy_of<T>(A[b]), solution = copy_of<T>(B[b]);
      (void)gels(one.view(), solution.view(), {.backend = this->which == backend::cuda ? backend::cpu : this->which});
      for (index c = 0; c < p; ++c) {
        for (index j = 0; j < n; ++j) ASSERT_NEAR(X[b](j, c), solution(j, c), 1e4 * abft::unit_roundoff<T>);
      }
    }
  }
}

TYPED_TEST(qr_batch, gels_names_the_matrix_without_full_rank_and_solves_the_others) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(6, 6, 5, 3);
  for (index e = 0; e < 36; ++e) A.data[static_cast<std::size_t>(3 * 36 + e)] = T(e % 7 == 0 && e != 28);  // a 0 in column 4
  batch<T> X = random_batch<T>(6, 1, 5, 4);
  const batch<T> B = X, original = A;
  try {
    (void)gels(A.view(), X.view(), this->how());
    FAIL();
  } catch (const rank_deficient_error& e) {
    EXPECT_NE(std::string(e.what()).find("column 4 of matrix 3"), std::string::npos) << e.what();
  }
  for (index b = 0; b < 5; b += 4) {
    for (index i = 0; i < 6; ++i) {
      double sum = B[b](i, 0);
      for (index j = 0; j < 6; ++j) sum -= static_cast<double>(original[b](i, j)) * static_cast<double>(X[b](j, 0));
      EXPECT_NEAR(sum, 0, 1e5 * abft::unit_roundoff<T>);
    }
  }
}

// Larger ones go through the functions for one matrix.
TYPED_TEST(qr_batch, matrices_of_any_size) {
  using T = typename TestFixture::T;
  const batch<T> A = random_batch<T>(260, 6, 2, 2);
  const factored_batch<T> made = factor_each(A, this->how());
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  EXPECT_EQ(made.report.problem, to_token({precision_of<T>, 260, 6, 2}));
  EXPECT_LT(worst_of(A, made).residual, 10);
  const inject::plan faults({inject::parse_request("site=qr.trailing,model=bit_flip,bit=29,seed=3")});
  const factored_batch<T> struck = factor_each(A, this->how(&faults));
  for (const event& each : struck.report.events) EXPECT_LT(each.index, 2);
}

// ------------------------------------------------------------------------------------------------------------------------ Faults

// The result of one operation on a batch, as bytes, and the report.
template <class T>
struct result {
  std::vector<T> numbers;
  ballast::report report;
};

template <class T>
struct subject {
  const char* name;
  std::vector<inject::site> sites;  // that this operation passes, on every backend
  std::function<result<T>(const run::settings&)> run;
};

template <class T>
std::vector<subject<T>> subjects(bool on_cuda) {
  static const batch<T> A = random_batch<T>(16, 16, 5, 31), C = random_batch<T>(16, 8, 5, 32);
  static const factored_batch<T> made = factor_each(A, {.backend = backend::reference});
  std::vector<subject<T>> all;
  std::vector<inject::site> sites = {site::panel, site::reflector, site::tau,       site::product,   site::trailing,
                                     site::r,     site::checksum,  site::threshold, site::comparison};
  if (!on_cuda) sites.push_back(site::t);
  all.push_back({"geqrf", sites, [](const run::settings& how) {
                   factored_batch<T> f = factor_each(A, how);
                   f.F.data.insert(f.F.data.end(), f.tau.begin(), f.tau.end());
                   return result<T>{f.F.data, f.report};
                 }});
  sites = {site::q, site::product, site::checksum, site::threshold, site::comparison};
  all.push_back({"ormqr", sites, [](const run::settings& how) {
                   batch<T> X = C;
                   ballast::report seen = ormqr(side::left, transpose::yes, std::as_const(made.F).view(), made.tau, X.view(), how);
                   return result<T>{X.data, std::move(seen)};
                 }});
  all.push_back({"orgqr", sites, [](const run::settings& how) {
                   batch<T> Q = made.F;
                   ballast::report seen = orgqr(Q.view(), made.tau, how);
                   return result<T>{Q.data, std::move(seen)};
                 }});
  all.push_back({"gels", {site::panel, site::q, site::checksum, site::threshold, site::comparison}, [](const run::settings& how) {
                   batch<T> F = A, X = C;
                   ballast::report seen = gels(F.view(), X.view(), how);
                   return result<T>{X.data, std::move(seen)};
                 }});
  return all;
}

template <class T>
inject::request request_of(inject::site where, std::size_t model, std::uint64_t seed) {
  inject::request fault;
  fault.site = where;
  fault.model = static_cast<inject::model>(model);
  fault.seed = seed;
  if (fault.model == inject::model::bit_flip || fault.model == inject::model::two_bits || fault.model == inject::model::vector_mask)
    fault.bit = sizeof(T) == 4 ? 28 : 60;
  return fault;
}

// A fault at any site either leaves the numbers as they were, or is repaired, and the report names the matrix; or, if it is there each
// time, is reported.
TYPED_TEST(qr_batch, every_fault_at_every_site_is_repaired_or_reported) {
  using T = typename TestFixture::T;
  for (const subject<T>& each : subjects<T>(this->on_cuda())) {
    const result<T> clean = each.run(this->how());
    ASSERT_EQ(clean.report.verdict, verdict::clean) << each.name;
    double norm = 0;
    for (const T x : clean.numbers) norm = std::max(norm, std::abs(static_cast<double>(x)));
    for (const inject::site where : each.sites) {
      int repaired = 0;
      for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
        for (std::uint64_t seed = 0; seed < (test::sampled() ? 3u : 10u); ++seed) {
          const inject::plan faults({request_of<T>(where, model, seed)});
          const result<T> seen = each.run(this->how(&faults));
          const std::string what = std::string(each.name) + " " + std::string(inject::row_of(where).name) + " " +
                                   std::string(inject::k_model_names[model]) + " " + std::to_string(seed);
          repaired += seen.report.verdict == verdict::recomputed;
          for (const event& e : seen.report.events) {
            EXPECT_GE(e.index, 0) << what;
            EXPECT_LT(e.index, 5) << what;
          }
          if (seen.report.verdict == verdict::uncorrectable) {
            EXPECT_EQ(faults.requests().front().model, inject::model::stuck_at) << what << to_json(seen.report);
            continue;
          }
          double off = 0;
          for (std::size_t e = 0; e < clean.numbers.size(); ++e) {
            const double change = std::abs(static_cast<double>(seen.numbers[e]) - static_cast<double>(clean.numbers[e]));
            if (!(change <= off)) off = change;
          }
          EXPECT_LE(off, 2000 * abft::unit_roundoff<T> * norm) << what << to_json(seen.report);
          if (seen.report.verdict == verdict::clean && off == 0) continue;
        }
      }
      EXPECT_GT(repaired, 0) << each.name << " " << inject::row_of(where).name;
    }
  }
}

// After the last row of a matrix a tile has rows of zeros. If such a zero changes in a column of zeros, the reflector exchanges a row of
// the matrix with that row: its length is √2, and its stored part is a unit vector.
TYPED_TEST(qr_batch, what_is_struck_behind_the_last_row_is_seen) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(5, 4, 1, 8);
  std::fill_n(A.data.begin(), 10, T(0));
  A.data[0] = 1;
  A.data[5] = 2;
  const factored_batch<T> clean = factor_each(A, this->how());
  ASSERT_EQ(clean.report.verdict, verdict::clean);
  int repaired = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const inject::plan faults({request_of<T>(site::panel, 0, seed)});
    const factored_batch<T> made = factor_each(A, this->how(&faults));
    repaired += made.report.verdict == verdict::recomputed;
    EXPECT_NE(made.report.verdict, verdict::uncorrectable) << to_json(made.report);
    EXPECT_LT(worst_of(A, made).residual, 10) << seed << to_json(made.report);
    EXPECT_LT(worst_of(A, made).orthogonality, 10) << seed << to_json(made.report);
  }
  EXPECT_GT(repaired, 50);
}

// The detector's own test: without protection the same faults reach the output, and with `detect` they are reported.
TYPED_TEST(qr_batch, without_protection_faults_reach_the_output_and_detect_reports_them) {
  using T = typename TestFixture::T;
  for (const subject<T>& each : subjects<T>(this->on_cuda())) {
    const result<T> clean = each.run(this->how());
    for (const inject::site where : each.sites) {
      if (inject::row_of(where).role != inject::site_role::data) continue;
      int wrong = 0, reported = 0;
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const inject::plan faults({request_of<T>(where, 0, seed)});
        run::settings how = this->how(&faults);
        how.protection = protection::off;
        const result<T> seen = each.run(how);
        EXPECT_EQ(seen.report.verdict, verdict::clean);
        wrong += std::memcmp(seen.numbers.data(), clean.numbers.data(), clean.numbers.size() * sizeof(T)) != 0;
        how.protection = protection::detect;
        reported += each.run(how).report.verdict == verdict::uncorrectable;
      }
      EXPECT_GT(wrong, 0) << each.name << " " << inject::row_of(where).name;
      EXPECT_GT(reported, 0) << each.name << " " << inject::row_of(where).name;
    }
  }
}

// A matrix that stays wrong keeps its input; the others are there.
TYPED_TEST(qr_batch, a_fault_that_stays_is_named_and_nothing_of_its_matrix_is_stored) {
  using T = typename TestFixture::T;
  const batch<T> A = random_batch<T>(12, 12, 6, 3);
  const factored_batch<T> clean = factor_each(A, this->how());
  int met = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    inject::request fault = request_of<T>(site::panel, static_cast<std::size_t>(inject::model::stuck_at), seed);
    fault.bit = sizeof(T) == 4 ? 30 : 62;
    const inject::plan faults({fault});
    const factored_batch<T> seen = factor_each(A, this->how(&faults));
    if (seen.report.verdict != verdict::uncorrectable) continue;
    ++met;
    ASSERT_EQ(seen.report.events.size(), 1u);
    const index struck = seen.report.events[0].index;
    for (index b = 0; b < A.count; ++b) {
      const batch<T>& expected = b == struck ? A : clean.F;
      EXPECT_EQ(std::memcmp(seen.F.data.data() + b * 144, expected.data.data() + b * 144, 144 * sizeof(T)), 0) << b << " of " << struck;
    }
    run::settings throws = this->how(&faults);
    throws.throw_on_uncorrectable = true;
    batch<T> F = A;
    std::vector<T> tau(72);
    EXPECT_THROW((void)geqrf(F.view(), tau, throws), uncorrectable_error);
  }
  EXPECT_GT(met, 0);
}

// -------------------------------------------------------------------------------------------------------------------- Arguments

TYPED_TEST(qr_batch, refuses_what_makes_no_sense) {
  using T = typename TestFixture::T;
  batch<T> A = random_batch<T>(6, 4, 3, 1), C = random_batch<T>(6, 2, 2, 1), B = random_batch<T>(6, 2, 3, 1);
  std::vector<T> tau(12), few(11);
  const run::settings how = this->how();
  EXPECT_THROW((void)geqrf(A.view(), few, how), invalid_argument_error);
  EXPECT_THROW((void)geqrf(A.view(), std::span<T>(A.data.data(), 12), how), invalid_argument_error);
  matrix_batch_view<T> same = A.view();
  same.stride = 0;
  EXPECT_THROW((void)geqrf(same, tau, how), invalid_argument_error);
  matrix_batch_view<T> none = A.view();
  none.count = 0;
  EXPECT_THROW((void)geqrf(none, std::span<T>(), how), invalid_argument_error);
  none = A.view();
  none.data = nullptr;
  EXPECT_THROW((void)geqrf(none, tau, how), invalid_argument_error);
  EXPECT_THROW((void)ormqr(side::left, transpose::no, std::as_const(A).view(), tau, C.view(), how), invalid_argument_error);
  EXPECT_THROW((void)gels(A.view(), C.view(), how), invalid_argument_error);
  EXPECT_THROW((void)gels(A.view(), A.view(), how), invalid_argument_error);
  EXPECT_THROW((void)orgqr(A.view(), few, how), invalid_argument_error);
  run::settings other = how;
  other.scheme = "qr_update";
  EXPECT_THROW((void)geqrf(A.view(), tau, other), unsupported_error);
  if (!this->on_cuda()) {
    EXPECT_THROW((void)enqueue_geqrf(A.view(), tau, how), unsupported_error);
  }
}

TEST(qr_batch_token, is_read_and_written) {
  const problem made = parse_token("qr_f32_m64_n32_b1000");
  EXPECT_EQ(made.batch, 1000);
  EXPECT_EQ(made.columns, 32);
  EXPECT_EQ(to_token(made), "qr_f32_m64_n32_b1000");
  EXPECT_EQ(parse_token("qr_f64_m64_n32").batch, 1);
  for (const char* wrong : {"qr_f32_m64_n32_b", "qr_f32_m64_n32_b0", "qr_f32_m64_n32_b-1", "qr_f32_m64_n32_b2x", "qr_f32_m64_n32b2"})
    EXPECT_THROW((void)parse_token(wrong), invalid_argument_error) << wrong;
}

#if defined(BALLAST_TEST_QR_ON_CUDA)

// Operands in device memory, on a stream, without waiting; in the caller's workspace.
TEST(qr_batch_on_a_stream, reports_when_it_is_asked) {
  const auto device = cuda::current_device();
  const index m = 20, n = 12, count = 5;
  const batch<double> A = random_batch<double>(m, n, count, 7);
  const factored_batch<double> expected = factor_each(A, {.backend = backend::cuda});
  const cuda::device_buffer there(device, 8 * m * n * count), scalars(device, 8 * n * count);
  const auto workspace = [](index rows, index columns, index batch, operation what) {
    return plan<double>({.rows = rows, .columns = columns, .batch = batch}, {.backend = backend::cuda}).workspace_bytes(what);
  };
  const std::int64_t bytes = workspace(m, n, count, operation::geqrf);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(workspace(m, n, count, operation::ormqr), bytes);
  EXPECT_EQ(workspace(m, n, count, operation::gels), bytes + 8 * n * count);
  EXPECT_EQ(workspace(300, 4, 1, operation::geqrf), 0);
  EXPECT_EQ(plan<double>({.rows = m, .columns = n, .batch = count}, {.backend = backend::cpu}).workspace_bytes(operation::geqrf), 0);
  const cuda::device_buffer memory(device, bytes);
  device->copy(there.data(), A.data.data(), there.bytes(), nullptr);
  const matrix_batch_view<double> view = batch_of(column_major(static_cast<double*>(there.data()), m, n), count);
  const std::span<double> tau(static_cast<double*>(scalars.data()), static_cast<std::size_t>(n * count));
  const std::span<std::byte> room(static_cast<std::byte*>(memory.data()), static_cast<std::size_t>(bytes));
  pending_report pending = enqueue_geqrf(view, tau, {.backend = backend::cuda, .workspace = room});
  const report seen = pending.get();
  EXPECT_EQ(seen.verdict, verdict::clean);
  EXPECT_EQ(seen.checks, 2u * count);
  EXPECT_EQ(seen.problem, "qr_f64_m20_n12_b5");
  EXPECT_EQ(std::memcmp(there.data(), expected.F.data.data(), there.bytes()), 0);
  EXPECT_THROW((void)enqueue_geqrf(view, tau, {.backend = backend::cuda, .workspace = room.first(256)}), invalid_argument_error);
  batch<double> host = A;
  EXPECT_THROW((void)enqueue_geqrf(host.view(), tau, {.backend = backend::cuda}), invalid_argument_error);
  const batch<double> large = random_batch<double>(300, 4, 1, 7);
  EXPECT_THROW(
      (void)enqueue_geqrf(batch_of(column_major(static_cast<double*>(there.data()), 300, 4), 1), tau.first(4), {.backend = backend::cuda}),
      unsupported_error);
  // gels, with a matrix without full rank that is known when the report is asked for.
  device->copy(there.data(), A.data.data(), there.bytes(), nullptr);
  device->zero(there.data(), 8 * m * n, nullptr);
  const cuda::device_buffer right(device, 8 * m * count);
  device->zero(right.data(), right.bytes(), nullptr);
  pending_report solved =
      enqueue_gels(view, batch_of(column_major(static_cast<double*>(right.data()), m, index{1}), count), {.backend = backend::cuda});
  EXPECT_THROW((void)solved.get(), rank_deficient_error);
}

// On a device without clusters the largest go one by one.
TEST(qr_batch_without_clusters, takes_every_size) {
  const auto before = cuda::overriding_device();
  cuda::override_device(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(4, 8)));
  const batch<float> A = random_batch<float>(20, 130, 2, 3);
  const factored_batch<float> made = factor_each(A, {.backend = backend::cuda});
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  EXPECT_LT(worst_of(A, made).residual, 10);
  cuda::forget_idle_states();
  cuda::override_device(before);
}

#endif

}  // namespace
}  // namespace ballast::qr
