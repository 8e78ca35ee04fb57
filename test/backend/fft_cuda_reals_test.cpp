// Real-to-real transforms in one pass on the emulator: every kind, precision and layout, and faults at every site.
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "backend/fft_cuda_any_checks.hpp"
#include "backend/fft_cuda_reals_cases.hpp"

namespace ballast::fft {
namespace {

class fft_cuda_reals : public testing::TestWithParam<std::size_t> {
 public:
  static void TearDownTestSuite() { expect_all_sites_struck(changed_, found_); }

 protected:
  inline static calls_of_site changed_, found_;

  static const any_case& which() { return reals_cases()[GetParam()]; }
};

TEST_P(fft_cuda_reals, are_right_on_the_host_and_on_the_device) { expect_right_on_the_host_and_on_the_device(which()); }
TEST_P(fft_cuda_reals, every_site) { strike_every_site(which(), changed_, found_); }

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_reals, testing::Range(std::size_t{0}, reals_cases().size()),
                         [](const auto& info) { return std::string(reals_cases()[info.param].name); });

}  // namespace
}  // namespace ballast::fft
