// Asks the device which kernels are ready. See serving_pass.hpp.
#include "kmeans/cuda/engine/serving_pass.hpp"

namespace ballast::kmeans::cuda {

std::vector<ballast::cuda::kernel_request> pass_kernel_requests(const pass_problem& problem, const pass_policy& with_sums,
                                                                const std::optional<pass_policy>& first, bool instrumented) {
  pass_problem labels = problem;
  labels.sums = false;
  pass_policy without = with_sums;
  without.sums = sum_memory::none;
  std::vector<ballast::cuda::kernel_request> made = {pass_request(problem, with_sums, instrumented),
                                                     pass_request(labels, without, instrumented), update_request(problem, instrumented)};
  if (first) made.push_back(pass_request(problem, *first, instrumented));
  return made;
}
std::vector<ballast::cuda::kernel_request> pass_kernel_requests(const pass_problem& problem, const pass_policy& with_sums,
                                                                const ballast::cuda::capabilities& on, bool instrumented) {
  return pass_kernel_requests(problem, with_sums, first_pass(problem, with_sums, on), instrumented);
}

serving_pass serve_pass(ballast::cuda::device& on, const pass_problem& problem, std::int64_t m, bool instrumented) {
  const serving_pass own{choose_pass(problem, on.about()), false};
  if (instrumented) return own;
  const auto wanted = pass_kernel_requests(problem, own.policy, on.about(), false);
  if (on.why_not_ready(wanted, false).empty() || worth_waiting(problem, m)) return own;
  const serving_pass general{general_pass(problem, on.about()), true};
  if (!on.why_not_ready(pass_kernel_requests(problem, general.policy, on.about(), false), false).empty()) return own;
  // Empty: the kernels are ready by now, or nothing can compile them in the background.
  return on.why_not_ready(wanted, true).empty() ? own : general;
}

}  // namespace ballast::kmeans::cuda
