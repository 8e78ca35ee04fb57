// QR of complex matrices on cuda, on the emulator: faults at every site of every operation are repaired or reported, and without protection
// they reach the output. A fault strikes one component of a number.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "backend/qr_cuda_complex_cases.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/sites.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_cuda_complex_faults : public qr_cuda_complex<Setting> {};
TYPED_SUITE(qr_cuda_complex_faults, complex_on_cuda, test::number_names);

template <class S>
struct result {
  std::vector<S> numbers;
  ballast::report report;
};

template <class S>
struct subject {
  std::string name;
  std::vector<inject::site> sites;  // that this operation passes
  std::function<result<S>(const run::settings&)> run;
};

constexpr index k_count = 3;

template <class S>
matrix_batch_view<S> batch_in(std::vector<S>& memory, index m, index n) {
  return batch_of(column_major(memory.data(), m, n), k_count);
}

template <class S>
std::vector<S> numbers_of(index m, index n, std::uint64_t seed) {
  const dense<S> all = random_complex<S>(m, n * k_count, seed);
  return {all.data(), all.data() + all.size()};
}

template <class S>
result<S> factor_batch(std::vector<S> A, index m, index n, const run::settings& how) {
  std::vector<S> tau(place(std::min(m, n) * k_count));
  ballast::report seen = geqrf(batch_in(A, m, n), std::span<S>(tau), how);
  A.insert(A.end(), tau.begin(), tau.end());
  return {std::move(A), std::move(seen)};
}

// The operations on matrices of one panel (16 × 16, one warp), or of several (then without Q alone, which `gels` applies). C has as many
// columns as a team.
template <class S>
std::vector<subject<S>> subjects_of(index m, index n) {
  const index columns = m;
  const std::vector<S> A = numbers_of<S>(m, n, 31), wide = numbers_of<S>(n, m, 33), C = numbers_of<S>(m, columns, 32),
                       D = numbers_of<S>(columns, m, 34);
  const result<S> made = factor_batch<S>(A, m, n, {.backend = backend::cuda});
  const std::vector<S> F(made.numbers.begin(), made.numbers.begin() + m * n * k_count),
      tau(made.numbers.begin() + m * n * k_count, made.numbers.end());
  const std::string size = " " + std::to_string(m) + " × " + std::to_string(n);
  std::vector<subject<S>> all;
  const std::vector<inject::site> checks = {site::checksum, site::threshold, site::comparison};
  const auto with = [&](std::vector<inject::site> data) {
    data.insert(data.end(), checks.begin(), checks.end());
    return data;
  };
  all.push_back({"geqrf" + size, with({site::panel, site::reflector, site::tau, site::product, site::trailing, site::r}),
                 [=](const run::settings& how) { return factor_batch<S>(A, m, n, how); }});
  const auto apply = [=](side where, transpose op, const std::vector<S>& to) {
    return [=](const run::settings& how) {
      std::vector<S> X = to, V = F;
      const matrix_batch_view<S> Xs = where == side::left ? batch_in(X, m, columns) : batch_in(X, columns, m);
      ballast::report seen = ormqr(where, op, matrix_batch_view<const S>(batch_in(V, m, n)), std::span<const S>(tau), Xs, how);
      return result<S>{std::move(X), std::move(seen)};
    };
  };
  if (m == n) {
    all.push_back({"ormqr, left" + size, with({site::q, site::product}), apply(side::left, transpose::yes, C)});
    all.push_back({"ormqr, right" + size, with({site::q, site::product}), apply(side::right, transpose::no, D)});
    all.push_back({"orgqr" + size, with({site::q, site::product}), [=](const run::settings& how) {
                     std::vector<S> Q = F;
                     ballast::report seen = orgqr(batch_in(Q, m, n), std::span<const S>(tau), how);
                     return result<S>{std::move(Q), std::move(seen)};
                   }});
  }
  const auto solve = [=](const std::vector<S>& of, index rows, index across) {
    return [=](const run::settings& how) {
      std::vector<S> G = of, X = C;
      ballast::report seen = gels(batch_in(G, rows, across), batch_in(X, m, columns), how);
      return result<S>{std::move(X), std::move(seen)};
    };
  };
  if (m > n) {
    all.push_back({"gels" + size, with({site::panel, site::q, site::product}), solve(A, m, n)});
    all.push_back({"gels, wide" + size, with({site::panel, site::q, site::product}), solve(wide, n, m)});
  }
  return all;
}

