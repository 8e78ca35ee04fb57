// Which problems are verified and timed.
#pragma once

#include <string>
#include <vector>

namespace ballast::gpu_check {

// The benchmark set (fft/cuda/tune/bundle_catalogue.hpp), or with `quick` a smaller one. `latency`: so small that the time of a launch
// counts.
struct timed_problem {
  std::string token;
  bool latency = false;
  bool schemes = false;  // also with the schemes that are not the default
};
std::vector<timed_problem> benchmark_set(bool quick);

// Every kind, precision, length class and number of passes, with batches that leave tails.
std::vector<std::string> accuracy_set(bool quick);
std::vector<std::string> huge_set();
// One for each kind of kernel and plan: faults and clean data.
std::vector<std::string> fault_set(bool quick);
// What the schemes that are not the default are tried on.
std::vector<std::string> scheme_set();
// What is struck instruction by instruction: one pass in registers and staged in shared memory, several passes, a convolution, reals; small
// batches, since each strike is a call.
std::vector<std::string> strike_set(bool quick);
// Small enough for compute-sanitizer.
std::vector<std::string> sanitizer_set();

// The schemes beside the default. What a problem does not have, its plan refuses.
inline const std::vector<std::string> k_other_schemes = {"offline",
                                                         "one_sided",
                                                         "thread",
                                                         "threadblock",
                                                         "multi_transaction_2",
                                                         "multi_transaction_4",
                                                         "multi_transaction_8",
                                                         "multi_transaction_16",
                                                         "multi_transaction_32"};

}  // namespace ballast::gpu_check
