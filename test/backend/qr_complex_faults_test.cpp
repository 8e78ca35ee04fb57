// Faults in QR of complex matrices on the host's backends, and in another program by the engine of cuda (BALLAST_TEST_QR_ON_CUDA): at every
// site, with both schemes, persistent ones, several at once, without protection, in least squares and in batches; and no alarm on clean
// data. A fault strikes one component of a number.
#include <algorithm>
#include <cmath>
#include <iterator>
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
#include "support/effort.hpp"
#include "support/qr_complex_subject.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_complex_faults : public qr_complex<Setting> {};
TYPED_SUITE(qr_complex_faults, complex_settings, test::setting_names);

// The results of a user, with one plan of faults: the factors, Q, and C Qᴴ for a fixed C.
template <class S>
struct results {
  dense<S> F;
  std::vector<S> tau;
  dense<S> Q, C;
  report seen;
};

template <class S>
results<S> compute_all(const dense<S>& A, run::settings how, const inject::plan* faults) {
  how.faults = faults;
  how.throw_on_uncorrectable = false;
  auto made = factor(matrix_view<const S>(A.view()), how);
  results<S> all{std::move(made.storage), std::move(made.tau), {}, {}, made.report};
  if (all.seen.verdict == verdict::uncorrectable) return all;
  if (A.rows() >= A.columns()) {
    all.Q = copy_of<S>(all.F.view());
    all.seen.merge(orgqr(all.Q.view(), all.tau, how));
  }
  all.C = random_complex<S>(6, A.rows(), 99);
  all.seen.merge(ormqr(side::right, transpose::yes, matrix_view<const S>(all.F.view()), all.tau, all.C.view(), how));
  return all;
}

template <class S>
double worst_change(const results<S>& a, const results<S>& b) {
  double worst = change(a.F, b.F);
  for (const auto& [x, y] : {std::pair{&a.Q, &b.Q}, std::pair{&a.C, &b.C}}) {
    if (y->size() == 0) continue;
    const double here = x->size() == 0 ? std::numeric_limits<double>::quiet_NaN() : change(*x, *y);
    if (worst == worst && !(here <= worst)) worst = here;  // a NaN stays
  }
  return worst;
}

TYPED_TEST(qr_complex_faults, every_fault_at_every_site_is_repaired) {
  using S = typename TestFixture::S;
  for (const char* scheme : k_complex_schemes) {
    std::vector<std::pair<index, index>> shapes = {{40, 24}, {20, 33}, {16, 7}, {21, 21}};
    if (this->which == backend::cuda && test::sampled()) shapes.resize(scheme == k_complex_schemes[0] ? 2 : 1);
    for (const auto& [m, n] : shapes) {
      const dense<S> A = random_complex<S>(m, n, 21);
      const results<S> clean = compute_all<S>(A, this->how(scheme), nullptr);
      ASSERT_EQ(clean.seen.verdict, verdict::clean);
      // As for real matrices: rebuilt elements are off by their block's rounding, times κ. A square matrix has a larger one.
      const double limit = (m == n ? 3000.0 : 300.0) * static_cast<double>(std::max(m, n));
      for (const inject::site where : sites(scheme)) {
        const inject::site_row& row = inject::row_of(where);
        int struck_any = 0;
        for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
          const auto model = static_cast<inject::model>(what);
          for (std::uint64_t seed = 0; seed < this->seeds(test::sampled() ? 3 : 10); ++seed) {
            const std::string name = fmt::format("{} {} × {} {} {} seed {}", scheme, m, n, row.name, inject::k_model_names[what], seed);
            const inject::plan faults({fault(where, model, seed)});
            const results<S> struck = compute_all<S>(A, this->how(scheme), &faults);
            struck_any += struck.seen.verdict != verdict::clean;
            if (struck.seen.verdict == verdict::uncorrectable) {
              EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(struck.seen);
              continue;
            }
            const double off = worst_change(struck, clean);
            EXPECT_LE(off, limit) << name << to_json(struck.seen);
            for (std::size_t j = 0; j < clean.tau.size(); ++j) EXPECT_LE(std::abs(struck.tau[j] - clean.tau[j]), limit * this->u) << name;
            if (struck.seen.verdict == verdict::clean && row.role != inject::site_role::checker) {
              EXPECT_LE(off, 300) << name;
            }
            if (row.role == inject::site_role::repair) {
              EXPECT_NE(struck.seen.verdict, verdict::clean) << name;
            }
          }
        }
        // A struck comparison is repeated, and leaves the verdict clean.
        if (row.role != inject::site_role::checker) {
          EXPECT_GT(struck_any, 0) << scheme << " " << row.name;
        }
      }
    }
  }
}

