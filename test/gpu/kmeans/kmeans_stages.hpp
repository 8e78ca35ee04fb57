// The stages of K-Means. Each prints rows (output.hpp) until it is done or its time is over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/kmeans.hpp>

#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check::clusters {

// Rows of type "check": one per case, with `pass`. Returns the number of failed cases. Groups: accuracy, clean, faults.
int verify(const settings& wanted, const time_limit& limit);
// A few calls of small problems in every manner, for compute-sanitizer.
int sanitize(const settings& wanted, const time_limit& limit);
// Rows of type "iteration": milliseconds of one Lloyd iteration, and of the preparation of the points, without and with protection.
int bench(const settings& wanted, const time_limit& limit);

// Rows of type "call": milliseconds of fits, predict and transform by the host's clock, without and with protection; and what they do
// (calls.hpp).
int calls(const settings& wanted, const time_limit& limit);
// A row of type "first call": of the only token, in a process that has not used the library yet.
int first_call(const settings& wanted, const time_limit& limit);

// Rows of type "kind" and "check": milliseconds of fits and labels of points in half precision and of directions, and their errors
// (kinds.hpp).
int kinds(const settings& wanted, const time_limit& limit);
std::vector<std::string> kinds_set(bool quick);
void check_kind_token(std::string_view token);
// Records the kernels of that stage only.
void record_kinds(test::recording_device& on, const settings& wanted);

// Rows of type "step": milliseconds of the distance step in the schemes of FT K-Means and in ours, over the paper's sweeps.
int sweep(const settings& wanted, const time_limit& limit);
std::vector<std::string> swept_set(bool quick);
// Adds the kernels that the sweep needs.
void add_sweep_kernels(const std::string& token, const cuda::capabilities& on, std::vector<cuda::kernel_request>& made);
// Rows of type "tuned": the tuner for passes, and for the tiles of the schemes that --scheme names.
int tune(const settings& wanted, const time_limit& limit);

// The tokens of the problems that are verified, sanitized and timed.
std::vector<std::string> verified_set(bool quick);
std::vector<std::string> sanitized_set();
std::vector<std::string> timed_set(bool quick);
std::vector<std::string> called_set(bool quick);

// Returns m × n nearly normal numbers around `centres` centres, or around 0 if `centres` is 0. Equal arguments give equal numbers.
template <class T>
std::vector<T> points_of(const kmeans::problem& what, std::int64_t centres, std::uint64_t seed);

}  // namespace ballast::gpu_check::clusters
