// The scheme hybrid on the emulator: panels on the host and all else on the device, what travels between them, recovery in several blocks
// of rotations and one rotation after the other, and waits that are left out.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "cuda/memory/shared_state.hpp"
#include "inject/plan.hpp"
#include "qr/cuda/engine/recovery.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/effort.hpp"
#include "support/late_device.hpp"
#include "support/qr_on_device.hpp"
#include "support/reals.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;
using test::late_device;
using manner = late_device::manner;

template <class T>
class qr_hybrid : public testing::Test {
 protected:
  static factored<T> run(const matrix<T>& A, const inject::plan* faults = nullptr, protection level = protection::correct) {
    return factor_in_place<T>(A.view(),
                              {.backend = backend::cuda, .threads = 2, .protection = level, .scheme = "hybrid", .faults = faults});
  }
  static inject::request at(inject::site where, std::uint64_t seed, inject::model what = inject::model::random_value) {
    inject::request made;
    made.site = where;
    made.model = what;
    made.seed = seed;
    return made;
  }
  // Blocks of rotations are narrower than the matrix there.
  static std::shared_ptr<ballast::cuda::device> with_narrow_blocks() {
    ballast::cuda::capabilities small = simt::emulated_capabilities();
    small.shared_per_block = 50 << 10;
    return std::make_shared<simt::emulated_device>(small);
  }
};
TYPED_SUITE(qr_hybrid, test::reals, test::number_names);

TYPED_TEST(qr_hybrid, agrees_with_the_cpu) {
  using T = TypeParam;
  // One panel, two, three with a narrow last one, panels of 64, blocks that never become panels.
  for (const auto& [m, n] :
       std::vector<std::pair<index, index>>{{1, 1}, {40, 1}, {90, 60}, {150, 140}, {230, 220}, {60, 210}, {1100, 70}}) {
    const matrix<T> A = random_matrix<T>(m, n, static_cast<std::uint64_t>(m + n));
    const factored<T> made = this->run(A), off = this->run(A, nullptr, protection::off);
    EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
    EXPECT_EQ(made.report.scheme, "hybrid");
    EXPECT_EQ(made.report.backend, backend::cuda);
    EXPECT_EQ(off.report.checks, 0u);
    EXPECT_EQ(std::memcmp(made.F.data(), off.F.data(), A.size() * sizeof(T)), 0) << "protection changes no bit";
    const factored<T> expected = factor_on(backend::cpu, A);
    const double tolerance = 500 * static_cast<double>(m) * abft::unit_roundoff<T>;
    for (std::size_t j = 0; j < made.tau.size(); ++j) ASSERT_NEAR(made.tau[j], expected.tau[j], tolerance) << m << " × " << n;
    for (std::size_t e = 0; e < A.size(); ++e)
      ASSERT_NEAR(made.F.data()[e], expected.F.data()[e], tolerance * std::sqrt(m)) << m << " × " << n;
  }
}

// A', R, lookahead columns and a column on its way to the host: the QR update makes the factors right, in LAPACK's storage.
TYPED_TEST(qr_hybrid, a_struck_column_is_recovered_by_the_qr_update) {
  using T = TypeParam;
  const index n = sizeof(T) == 4 ? 270 : 150;
  for (const index m : {n, n + 30}) {
    const device_for_a_test here(this->with_narrow_blocks());
    const matrix<T> A = random_matrix<T>(m, n, 3);
    const factored<T> clean = this->run(A);
    ASSERT_EQ(clean.report.verdict, verdict::clean);
    int recovered = 0;
    for (const inject::site where : {site::trailing, site::panel}) {
      // Not every column can be told from its neighbours: what is not located is computed again.
      for (std::uint64_t seed = 0; seed < 8 && recovered < (where == site::trailing ? 1 : 2); ++seed) {
        const inject::plan faults({this->at(where, seed)});
        const factored<T> struck = this->run(A, &faults);
        ASSERT_NE(struck.report.verdict, verdict::uncorrectable) << to_json(struck.report);
        EXPECT_LE(change(struck.F, clean.F), 300.0 * static_cast<double>(m)) << to_json(struck.report);
        const ratios seen = ratios_of<T>(A, struck.F, struck.tau);
        EXPECT_LT(seen.residual, 30);
        EXPECT_LT(seen.orthogonality, 30);
        if (struck.report.verdict != verdict::corrected) continue;
        ++recovered;
        EXPECT_EQ(struck.report.events.at(0).site, "qr.r");
      }
    }
    EXPECT_EQ(recovered, 2);
  }
}

