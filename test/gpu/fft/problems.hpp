// The problems that are verified and timed.
#pragma once

#include <string>
#include <vector>

namespace ballast::gpu_check {

// The benchmark set (fft/cuda/tune/bundle_catalogue.hpp), or a smaller one with `quick`. `latency`: the problem is so small that the launch
// time matters.
struct timed_problem {
  std::string token;
  bool latency = false;
  std::vector<std::string> schemes = {};  // run besides the default: all others, or the check of long lines from end to end
};
std::vector<timed_problem> benchmark_set(bool quick);

// Every kind, precision, length class and number of passes, with batches that leave tails.
std::vector<std::string> accuracy_set(bool quick);
std::vector<std::string> huge_set();
// One problem for each kind of kernel and plan: faults and clean data.
std::vector<std::string> fault_set(bool quick);
// The problems for the schemes other than the default.
std::vector<std::string> scheme_set();
// The problems that are struck instruction by instruction: one pass in registers and staged in shared memory, several passes, a prime
// length, reals, convolutions of one and two axes. Batches are small, since each strike is a call.
std::vector<std::string> strike_set(bool quick);
// Small enough for compute-sanitizer.
std::vector<std::string> sanitizer_set();

// The schemes besides the default. A plan refuses a scheme that its problem does not support.
inline const std::vector<std::string> k_other_schemes = {"offline",
                                                         "end_to_end",
                                                         "one_sided",
                                                         "thread",
                                                         "threadblock",
                                                         "multi_transaction_2",
                                                         "multi_transaction_4",
                                                         "multi_transaction_8",
                                                         "multi_transaction_16",
                                                         "multi_transaction_32"};

}  // namespace ballast::gpu_check
