// Faults in QR with column pivoting and in least squares of any rank, of real and complex numbers: in norms, choices and the permutation,
// and at the sites of the factorization; repaired, told, or, without protection, in the output.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "support/qr_pivot_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_pivot_faults : public subjects::qr<Setting> {};
TYPED_SUITE(qr_pivot_faults, pivot_settings, test::setting_names);

const std::vector<inject::site> k_choice = {site::column_norm, site::pivot, site::permutation};

TYPED_TEST(qr_pivot_faults, every_fault_in_the_choice_is_repaired) {
  using T = typename TestFixture::T;
  const dense<T> A = any_random<T>(40, 24, 21), B = any_random<T>(40, 2, 22), low = low_rank<T>(40, 24, 9, 23);
  const pivoted<T> clean = factor_in_order(A, this->how());
  const solved<T> clean_x = solve(low, B, 1e-5, this->how());
  ASSERT_EQ(clean.seen.verdict, verdict::clean);
  ASSERT_EQ(clean_x.rank, 9);
  for (const inject::site where : k_choice) {
    int at_site = 0;
    for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
      // On the emulator a sample takes a third of the models, different ones at each site.
      if (this->which == backend::cuda && test::sampled() && !test::taken(static_cast<std::uint64_t>(where) + what, 3)) continue;
      const auto model = static_cast<inject::model>(what);
      int noticed = 0;
      // A seed that strikes the last step, which has one column to choose, changes nothing.
      const std::uint64_t seeds = std::max<std::uint64_t>(3, this->rounds(test::sampled() ? 6 : 20));
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const std::string name = fmt::format("{} {} seed {}", inject::row_of(where).name, inject::k_model_names[what], seed);
        const inject::plan faults({fault(where, model, seed)});
        const pivoted<T> struck = factor_in_order(A, this->how(), &faults);
        noticed += struck.seen.verdict == verdict::clean ? 0 : 1;
        if (struck.seen.verdict == verdict::uncorrectable) {
          EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(struck.seen);
          EXPECT_TRUE(std::equal(A.data(), A.data() + A.size(), struck.F.data())) << "A was not given back: " << name;
        } else {
          EXPECT_EQ(struck.pivots, clean.pivots) << name << to_json(struck.seen);
          EXPECT_LE(change(struck.F, clean.F), 300.0) << name;
        }
        const solved<T> x = solve(low, B, 1e-5, this->how(), &faults);
        if (x.seen.verdict == verdict::uncorrectable) {
          EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(x.seen);
        } else {
          EXPECT_EQ(x.rank, 9) << name;
          EXPECT_LE(change(x.X, clean_x.X), 3e4) << name << to_json(x.seen);
        }
      }
      at_site += noticed;
      if (where != site::column_norm) {
        EXPECT_GE(noticed, static_cast<int>(seeds) / 2) << inject::row_of(where).name << inject::k_model_names[what];
      }
    }
    EXPECT_GT(at_site, 0) << inject::row_of(where).name;
  }
}

TYPED_TEST(qr_pivot_faults, without_protection_a_fault_in_the_choice_reaches_the_output) {
  using T = typename TestFixture::T;
  const dense<T> A = any_random<T>(40, 24, 21);
  run::settings off = this->how(), detect = this->how();
  off.protection = protection::off;
  detect.protection = protection::detect;
  const pivoted<T> clean = factor_in_order(A, off);
  EXPECT_EQ(clean.seen.checks, 0u);
  for (const inject::site where : k_choice) {
    int reached = 0, seen = 0;
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      inject::request wanted = fault(where, where == site::column_norm ? inject::model::bit_flip : inject::model::random_value, seed);
      if (where == site::column_norm) wanted.bit = 62;  // a norm below 1 becomes the largest
      const inject::plan faults({wanted});
      const pivoted<T> struck = factor_in_order(A, off, &faults);
      EXPECT_EQ(struck.seen.verdict, verdict::clean);
      reached += struck.pivots != clean.pivots ? 1 : 0;
      const pivoted<T> told = factor_in_order(A, detect, &faults);
      seen += told.seen.verdict == verdict::uncorrectable ? 1 : 0;
      EXPECT_EQ(told.seen.verdict == verdict::uncorrectable, struck.pivots != clean.pivots) << inject::row_of(where).name << seed;
    }
    EXPECT_GE(reached, 5) << inject::row_of(where).name;
    EXPECT_GE(seen, 5) << inject::row_of(where).name;
  }
}

// The scheme for one matrix that is not named is the default. On the emulator qr_update takes its turn with complex numbers only.
template <class T>
std::vector<std::string> schemes_for(backend which) {
  if (which == backend::cuda && !is_complex<T>) return {""};
  return {"block_checksum", "qr_update"};
}

