// Prints the kernels that backend_kmeans_cuda_sparse needs; what it prints is compiled into that test.
// Layer: backend tests.
#include "kmeans/cuda/engine/kernels.hpp"
#include "simt/emulated_device.hpp"
#include "support/kmeans_kernels.hpp"

int main() {
  using namespace ballast::kmeans::cuda;
  for (const bool instrumented : {false, true}) {
    for (const auto& each : kernel_names<float>::sparse(instrumented)) print(each);
    for (const auto& each : kernel_names<double>::sparse(instrumented)) print(each);
  }
}
