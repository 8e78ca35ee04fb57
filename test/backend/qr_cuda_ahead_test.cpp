// Panels of the cuda backend that are begun before earlier panels were judged, on the emulator: faults that are found after two more panels
// were begun, in one panel and in neighbours; struck words of the gate and of the values that the host judges; with detection only; and in
// any order that the streams allow. The device has no clusters and little shared memory, so that all panels are tall and go ahead.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "qr/cuda/layout/kernel_args.hpp"
#include "qr/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/late_device.hpp"
#include "support/qr_on_device.hpp"
#include "support/reals.hpp"
#include "support/typed_suite.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

template <class T>
class panels_ahead : public testing::Test {
 protected:
  // So many rows that the last panel, too, is tall.
  static constexpr index m = 384, n = 186, width = 64, panels = 3;

  static std::shared_ptr<simt::emulated_device> small() {
    ballast::cuda::capabilities made = simt::emulated_capabilities(4, 8);
    made.shared_per_block = 50 << 10;
    return std::make_shared<simt::emulated_device>(made);
  }
  factored<T> run(const inject::plan* faults = nullptr, protection level = protection::correct, const char* scheme = "") const {
    return factor_in_place<T>(A_.view(), {.backend = backend::cuda, .threads = 1, .protection = level, .scheme = scheme, .faults = faults});
  }
  // A fault in panel k or, at a site of updates, in the update of its block by panel `by`.
  static inject::request in_panel(inject::site where, index k) {
    inject::request made = fault(where, inject::model::random_value, 3);
    made.interval = k * width + 5;
    return made;
  }
  static inject::request in_block(index k, index by) {
    inject::request made = fault(site::trailing, inject::model::random_value, 3);
    made.interval = by * panels - by * (by + 1) / 2 + k - by - 1;
    return made;
  }
  void expect_close(const factored<T>& made, const factored<T>& clean) const {
    EXPECT_LE(change(made.F, clean.F), 300.0 * m) << to_json(made.report);
    for (std::size_t j = 0; j < clean.tau.size(); ++j) EXPECT_NEAR(made.tau[j], clean.tau[j], 300 * m * abft::unit_roundoff<T>);
  }
  static void expect_the_bits(const factored<T>& made, const factored<T>& clean) {
    EXPECT_EQ(made.tau, clean.tau);
    EXPECT_EQ(std::memcmp(made.F.data(), clean.F.data(), clean.F.size() * sizeof(T)), 0) << to_json(made.report);
  }

  const matrix<T> A_ = random_matrix<T>(m, n, 31);
};
TYPED_SUITE(panels_ahead, test::reals, test::number_names);

// The fault in panel k is found after panels k + 1 and k + 2 were begun. These are begun again: the bad panel may have changed neither them
// nor later blocks. The verdict is that of a panel that is judged at once, and one attempt at the whole is enough.
TYPED_TEST(panels_ahead, a_fault_is_found_two_panels_later_and_repaired) {
  const auto device = std::make_shared<test::launch_recorder>(TestFixture::small());
  const device_for_a_test here(device);
  const factored<TypeParam> clean = this->run();
  ASSERT_EQ(clean.report.verdict, verdict::clean);
  ASSERT_EQ(device->of("small_t_kernel"), TestFixture::panels) << "each panel is made at once";
  const std::int64_t encodings = device->of("random_kernel"), all = device->of("scan_kernel");
  for (index k = 0; k < TestFixture::panels; ++k) {
    const index behind = std::min<index>(2, TestFixture::panels - 1 - k);
    for (const inject::site where : {site::tau, site::panel}) {
      SCOPED_TRACE(std::to_string(k) + " " + std::string(inject::row_of(where).name));
      device->launches.clear();
      const inject::plan faults({this->in_panel(where, k)});
      const factored<TypeParam> made = this->run(&faults);
      EXPECT_EQ(made.report.verdict, verdict::recomputed) << to_json(made.report);
      EXPECT_EQ(made.report.detected, 1u);
      this->expect_the_bits(made, clean);
      EXPECT_EQ(device->of("small_t_kernel"), TestFixture::panels + 1 + behind) << "itself and those that were begun behind it";
      EXPECT_EQ(device->of("scan_kernel"), all) << "nothing was scanned and encoded again";
      EXPECT_EQ(device->of("random_kernel"), 2 * encodings) << "weights of the checks were drawn again";
    }
    if (k == 0) continue;
    device->launches.clear();
    const inject::plan faults({this->in_block(k, k - 1)});
    const factored<TypeParam> made = this->run(&faults);
    SCOPED_TRACE(std::to_string(k) + " entry");
    EXPECT_EQ(made.report.verdict, verdict::corrected) << to_json(made.report);
    EXPECT_EQ(made.report.detected, 1u);
    this->expect_close(made, clean);
    EXPECT_EQ(device->of("small_t_kernel"), TestFixture::panels + 1 + behind);
  }
}

