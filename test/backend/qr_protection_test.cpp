// Faults in QR on every backend, in one program on those of the host, in the other on cuda by the emulator: at every site, persistent ones,
// several at once, without protection, and no alarm on clean data.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "support/qr_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_protection : public qr<Setting> {
 protected:
  // On the emulator a sample in double takes a third of the models, different ones at each site.
  bool taken(inject::site where, std::size_t model) const {
    return this->which != backend::cuda || sizeof(typename qr<Setting>::T) == 4 ||
           test::taken(static_cast<std::uint64_t>(where) + model, 3);
  }
};
TYPED_SUITE(qr_protection, settings, test::setting_names);

TYPED_TEST(qr_protection, every_fault_at_every_site_is_repaired) {
  using T = typename TestFixture::T;
  std::vector<std::pair<index, index>> shapes = {{40, 24}, {20, 33}, {16, 7}};
  if (this->which == backend::cuda && test::sampled()) shapes.resize(1);
  for (const char* scheme : struck_schemes()) {
    for (const auto& [m, n] : shapes) {
      const dense<T> A = random_matrix<T>(m, n, 21);
      const everything<T> clean = compute<T>(A, this->how(scheme), nullptr);
      ASSERT_EQ(clean.seen.verdict, verdict::clean);
      const double limit = 300.0 * static_cast<double>(std::max(m, n));  // u; rebuilt elements are off by their block's rounding, times κ
      for (const inject::site where : sites(scheme)) {
        if (m < n && where == site::q) continue;  // compute() makes no Q then
        const inject::site_row& row = inject::row_of(where);
        for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
          if (!this->taken(where, what)) continue;
          const auto model = static_cast<inject::model>(what);
          for (std::uint64_t seed = 0; seed < this->rounds(test::sampled() ? 2 : 6); ++seed) {
            const std::string name = fmt::format("{} {} {} × {} {} {} seed {}", scheme, to_string(this->which), m, n, row.name,
                                                 inject::k_model_names[what], seed);
            const inject::plan faults({fault(where, model, seed)});
            const everything<T> struck = compute<T>(A, this->how(scheme), &faults);
            if (struck.seen.verdict == verdict::uncorrectable) {
              EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(struck.seen);
              continue;
            }
            const double off = std::max({change(struck.F, clean.F), clean.Q.size() != 0 ? change(struck.Q, clean.Q) : 0.0});
            EXPECT_LE(off, limit) << name << to_json(struck.seen);
            for (std::size_t j = 0; j < clean.tau.size(); ++j)
              EXPECT_NEAR(struck.tau[j], clean.tau[j], limit * abft::unit_roundoff<T>) << name;
            // A verdict of clean is right only for faults that change nothing to speak of (a zero that was zero, a struck NaN in a word
            // that is not used, …).
            if (struck.seen.verdict == verdict::clean && row.role != inject::site_role::checker) {
              EXPECT_LE(off, 300) << name;
            }
            if (row.role == inject::site_role::repair) {
              EXPECT_NE(struck.seen.verdict, verdict::clean) << name;
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(qr_protection, without_protection_the_same_faults_reach_the_output) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  for (const char* scheme : struck_schemes()) {
    run::settings how = this->how(scheme);
    how.protection = protection::off;
    const everything<T> clean = compute<T>(A, how, nullptr);
    EXPECT_EQ(clean.seen.checks, 0u);
    for (const inject::site where : sites(scheme)) {
      if (inject::row_of(where).role != inject::site_role::data) continue;
      for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
        if (!this->taken(where, what)) continue;
        int reached = 0;
        const std::uint64_t seeds = this->which == backend::cuda && test::sampled() ? 2 : 6;
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
          const inject::plan faults({fault(where, static_cast<inject::model>(what), seed)});
          const everything<T> struck = compute<T>(A, how, &faults);
          EXPECT_EQ(struck.seen.verdict, verdict::clean);
          if (!(change(struck.F, clean.F) <= 1e4) || !(change(struck.Q, clean.Q) <= 1e4) || struck.tau != clean.tau) ++reached;
        }
        EXPECT_GE(reached, static_cast<int>(seeds) - 1)
            << scheme << " " << inject::row_of(where).name << " " << inject::k_model_names[what];
      }
    }
  }
}

TYPED_TEST(qr_protection, detect_reports_and_repairs_nothing) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  for (const char* scheme : k_schemes) {
    run::settings how = this->how(scheme);
    how.protection = protection::detect;
    for (const inject::site where : {site::panel, site::reflector, site::tau, site::t, site::product, site::trailing, site::r}) {
      const inject::plan faults({fault(where, inject::model::random_value, 3)});
      how.faults = &faults;
      EXPECT_THROW((void)factor(matrix_view<const T>(A.view()), how), uncorrectable_error) << inject::row_of(where).name;
    }
  }
}

TYPED_TEST(qr_protection, many_faults_in_one_run_are_all_repaired) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(60, 45, 22);
  const everything<T> clean = compute<T>(A, this->how(), nullptr);
  for (std::uint64_t seed = 0; seed < this->rounds(20); ++seed) {
    inject::plan faults;
    for (const inject::site where : {site::trailing, site::product, site::r, site::reflector}) {
      inject::request each = fault(where, seed % 2 == 0 ? inject::model::random_value : inject::model::nan, seed);
      each.count = 2;
      faults.add(each);
    }
    const everything<T> struck = compute<T>(A, this->how(), &faults);
    ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
    EXPECT_NE(struck.seen.verdict, verdict::clean);
    EXPECT_LE(change(struck.F, clean.F), 3e4);
  }
}

// Paper §6: c₁, c₂, c₃ locate two faults in one column of V.
TYPED_TEST(qr_protection, two_faults_in_one_column_of_v_are_located_and_rebuilt) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(90, 20, 23);
  for (const char* scheme : k_schemes) {
    const everything<T> clean = compute<T>(A, this->how(scheme), nullptr);
    std::uint64_t corrected = 0;
    for (const inject::model what : {inject::model::random_value, inject::model::zero, inject::model::nan}) {
      for (std::uint64_t seed = 0; seed < this->rounds(60); ++seed) {
        inject::request wanted = fault(site::reflector, what, seed);
        wanted.interval = 15;  // a column of the second panel, which nothing follows: V is struck when it is used no more
        wanted.count = 2;
        const inject::plan faults({wanted});
        const everything<T> struck = compute<T>(A, this->how(scheme), &faults);
        ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
        EXPECT_LE(change(struck.F, clean.F), 1000);
        if (struck.seen.verdict == verdict::corrected && struck.seen.events.size() == 1 && struck.seen.events[0].site == "qr.checkpoint") {
          EXPECT_EQ(struck.seen.events[0].index, 15);
          ++corrected;
        }
      }
    }
    // Two thirds of the seeds put at least one of the two faults in before the panel is verified. With checksums of the whole matrix, which
    // the last panel updates, too, only those are located that strike V when all is done: both do in one of nine.
    EXPECT_GE(corrected, std::string_view(scheme) == "block_checksum" ? this->rounds(60) / 2 : this->rounds(60) / 12) << scheme;
  }
}

