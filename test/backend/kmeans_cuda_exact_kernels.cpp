// Prints the kernels that backend_kmeans_cuda_exact needs; what it prints is compiled into that test.
// Layer: backend tests.
#include "kmeans/cuda/engine/kernels.hpp"
#include "simt/emulated_device.hpp"
#include "support/kmeans_kernels.hpp"

namespace {

using namespace ballast::kmeans::cuda;

enum use : int { both = 3, f32 = 1, f64 = 2 };
struct shape {
  int n, k;
  use precisions = both;
  bool unprotected = false, faults = false, weights = false;
};

// Shapes of kmeans_exact_test.cpp, kmeans_clean_rows_test.cpp, kmeans_cuda_control_test.cpp, kmeans_open_rows_test.cpp and
// kmeans_serve_test.cpp. A kernel depends on few ranges of n and k.
constexpr shape k_shapes[] = {{1, 2, both, true, false, true},
                              {1, 3, both, true},
                              {1, 4, both, true},
                              {3, 20, both, true},
                              {2, 20, f32, true},
                              {70, 20, f64, true},
                              {1, 500, both},
                              {7, 1041, both},
                              {2, 128, both},
                              {40, 300, both},
                              {6, 5, both, true, true},
                              {6, 5, f32, true, true, true},
                              {300, 9, f32, true},
                              {6, 150, f32, true, true}};

template <class T>
void print_all() {
  for (const int words : {1, 2}) {
    if (sizeof(T) == 8 && words == 1) continue;
    for (const bool instrumented : {false, true})
      for (const ballast::cuda::kernel_request& each : kernel_names<T>::all(words, instrumented)) print(each);
  }
  for (const bool instrumented : {false, true}) {
    for (const ballast::cuda::kernel_request& each : kernel_names<T>::serving(instrumented)) print(each);
    // Points in half precision.
    if (sizeof(T) == 8) continue;
    for (const ballast::cuda::kernel_request& each : kernel_names<T>::all(1, instrumented, true)) print(each);
    for (const ballast::cuda::kernel_request& each : kernel_names<T>::serving(instrumented, true)) print(each);
  }
  for (const ballast::cuda::kernel_request& each : kernel_names<T>::candidates(false)) print(each);
  for (const shape& each : k_shapes) {
    if ((each.precisions & (sizeof(T) == 4 ? f32 : f64)) == 0) continue;
    for (const int words : {1, 2}) {
      if (sizeof(T) == 8 && words == 1) continue;
      for (const bool check : {true, false}) {
        for (int variant = 0; variant < 4; ++variant) {
          const bool instrumented = variant % 2 != 0, weighted = variant / 2 != 0;
          if ((!check && !each.unprotected) || (instrumented && !each.faults) || (weighted && !each.weights)) continue;
          print_pass({sizeof(T) == 8, each.n, each.k, words, weighted, check, true}, instrumented);
        }
      }
    }
  }
}

}  // namespace

int main() {
  print_all<float>();
  print_all<double>();
}