TYPED_TEST(qr_complex_faults, without_protection_the_same_faults_reach_the_output) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(40, 24, 21);
  for (const char* scheme : k_complex_schemes) {
    run::settings how = this->how(scheme);
    how.protection = protection::off;
    const results<S> clean = compute_all<S>(A, how, nullptr);
    EXPECT_EQ(clean.seen.checks, 0u);
    for (const inject::site where : sites(scheme)) {
      if (inject::row_of(where).role != inject::site_role::data) continue;
      // Without protection both schemes do the same arithmetic.
      if (this->which == backend::cuda && scheme != k_complex_schemes[0] && !test::taken(static_cast<std::uint64_t>(where), 3)) continue;
      for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
        int reached = 0;
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
          const inject::plan faults({fault(where, static_cast<inject::model>(what), seed)});
          const results<S> struck = compute_all<S>(A, how, &faults);
          EXPECT_EQ(struck.seen.verdict, verdict::clean);
          if (!(worst_change(struck, clean) <= 1e4) || struck.tau != clean.tau) ++reached;
        }
        EXPECT_GE(reached, 5) << scheme << " " << inject::row_of(where).name << " " << inject::k_model_names[what];
      }
    }
  }
}

TYPED_TEST(qr_complex_faults, detect_reports_and_repairs_nothing) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(40, 24, 21);
  for (const char* scheme : k_complex_schemes) {
    run::settings how = this->how(scheme);
    how.protection = protection::detect;
    for (const inject::site where : {site::panel, site::reflector, site::tau, site::t, site::product, site::trailing, site::r}) {
      const inject::plan faults({fault(where, inject::model::random_value, 3)});
      how.faults = &faults;
      EXPECT_THROW((void)factor(matrix_view<const S>(A.view()), how), uncorrectable_error) << inject::row_of(where).name;
    }
  }
}

TYPED_TEST(qr_complex_faults, many_faults_in_one_run_are_all_repaired) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(60, 45, 22);
  const results<S> clean = compute_all<S>(A, this->how(), nullptr);
  for (std::uint64_t seed = 0; seed < this->seeds(20); ++seed) {
    inject::plan faults;
    for (const inject::site where : {site::trailing, site::product, site::r, site::reflector}) {
      inject::request each = fault(where, seed % 2 == 0 ? inject::model::random_value : inject::model::nan, seed);
      each.count = 2;
      faults.add(each);
    }
    const results<S> struck = compute_all<S>(A, this->how(), &faults);
    ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
    EXPECT_NE(struck.seen.verdict, verdict::clean);
    EXPECT_LE(change(struck.F, clean.F), 3e4);
  }
}

// c₁, c₂, c₃ over the components locate two faults in one column of V.
TYPED_TEST(qr_complex_faults, two_faults_in_one_column_of_v_are_located_and_rebuilt) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(90, 20, 23);
  for (const char* scheme : k_complex_schemes) {
    const results<S> clean = compute_all<S>(A, this->how(scheme), nullptr);
    int corrected = 0;
    for (const inject::model what : {inject::model::random_value, inject::model::zero, inject::model::nan}) {
      const std::uint64_t seeds = this->seeds(60);
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        inject::request wanted = fault(site::reflector, what, seed);
        wanted.interval = 15;  // a column of the second panel, which nothing follows: V is struck when it is used no more
        wanted.count = 2;
        const inject::plan faults({wanted});
        const results<S> struck = compute_all<S>(A, this->how(scheme), &faults);
        ASSERT_NE(struck.seen.verdict, verdict::uncorrectable);
        EXPECT_LE(change(struck.F, clean.F), 1000);
        if (struck.seen.verdict == verdict::corrected && struck.seen.events.size() == 1 && struck.seen.events[0].site == "qr.checkpoint") {
          EXPECT_EQ(struck.seen.events[0].index, 15);
          ++corrected;
        }
      }
    }
    // The next test has qr_update on cuda: the update of the checksums takes V as it is stored, so both faults must come after it.
    if (this->which == backend::cuda && scheme != k_complex_schemes[0]) continue;
    EXPECT_GE(corrected, static_cast<int>(this->seeds(std::string_view(scheme) == "block_checksum" ? 30 : 5))) << scheme;
  }
}

