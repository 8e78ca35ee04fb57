// The fallback kernels: kernels for a few lengths that take direction, forms, factors, strides and scale as arguments. Passes of them can
// compute every problem. The bundle contains all of them, so they serve calls while the compiler builds the best kernels for a problem.
// Layer: fft/cuda, host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// Returns the lengths of the one, two or three passes of a line of n points: powers of two up to 1024, as equal as possible. Empty unless n
// is a power of two up to 2^30.
std::vector<std::int64_t> fallback_split(std::int64_t n);

// Returns the policy of a pass over lines of one of these lengths; the caller sets its forms. `check` is none or verify_before_store.
line_policy fallback_policy(std::int64_t length, bool wide, check_form check);

// Returns the policy of the kernel that serves a pass with this fallback policy: the same for all forms.
line_policy kernel_policy(const line_policy& fallback);
// Returns the forms of the pass in the encoding that this kernel reads (line_arguments::forms).
unsigned forms_of(const line_policy& fallback);

// Returns the requests of all fallback kernels.
std::vector<ballast::cuda::kernel_request> fallback_kernels();

}  // namespace ballast::fft::cuda
