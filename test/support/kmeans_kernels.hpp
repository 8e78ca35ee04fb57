// Shared code of the programs that print the kernels of tests of K-Means on cuda.
// Layer: backend tests.
#pragma once

#include <cstdio>

#include "kmeans/cuda/policy/choose_policy.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::kmeans::cuda {

inline void print(const ballast::cuda::kernel_request& each) { std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str()); }

// The kernels of a pass with the sums of clusters, of the update after it, and of a pass for labels alone.
inline void print_pass(pass_problem problem, bool instrumented) {
  const pass_policy chosen = choose_pass(problem, simt::emulated_capabilities());
  print(pass_request(problem, chosen, instrumented));
  if (const auto first = first_pass(problem, chosen, simt::emulated_capabilities())) print(pass_request(problem, *first, instrumented));
  print(update_request(problem, instrumented));
  problem.sums = false;
  pass_policy labels = chosen;
  labels.sums = sum_memory::none;
  print(pass_request(problem, labels, instrumented));
}

}  // namespace ballast::kmeans::cuda
