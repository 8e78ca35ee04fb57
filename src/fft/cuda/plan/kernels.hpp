// The kernels that policies and schedules name.
// Layer: fft/cuda, host.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/device/device.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// The template instantiation that a policy names; `instrumented` for the kernel that can be injected into.
std::string kernel_expression(const line_policy& policy, bool instrumented);

ballast::cuda::kernel_request kernel_for(const line_policy& policy, bool instrumented);
ballast::cuda::kernel_request kernel_for_pair(const line_policy& first, const line_policy& second, bool instrumented);
// Of pass i and, if they are one launch, the pass behind it.
ballast::cuda::kernel_request kernel_for(const schedule& made, std::size_t i, bool instrumented);

}  // namespace ballast::fft::cuda
