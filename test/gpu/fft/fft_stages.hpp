// The stages of the FFT. Each prints rows (output.hpp) until it is done or its time is over.
#pragma once

#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {

// The kernels of all of them, as algorithm::record wants it.
int record_fft(test::recording_device& device, const settings& wanted);

// Rows of type "tuned": what is faster than the rules of the policies. Writes the table after every problem.
int tune(const settings& wanted, const time_limit& limit);

// Rows of type "check": one for each case, with `pass`, and "skipped" for what the time did not suffice for. Returns the failed cases.
int verify(const settings& wanted, const time_limit& limit);
// A few executions of small problems in every manner, for compute-sanitizer: results are compared with the host's.
int sanitize(const settings& wanted, const time_limit& limit);

// Rows of type "time": one for each problem and variant.
int bench(const settings& wanted, const time_limit& limit);
// Rows of type "fault": what the repair of one fault costs. Only over the instrumented library.
int repairs(const settings& wanted, const time_limit& limit);
// Rows of type "first call": seconds until the first result of a problem that is new, whether general kernels computed it, seconds until
// those of the problem took over, and until the same plan is made and enqueued again.
int first_calls(const settings& wanted, const time_limit& limit);
// Rows of type "strike": what becomes of single bits that change behind single instructions; "strike place": where those fell that no check
// saw.
int strike(const settings& wanted, const time_limit& limit);
// Rows of type "cell": ballast off and protected, and cuFFT, by length and batch.
int heatmap(const settings& wanted, const time_limit& limit);

}  // namespace ballast::gpu_check
