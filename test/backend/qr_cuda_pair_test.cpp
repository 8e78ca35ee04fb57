// Blocks of the cuda backend that are updated with two panels at once, on the emulator: the results, faults in the two panels' updates and
// in V and T of the pair, and any order that the streams allow. The device has one multiprocessor, so that updates are long for it, no
// clusters, and little shared memory: all panels are tall and go ahead.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "inject/plan.hpp"
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

// 10 panels of 64 columns in 15 blocks: the first two pairs update the blocks from the fifth, and the seventh, on at once, the others do
// not. In floats the first pair has columns enough for products of TF32.
constexpr index k_rows = 640, k_columns = 960, k_width = 64, k_blocks = 15;

std::shared_ptr<simt::emulated_device> small() {
  ballast::cuda::capabilities made = simt::emulated_capabilities(1, 8);
  made.shared_per_block = 50 << 10;
  return std::make_shared<simt::emulated_device>(made);
}

// Strikes the off-diagonal part of a pair's T before the first product with it.
template <class T>
class wrong_pair final : public test::forwarding_device {
 public:
  using test::forwarding_device::forwarding_device;
  T value = 0;  // 0: nothing is struck
  std::int64_t struck = 0;
  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override {
    const ballast::cuda::kernel& made = inner_->load(wanted);
    if (wanted.expression.find("apply_t_kernel") != std::string::npos) apply_ts_.push_back(&made);
    return made;
  }
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto* const given = static_cast<const ballast::qr::cuda::apply_t_arguments<T>*>(arguments[0].data);
    if (value != 0 && std::ranges::find(apply_ts_, &which) != apply_ts_.end() && given->width == 2 * k_width && struck++ == 0) {
      inner_->synchronize(on);
      const_cast<T*>(given->T)[2 * k_width * k_width] += value;
    }
    inner_->launch(which, blocks, arguments, on);
  }

 private:
  std::vector<const ballast::cuda::kernel*> apply_ts_;
};

template <class T>
class panel_pairs : public testing::Test {
 protected:
  factored<T> run(const inject::plan* faults = nullptr, protection level = protection::correct) const {
    return factor_in_place<T>(A_.view(), {.backend = backend::cuda, .threads = 1, .protection = level, .faults = faults});
  }
  // Block b updated by panel by.
  static inject::request in_block(inject::site where, index b, index by) {
    inject::request made = fault(where, inject::model::random_value, 3);
    made.interval = by * k_blocks - by * (by + 1) / 2 + b - by - 1;
    return made;
  }
  const matrix<T> A_ = random_matrix<T>(k_rows, k_columns, 31);
};
TYPED_SUITE(panel_pairs, test::reals, test::number_names);

TYPED_TEST(panel_pairs, are_as_good_as_one_panel_after_the_other) {
  using T = TypeParam;
  const auto counted = std::make_shared<test::launch_recorder>(small());
  const device_for_a_test here(counted);
  const factored<T> made = this->run();
  EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
  const std::int64_t zeros = counted->zeros;
  const factored<T> alone = [&] {
    ballast::cuda::capabilities about = simt::emulated_capabilities(8, 8);
    about.shared_per_block = 50 << 10;
    const auto many = std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>(about));
    const device_for_a_test there(many);
    factored<T> one = this->run();
    EXPECT_EQ(zeros - many->zeros, 4) << "two pairs: V's and T's zeros";
    return one;
  }();
  EXPECT_LE(change(made.F, alone.F), 300.0 * k_rows);
  const factored<T> off = this->run(nullptr, protection::off);
  EXPECT_EQ(change(off.F, made.F), 0);
}

// Faults after the update by either panel and in VᵀC, in a block that both update at once.
TYPED_TEST(panel_pairs, what_is_struck_in_an_update_is_repaired) {
  using T = TypeParam;
  const device_for_a_test here(small());
  const factored<T> clean = this->run();
  std::uint64_t number = 0;
  for (const inject::site where : {site::trailing, site::product}) {
    for (const index by : {0, 1, 2, 3}) {
      if (!test::taken(number++, sizeof(T) == 4 ? 2 : 4)) continue;
      SCOPED_TRACE((where == site::product ? "product" : "update") + std::string(" by panel ") + std::to_string(by));
      const inject::plan plan({this->in_block(where, 12, by)});
      const factored<T> struck = this->run(&plan);
      EXPECT_TRUE(struck.report.verdict == verdict::corrected || struck.report.verdict == verdict::recomputed) << to_json(struck.report);
      EXPECT_LE(change(struck.F, clean.F), 300.0 * k_rows);
      EXPECT_GT(change(this->run(&plan, protection::off).F, clean.F), 300.0 * k_rows) << "the fault changes nothing: it proves nothing";
    }
  }
}

// T of a pair serves all far blocks and no checksum.
TYPED_TEST(panel_pairs, a_wrong_t_of_a_pair_is_repaired) {
  using T = TypeParam;
  const auto device = std::make_shared<wrong_pair<T>>(small());
  const device_for_a_test here(device);
  const factored<T> clean = this->run();
  for (const protection level : {protection::correct, protection::off}) {
    device->value = 0.5;
    device->struck = 0;
    const factored<T> struck = this->run(nullptr, level);
    ASSERT_GE(device->struck, 1);
    if (level == protection::off) {
      EXPECT_GT(change(struck.F, clean.F), 300.0 * k_rows) << "the fault changes nothing: it proves nothing";
    } else {
      EXPECT_EQ(struck.report.verdict, verdict::recomputed) << to_json(struck.report);
      EXPECT_LE(change(struck.F, clean.F), 300.0 * k_rows);
    }
  }
}

// With a fault in the second panel of a pair, which holds all later work, and with a fault after it.
TYPED_TEST(panel_pairs, any_order_of_streams_gives_the_same) {
  using test::late_device;
  using manner = late_device::manner;
  using T = TypeParam;
  inject::request in_panel = fault(site::tau, inject::model::random_value, 3);
  in_panel.interval = k_width + 5;
  const std::vector<inject::plan> plans = {inject::plan(), inject::plan({in_panel, this->in_block(site::trailing, 9, 3)})};
  // The streams of a call in the order in which they are made: the panels', the updates' beside them, the checks'.
  std::vector<std::pair<manner, std::uint64_t>> orders = {
      {manner::one_last, 0}, {manner::one_last, 1}, {manner::one_last, 2}, {manner::any, 1}};
  if (test::sampled()) orders.resize(sizeof(T) == 4 ? 2 : 3);
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const auto run = [&] { return this->run(p == 0 ? nullptr : &plans[p]); };
    const factored<T> expected = [&] {
      const device_for_a_test here(small());
      return run();
    }();
    for (const auto& [how, seed] : orders) {
      const device_for_a_test here(std::make_shared<late_device>(small(), how, seed));
      SCOPED_TRACE("plan " + std::to_string(p) + ", manner " + std::to_string(static_cast<int>(how)));
      expect_the_same(run(), expected);
    }
  }
}

}  // namespace
}  // namespace ballast::qr
