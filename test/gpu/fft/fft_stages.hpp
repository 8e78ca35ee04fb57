// The stages of the FFT. Each prints rows (output.hpp) until it is done or its time is over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {

// Records the kernels of all stages, as algorithm::record requires.
int record_fft(test::recording_device& device, const settings& wanted);

// Rows of type "tuned": policies that are faster than the rules. Writes the table after every problem.
int tune(const settings& wanted, const time_limit& limit);

// Rows of type "check": one per case, with `pass`, and "skipped" for the cases that had no time. Returns the number of failed cases.
int verify(const settings& wanted, const time_limit& limit);
// A few executions of small problems in every manner, for compute-sanitizer: results are compared with the host's.
int sanitize(const settings& wanted, const time_limit& limit);

// Rows of type "time": one for each problem and variant.
int bench(const settings& wanted, const time_limit& limit);
// Rows of type "fault": the cost of repairing one fault. Only with the instrumented library.
int repairs(const settings& wanted, const time_limit& limit);
// Rows of type "first call": seconds until the first result of a new problem, whether fallback kernels computed it, seconds until the
// kernels of the problem took over, and until the same plan is constructed and enqueued again.
int first_calls(const settings& wanted, const time_limit& limit);
// Rows of type "kind" and "check": milliseconds of transforms of any rank, with strides and in nests of loops, beside cuFFT; of transforms
// of reals to reals; of convolutions; and their errors (kinds.hpp).
int kinds(const settings& wanted, const time_limit& limit);
std::vector<std::string> kinds_set(bool quick);
void check_kind_token(std::string_view token);
// Returns whether a token is that of a convolution.
inline bool convolves(std::string_view token) { return token.starts_with("convolve_") || token.starts_with("correlate_"); }
// Records the kernels of a convolution with and without protection. Returns the number of refused plans, each with a row.
int record_convolution(std::string_view token);
// Records the kernels of that stage only.
int record_fft_kinds(test::recording_device& on, const settings& wanted);
// Rows of type "cell": ballast without and with protection, and cuFFT, by length and batch.
int heatmap(const settings& wanted, const time_limit& limit);

}  // namespace ballast::gpu_check