// A seed draws when its fault strikes: before V is verified, before V is used for the last time, or after it. Those of the last kind are
// repaired alone; two of them are rebuilt, too, if they are NaN, which shows their rows. Some random values are so large that the sums
// have lost the other one.
TYPED_TEST(qr_complex_faults, two_faults_in_a_column_of_v_that_is_used_no_more_are_rebuilt_with_both_schemes) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(90, 20, 23);
  for (const char* scheme : k_complex_schemes) {
    if (this->which == backend::cuda && test::sampled() && scheme == k_complex_schemes[0]) continue;  // the test before has this one
    const results<S> clean = compute_all<S>(A, this->how(scheme), nullptr);
    for (const inject::model what : {inject::model::random_value, inject::model::nan}) {
      const auto wanted = [&](std::uint64_t seed) {
        inject::request made = fault(site::reflector, what, seed);
        made.interval = 15;  // a column of the last panel
        return made;
      };
      const auto rebuilt = [&](const inject::plan& faults) {
        const results<S> struck = compute_all<S>(A, this->how(scheme), &faults);
        EXPECT_LE(change(struck.F, clean.F), 1000) << scheme;
        return struck.seen.verdict == verdict::corrected && struck.seen.events.size() == 1 &&
               struck.seen.events[0].site == "qr.checkpoint" && struck.seen.events[0].index == 15;
      };
      std::vector<std::uint64_t> late;
      const std::uint64_t seeds = test::sampled() ? 12 : 30;
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        if (rebuilt(inject::plan({wanted(seed)}))) late.push_back(seed);
      }
      ASSERT_GE(late.size(), 2u) << scheme;
      std::size_t both = 0;
      for (std::size_t i = 0; i + 1 < late.size(); ++i) both += rebuilt(inject::plan({wanted(late[i]), wanted(late[i + 1])})) ? 1 : 0;
      if (what == inject::model::nan) {
        EXPECT_EQ(both, late.size() - 1) << scheme;
      } else {
        EXPECT_GE(3 * both, late.size() - 1) << scheme;
      }
    }
  }
}

TYPED_TEST(qr_complex_faults, a_column_is_recovered_by_rotations_and_keeps_a_real_diagonal) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{40, 24}, {24, 24}, {20, 33}, {3, 2}}) {
    const dense<S> A = random_complex<S>(m, n, 24);
    int corrected = 0;
    const std::uint64_t seeds = this->seeds(40);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const inject::plan faults({fault(site::trailing, inject::model::random_value, seed)});
      run::settings how = this->how("qr_update");
      how.faults = &faults;
      how.throw_on_uncorrectable = false;
      const auto made = factor(matrix_view<const S>(A.view()), how);
      ASSERT_NE(made.report.verdict, verdict::uncorrectable) << to_json(made.report);
      corrected += made.report.verdict == verdict::corrected;
      const ratios seen = complex_ratios_of<S>(A.view(), made.storage.view(), made.tau);
      EXPECT_LT(seen.residual, 30) << m << " × " << n << " " << seed;
      EXPECT_LT(seen.orthogonality, 30) << m << " × " << n << " " << seed;
      for (index j = 0; j < std::min(m, n); ++j) EXPECT_EQ(made.storage(j, j).imag(), 0) << m << " × " << n << " " << seed;
    }
    EXPECT_GT(corrected, static_cast<int>(seeds) * (m < 10 ? 5 : 25) / 40) << m << " × " << n;
  }
}

