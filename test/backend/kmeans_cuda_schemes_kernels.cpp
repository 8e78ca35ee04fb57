// Prints the kernels that kmeans_cuda_schemes_test.cpp needs.
// Layer: backend tests.
#include <cstdio>

#include "backend/kmeans_cuda_schemes.hpp"

namespace {

void print(const ballast::cuda::kernel_request& each) { std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str()); }

template <class T>
void print_all() {
  for (const int words : {1, 2}) {
    if (sizeof(T) == 8 && words == 1) continue;
    for (const bool instrumented : {false, true})
      for (const auto& each : ballast::kmeans::cuda::kernel_names<T>::all(words, instrumented)) print(each);
  }
}

}  // namespace

int main() {
  print_all<float>();
  print_all<double>();
  for (const auto& each : scheme_test::cases()) {
    for (const bool instrumented : {false, true}) {
      for (const auto& kernel : scheme_test::kernels(each, each.wide() ? 2 : 1, instrumented)) print(kernel);
    }
    // The sums of features with few large values have two words.
    if (each.protects()) {
      for (const auto& kernel : scheme_test::kernels(each, 2, false)) print(kernel);
    }
  }
  // Weights.
  for (const bool instrumented : {false, true}) {
    print(ballast::kmeans::cuda::tile_update_request(false, 1, true, instrumented));
    print(ballast::kmeans::cuda::tile_update_request(true, 2, true, instrumented));
    print(ballast::kmeans::cuda::update_request({false, 17, 7, 1, true, true, true}, instrumented));
    print(ballast::kmeans::cuda::update_request({true, 9, 70, 2, true, true, true}, instrumented));
  }
}
