// The kernels of policies and schedules.
// Layer: fft/cuda, host.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/device/device.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// Returns the template instantiation of a policy; `instrumented`: the variant that accepts injected faults.
std::string kernel_expression(const line_policy& policy, bool instrumented);

ballast::cuda::kernel_request kernel_for(const line_policy& policy, bool instrumented);
ballast::cuda::kernel_request kernel_for_fused(const line_policy& first, const line_policy& second, bool instrumented);
// Returns the kernel of pass i, which also computes the next pass if both are one launch.
ballast::cuda::kernel_request kernel_for(const schedule& all, std::size_t i, bool instrumented);

}  // namespace ballast::fft::cuda