TYPED_TEST(qr_protection, a_persistent_fault_is_reported_and_the_input_comes_back) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(40, 24, 21);
  const inject::plan faults({fault(site::tau, inject::model::stuck_at, 1)});
  for (const order layout : {order::column_major, order::row_major}) {
    dense<T> F = copy_of<T>(A, layout);
    std::vector<T> tau(24, T(5));
    run::settings how = this->how();
    how.faults = &faults;
    int events = 0;
    how.on_event = [&](const event&) { ++events; };
    EXPECT_THROW((void)geqrf(F.view(), tau, how), uncorrectable_error);
    EXPECT_EQ(events, 1);
    EXPECT_EQ(tau, std::vector<T>(24, T(5)));
    for (index j = 0; j < 24; ++j) {
      for (index i = 0; i < 40; ++i) ASSERT_EQ(F(i, j), A(i, j));
    }
  }
}

TYPED_TEST(qr_protection, faults_in_least_squares_do_not_reach_the_coefficients) {
  using T = typename TestFixture::T;
  dense<double> A64, b64;
  longley(A64, b64);
  dense<T> A(16, 7, order::column_major), b(16, 1, order::column_major);
  for (index i = 0; i < 16; ++i) {
    b(i, 0) = static_cast<T>(b64(i, 0));
    for (index j = 0; j < 7; ++j)
      A(i, j) = static_cast<T>(j == 6 ? A64(i, j) - 1954 : A64(i, j));  // centred years: float can hold the problem
  }
  dense<T> F = copy_of<T>(A), clean = copy_of<T>(b);
  (void)gels(F.view(), clean.view(), this->how());
  for (const inject::site where : sites()) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const inject::plan faults({fault(where, inject::model::bit_flip, seed)});
      run::settings how = this->how();
      how.faults = &faults;
      dense<T> G = copy_of<T>(A), x = copy_of<T>(b);
      const report seen = gels(G.view(), x.view(), how);
      EXPECT_NE(seen.verdict, verdict::uncorrectable);
      for (index j = 0; j < 7; ++j)
        EXPECT_NEAR(x(j, 0) / clean(j, 0), 1, sizeof(T) == 4 ? 0.3 : 1e-8) << inject::row_of(where).name << " " << seed << to_json(seen);
    }
  }
}

