// Prints the kernels that cuda_kmeans_pass_test.cpp runs on the emulator, one per line.
// Layer: test.
#include <cstdio>

#include "unit/cuda_kmeans_problems.hpp"

int main() {
  using namespace ballast::kmeans::cuda;
  const auto print = [](const ballast::cuda::kernel_request& each) {
    std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str());
  };
  for (const pass_problem& each : tested_passes()) {
    for (const bool instrumented : {false, true}) {
      const pass_policy chosen = choose_pass(each, simt::emulated_capabilities());
      pass_policy labels = chosen;
      labels.sums = sum_memory::none;
      print(pass_request(each, chosen, instrumented));
      print(pass_request(each, labels, instrumented));
      print(update_request(each, instrumented));
    }
  }
}
