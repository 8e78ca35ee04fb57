// Prints the kernels that backend_kmeans_cuda_mini_batch needs; what it prints is compiled into that test.
// Layer: backend tests.
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"
#include "simt/emulated_device.hpp"
#include "support/kmeans_kernels.hpp"

namespace {

using namespace ballast::kmeans::cuda;

template <class T>
void print_all() {
  for (const bool instrumented : {false, true}) {
    for (const int words : {1, 2})
      for (const auto& each : kernel_names<T>::all(words, instrumented)) print(each);
    for (const auto& each : kernel_names<T>::serving(instrumented, false)) print(each);
    // Features, clusters.
    for (const auto& [n, k] : {std::pair(6, 5), std::pair(10, 12)}) {
      for (int variant = 0; variant < 8; ++variant) {
        const bool check = variant % 2 == 0, weighted = variant / 2 % 2 != 0, two = variant / 4 != 0 || sizeof(T) == 8;
        const pass_problem problem{sizeof(T) == 8, n, k, two ? 2 : 1, weighted, check, true};
        print_pass(problem, instrumented);
      }
    }
  }
}

}  // namespace

int main() {
  print_all<float>();
  print_all<double>();
}
