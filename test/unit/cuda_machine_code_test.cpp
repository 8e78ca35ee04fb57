// Counts of loads in machine code, against kernels whose loads are known.
#include "cuda/jit/machine_code.hpp"

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "cuda/arch/checks.hpp"
#include "cuda/device/device.hpp"
#include "cuda/jit/embedded.hpp"
#include "cuda/jit/jit.hpp"
#include "cuda/jit/nvrtc.hpp"
#include "unit/cuda_jit_fixture.hpp"

namespace ballast::cuda {
namespace {

// The kernel with broken = 1 loads twice by one kind of load, which the assembler merges. So a count that misses loads, or a merger that it
// does not see, fails here.
TEST(cuda_machine_code, has_the_loads_of_both_readings) {
  BALLAST_NEED_NVRTC();
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    for (const auto& [type, bytes] : {std::pair{"float", 4}, std::pair{"double", 8}, std::pair{"float4", 16}}) {
      const auto verdict = [&](int broken, const least_loads& least) {
        const std::string expression = "ballast::arch::checks::twice_kernel<" + std::string(type) + ", " + std::to_string(broken) + ">";
        const kernel_request wanted{
            .header = "cuda/arch/checks.cuh", .expression = expression, .threads = 128, .shared = 128 * bytes, .loads = least};
        const nvrtc::result got = nvrtc::find(k_any)->compile(wanted.header, wanted.expression, architecture, embedded_sources());
        EXPECT_FALSE(count_loads(got.image, got.name + "x"));
        EXPECT_FALSE(count_loads(std::string_view(got.image).substr(0, got.image.size() / 2), got.name));
        return over_budget({.name = got.name, .code = got.image, .uses = got.uses}, wanted, typical_capabilities(architecture));
      };
      using arch::checks::k_twice_loads;
      EXPECT_EQ(verdict(0, {k_twice_loads, 2, 2}), "");
      EXPECT_EQ(verdict(0, {k_twice_loads + 1, 3, 3}),
                "5 loads from global memory of 6: some are merged, 2 loads evicted from L1 first of 3: some are merged, 2 loads from "
                "shared memory of 3: "
                "some are merged");
      EXPECT_EQ(verdict(1, {k_twice_loads, 2, 2}),
                "3 loads from global memory of 5: some are merged, 1 loads evicted from L1 first of 2: some are merged, 1 loads from "
                "shared memory of 2: "
                "some are merged");
    }
  }
  EXPECT_FALSE(count_loads("", "k"));
  EXPECT_FALSE(count_loads(".version 8.0", "k"));
}

}  // namespace
}  // namespace ballast::cuda