// The panel on its way to the host is data of A'; what comes back is compared to the bit.
TYPED_TEST(qr_hybrid, faults_in_both_transfers_are_repaired) {
  using T = TypeParam;
  const matrix<T> A = random_matrix<T>(40, 24, 4);
  const factored<T> clean = this->run(A);
  int arrived_wrong = 0, recovered = 0, reached = 0;
  const std::uint64_t seeds = test::sampled() ? 30 : 90;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    inject::request wanted = this->at(site::transfer, seed);
    if (seed % 3 == 2) {
      wanted.model = inject::model::bit_flip;
      wanted.bit = 0;  // below every threshold
    }
    const inject::plan faults({wanted});
    const factored<T> struck = this->run(A, &faults);
    ASSERT_NE(struck.report.verdict, verdict::uncorrectable) << to_json(struck.report);
    EXPECT_LE(change(struck.F, clean.F), 12000) << to_json(struck.report);
    for (const event& each : struck.report.events) {
      arrived_wrong += each.site == "qr.transfer" ? 1 : 0;
      recovered += each.site == "qr.r" ? 1 : 0;
    }
    const factored<T> off = this->run(A, &faults, protection::off);
    reached += !(change(off.F, clean.F) <= 12000) || off.tau != clean.tau ? 1 : 0;
  }
  EXPECT_GE(arrived_wrong, static_cast<int>(seeds) / 10);
  EXPECT_GE(recovered, static_cast<int>(seeds) / 15);
  EXPECT_GE(reached, static_cast<int>(seeds) / 4);
}

TYPED_TEST(qr_hybrid, two_faults_in_a_column_of_v_are_located_and_rebuilt) {
  using T = TypeParam;
  const matrix<T> A = random_matrix<T>(90, 20, 5);
  const factored<T> clean = this->run(A);
  int corrected = 0;
  for (std::uint64_t seed = 0; seed < 60 && corrected < 2; ++seed) {
    inject::request wanted = this->at(site::reflector, seed);
    wanted.interval = 15;
    wanted.count = 2;
    const inject::plan faults({wanted});
    const factored<T> struck = this->run(A, &faults);
    ASSERT_NE(struck.report.verdict, verdict::uncorrectable);
    EXPECT_LE(change(struck.F, clean.F), 1000);
    if (struck.report.verdict != verdict::corrected || struck.report.events.at(0).site != "qr.checkpoint") continue;
    EXPECT_EQ(struck.report.events[0].index, 15);
    ++corrected;
  }
  EXPECT_EQ(corrected, 2);
}

TYPED_TEST(qr_hybrid, extreme_columns_and_lost_repair_give_the_input_back) {
  using T = TypeParam;
  matrix<T> A = random_matrix<T>(70, 50, 6);
  for (index i = 0; i < 70; ++i) A(i, 7) *= static_cast<T>(sizeof(T) == 4 ? 0x1p-60 : 0x1p-400);
  EXPECT_EQ(this->run(A).report.verdict, verdict::clean);
  const inject::plan faults({this->at(site::tau, 1, inject::model::stuck_at)});
  const factored<T> lost = this->run(A, &faults);
  EXPECT_EQ(lost.report.verdict, verdict::uncorrectable);
  EXPECT_EQ(std::memcmp(lost.F.data(), A.data(), A.size() * sizeof(T)), 0);
}

TYPED_TEST(qr_hybrid, nothing_is_left_but_what_is_kept) {
  using T = TypeParam;
  const auto device = std::make_shared<simt::emulated_device>();
  const device_for_a_test here(device);
  (void)this->run(random_matrix<T>(60, 40, 2));
  EXPECT_EQ(device->allocated(), 0);
  EXPECT_EQ(device->streams(), 8) << "those of a call on the device, and that of the copies, are kept for the next call";
  (void)this->run(random_matrix<T>(60, 40, 2));
  EXPECT_EQ(device->streams(), 8);
  ballast::cuda::forget_idle_states();
  EXPECT_EQ(device->streams(), 0);
  EXPECT_EQ(device->pinned(), 0);
}

