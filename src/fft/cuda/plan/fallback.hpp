// The general kernels: a few lengths, for which direction, forms, factors, strides and scale are arguments. Passes of them can compute
// every problem. All of them are in the bundle, so they serve while the compiler makes the kernels that a problem is best computed with.
// Layer: fft/cuda, host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// Lengths of the one, two or three passes of a line of n points: powers of two up to 1024, as equal as possible. Empty unless n is a power
// of two up to 2^30.
std::vector<std::int64_t> general_split(std::int64_t n);

// The policy of a pass over lines of one of these lengths; its forms are still to be set. `check` is none or verify_before_store.
line_policy general_policy(std::int64_t length, bool wide, check_form check);

// The policy of the kernel that serves a pass with this general policy: the same for all forms.
line_policy kernel_policy(const line_policy& general);
// The forms of the pass as this kernel reads them (line_arguments::forms).
unsigned forms_of(const line_policy& general);

// All of them.
std::vector<ballast::cuda::kernel_request> general_kernels();

}  // namespace ballast::fft::cuda
