// Lists of devices and executions for the parts of the stage `distributed`.
#pragma once

#include <string>
#include <vector>

#include <ballast/execution.hpp>

#include "algorithm.hpp"

namespace ballast::gpu_check {

// The lists of devices: one of them, and all; of a single device two ranks on it.
std::vector<std::vector<int>> device_lists();
std::string text_of(const std::vector<int>& devices);
// `devices` empty: a call without a group on the first device.
execution where_of(const std::vector<int>& devices, protection level);

// QR and transforms, those of wanted.tokens if there are any, or its own. Prints rows of type "distributed call"; returns how many calls
// had a wrong result, an alarm or an exception.
int distributed_calls(const settings& wanted, const time_limit& limit);

}  // namespace ballast::gpu_check