TYPED_TEST(panels_ahead, faults_in_neighbouring_panels_are_repaired_one_after_the_other) {
  const device_for_a_test here(TestFixture::small());
  const factored<TypeParam> clean = this->run();
  for (index k = 0; k + 2 < TestFixture::panels; ++k) {
    for (const index other : {k + 1, k + 2}) {
      SCOPED_TRACE(std::to_string(k) + " and " + std::to_string(other));
      const inject::plan panels({this->in_panel(site::tau, k), this->in_panel(site::panel, other)});
      const factored<TypeParam> both = this->run(&panels);
      // The second one strikes a block that is held back: the next one is made again from the input, another one's entry is repaired when
      // its turn comes.
      EXPECT_EQ(both.report.verdict, verdict::recomputed) << to_json(both.report);
      EXPECT_EQ(both.report.detected, other == k + 1 ? 1u : 2u);
      this->expect_close(both, clean);
      const inject::plan mixed({this->in_panel(site::tau, k), this->in_block(other, k)});
      const factored<TypeParam> made = this->run(&mixed);
      EXPECT_NE(made.report.verdict, verdict::clean);
      EXPECT_NE(made.report.verdict, verdict::uncorrectable) << to_json(made.report);
      this->expect_close(made, clean);
    }
  }
}

TYPED_TEST(panels_ahead, without_protection_faults_reach_the_output_and_detection_reports_them) {
  const device_for_a_test here(TestFixture::small());
  const factored<TypeParam> clean = this->run(nullptr, protection::off);
  for (const inject::request& each : {this->in_panel(site::tau, 1), this->in_panel(site::panel, 2), this->in_block(2, 0)}) {
    const inject::plan faults({each});
    const factored<TypeParam> unseen = this->run(&faults, protection::off), seen = this->run(&faults, protection::detect);
    EXPECT_EQ(unseen.report.verdict, verdict::clean);
    EXPECT_TRUE(!(change(unseen.F, clean.F) <= 1e4) || unseen.tau != clean.tau);
    EXPECT_EQ(seen.report.verdict, verdict::uncorrectable) << to_json(seen.report);
    this->expect_the_bits(seen, unseen);
  }
}