// Blocks of rotations, and one rotation after the other, do the same arithmetic.
TYPED_TEST(qr_hybrid, plain_and_blocked_rotations_agree) {
  using T = TypeParam;
  const auto device = this->with_narrow_blocks();
  const device_for_a_test here(device);
  inject::active_injector injector(nullptr, site::table());
  const run::settings how{.backend = backend::cuda};
  run::recorder seen("qr", backend::cuda, "hybrid", how, injector);
  const context call{seen, injector, how, backend::cuda, 1};
  cuda::session<T> on(call);
  const index n = 300, count = n - 1, ld = n + 3;
  const matrix<T> values = random_matrix<T>(ld, n, 7);
  std::vector<T> Y(static_cast<std::size_t>(n));
  for (index i = 0; i < count; ++i) Y[static_cast<std::size_t>(i)] = i % 50 == 9 ? T(0) : values(n, i);
  std::vector<T> made[2];
  for (const bool plain : {false, true}) {
    const auto R = on.upload(values.data(), ld * n), y = on.upload(Y.data(), n), c = on.template allocate_of<T>(n),
               s = on.template allocate_of<T>(n);
    const auto of = [](const ballast::cuda::device_buffer& memory) { return static_cast<T*>(memory.data()); };
    cuda::reduce_hessenberg<T>(on, of(R), ld, count, n, of(y), of(c), of(s), plain);
    made[plain ? 1 : 0].assign(of(R), of(R) + ld * n);
    for (index i = 0; i < count; ++i) EXPECT_EQ(of(y)[i], T(0));
  }
  EXPECT_EQ(made[0], made[1]);
  // Rotations keep the norm of each column of the Hessenberg matrix.
  for (index j = 0; j < n; ++j) {
    double before = j < count ? std::pow(static_cast<double>(Y[static_cast<std::size_t>(j)]), 2) : 0, after = 0;
    for (index i = 0; i <= j; ++i) {
      before += std::pow(static_cast<double>(values(i, j)), 2);
      after += std::pow(static_cast<double>(made[0][static_cast<std::size_t>(i + j * ld)]), 2);
    }
    EXPECT_NEAR(after / before, 1, 1000 * abft::unit_roundoff<T>);
  }
}

// Every wait for an event, left out by itself without protection: a wait that orders what nothing else does must show in some order of
// completion. This is what the test of orders in qr_cuda_test.cpp is worth.
TYPED_TEST(qr_hybrid, a_wait_that_is_left_out_shows) {
  using T = TypeParam;
  const matrix<T> A = random_matrix<T>(100, 130, 8);
  for (const protection level : {protection::off, protection::correct}) {
    const factored<T> expected = this->run(A, nullptr, level);
    const auto differs = [&](std::int64_t left_out, manner how, std::int64_t* waits) {
      const auto device = std::make_shared<late_device>(std::make_shared<simt::emulated_device>(), how, 1);
      device->left_out = left_out;
      const device_for_a_test here(device);
      const factored<T> made = this->run(A, nullptr, level);
      if (waits != nullptr) *waits = device->waits();
      return made.tau != expected.tau || std::memcmp(made.F.data(), expected.F.data(), A.size() * sizeof(T)) != 0 ||
             made.report.verdict != expected.report.verdict;
    };
    std::int64_t waits = 0;
    EXPECT_FALSE(differs(-1, manner::others_first, &waits));
    EXPECT_FALSE(differs(-1, manner::awaited_first, nullptr));
    int shown = 0;
    for (std::int64_t w = 0; w < waits; ++w)
      shown += differs(w, manner::awaited_first, nullptr) || differs(w, manner::others_first, nullptr) ? 1 : 0;
    // Three panels and what follows: the update beside waits for V (fork) and the next panel's update for it (join), each time.
    EXPECT_GE(shown, 4) << "of " << waits;
  }
}

}  // namespace
}  // namespace ballast::qr
