// Chooses the policy of a line: from the tuning table if it has an entry, otherwise by rule.
// Layer: fft/cuda, host.
#pragma once

#include "cuda/device/device.hpp"
#include "fft/cuda/policy/policy.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// Returns the policy of a plain line, without factors and forms: from the tuning table if it has an entry, otherwise by rule.
line_policy choose_policy(const line_request& wanted, const ballast::cuda::capabilities& device, const tuning_table& tuned);

// Returns the policy that `value` describes, with the exchange layouts filled in. Throws std::logic_error if its parts do not fit together.
line_policy make_policy(const line_request& wanted, const tuned_line& value);

// Returns the policy of real lines with fewer lines in a tile if their numbers need more shared memory than the exchange.
line_policy with_room_for_reals(const line_request& wanted, const line_policy& policy, const ballast::cuda::capabilities& device);

// Reduces the blocks per multiprocessor of a policy if its forms or factors were measured to need more registers than a plain line.
void limit_registers(line_policy& policy, const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