// A word of the gate that is struck while it is open holds panels back, which are then made one after the other.
TYPED_TEST(panels_ahead, a_gate_that_is_struck_holds_back_and_lets_nothing_wrong_through) {
  using T = TypeParam;
  using namespace cuda;
  const auto device = std::make_shared<struck_device>(TestFixture::small());
  const device_for_a_test here(device);
  const factored<T> clean = this->run();
  const auto close = [&](const panel_gate* gate, bool first) {
    device->set(first ? &gate->closed : &gate->closed_too, std::uint32_t{1} << 17);
  };
  std::uint64_t number = 0;  // a sample in double takes one strike in two
  for (const bool first : {true, false}) {
    for (const std::int64_t k : {1, 2}) {
      if (first != (k == 1)) continue;
      const std::vector<struck_device::strike> each = {
          {"small_factor_kernel", k, [&](const void* a) { close(static_cast<const small_factor_arguments*>(a)->gate, first); }},
          {"small_t_kernel", k, [&](const void* a) { close(static_cast<const small_t_arguments<T>*>(a)->gate, first); }},
          {"judge_kernel", k, [&](const void* a) { close(static_cast<const judge_arguments<T>*>(a)->gate, first); }},
          {"accept_kernel", k, [&](const void* a) { close(static_cast<const accept_arguments<T>*>(a)->gate, first); }},
          {"hold_kernel", k, [&](const void* a) { close(static_cast<const hold_arguments<T>*>(a)->gate, first); }}};
      for (const struck_device::strike& one : each) {
        if (sizeof(T) == 8 && !test::taken(number++, 2)) continue;
        SCOPED_TRACE(one.name + " " + std::to_string(k));
        device->strikes = {one};
        const factored<T> made = this->run();
        EXPECT_TRUE(device->strikes[0].met());
        // Before the panel is computed, and after hold_kernel, which holds the next one back, nothing was wrong.
        EXPECT_EQ(made.report.verdict,
                  one.name == "hold_kernel" || one.name == "small_factor_kernel" ? verdict::clean : verdict::recomputed)
            << to_json(made.report);
        this->expect_the_bits(made, clean);
      }
    }
  }
  // One word of a gate that a panel has closed is struck to be open: the other one holds.
  for (const bool word : {true, false}) {
    device->strikes = {{"small_t_kernel", 1, [&](const void* a) { device->alter(static_cast<const small_t_arguments<T>*>(a)->T, 0.5); }},
                       {"accept_kernel", 1, [&](const void* a) {
                          const panel_gate* const gate = static_cast<const accept_arguments<T>*>(a)->gate;
                          device->set(word ? &gate->closed : &gate->closed_too, std::uint32_t{0});
                        }}};
    const factored<T> made = this->run();
    EXPECT_EQ(made.report.verdict, verdict::recomputed);
    EXPECT_EQ(made.report.detected, 1u);
    this->expect_the_bits(made, clean);
  }
}

// Strikes the values that a panel leaves for the host: numbers become too large, numbers hide a fault, the words of the verdict change.
TYPED_TEST(panels_ahead, a_verdict_that_is_struck_on_its_way_to_the_host_spoils_nothing) {
  using T = TypeParam;
  using namespace cuda;
  const auto device = std::make_shared<struck_device>(TestFixture::small());
  const device_for_a_test here(device);
  const factored<T> clean = this->run();
  const auto record = [](const void* a) { return static_cast<const hold_arguments<T>*>(a)->record; };
  const double large = 1e30;
  std::uint64_t number = 0;  // a sample in double takes one strike in two
  const std::vector<std::function<void(const void*)>> good = {
      [&](const void* a) { device->set(&record(a)->entry, large); },
      [&](const void* a) { device->set(&record(a)->sums.data, std::numeric_limits<double>::quiet_NaN()); },
      [&](const void* a) { device->set(&record(a)->sums.reflectors, large); },
      [&](const void* a) { device->set(&record(a)->sums.orthogonality, large); },
      [&](const void* a) { device->set(&record(a)->held, std::uint32_t{1}); },
      [&](const void* a) { device->set(&record(a)->passed, std::uint32_t{0}); },
      [&](const void* a) { device->set(&record(a)->passed, std::uint32_t{1} << 9); }};
  for (const std::int64_t k : {1, 2}) {
    if (test::sampled() && k == 2) continue;
    for (const auto& each : good) {
      if (sizeof(T) == 8 && !test::taken(number++, 2)) continue;
      device->strikes = {{"hold_kernel", k, each}};
      const factored<T> made = this->run();
      EXPECT_TRUE(device->strikes[0].met());
      EXPECT_EQ(made.report.verdict, verdict::recomputed) << to_json(made.report);
      this->expect_the_bits(made, clean);
    }
  }
  // After a fault in T, or in the block.
  const std::vector<std::function<void(const void*)>> bad = {
      [&](const void* a) {
        device->set(&record(a)->sums, panel_result{0, 1, 0, 0});
      },
      [&](const void* a) { device->set(&record(a)->entry, 0.0); },
      [&](const void* a) { device->set(&record(a)->held, std::uint32_t{0}); },
      [&](const void* a) { device->set(&record(a)->passed, std::uint32_t{1}); },
      [&](const void* a) { device->set(&record(a)->cholesky_qr.stage, int{k_cholesky_qr_failed}); },
      [&](const void* a) { device->set(&record(a)->cholesky_qr.stage, int{k_cholesky_qr_orthonormal}); }};
  for (const std::int64_t k : {1, 2}) {
    if (test::sampled() && k == 1) continue;
    for (const auto& each : bad) {
      if (sizeof(T) == 8 && !test::taken(number++, 2)) continue;
      device->strikes = {{"small_t_kernel", k, [&](const void* a) { device->alter(static_cast<const small_t_arguments<T>*>(a)->T, 0.5); }},
                         {"hold_kernel", k, each}};
      const factored<T> made = this->run();
      EXPECT_EQ(made.report.verdict, verdict::recomputed) << to_json(made.report);
      this->expect_the_bits(made, clean);
      const inject::plan faults({this->in_block(k, k - 1)});
      device->strikes = {{"hold_kernel", k, each}};
      const factored<T> struck = this->run(&faults);
      EXPECT_NE(struck.report.verdict, verdict::clean);
      EXPECT_NE(struck.report.verdict, verdict::uncorrectable) << to_json(struck.report);
      this->expect_close(struck, clean);
    }
  }
}

