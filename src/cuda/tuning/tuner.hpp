// The tuner: times candidates for a kernel on the device and selects the fastest. An algorithm provides the candidates, and stores the
// fastest with its gain in its tuning table (tuning_table.hpp).
// Layer: foundation. `ballast tune` uses it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Loads kernels on all cores, so that timing need not wait for a compiler. Kernels that cannot be loaded are skipped: a caller that needs
// one loads it again, and gets the reason.
void load_all(device& on, std::span<const kernel_request> wanted);

// Returns the seconds that one call of `enqueue` takes on the stream, measured with device events: the minimum of three means, each over
// about 2 ms of calls.
double seconds_of(device& on, const std::function<void()>& enqueue, stream order);

// One candidate: a way to do the work.
struct tuning_candidate {
  kernel_request tuned;                // the kernel to choose. A candidate with more spills than its budget is dropped
  std::vector<kernel_request> others;  // the other kernels of a run
  std::function<double()> seconds;     // returns the seconds of a run, by seconds_of; infinity if it cannot run
};

struct tuning_choice {
  std::size_t index;  // the candidate's index
  double seconds;
};

// Returns the fastest candidate, if it is at least half a percent faster than `to_beat` seconds.
std::optional<tuning_choice> fastest(device& on, std::span<const tuning_candidate> tried, double to_beat);

// Returns the gain that a table stores: the time with the rules over the time with the entry, to three decimals.
double noted_gain(double by_rule, double by_entry);

// The tuner's result for one kernel.
struct tuning_result {
  std::string token;       // the problem; with ", checked" for the protected kernel
  std::string policy;      // the choice, as a line of the tuning table
  double seconds;          // time of the problem with the choice
  double default_seconds;  // time with the algorithm's rules
};

}  // namespace ballast::cuda
