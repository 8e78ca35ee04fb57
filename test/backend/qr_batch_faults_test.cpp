// Batches of small matrices on every backend: faults at every site are repaired or reported, with protection and without.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "backend/qr_batch_cases.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "support/effort.hpp"
#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using index = std::int64_t;
using namespace subjects;

TYPED_SUITE(qr_batch, settings, test::setting_names);

// The result of one operation on a batch, as bytes, and the report.
template <class T>
struct result {
  std::vector<T> numbers;
  ballast::report report;
};

template <class T>
struct subject {
  std::string name;
  std::vector<inject::site> sites;  // that this operation passes, on every backend
  std::function<result<T>(const run::settings&)> run;
};

// The operations on m × n matrices; `suffix`: of their names.
template <class T, index m, index n, index count>
void add_subjects(std::vector<subject<T>>& all, bool on_cuda, const char* suffix) {
  static const batch<T> A = random_batch<T>(m, n, count, 31), C = random_batch<T>(m, 8, count, 32);
  static const factored_batch<T> made = factor_each(A, {.backend = backend::reference});
  std::vector<inject::site> sites = {site::panel, site::reflector, site::tau,       site::product,   site::trailing,
                                     site::r,     site::checksum,  site::threshold, site::comparison};
  if (!on_cuda) sites.push_back(site::t);
  all.push_back({std::string("geqrf") + suffix, sites, [](const run::settings& how) {
                   factored_batch<T> f = factor_each(A, how);
                   f.F.data.insert(f.F.data.end(), f.tau.begin(), f.tau.end());
                   return result<T>{f.F.data, f.report};
                 }});
  sites = {site::q, site::product, site::checksum, site::threshold, site::comparison};
  all.push_back({std::string("ormqr") + suffix, sites, [](const run::settings& how) {
                   batch<T> X = C;
                   ballast::report seen = ormqr(side::left, transpose::yes, std::as_const(made.F).view(), made.tau, X.view(), how);
                   return result<T>{X.data, std::move(seen)};
                 }});
  all.push_back({std::string("orgqr") + suffix, sites, [](const run::settings& how) {
                   batch<T> Q = made.F;
                   ballast::report seen = orgqr(Q.view(), made.tau, how);
                   return result<T>{Q.data, std::move(seen)};
                 }});
  all.push_back({std::string("gels") + suffix,
                 {site::panel, site::q, site::product, site::checksum, site::threshold, site::comparison},
                 [](const run::settings& how) {
                   batch<T> F = A, X = C;
                   ballast::report seen = gels(F.view(), X.view(), how);
                   return result<T>{X.data, std::move(seen)};
                 }});
}

template <class T>
std::vector<subject<T>> subjects(bool on_cuda) {
  std::vector<subject<T>> all;
  add_subjects<T, 16, 16, 5>(all, on_cuda, "");
  // More rows than a team has. The other backends take these one by one.
  if (on_cuda) add_subjects<T, 270, 4, 2>(all, on_cuda, " of many rows");
  return all;
}

// A flipped bit: one of the exponent, for even seeds the highest, which makes a number near 1 huge, Inf or NaN.
template <class T>
inject::request request_of(inject::site where, std::size_t model, std::uint64_t seed) {
  inject::request fault;
  fault.site = where;
  fault.model = static_cast<inject::model>(model);
  fault.seed = seed;
  if (fault.model == inject::model::bit_flip || fault.model == inject::model::two_bits || fault.model == inject::model::vector_mask)
    fault.bit = (sizeof(T) == 4 ? 28 : 60) + (seed % 2 == 0 ? 2 : 0);
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
  for (const auto& [m, n] : {std::pair<index, index>(12, 12), {270, 4}}) {
    if (m > 256 && !this->on_cuda()) continue;  // one by one
    const batch<T> A = random_batch<T>(m, n, 6, 3);
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
        EXPECT_EQ(
            std::memcmp(seen.F.data.data() + b * m * n, expected.data.data() + b * m * n, static_cast<std::size_t>(m * n) * sizeof(T)), 0)
            << b << " of " << struck;
      }
      run::settings throws = this->how(&faults);
      throws.throw_on_uncorrectable = true;
      batch<T> F = A;
      std::vector<T> tau(static_cast<std::size_t>(6 * n));
      EXPECT_THROW((void)geqrf(F.view(), tau, throws), uncorrectable_error);
    }
    EXPECT_GT(met, 0) << m << " × " << n;
  }
}

}  // namespace
}  // namespace ballast::qr
