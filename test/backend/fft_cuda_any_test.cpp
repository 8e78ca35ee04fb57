// The cuda backend on the emulator for problems of any rank, with any nest of loops and strides of every sign: accuracy, gaps, operands on
// the host and on the device, the caller's workspace, faults, and the numbers of signals in events.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_any_example.hpp"
#include "backend/fft_cuda_any_cases.hpp"
#include "backend/fft_cuda_any_checks.hpp"
#include "backend/fft_cuda_target.hpp"
#include "backend/fft_emulator.hpp"
#include "fft/sites.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

class fft_cuda_any : public testing::TestWithParam<std::size_t> {
 public:
  static void TearDownTestSuite() { expect_all_sites_struck(changed_, found_); }

 protected:
  inline static calls_of_site changed_, found_;

  static const any_case& which() { return any_cases()[GetParam()]; }
};

TEST_P(fft_cuda_any, is_right_on_the_host_and_on_the_device) { expect_right_on_the_host_and_on_the_device(which()); }
TEST_P(fft_cuda_any, every_site) { strike_every_site(which(), changed_, found_); }

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_any, testing::Range(std::size_t{0}, any_cases().size()),
                         [](const auto& info) { return std::string(any_cases()[info.param].name); });

TEST(fft_cuda_any_events, have_numbers_of_signals_of_every_loop) {
  const emulator device(machine::whole);
  const problem what = [] {
    for (const any_case& each : any_cases()) {
      if (std::string(each.name) == "loops_in_opposite_directions") return each.problem;
    }
    return problem{};
  }();
  const example<float> given(what, direction::inverse, 3);
  const plan made(what, on_cuda());
  std::set<std::int64_t> numbers;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    inject::request wanted;
    wanted.site = site::output;
    wanted.model = inject::model::bit_flip;
    wanted.bit = 30;
    wanted.seed = seed;
    const inject::plan faults({wanted});
    const inject::scope struck(&faults);
    std::vector<float> out = given.fresh();
    const report seen = given.run(made, given.in.data(), out.data());
    for (const event& each : seen.events) {
      EXPECT_GE(each.index, 0);
      EXPECT_LT(each.index, given.shape.signals());
      numbers.insert(each.index);
    }
  }
  // Signals of every loop are among them.
  EXPECT_GE(numbers.size(), 20U);
}

TEST(fft_cuda_any_refusals, say_what_was_expected) {
  const emulator device(machine::whole);
  const auto text_of = [](const problem& what, const std::string& scheme) -> std::string {
    execution where = on_cuda();
    where.scheme = scheme;
    try {
      const plan made(what, where);
    } catch (const unsupported_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(text_of({.kind = kind::r2r, .shape = {8}, .real_kinds = {real_kind::dct2}}, "one_sided")
                .find("scheme one_sided: expected complex data on one side, got a real-to-real transform"),
            std::string::npos);
  EXPECT_NE(text_of({.shape = {8}, .batch = 2, .input = {{-1}, 8}}, "one_sided").find("expected arrays that run forward"),
            std::string::npos);
}

}  // namespace
}  // namespace ballast::fft