template <class S>
inject::request fault_of(inject::site where, std::size_t model, std::uint64_t seed) {
  inject::request fault;
  fault.site = where;
  fault.model = static_cast<inject::model>(model);
  fault.seed = seed;
  // One of the exponent, for even seeds the highest, which makes a number near 1 huge, Inf or NaN.
  if (fault.model == inject::model::bit_flip || fault.model == inject::model::two_bits || fault.model == inject::model::vector_mask)
    fault.bit = (sizeof(S) == 8 ? 28 : 60) + (seed % 2 == 0 ? 2 : 0);
  return fault;
}

std::vector<std::pair<index, index>> struck_sizes() { return {{16, 16}, {32, 24}}; }

TYPED_TEST(qr_cuda_complex_faults, every_fault_at_every_site_is_repaired_or_reported) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : struck_sizes()) {
    for (const subject<S>& each : subjects_of<S>(m, n)) {
      run::settings how = this->how();
      how.throw_on_uncorrectable = false;
      const result<S> clean = each.run(how);
      ASSERT_EQ(clean.report.verdict, verdict::clean) << each.name;
      double norm = 0;
      for (const S& x : clean.numbers) norm = std::max(norm, std::abs(std::complex<double>(x)));
      for (const inject::site where : each.sites) {
        int repaired = 0;
        for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
          for (std::uint64_t seed = 0; seed < (test::sampled() ? 2u : 10u); ++seed) {
            const inject::plan faults({fault_of<S>(where, model, seed)});
            how.faults = &faults;
            const result<S> seen = each.run(how);
            const std::string what = each.name + " " + std::string(inject::row_of(where).name) + " " +
                                     std::string(inject::k_model_names[model]) + " " + std::to_string(seed);
            repaired += seen.report.verdict == verdict::recomputed;
            for (const event& e : seen.report.events) {
              EXPECT_GE(e.index, 0) << what;
              EXPECT_LT(e.index, k_count) << what;
            }
            if (seen.report.verdict == verdict::uncorrectable) {
              EXPECT_EQ(faults.requests().front().model, inject::model::stuck_at) << what << to_json(seen.report);
              continue;
            }
            double off = 0;
            for (std::size_t e = 0; e < clean.numbers.size(); ++e) {
              const double change = std::abs(std::complex<double>(seen.numbers[e]) - std::complex<double>(clean.numbers[e]));
              if (!(change <= off)) off = change;
            }
            EXPECT_LE(off, 2000 * this->u * norm) << what << to_json(seen.report);
          }
        }
        EXPECT_GT(repaired, 0) << each.name << " " << inject::row_of(where).name;
      }
    }
  }
}