TYPED_TEST(qr_complex_faults, a_persistent_fault_is_reported_and_the_input_comes_back) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(40, 24, 21);
  const inject::plan faults({fault(site::tau, inject::model::stuck_at, 1)});
  for (const order layout : {order::column_major, order::row_major}) {
    dense<S> F = copy_of<S>(A, layout);
    std::vector<S> tau(24, S(5, 6));
    run::settings how = this->how();
    how.faults = &faults;
    int events = 0;
    how.on_event = [&](const event&) { ++events; };
    EXPECT_THROW((void)geqrf(F.view(), tau, how), uncorrectable_error);
    EXPECT_EQ(events, 1);
    EXPECT_EQ(tau, std::vector<S>(24, S(5, 6)));
    for (index j = 0; j < 24; ++j) {
      for (index i = 0; i < 40; ++i) ASSERT_EQ(F(i, j), A(i, j));
    }
  }
}

TYPED_TEST(qr_complex_faults, faults_in_least_squares_do_not_reach_the_solution) {
  using S = typename TestFixture::S;
  for (const char* scheme : k_complex_schemes) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{30, 12}, {12, 30}}) {
      const dense<S> A = random_complex<S>(m, n, 3), B = random_complex<S>(30, 3, 4);
      dense<S> F = copy_of<S>(A), clean = copy_of<S>(B);
      (void)gels(F.view(), clean.view(), this->how(scheme));
      for (const protection level : {protection::correct, protection::off}) {
        for (const inject::site where : sites(scheme)) {
          if (level == protection::off && where != site::store && where != site::q && where != site::trailing) continue;
          int reached = 0;
          const std::uint64_t seeds = this->seeds(12);
          for (std::uint64_t seed = 0; seed < seeds; ++seed) {
            const inject::plan faults({fault(where, seed % 2 == 0 ? inject::model::bit_flip : inject::model::random_value, seed)});
            run::settings how = this->how(scheme);
            how.faults = &faults;
            how.protection = level;
            how.throw_on_uncorrectable = false;
            dense<S> G = copy_of<S>(A), X = copy_of<S>(B);
            report seen;
            try {
              seen = gels(G.view(), X.view(), how);
            } catch (const rank_deficient_error&) {
              EXPECT_EQ(level, protection::off);
              ++reached;
              continue;
            }
            EXPECT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
            const double off = std::max(change(X, clean), change(G, F));
            reached += !(off <= 1e5);
          }
          if (level == protection::correct) {
            EXPECT_EQ(reached, 0) << scheme << " " << m << " × " << n << " " << inject::row_of(where).name;
          } else {
            EXPECT_GT(reached, static_cast<int>(seeds / 2)) << scheme << " " << m << " × " << n << " " << inject::row_of(where).name;
          }
        }
      }
    }
  }
}

// The floor: a change of one component of a block after an update by more than twice the threshold is always detected.
TYPED_TEST(qr_complex_faults, nothing_above_the_floor_is_missed) {
  using S = typename TestFixture::S;
  for (const char* kind : {"normal", "columns 1e±12", "rows 1e±12", "hilbert", "low rank", "tiny"}) {
    const dense<S> A = complex_of_kind<S>(kind, 40, 24, 31);
    for (std::uint64_t seed = 0; seed < this->seeds(test::sampled() ? 20 : 60); ++seed) {
      for (const inject::site where : {site::trailing, site::panel, site::r}) {
        inject::request wanted = fault(where, inject::model::bit_flip, seed);
        wanted.bit = -1;
        const inject::plan faults({wanted});
        run::settings how = this->how();
        how.faults = &faults;
        how.throw_on_uncorrectable = false;
        const auto made = factor(matrix_view<const S>(A.view()), how);
        ASSERT_NE(made.report.verdict, verdict::uncorrectable);
        const ratios seen = complex_ratios_of<S>(A.view(), made.storage.view(), made.tau);
        // As for real matrices: 128 thresholds' worth of u‖A_j‖ in one element, over max(m, n) u.
        EXPECT_LT(seen.residual, 128 * std::sqrt(24.0) * 2 / 40 + 10) << kind << " " << inject::row_of(where).name << " " << seed;
        EXPECT_LT(seen.orthogonality, 128.0) << kind << " " << inject::row_of(where).name << " " << seed;
      }
    }
  }
}