// The floor: a change of one element of a block after an update by more than twice the threshold is always detected, for all kinds of data.
TYPED_TEST(qr_protection, nothing_above_the_floor_is_missed) {
  using T = typename TestFixture::T;
  for (const char* kind : {"normal", "columns 1e±12", "rows 1e±12", "hilbert", "low rank", "tiny"}) {
    const dense<T> A = matrix_of_kind<T>(kind, 40, 24, 31);
    const everything<T> clean = compute<T>(A, this->how(), nullptr);
    for (std::uint64_t seed = 0; seed < this->rounds(40); ++seed) {
      for (const inject::site where : {site::trailing, site::panel, site::r}) {
        inject::request wanted = fault(where, inject::model::bit_flip, seed);
        wanted.bit = -1;
        const inject::plan faults({wanted});
        const everything<T> struck = compute<T>(A, this->how(), &faults);
        ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
        const ratios seen = ratios_of<T>(A, struck.F, struck.tau);
        // 128 thresholds' worth of u‖A_j‖ in one element, over max(m, n) u.
        EXPECT_LT(seen.residual, 128 * std::sqrt(24.0) * 2 / 40 + 10) << kind << " " << inject::row_of(where).name << " " << seed;
        EXPECT_LT(seen.orthogonality, 128.0) << kind << " " << inject::row_of(where).name << " " << seed;
      }
    }
  }
}

TYPED_TEST(qr_protection, a_hundred_thousand_clean_intervals_raise_no_alarm) {
  using T = typename TestFixture::T;
  std::uint64_t checks = 0;
  // The checks are the driver's, the same for both backends; the plain loops only make them slower.
  const std::uint64_t wanted = (test::sampled() ? 10000 : 100000) / (this->which == backend::cpu    ? 1
                                                                     : this->which == backend::cuda ? 20
                                                                                                    : 10);
  for (std::uint64_t seed = 0; checks < wanted; ++seed) {
    const std::string& kind = k_kinds[seed % k_kinds.size()];
    const index m = 4 + static_cast<index>(seed * 13 % 61), n = 3 + static_cast<index>(seed * 7 % 53);
    run::settings how = this->how(seed % 5 == 4 ? k_schemes.back() : k_schemes.front());
    how.threads = 1;
    const dense<T> A = matrix_of_kind<T>(kind, m, n, seed);
    const everything<T> made = compute<T>(A, how, nullptr);
    ASSERT_EQ(made.seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(made.seen);
    checks += made.seen.checks;
  }
}

// Several blocks of right-hand sides, the last one narrower; Inf in one of them has no check and disturbs no other.
TYPED_TEST(qr_protection, many_right_hand_sides_are_solved_as_each_by_itself) {
  using T = typename TestFixture::T;
  const index k = 75;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{90, 70}, {70, 90}}) {
    const index most = std::max(m, n);
    const dense<T> A = random_matrix<T>(m, n, 3);
    dense<T> B = random_matrix<T>(most, k, 4);
    B(5, 40) = std::numeric_limits<T>::infinity();
    dense<T> F = copy_of<T>(A), X = copy_of<T>(B);
    const report seen = gels(F.view(), X.view(), this->how());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    for (const index c : {index{0}, index{37}, index{39}, index{41}, index{74}}) {
      dense<T> G = copy_of<T>(A), x(most, 1, order::column_major);
      for (index i = 0; i < most; ++i) x(i, 0) = B(i, c);
      (void)gels(G.view(), x.view(), this->how());
      double size = 0, off = 0;
      for (index i = 0; i < most; ++i) {
        size += std::pow(static_cast<double>(x(i, 0)), 2);
        off += std::pow(static_cast<double>(X(i, c)) - x(i, 0), 2);
      }
      // Another order of sums, times the condition.
      EXPECT_LE(std::sqrt(off), 2e4 * abft::unit_roundoff<T> * std::sqrt(size)) << m << " × " << n << " " << c;
    }
  }
}

