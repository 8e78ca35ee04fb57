// The tuner: times candidates for a kernel on the device and finds the fastest. An algorithm gives the candidates, and keeps the winner
// with its gain in its tuning table (tuning_table.hpp). Layer: foundation; behind `ballast tune`.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Loads kernels on all cores, so that timing need not wait for a compiler. What cannot be had is left out: who needs it loads it again, and
// is told why.
void load_all(device& on, std::span<const kernel_request> wanted);

// Seconds that one call of `enqueue` takes on the stream, by events of the device: the least of three means, each over about 2 ms of calls.
double seconds_of(device& on, const std::function<void()>& enqueue, stream order);

// One way to do the work.
struct tuning_candidate {
  kernel_request tuned;                // the kernel that is being chosen. A candidate that spills more registers than it may is dropped
  std::vector<kernel_request> others;  // what else a run loads
  std::function<double()> seconds;     // of a run, by seconds_of; infinity if it cannot run
};

struct tuning_choice {
  std::size_t index;  // of the candidate
  double seconds;
};

// The fastest candidate, if it is at least half a percent faster than `to_beat` seconds.
std::optional<tuning_choice> fastest(device& on, std::span<const tuning_candidate> tried, double to_beat);

// The gain that a table notes: time by the rules over time by the entry, to three decimals.
double noted_gain(double by_rule, double by_entry);

// What a tuner reports of one kernel.
struct tuning_result {
  std::string token;       // the problem; and ", checked" for the protected one
  std::string policy;      // what was chosen, as a line of the tuning table
  double seconds;          // of the problem with it
  double default_seconds;  // and by the rules
};

}  // namespace ballast::cuda
