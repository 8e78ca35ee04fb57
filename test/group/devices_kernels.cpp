// Prints the kernels that the tests of K-Means on several devices need (devices_test.cpp).
// Layer: backend tests.
#include "group/devices_shape.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "simt/emulated_device.hpp"
#include "support/kmeans_kernels.hpp"

namespace {

using namespace ballast::kmeans::cuda;

template <class T>
void print_all() {
  for (const bool instrumented : {false, true}) {
    for (const int words : {1, 2}) {
      if (sizeof(T) == 8 && words == 1) continue;
      for (const ballast::cuda::kernel_request& each : kernel_names<T>::all(words, instrumented)) print(each);
      for (const bool weighted : {false, true}) {
        for (const bool check : {false, true}) {
          print_pass({sizeof(T) == 8, ballast::test::k_features, ballast::test::k_clusters, words, weighted, check, true}, instrumented);
        }
      }
    }
    for (const ballast::cuda::kernel_request& each : kernel_names<T>::candidates(instrumented)) print(each);
  }
}

}  // namespace

int main() {
  for (const bool instrumented : {false, true}) {
    print(ballast::kmeans::cuda::join_offer_request(instrumented));
    print(ballast::kmeans::cuda::join_add_request(instrumented));
  }
  print_all<float>();
  print_all<double>();
}
