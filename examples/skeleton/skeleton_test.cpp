// The sum on every backend, cuda on the emulated device: exact sums, operands in host and device memory, faults at every site.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "simt/emulated_device.hpp"
#include "skeleton/cuda.hpp"
#include "skeleton/kernel.cuh"
#include "skeleton/plan.hpp"
#include "skeleton/sites.hpp"
#include "support/devices.hpp"

namespace ballast::skeleton {
namespace {

// Registers the kernels with the emulator; on a GPU the run-time compiler generates them.
template <policy P, class Injector>
const bool k_compiled = simt::register_kernel(request_of(P, Injector::enabled).expression, sum_kernel<P, Injector>);

class skeleton : public testing::TestWithParam<backend> {
 protected:
  // The sums of five rows of n threes.
  static report sum(std::int64_t n, std::vector<double>& y, execution where = {}, const call& now = {}) {
    const std::vector<double> x(static_cast<std::size_t>(5 * n), 3.0);
    y.assign(5, -1);
    where.backend = GetParam();
    return plan({5, n}, where).sum(x.data(), y.data(), now);
  }
  static std::vector<double> right(std::int64_t n) { return std::vector<double>(5, 3.0 * static_cast<double>(n)); }

  const bool compiled_ = k_compiled<policy{}, inject::no_device_injector> && k_compiled<policy{128}, inject::no_device_injector> &&
                         k_compiled<policy{}, inject::device_injector> && k_compiled<policy{256, false}, inject::device_injector>;
  const std::shared_ptr<simt::emulated_device> device_ = std::make_shared<simt::emulated_device>();
  const test::current_device_guard guard_{device_};
};

INSTANTIATE_TEST_SUITE_P(, skeleton, testing::Values(backend::reference, backend::cuda),
                         [](const auto& given) { return std::string(to_string(given.param)); });

TEST_P(skeleton, sums_of_integers_are_exact) {
  for (const std::int64_t n : {1, 1000, 4096}) {  // 4096: the tuned policy
    std::vector<double> y;
    const report seen = sum(n, y);
    EXPECT_EQ(y, right(n));
    EXPECT_EQ(seen.verdict, verdict::clean);
    EXPECT_EQ(seen.backend, GetParam());
    EXPECT_EQ(seen.checks, 5);
  }
}

TEST_P(skeleton, infinity_passes_through) {
  const double x[] = {1, std::numeric_limits<double>::infinity(), 2};
  double y = 0;
  EXPECT_EQ(plan({1, 3}, {.backend = GetParam()}).sum(x, &y).verdict, verdict::clean);
  EXPECT_EQ(y, x[1]);
}

TEST_P(skeleton, faults_are_repaired_with_protection_and_reach_the_output_without) {
  for (const inject::site_row& row : site::table().rows) {
    for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
      SCOPED_TRACE(std::string(row.name) + " " + std::string(inject::k_model_names[m]));
      const auto model = static_cast<inject::model>(m);
      const inject::plan faults({{.site = row.site, .model = model, .seed = 1, .bit = model == inject::model::stuck_at ? -1 : 62}});
      const inject::scope inside(&faults);
      std::vector<double> y;
      const report seen = sum(1000, y, {}, {.throw_on_uncorrectable = false});
      if (row.role == inject::site_role::data) {
        EXPECT_EQ(seen.verdict, model == inject::model::stuck_at ? verdict::uncorrectable : verdict::recomputed);
        EXPECT_EQ(seen.events.at(0).site, "skeleton.row");
      }
      EXPECT_TRUE(seen.verdict == verdict::uncorrectable || y == right(1000));
      if (row.role != inject::site_role::data) continue;
      (void)sum(1000, y, {.protection = protection::off});
      EXPECT_NE(y, right(1000));
    }
  }
}

TEST_P(skeleton, a_fault_that_stays_throws) {
  const inject::plan faults({inject::parse_request("site=skeleton.partial,model=stuck_at")});
  const inject::scope inside(&faults);
  std::vector<double> y;
  EXPECT_THROW((void)sum(1000, y), uncorrectable_error);
}

TEST(skeleton_plan, operands_may_lie_on_the_device) {
  const auto device = std::make_shared<simt::emulated_device>();
  const test::current_device_guard guard(device);
  const std::vector<double> x(5000, 3.0), right(5, 3000.0);
  const cuda::device_buffer there(device, 40000), result(device, 40);
  device->copy(there.data(), x.data(), there.bytes(), nullptr);
  const auto* const in = static_cast<const double*>(there.data());
  auto* const out = static_cast<double*>(result.data());
  EXPECT_EQ(plan({5, 1000}, {.backend = backend::cuda}).sum(in, out).checks, 5);
  EXPECT_TRUE(std::equal(right.begin(), right.end(), out));
}

TEST(skeleton_plan, tokens_name_problems) {
  const problem read = parse_token("skeleton_f64_m5_n1000");
  EXPECT_EQ(read.m, 5);
  EXPECT_EQ(read.n, 1000);
  EXPECT_EQ(to_token(read), "skeleton_f64_m5_n1000");
  for (const char* bad : {"", "skeleton", "skeleton_f64_m5", "skeleton_f64_m0_n1", "skeleton_f64_m5_n1000_"})
    EXPECT_THROW((void)parse_token(bad), invalid_argument_error) << bad;
  EXPECT_THROW(plan({0, 1}), invalid_argument_error);
  EXPECT_THROW(plan({1, 1}, {.backend = backend::cpu}), unsupported_error);
  EXPECT_THROW(plan({1, 1}, {.scheme = "thrice"}), unsupported_error);
}

}  // namespace
}  // namespace ballast::skeleton