// A panel that needs a decision of the host is held back with all later work; from then on panels are judged at once.
TYPED_TEST(panels_ahead, a_panel_that_is_not_made_at_once_is_finished_by_the_host) {
  using T = TypeParam;
  const auto device = std::make_shared<test::launch_recorder>(TestFixture::small());
  const device_for_a_test here(device);
  for (const index bad : {0, 1}) {
    for (const bool zero : {false, true}) {
      if (sizeof(T) == 8 && test::sampled() && zero != (bad == 1)) continue;
      matrix<T> B = this->A_;
      // Columns that nearly depend on each other need one pass more; a column of zeros is left to reflectors one after the other.
      for (index j = 1; j < 20; ++j) {
        const double digits = sizeof(T) == 4 ? 1e-7 : 1e-12;
        for (index i = 0; i < TestFixture::m; ++i) {
          const double own = B(i, bad * TestFixture::width + j), first = B(i, bad * TestFixture::width);
          B(i, bad * TestFixture::width + j) = static_cast<T>(zero ? (j == 3 ? 0 : own) : first + digits * own);
        }
      }
      for (const protection level : {protection::off, protection::correct}) {
        SCOPED_TRACE(std::to_string(bad) + (zero ? " zero" : "") + (level == protection::off ? " off" : ""));
        device->launches.clear();
        const factored<T> made = factor_in_place<T>(B.view(), {.backend = backend::cuda, .threads = 1, .protection = level});
        EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
        EXPECT_GT(device->of("small_t_kernel"), TestFixture::panels + 1);
        const ratios seen = ratios_of<T>(B.view(), made.F.view(), made.tau);
        EXPECT_LT(seen.residual, 10);
        EXPECT_LT(seen.orthogonality, 10);
      }
    }
  }
}

TYPED_TEST(panels_ahead, any_order_that_the_streams_allow_gives_the_same) {
  using T = TypeParam;
  using test::late_device;
  using manner = late_device::manner;
  const std::vector<inject::plan> plans = {inject::plan(), inject::plan({this->in_panel(site::tau, 1), this->in_block(2, 0)}),
                                           inject::plan({this->in_block(2, 1), this->in_panel(site::panel, 0)})};
  std::vector<std::pair<manner, std::uint64_t>> orders = {
      {manner::one_last, 0}, {manner::one_last, 1}, {manner::one_last, 2}, {manner::awaited_first, 1}, {manner::any, 1}};
  if (test::sampled()) orders.resize(3);
  std::uint64_t number = 0;  // a sample in double takes one pair in two
  for (const char* scheme : {"block_checksum", "qr_update"}) {
    for (std::size_t p = 0; p < plans.size(); ++p) {
      if (sizeof(T) == 8 && !test::taken(number++, 2)) continue;
      const auto run = [&] { return this->run(p == 0 ? nullptr : &plans[p], protection::correct, scheme); };
      const factored<T> expected = [&] {
        const device_for_a_test here(TestFixture::small());
        return run();
      }();
      for (const auto& [how, seed] : orders) {
        const device_for_a_test here(std::make_shared<late_device>(TestFixture::small(), how, seed));
        SCOPED_TRACE(std::string(scheme) + " plan " + std::to_string(p) + ", manner " + std::to_string(static_cast<int>(how)));
        expect_the_same(run(), expected);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::qr
