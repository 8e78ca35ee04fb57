// Do the instructions that cuda/arch wraps do what it says? The same checks on the emulator and on a GPU.
// Layer: test.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"

namespace arch_checks {

// A kernel of cuda/arch/checks.cuh, and what it should give.
struct check {
  ballast::cuda::kernel_request request;
  // Runs it; returns what is wrong, empty if nothing is. Throws what the device throws.
  std::function<std::string(ballast::cuda::device& on, const ballast::cuda::kernel& kernel)> run;
};

// Those that a device of this compute capability can run.
std::vector<check> all(int major);

}  // namespace arch_checks
