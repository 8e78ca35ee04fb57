// Which policy a line gets: the tuning table's where that has an entry, else one by rule.
// Layer: fft/cuda, host.
#pragma once

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/policy.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// The policy of a plain line, without factors and forms: of the tuning table where that has an entry, else by rule.
line_policy choose_policy(const line_request& wanted, const ballast::cuda::capabilities& device, const tuning_table& tuned);

// The policy that `value` says: fills in swizzles. Throws std::logic_error if its parts do not fit together.
line_policy make_policy(const line_request& wanted, const tuned_line& value);

// Gives a policy fewer blocks if its forms or factors were found to need more registers than a plain line.
void make_room(line_policy& policy, const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