TYPED_TEST(qr_pivot_faults, faults_in_the_factorization_are_repaired) {
  using T = typename TestFixture::T;
  const dense<T> A = any_random<T>(40, 24, 21), B = any_random<T>(40, 2, 22), low = low_rank<T>(40, 24, 9, 23);
  for (const std::string& scheme : schemes_for<T>(this->which)) {
    const run::settings how = this->how(scheme);
    const pivoted<T> clean = factor_in_order(A, how);
    const solved<T> clean_x = solve(low, B, 1e-5, how);
    for (const inject::site where :
         {site::panel, site::reflector, site::tau, site::t, site::product, site::trailing, site::r, site::q, site::store, site::checksum}) {
      for (const auto model : {inject::model::bit_flip, inject::model::random_value, inject::model::nan}) {
        for (std::uint64_t seed = 0; seed < this->rounds(4); ++seed) {
          const std::string name = fmt::format("{} {} seed {}", scheme, inject::row_of(where).name, seed);
          const inject::plan faults({fault(where, model, seed)});
          const solved<T> x = solve(low, B, 1e-5, how, &faults);
          ASSERT_NE(x.seen.verdict, verdict::uncorrectable) << name << to_json(x.seen);
          EXPECT_EQ(x.rank, 9) << name;
          EXPECT_LE(change(x.X, clean_x.X), 3e4) << name << to_json(x.seen);
          // geqp3 in place does not reach these.
          if (where == site::q || where == site::store) continue;
          const pivoted<T> struck = factor_in_order(A, how, &faults);
          ASSERT_NE(struck.seen.verdict, verdict::uncorrectable) << name << to_json(struck.seen);
          EXPECT_EQ(struck.pivots, clean.pivots) << name;
          EXPECT_LE(change(struck.F, clean.F), 300.0 * 40) << name;
        }
      }
    }
  }
}

// Off: the solution is wrong, and nothing tells. Detect: a fault that changes the solution is told.
TYPED_TEST(qr_pivot_faults, without_protection_faults_in_the_factorization_reach_the_solution) {
  using T = typename TestFixture::T;
  const dense<T> B = any_random<T>(40, 2, 22), low = low_rank<T>(40, 24, 9, 23);
  for (const std::string& scheme : schemes_for<T>(this->which)) {
    run::settings off = this->how(scheme), detect = off;
    off.protection = protection::off;
    detect.protection = protection::detect;
    const solved<T> clean = solve(low, B, 1e-5, off);
    for (const inject::site where :
         {site::panel, site::reflector, site::tau, site::t, site::product, site::trailing, site::r, site::q, site::store}) {
      if (this->which == backend::cuda && scheme == "qr_update" && !test::taken(static_cast<std::uint64_t>(where), 3)) continue;
      // Most of QᴴB lies below the rows that the solution takes.
      int reached = 0;
      for (std::uint64_t seed = 0; seed < 60 && reached < 4; ++seed) {
        const inject::plan faults({fault(where, inject::model::random_value, seed)});
        const std::string name = fmt::format("{} {} seed {}", scheme, inject::row_of(where).name, seed);
        const solved<T> struck = solve(low, B, 1e-5, off, &faults);
        EXPECT_EQ(struck.seen.verdict, verdict::clean) << name;
        const bool wrong = struck.rank != clean.rank || !(change(struck.X, clean.X) <= 3e4);
        reached += wrong ? 1 : 0;
        if (wrong) {
          const solved<T> told = solve(low, B, 1e-5, detect, &faults);
          EXPECT_EQ(told.seen.verdict, verdict::uncorrectable) << name << to_json(told.seen);
        }
      }
      EXPECT_EQ(reached, 4) << scheme << " " << inject::row_of(where).name;
    }
  }
}

TYPED_TEST(qr_pivot_faults, a_cancelled_call_gives_its_arguments_back) {
  using T = typename TestFixture::T;
  const dense<T> A = any_random<T>(40, 24, 21);
  dense<T> F = A;
  std::vector<T> tau(24, T(7));
  std::vector<index> pivots(24, 5);
  call now;
  struct enough {};
  now.on_progress = [](const progress&) { throw enough(); };
  EXPECT_THROW((void)geqp3(F.view(), pivots, tau, this->how().where(), now), enough);
  EXPECT_TRUE(std::equal(A.data(), A.data() + A.size(), F.data()));
  EXPECT_EQ(tau, std::vector<T>(24, T(7)));
  EXPECT_EQ(pivots, std::vector<index>(24, 5));
}

}  // namespace
}  // namespace ballast::qr
