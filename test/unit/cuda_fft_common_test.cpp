// The lists of common problems and kernels, from which the bundle, the build-time check and the tuner start.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/jit/jit.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/tune/bundle_catalogue.hpp"
#include "fft/problem.hpp"

namespace ballast::fft::cuda {
namespace {

TEST(common_kernels, are_each_there_once_and_fit_on_the_device) {
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const auto on = ballast::cuda::typical_capabilities(architecture);
    const auto common = common_kernels(on);
    const auto checked = checked_kernels(on);
    EXPECT_GT(checked.size(), common.size());
    for (std::size_t i = 0; i < checked.size(); ++i) {
      EXPECT_LE(checked[i].shared, on.shared_per_block) << checked[i].expression;
      EXPECT_LE(checked[i].threads, 1024) << checked[i].expression;
      EXPECT_EQ(std::count(checked.begin(), checked.end(), checked[i]), 1) << checked[i].expression;
    }
    for (const auto& each : common) EXPECT_NE(std::ranges::find(checked, each), checked.end()) << each.expression;
  }
}

TEST(common_kernels, of_lines_that_are_read_twice_have_the_loads_of_both_readings) {
  int counted = 0;
  for (const auto& each : checked_kernels(ballast::cuda::typical_capabilities("sm_90a"))) {
    const bool twice =
        each.expression.find("check_form(1)") != std::string::npos || each.expression.find("check_form(5)") != std::string::npos;
    EXPECT_EQ(each.loads.streamed > 0, twice) << each.expression;
    counted += twice ? 1 : 0;
  }
  EXPECT_GT(counted, 100);
  // Eight numbers in one butterfly of a thread: both readings, and that of the norm; reals in pairs need mirror images as well.
  line_policy p{.check = check_form::verify_before_store, .length = 64, .threads = 8, .stages = 2, .radix = {8, 8}};
  EXPECT_EQ(p.streamed_loads(), 24);
  p.load = load_form::spectrum;
  EXPECT_EQ(p.streamed_loads(), 48);
  p.load = load_form::complex;
  p.check = check_form::begins;
  EXPECT_EQ(p.streamed_loads(), 16);
  p.check = check_form::ends;
  EXPECT_EQ(p.streamed_loads(), 0);
}

TEST(common_kernels, hold_what_a_plan_of_a_common_problem_loads) {
  const auto on = ballast::cuda::typical_capabilities("sm_90a");
  const auto common = common_kernels(on);
  for (const check_form check : {check_form::none, check_form::verify_before_store}) {
    for (const char* const problem : {"fft_c2c_f32_n65536_b256_fwd", "fft_c2c_f32_n1048576_b16_fwd"}) {
      const token what = parse_token(problem);
      schedule_request wanted{.shape = resolve(what.problem), .precision = precision::f32};
      wanted.check = check;
      const schedule made = make_schedule(wanted, on);
      EXPECT_EQ(made.passes.size(), what.problem.shape[0] == 65536 ? 1u : 2u);
      for (std::size_t i = 0; i < made.passes.size(); i += made.passes[i].pair ? 2 : 1)
        EXPECT_NE(std::ranges::find(common, kernel_for(made, i, false)), common.end());
    }
  }
}

TEST(common_problems, are_tokens) {
  for (const auto& list : {tuned_problems(), benchmark_problems()}) {
    for (const std::string& each : list) {
      const token what = parse_token(each);
      EXPECT_EQ(to_token(what.problem, what.direction), each);
    }
  }
}

}  // namespace
}  // namespace ballast::fft::cuda