// Mixed scales make products that underflow; numbers near overflow make solutions that are Inf or NaN: neither is a fault.
TYPED_TEST(qr_protection, least_squares_and_products_with_q_raise_no_alarm_on_clean_data) {
  using T = typename TestFixture::T;
  std::vector<std::string> kinds = k_kinds;
  kinds.insert(kinds.end(), {"elements 1e±30", "elements 1e±20", "near overflow", "near overflow"});
  const bool single = sizeof(T) == 4;
  const auto data = [&](const std::string& kind, index m, index n, std::uint64_t seed) {
    std::mt19937_64 bits(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    dense<T> A = matrix_of_kind<T>(kind, m, n, seed);
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) {
        if (kind == "elements 1e±30") A(i, j) = static_cast<T>(A(i, j) * std::pow(10.0, 30 * uniform(bits)));
        if (kind == "elements 1e±20") A(i, j) = static_cast<T>(A(i, j) * (uniform(bits) < 0 ? 1e-20 : 1e20));
        if (kind == "near overflow") A(i, j) = static_cast<T>(A(i, j) * (single ? 3e37 : 1e307));
      }
    }
    return A;
  };
  std::uint64_t checks = 0, solves = 0;
  // The checks are the driver's, the same for both backends; the plain loops only make them slower.
  const std::uint64_t wanted = (test::sampled() ? 10000 : 100000) / (this->which == backend::cpu    ? 1
                                                                     : this->which == backend::cuda ? 20
                                                                                                    : 10);
  for (std::uint64_t seed = 0; checks < wanted; ++seed) {
    const std::string& kind = kinds[seed % kinds.size()];
    const index m = 3 + static_cast<index>(seed * 13 % 41), n = 3 + static_cast<index>(seed * 7 % 43), most = std::max(m, n);
    run::settings how = this->how();
    how.threads = 1;
    dense<T> A = data(kind, m, n, seed), B = data(kind, most, 9, seed + 1);
    try {
      const report seen = gels(A.view(), B.view(), how);
      ASSERT_EQ(seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
      ASSERT_EQ(seen.detected, 0u) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
      checks += seen.checks;
      ++solves;
    } catch (const rank_deficient_error&) {
      // Some of these matrices have no full rank.
    }
    const dense<T> F = data(kind, m, n, seed + 2);
    const auto made = factor(F.view(), how);
    dense<T> C = data(kind, m, 20, seed + 3);
    const report seen = ormqr(side::left, seed % 2 == 0 ? transpose::yes : transpose::no,
                              made.storage.view().block(0, 0, m, std::min(m, n)), made.tau, C.view(), how);
    ASSERT_EQ(seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
    ASSERT_EQ(seen.detected, 0u) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
    checks += seen.checks;
  }
  EXPECT_GT(solves, wanted / 1000);
}

// The checks of a column do not depend on the others.
TYPED_TEST(qr_protection, a_column_of_nan_does_not_switch_off_the_checks_of_others) {
  using T = typename TestFixture::T;
  const dense<T> A = random_matrix<T>(60, 30, 3);
  const factored<T> made = factor_in_place<T>(A, this->how());
  dense<T> C0 = random_matrix<T>(60, 20, 4);
  for (index i = 0; i < 60; ++i) C0(i, 2) = std::numeric_limits<T>::quiet_NaN();
  C0(3, 17) = std::numeric_limits<T>::infinity();
  dense<T> clean = copy_of<T>(C0);
  const report first = ormqr(side::left, transpose::yes, made.F.view(), made.tau, clean.view(), this->how());
  EXPECT_EQ(first.verdict, verdict::clean);
  EXPECT_EQ(first.detected, 0u);
  int repaired = 0;
  for (const inject::site where : {site::product, site::q}) {
    for (std::uint64_t seed = 0; seed < this->rounds(40); ++seed) {
      const inject::plan faults({fault(where, inject::model::random_value, seed)});
      run::settings how = this->how();
      how.faults = &faults;
      dense<T> C = copy_of<T>(C0);
      const report seen = ormqr(side::left, transpose::yes, made.F.view(), made.tau, C.view(), how);
      repaired += seen.verdict == verdict::recomputed;
      for (index j = 0; j < 20; ++j) {
        for (index i = 0; i < 60; ++i) {
          if (std::isfinite(clean(i, j))) {
            ASSERT_NEAR(C(i, j), clean(i, j), 1000 * abft::unit_roundoff<T>) << j << " " << seed << to_json(seen);
          }
        }
      }
    }
  }
  EXPECT_GE(repaired, static_cast<int>(2 * this->rounds(40)) * 7 / 8);
}

}  // namespace
}  // namespace ballast::qr
