// The host side of the protected sum, and its tests on the emulated device: operands in host and device memory, a tuning line, a fault.
#include <gtest/gtest.h>

#include "cuda/call/device_call.hpp"
#include "cuda/jit/expression.hpp"
#include "cuda/memory/device_staging.hpp"
#include "cuda/tuning/tuning_table.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"
#include "simt/emulated_device.hpp"
#include "sum/sum.cuh"
#include "support/devices.hpp"

namespace ballast::sum {
namespace {
// "sum sm_90 4096 128 1.07": use 128 threads for rows of 4096 numbers; the gain over the rule is 1.07.
struct tuned {
  using key = std::pair<int, std::int64_t>;
  using value = std::pair<int, double>;
  static constexpr std::string_view algorithm = "sum", built_in = "sum sm_90 4096 128 1.07\n";
  static void read(std::istream& words, key& at, value& chosen) {
    std::string architecture;
    if (!(words >> architecture >> at.second >> chosen.first >> chosen.second)) throw cuda::unknown_tuning("ARCHITECTURE n threads gain");
    at.first = cuda::read_architecture(architecture) / 10;
  }
};

std::string expression(const policy& p, bool instrumented) {
  const auto text = cuda::policy_text(p, "ballast::sum::policy").add("threads", &policy::threads).add("check", &policy::check).text();
  return cuda::kernel_expression("ballast::sum::sum_kernel", {text}, instrumented);
}

report sums(const double* x, double* y, std::int64_t m, std::int64_t n, const run::settings& how) {
  const auto on = cuda::current_device();
  inject::active_injector injector(how.faults, "kmeans");
  run::recorder seen("sum_f64_m" + std::to_string(m) + "_n" + std::to_string(n), backend::cuda, "twice", how, injector);
  seen.runs_on(on->about().name);
  cuda::device_staging operands(on, how.stream);
  const cuda::device_call call(on, cuda::workspace_pool(on, cuda::k_ring_bytes).take(how.workspace, how.stream), injector, how.stream);
  const auto entry = cuda::tuning_entries<tuned>::installed().find({on->about().major, n});
  const policy chosen{.threads = entry ? entry->first : 256, .check = how.protection != protection::off};
  const std::int64_t shared = (3 * chosen.threads / 32 + 4) * 8;
  const cuda::kernel& kernel = on->load({"sum/sum.cuh", expression(chosen, call.instrumented()), chosen.threads, shared});
  const arguments given{static_cast<const double*>(operands.read(x, 8 * m * n)), static_cast<double*>(operands.write(y, 8 * m)),
                        call.events(), n, run::repeats_of(how.protection)};
  call.launch(kernel, m, given);
  seen.checked(static_cast<std::uint64_t>(m));
  seen.add(call.collect([](const cuda::device_event& e, cuda::event_log::entry& to) { to.site = "sum.row", to.index = e.index; }));
  if (!seen.uncorrectable()) operands.commit();
  return seen.finish();
}

// Registers the kernels with the emulator; on a GPU the run-time compiler generates them.
template <policy P, class Injector = inject::no_device_injector>
const bool k_compiled = simt::register_kernel(expression(P, Injector::enabled), sum_kernel<P, Injector>);

class sum : public testing::Test {
 protected:
  const bool compiled_ = k_compiled<policy{}> && k_compiled<policy{128}> && k_compiled<policy{}, inject::device_injector> &&
                         k_compiled<policy{256, false}, inject::device_injector>;
  const std::shared_ptr<simt::emulated_device> device_ = std::make_shared<simt::emulated_device>();
  const test::current_device_guard guard_{device_};
};

TEST_F(sum, of_integers_is_exact_wherever_they_lie) {
  for (const std::int64_t n : {1, 1000, 4096}) {  // 4096: the tuned policy
    const std::vector<double> x(static_cast<std::size_t>(5 * n), 3.0), right(5, 3.0 * static_cast<double>(n));
    std::vector<double> y(5);
    EXPECT_EQ(sums(x.data(), y.data(), 5, n, {}).verdict, verdict::clean);
    EXPECT_EQ(y, right);
    const cuda::device_buffer there(device_, 40 * n), result(device_, 40);
    device_->copy(there.data(), x.data(), there.bytes(), nullptr);
    EXPECT_EQ(sums(static_cast<double*>(there.data()), static_cast<double*>(result.data()), 5, n, {}).checks, 5);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), static_cast<double*>(result.data())));
  }
}

TEST_F(sum, a_fault_is_repaired_with_protection_and_reaches_the_output_without) {
  const inject::plan faults({inject::parse_request("site=kmeans.sum,model=bit_flip,bit=60,seed=1")});
  const std::vector<double> x(5000, 3.0), right(5, 3000.0);
  std::vector<double> y(5);
  const report seen = sums(x.data(), y.data(), 5, 1000, {.faults = &faults});
  EXPECT_EQ(y, right);
  EXPECT_EQ(seen.verdict, verdict::recomputed);
  EXPECT_EQ(seen.events.at(0).site, "sum.row");
  (void)sums(x.data(), y.data(), 5, 1000, {.protection = protection::off, .faults = &faults});
  EXPECT_NE(y, right);
}

}  // namespace
}  // namespace ballast::sum
