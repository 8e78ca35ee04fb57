// The kernels of the sum by name.
// Layer: algorithm, backend cuda.
#pragma once

#include "cuda/device/device.hpp"
#include "skeleton/policy.hpp"

namespace ballast::skeleton {

// The kernel of a policy; `instrumented`: the one that takes faults.
cuda::kernel_request request_of(const policy& wanted, bool instrumented);

}  // namespace ballast::skeleton
