// Checks that the instructions which cuda/arch wraps do what it says. The same checks run on the emulator and on a GPU.
// Layer: test.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"

namespace arch_checks {

// A kernel of cuda/arch/checks.cuh and its expected result.
struct check {
  ballast::cuda::kernel_request request;
  // Runs the kernel. Returns the first error, or empty if there is none. Throws the exceptions of the device.
  std::function<std::string(ballast::cuda::device& on, const ballast::cuda::kernel& kernel)> run;
};

// Returns the checks that a device of this compute capability can run.
std::vector<check> all(int major);

}  // namespace arch_checks