TYPED_TEST(qr_complex_faults, clean_data_raise_no_alarm) {
  using S = typename TestFixture::S;
  std::uint64_t checks = 0;
  const std::uint64_t wanted = (test::sampled() ? 10000 : 100000) / (this->which == backend::cpu    ? 1
                                                                     : this->which == backend::cuda ? 20
                                                                                                    : 10);
  for (std::uint64_t seed = 0; checks < wanted; ++seed) {
    const std::string& kind = k_kinds[seed % k_kinds.size()];
    const index m = 4 + static_cast<index>(seed * 13 % 61), n = 3 + static_cast<index>(seed * 7 % 53);
    run::settings how = this->how(k_complex_schemes[seed % 5 == 4 ? std::size(k_complex_schemes) - 1 : 0]);
    how.threads = 1;
    const dense<S> A = complex_of_kind<S>(kind, m, n, seed);
    const results<S> made = compute_all<S>(A, how, nullptr);
    ASSERT_EQ(made.seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(made.seen);
    checks += made.seen.checks;
    if (seed % 3 != 0) continue;
    how.full_rank = false;
    how.throw_on_uncorrectable = false;
    dense<S> F = copy_of<S>(A), B = complex_of_kind<S>(k_kinds[seed * 7 % k_kinds.size()], std::max(m, n), 3, seed + 5);
    try {
      const report seen = gels(F.view(), B.view(), how);
      ASSERT_EQ(seen.verdict, verdict::clean) << kind << " " << m << " × " << n << " " << seed << to_json(seen);
      checks += seen.checks;
    } catch (const rank_deficient_error&) {
    }
  }
}

#if !defined(BALLAST_TEST_QR_ON_CUDA)  // batches on cuda have kernels of their own: qr_cuda_complex_faults_test.cpp
// Every matrix of a batch is verified by itself.
TYPED_TEST(qr_complex_faults, faults_in_batches_stay_in_their_matrix_and_are_repaired) {
  using S = typename TestFixture::S;
  const index m = 24, n = 10, count = 6, k = 3;
  const dense<S> A = random_complex<S>(m, n * count, 51), B = random_complex<S>(m, k * count, 52);
  const auto compute = [&](protection level, const inject::plan* faults, report& seen) {
    run::settings how = this->how();
    how.protection = level;
    how.faults = faults;
    how.throw_on_uncorrectable = false;
    std::pair<dense<S>, dense<S>> made{copy_of<S>(A.view()), copy_of<S>(B.view())};
    std::vector<S> tau(place(n * count));
    const matrix_batch_view<S> Fs{made.first.data(), count, m, n, 1, m, m * n}, Xs{made.second.data(), count, m, k, 1, m, m * k};
    seen = geqrf(Fs, std::span<S>(tau), how);
    seen.merge(ormqr(side::left, transpose::yes, matrix_batch_view<const S>(Fs), std::span<const S>(tau), Xs, how));
    dense<S> G = copy_of<S>(A.view());
    seen.merge(gels(matrix_batch_view<S>{G.data(), count, m, n, 1, m, m * n}, Xs, how));
    return made;
  };
  report seen;
  const auto clean = compute(protection::correct, nullptr, seen);
  ASSERT_EQ(seen.verdict, verdict::clean);
  for (const inject::site where : {site::panel, site::reflector, site::tau, site::t, site::product, site::trailing, site::r, site::q}) {
    int noticed = 0, reached = 0;
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      const inject::plan faults({fault(where, seed % 2 == 0 ? inject::model::random_value : inject::model::bit_flip, seed)});
      const auto struck = compute(protection::correct, &faults, seen);
      ASSERT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
      noticed += seen.verdict != verdict::clean;
      EXPECT_LE(change(struck.first, clean.first), 300 * m) << inject::row_of(where).name << " " << seed;
      EXPECT_LE(change(struck.second, clean.second), 3000 * m) << inject::row_of(where).name << " " << seed;
      try {
        const auto open = compute(protection::off, &faults, seen);
        reached += !(change(open.first, clean.first) <= 1e4) || !(change(open.second, clean.second) <= 1e4);
      } catch (const rank_deficient_error&) {
        ++reached;
      }
    }
    // Half of the faults in T strike below its diagonal, where nothing reads it.
    EXPECT_GT(noticed, where == site::t ? 8 : 18) << inject::row_of(where).name;
    EXPECT_GT(reached, where == site::t ? 8 : 18) << inject::row_of(where).name;
  }
}

#endif

}  // namespace
}  // namespace ballast::qr
