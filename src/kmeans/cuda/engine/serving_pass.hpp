// Decides whether a call waits for the kernels of its own pass, or computes with a general pass while they are compiled.
// Layer: backend "cuda" of K-Means, host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/device/device.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"

namespace ballast::kmeans::cuda {

struct serving_pass {
  pass_policy policy;    // the policy of the pass with sums
  bool general = false;  // general_pass(): the kernels of choose_pass() are not ready
};

// Returns the kernels of passes with this policy: with sums, labels only, and update; and of first_pass, if there is one.
std::vector<ballast::cuda::kernel_request> pass_kernel_requests(const pass_problem& problem, const pass_policy& with_sums,
                                                                const std::optional<pass_policy>& first, bool instrumented);
// The same with the first_pass of a device.
std::vector<ballast::cuda::kernel_request> pass_kernel_requests(const pass_problem& problem, const pass_policy& with_sums,
                                                                const ballast::cuda::capabilities& on, bool instrumented);

// Returns the policy for a call over m points: that of choose_pass(), unless its kernels would have to be compiled, those of general_pass()
// need not be, and waiting does not pay (worth_waiting). Then the compilation is started in the background if it can be, and the call is
// computed by the general pass; results have the same bits. Calls with injected faults always get choose_pass().
serving_pass serve_pass(ballast::cuda::device& on, const pass_problem& problem, std::int64_t m, bool instrumented);

}  // namespace ballast::kmeans::cuda
