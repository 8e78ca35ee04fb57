// The schemes qr_update and hybrid for complex matrices on cuda, on the emulator: recovery in several blocks of rotations and one rotation
// after the other, panels on the host, and faults in what travels between host and device. Small matrices by qr_update: qr_complex_test.cpp
// and its faults.
#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "inject/sites.hpp"
#include "qr/cuda/engine/recovery.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/effort.hpp"
#include "support/qr_complex_subject.hpp"
#include "support/qr_on_device.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class Setting>
class qr_cuda_complex_schemes : public qr_complex<Setting> {
 protected:
  using S = typename Setting::real;
  // Factors A by the scheme; protection `off` with faults shows what they do.
  static factored<S> run(const dense<S>& A, const char* scheme, const inject::plan* faults = nullptr,
                         protection level = protection::correct) {
    return factor_in_place<S>(A.view(), {.backend = backend::cuda, .threads = 2, .protection = level, .scheme = scheme, .faults = faults});
  }
  // Blocks of rotations are narrower than a matrix of some hundred columns there.
  static std::shared_ptr<ballast::cuda::device> with_narrow_blocks() {
    ballast::cuda::capabilities small = simt::emulated_capabilities();
    small.shared_per_block = 50 << 10;
    return std::make_shared<simt::emulated_device>(small);
  }
  static void expect_right(const dense<S>& A, const factored<S>& made, double limit, const std::string& name) {
    const ratios seen = complex_ratios_of<S>(A, made.F, made.tau);
    EXPECT_LT(seen.residual, limit) << name;
    EXPECT_LT(seen.orthogonality, limit) << name;
    for (index j = 0; j < std::min(A.rows(), A.columns()); ++j) EXPECT_EQ(made.F(j, j).imag(), 0) << name << ", " << j;
  }
};

TYPED_SUITE(qr_cuda_complex_schemes, complex_settings, test::setting_names);

constexpr const char* k_schemes[] = {"qr_update", "hybrid"};

TYPED_TEST(qr_cuda_complex_schemes, both_factor_every_shape_as_the_reference_does) {
  using S = typename TestFixture::S;
  // One panel, two, three with a narrow last one, panels of 64, blocks that never become panels.
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{1, 1}, {40, 1}, {90, 60}, {150, 140}, {60, 210}, {700, 70}}) {
    const dense<S> A = random_complex<S>(m, n, static_cast<std::uint64_t>(m + n));
    const factored<S> host = factor_in_place<S>(A.view(), {.backend = backend::reference});
    for (const char* scheme : k_schemes) {
      const std::string name = fmt::format("{} {} × {}", scheme, m, n);
      const factored<S> made = this->run(A, scheme), off = this->run(A, scheme, nullptr, protection::off);
      EXPECT_EQ(made.report.verdict, verdict::clean) << name << to_json(made.report);
      EXPECT_EQ(made.report.scheme, scheme);
      EXPECT_EQ(made.report.backend, backend::cuda);
      EXPECT_GT(made.report.checks, 0u);
      EXPECT_EQ(off.report.checks, 0u);
      EXPECT_EQ(off.tau, made.tau) << name;
      EXPECT_TRUE(std::equal(off.F.data(), off.F.data() + off.F.size(), made.F.data())) << name << ": protection changes no bit";
      this->expect_right(A, made, 10, name);
      const double tolerance = 1000 * static_cast<double>(std::max(m, n)) * this->u;
      for (std::size_t j = 0; j < made.tau.size(); ++j) EXPECT_LT(std::abs(made.tau[j] - host.tau[j]), tolerance) << name;
    }
  }
}

TYPED_TEST(qr_cuda_complex_schemes, hybrid_takes_every_kind_of_data_without_alarm) {
  using S = typename TestFixture::S;
  std::uint64_t number = 0;
  for (const std::string& kind : k_kinds) {
    for (const auto& [m, n] : std::vector<std::pair<index, index>>{{70, 33}, {33, 70}, {40, 40}}) {
      if (!test::taken(number++, 3)) continue;
      const std::string name = fmt::format("{} {} × {}", kind, m, n);
      const dense<S> A = complex_of_kind<S>(kind, m, n, 5);
      const factored<S> made = this->run(A, "hybrid");
      EXPECT_EQ(made.report.verdict, verdict::clean) << name << to_json(made.report);
      EXPECT_EQ(made.report.detected, 0u) << name;
      this->expect_right(A, made, 10, name);
    }
  }
}

