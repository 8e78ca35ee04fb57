// Prints the kernels that the tests of K-Means on several devices need (devices_test.cpp).
// Layer: backend tests.
#include <cstdio>

#include "group/devices_shape.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"
#include "simt/emulated_device.hpp"

namespace {

using namespace ballast::kmeans::cuda;

void print(const ballast::cuda::kernel_request& each) { std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str()); }

template <class T>
void print_all() {
  for (const bool instrumented : {false, true}) {
    for (const int words : {1, 2}) {
      if (sizeof(T) == 8 && words == 1) continue;
      for (const ballast::cuda::kernel_request& each : kernel_names<T>::all(words, instrumented)) print(each);
      for (const bool weighted : {false, true}) {
        for (const bool check : {false, true}) {
          pass_problem problem{sizeof(T) == 8, ballast::test::k_features, ballast::test::k_clusters, words, weighted, check, true};
          const pass_policy chosen = choose_pass(problem, simt::emulated_capabilities());
          print(pass_request(problem, chosen, instrumented));
          print(update_request(problem, instrumented));
          problem.sums = false;
          pass_policy labels = chosen;
          labels.sums = sum_memory::none;
          print(pass_request(problem, labels, instrumented));
        }
      }
    }
    for (const ballast::cuda::kernel_request& each : kernel_names<T>::candidates(instrumented)) print(each);
  }
}

}  // namespace

int main() {
  print_all<float>();
  print_all<double>();
}
