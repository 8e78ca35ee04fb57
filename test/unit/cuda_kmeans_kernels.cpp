// Prints the kernels that cuda_kmeans_pass_test.cpp runs on the emulator, one per line. For the effort smoke: those that no fault strikes.
// Layer: test.
#include <cstdio>

#include "kmeans/cuda/engine/serving_pass.hpp"
#include "support/effort.hpp"
#include "unit/cuda_kmeans_problems.hpp"

int main() {
  using namespace ballast::kmeans::cuda;
  const auto print = [](const ballast::cuda::kernel_request& each) {
    std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str());
  };
  for (const auto& [each, major] : tested_passes()) {
    for (const bool instrumented : {false, true}) {
      if (instrumented && ballast::test::chosen_effort() == ballast::test::effort::smoke) continue;
      if (instrumented && ((each.n != 40 && each.n != 20 && each.n != 8 && each.n != 288) || each.weighted))
        continue;  // faults strike the others
      const pass_policy chosen = choose_pass(each, simt::emulated_capabilities(4, major));
      pass_policy labels = chosen;
      labels.sums = sum_memory::none;
      print(pass_request(each, chosen, instrumented));
      print(pass_request(each, labels, instrumented));
      if (each.n == 20 && each.k == 37 && !each.f64 && !each.weighted && major == 9) {  // which a test adds up in global memory
        pass_policy global = chosen;
        global.sums = sum_memory::global;
        print(pass_request(each, global, instrumented));
      }
      print(update_request(each, instrumented));
    }
  }
  const ballast::cuda::capabilities on = simt::emulated_capabilities(4, 9);
  const auto print_passes = [&](const pass_problem& what, const pass_policy& chosen, bool instrumented) {
    for (const ballast::cuda::kernel_request& each : pass_kernel_requests(what, chosen, on, instrumented)) print(each);
  };
  for (const pass_problem& each : tested_general_passes()) print_passes(each, general_pass(each, on), false);
}