// The detector's own test: without protection the same faults reach the output, and with `detect` they are reported.
TYPED_TEST(qr_cuda_complex_faults, without_protection_they_reach_the_output_and_detect_reports_them) {
  using S = typename TestFixture::S;
  for (const auto& [m, n] : struck_sizes()) {
    for (const subject<S>& each : subjects_of<S>(m, n)) {
      run::settings how = this->how();
      how.throw_on_uncorrectable = false;
      const result<S> clean = each.run(how);
      for (const inject::site where : each.sites) {
        if (inject::row_of(where).role != inject::site_role::data) continue;
        int wrong = 0, reported = 0;
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
          const inject::plan faults({fault_of<S>(where, 0, seed)});
          how.faults = &faults;
          how.protection = protection::off;
          const result<S> seen = each.run(how);
          EXPECT_EQ(seen.report.verdict, verdict::clean);
          wrong += std::memcmp(seen.numbers.data(), clean.numbers.data(), clean.numbers.size() * sizeof(S)) != 0;
          how.protection = protection::detect;
          reported += each.run(how).report.verdict == verdict::uncorrectable;
        }
        EXPECT_GT(wrong, 0) << each.name << " " << inject::row_of(where).name;
        EXPECT_GT(reported, 0) << each.name << " " << inject::row_of(where).name;
      }
    }
  }
}

// A wrong phase keeps lengths: the reflector that makes R's diagonal real is a rotation by a phase, and a struck one is another.
TYPED_TEST(qr_cuda_complex_faults, a_struck_phase_is_seen) {
  using S = typename TestFixture::S;
  const dense<S> A = complex_of_kind<S>("triangular", 12, 12, 5);
  const factored<S> clean = factor_in_place<S>(A, this->how());
  int repaired = 0;
  for (const inject::site where : {site::tau, site::r, site::panel}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      inject::request fault = fault_of<S>(where, 0, seed);
      fault.bit = sizeof(S) == 8 ? 20 : 49;  // the number stays near its size
      const inject::plan faults({fault});
      run::settings how = this->how();
      how.faults = &faults;
      const factored<S> seen = factor_in_place<S>(A, how);
      repaired += seen.report.verdict == verdict::recomputed;
      EXPECT_NE(seen.report.verdict, verdict::uncorrectable);
      EXPECT_LT(complex_ratios_of<S>(A, seen.F, seen.tau).residual, 10) << seed << to_json(seen.report);
      EXPECT_LT(complex_ratios_of<S>(A, seen.F, seen.tau).orthogonality, 10) << seed << to_json(seen.report);
    }
  }
  EXPECT_GT(repaired, 40);
}

// The single calls with faults in their own steps: copies on the host, and a solution that is not committed.
TYPED_TEST(qr_cuda_complex_faults, single_calls_are_repaired_or_keep_the_operands) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(24, 10, 7), B = random_complex<S>(24, 2, 8);
  dense<S> F = copy_of<S>(A), X = copy_of<S>(B);
  ASSERT_EQ(gels(F.view(), X.view(), this->how()).verdict, verdict::clean);
  int repaired = 0, lost = 0;
  for (const inject::site where : {site::store, site::panel, site::q, site::product, site::r}) {
    for (const inject::model model : {inject::model::bit_flip, inject::model::random_value, inject::model::stuck_at}) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const inject::plan faults({fault_of<S>(where, static_cast<std::size_t>(model), seed)});
        run::settings how = this->how();
        how.faults = &faults;
        how.throw_on_uncorrectable = false;
        dense<S> G = copy_of<S>(A), Y = copy_of<S>(B);
        const report seen = gels(G.view(), Y.view(), how);
        repaired += seen.verdict == verdict::recomputed;
        const bool kept = seen.verdict == verdict::uncorrectable;
        lost += kept;
        if (kept) {
          EXPECT_EQ(model, inject::model::stuck_at) << inject::row_of(where).name << seed;
        }
        const dense<S>&expected = kept ? A : F, &right = kept ? B : X;
        for (index i = 0; i < 24; ++i) {
          for (index j = 0; j < 10; ++j) ASSERT_LT(std::abs(G(i, j) - expected(i, j)), 1e4 * this->u) << inject::row_of(where).name << seed;
          for (index j = 0; j < 2; ++j) ASSERT_LT(std::abs(Y(i, j) - right(i, j)), 1e4 * this->u) << inject::row_of(where).name << seed;
        }
      }
    }
  }
  EXPECT_GT(repaired, 5);
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace ballast::qr