// A', R, lookahead columns and a column on its way to the host: the QR update makes the factors right, in LAPACK's storage.
TYPED_TEST(qr_cuda_complex_schemes, a_struck_column_is_recovered_by_several_blocks_of_rotations) {
  using S = typename TestFixture::S;
  const index n = 150;
  for (const index m : {n, n + 30}) {
    const device_for_a_test here(this->with_narrow_blocks());
    const dense<S> A = random_complex<S>(m, n, 3);
    for (const char* scheme : k_schemes) {
      const factored<S> clean = this->run(A, scheme);
      ASSERT_EQ(clean.report.verdict, verdict::clean);
      for (const inject::site where : {site::trailing, site::panel}) {
        int recovered = 0, reached = 0;
        // Inside a panel by Cholesky QR some strikes change numbers that a direct panel does not use: qr_cuda_complex_panels_test.cpp.
        const bool inside = where == site::panel && std::string_view(scheme) == "qr_update";
        // Not every column can be told from its neighbours: what is not located is computed again.
        for (std::uint64_t seed = 0; seed < 8 && recovered == 0; ++seed) {
          const std::string name = fmt::format("{} {} × {} {} seed {}", scheme, m, n, inject::row_of(where).name, seed);
          const inject::plan faults({fault(where, inject::model::random_value, seed)});
          const factored<S> struck = this->run(A, scheme, &faults);
          ASSERT_NE(struck.report.verdict, verdict::uncorrectable) << name << to_json(struck.report);
          EXPECT_LE(change(struck.F, clean.F), 3000.0 * static_cast<double>(m)) << name << to_json(struck.report);
          this->expect_right(A, struck, 30, name);
          const factored<S> off = this->run(A, scheme, &faults, protection::off);
          const bool changed = !(change(off.F, clean.F) <= 1e4);
          reached += changed ? 1 : 0;
          EXPECT_TRUE(changed || inside) << name << ": the fault reaches the output";
          if (struck.report.verdict != verdict::corrected) continue;
          // With qr_update a panel is struck on the device, where its reflectors are computed again.
          recovered += struck.report.events.at(0).site == "qr.r" ? 1 : 0;
        }
        EXPECT_GE(reached, 1) << scheme << " " << m;
        if (where == site::trailing || std::string_view(scheme) == "hybrid") {
          EXPECT_EQ(recovered, 1) << scheme << " " << m << " " << inject::row_of(where).name;
        }
      }
    }
  }
}

TYPED_TEST(qr_cuda_complex_schemes, every_fault_at_every_site_of_hybrid_is_repaired) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(40, 24, 4);
  const factored<S> clean = this->run(A, "hybrid");
  for (const inject::site where : sites("hybrid")) {
    const inject::site_row& row = inject::row_of(where);
    // These are reached by ormqr, orgqr and gels, whose steps are those of the other schemes.
    if (where == site::q || where == site::store) continue;
    int noticed = 0, reached = 0;
    for (std::size_t what = 0; what < inject::k_model_names.size(); ++what) {
      const auto model = static_cast<inject::model>(what);
      for (std::uint64_t seed = 0; seed < (test::sampled() ? 2u : 8u); ++seed) {
        const std::string name = fmt::format("{} {} seed {}", row.name, inject::k_model_names[what], seed);
        const inject::plan faults({fault(where, model, seed)});
        const factored<S> struck = this->run(A, "hybrid", &faults);
        noticed += struck.report.verdict == verdict::clean ? 0 : 1;
        if (struck.report.verdict == verdict::uncorrectable) {
          EXPECT_EQ(model, inject::model::stuck_at) << name << to_json(struck.report);
          EXPECT_TRUE(std::equal(A.data(), A.data() + A.size(), struck.F.data())) << "A was not given back: " << name;
          continue;
        }
        EXPECT_LE(change(struck.F, clean.F), 12000) << name << to_json(struck.report);
        if (row.role != inject::site_role::data) continue;
        const factored<S> off = this->run(A, "hybrid", &faults, protection::off);
        reached += !(change(off.F, clean.F) <= 12000) || off.tau != clean.tau ? 1 : 0;
      }
    }
    if (row.role == inject::site_role::data) {
      EXPECT_GT(noticed, 0) << row.name;
      EXPECT_GT(reached, 0) << row.name;
    }
  }
}

// The panel on its way to the host is data of A'; what comes back is compared to the bit.
TYPED_TEST(qr_cuda_complex_schemes, faults_in_both_transfers_are_repaired) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(40, 24, 4);
  const factored<S> clean = this->run(A, "hybrid");
  int arrived_wrong = 0, recovered = 0, reached = 0;
  const std::uint64_t seeds = test::sampled() ? 30 : 90;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    inject::request wanted = fault(site::transfer, inject::model::random_value, seed);
    if (seed % 3 == 2) {
      wanted.model = inject::model::bit_flip;
      wanted.bit = 0;  // below every threshold
    }
    const inject::plan faults({wanted});
    const factored<S> struck = this->run(A, "hybrid", &faults);
    ASSERT_NE(struck.report.verdict, verdict::uncorrectable) << to_json(struck.report);
    EXPECT_LE(change(struck.F, clean.F), 12000) << to_json(struck.report);
    for (const event& each : struck.report.events) {
      arrived_wrong += each.site == "qr.transfer" ? 1 : 0;
      recovered += each.site == "qr.r" ? 1 : 0;
    }
    const factored<S> off = this->run(A, "hybrid", &faults, protection::off);
    reached += !(change(off.F, clean.F) <= 12000) || off.tau != clean.tau ? 1 : 0;
  }
  EXPECT_GE(arrived_wrong, static_cast<int>(seeds) / 10);
  EXPECT_GE(recovered, static_cast<int>(seeds) / 15);
  EXPECT_GE(reached, static_cast<int>(seeds) / 4);
}

TYPED_TEST(qr_cuda_complex_schemes, two_faults_in_a_column_of_v_are_located_and_rebuilt) {
  using S = typename TestFixture::S;
  const dense<S> A = random_complex<S>(90, 20, 5);
  const factored<S> clean = this->run(A, "hybrid");
  int corrected = 0;
  for (std::uint64_t seed = 0; seed < 60 && corrected < 2; ++seed) {
    inject::request wanted = fault(site::reflector, inject::model::random_value, seed);
    wanted.interval = 15;
    wanted.count = 2;
    const inject::plan faults({wanted});
    const factored<S> struck = this->run(A, "hybrid", &faults);
    ASSERT_NE(struck.report.verdict, verdict::uncorrectable);
    EXPECT_LE(change(struck.F, clean.F), 1000);
    if (struck.report.verdict != verdict::corrected || struck.report.events.at(0).site != "qr.checkpoint") continue;
    EXPECT_EQ(struck.report.events[0].index, 15);
    ++corrected;
  }
  EXPECT_EQ(corrected, 2);
}

// Blocks of rotations, and one rotation after the other, do the same arithmetic.
TYPED_TEST(qr_cuda_complex_schemes, plain_and_blocked_rotations_agree) {
  using S = typename TestFixture::S;
  const device_for_a_test here(this->with_narrow_blocks());
  inject::active_injector injector(nullptr, site::table());
  const run::settings how{.backend = backend::cuda};
  run::recorder seen("qr", backend::cuda, "qr_update", how, injector);
  const context call{seen, injector, how, backend::cuda, 1};
  cuda::session<S> on(call);
  const index n = 200, count = n - 1, ld = n + 3;
  const dense<S> values = random_complex<S>(ld, n, 7);
  std::vector<S> Y(place(n));
  for (index i = 0; i < count; ++i) Y[place(i)] = i % 50 == 9 ? S(0) : values(n, i);
  std::vector<S> made[2];
  for (const bool plain : {false, true}) {
    const auto R = on.upload(values.data(), ld * n), y = on.upload(Y.data(), n), c = on.template allocate_of<S>(n),
               s = on.template allocate_of<S>(n);
    const auto of = [](const ballast::cuda::device_buffer& memory) { return static_cast<S*>(memory.data()); };
    cuda::reduce_hessenberg<S>(on, of(R), ld, count, n, of(y), of(c), of(s), plain);
    made[plain ? 1 : 0].assign(of(R), of(R) + ld * n);
    for (index i = 0; i < count; ++i) {
      EXPECT_EQ(of(y)[i], S(0));
      EXPECT_NEAR(square_of(of(c)[i]) + square_of(of(s)[i]), 1, 8 * this->u) << i;
    }
  }
  EXPECT_EQ(made[0], made[1]);
  // Rotations keep the norm of each column of the Hessenberg matrix.
  for (index j = 0; j < n; ++j) {
    double before = j < count ? square_of(Y[place(j)]) : 0, after = 0;
    for (index i = 0; i <= j; ++i) {
      before += square_of(values(i, j));
      after += square_of(made[0][place(i + j * ld)]);
    }
    EXPECT_NEAR(after / before, 1, 1000 * this->u);
  }
}

}  // namespace
}  // namespace ballast::qr
