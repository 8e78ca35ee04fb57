// Prints the kernels that the tests of K-Means on cuda need; what it prints is compiled into backend_kmeans_cuda.
// Layer: backend tests.
#include <cstdio>

#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"
#include "simt/emulated_device.hpp"

namespace {

using namespace ballast::kmeans::cuda;

struct shape {
  int n, k;
  bool faults = false, weights = false;
};

// Shapes of the tests that every backend runs and of kmeans_cuda_test.cpp. A kernel depends on few ranges of n and k.
constexpr shape k_shapes[] = {{1, 1},         {2, 5},        {3, 4},        {8, 8},       {1, 3},        {5, 9},        {17, 12},
                              {33, 20},       {8, 70},       {130, 16},     {6, 5, 0, 1}, {4, 6},        {7, 23},       {9, 6},
                              {5, 4, 0, 1},   {5, 8},        {3, 6},        {6, 6},       {2, 6},        {3, 3},        {3, 40},
                              {2, 60},        {3, 50, 0, 1}, {2, 15},       {6, 12},      {1, 10},       {10, 12, 1},   {4, 3, 1},
                              {3, 70, 1},     {1, 2, 0, 1},  {2, 3, 0, 1},  {3, 9, 0, 1}, {5, 70, 0, 1}, {17, 4, 0, 1}, {40, 20, 0, 1},
                              {200, 6, 0, 1}, {6, 10, 1},    {7, 9, 1},     {7, 8, 1},    {10, 8, 1},    {8, 136, 1},   {4, 12, 1},
                              {3, 8, 1},      {8, 9, 1},     {4, 5, 1},     {12, 10},     {7, 23, 1},    {300, 1},      {300, 2},
                              {300, 3},       {40, 64, 1},   {20, 3, 1, 1}, {5, 6, 1},    {5, 11, 1, 1}, {3, 30, 0, 1}};

void print(const ballast::cuda::kernel_request& each) { std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str()); }

template <class T>
void print_all() {
  for (const int words : {1, 2}) {
    for (const bool instrumented : {false, true}) {
      for (const ballast::cuda::kernel_request& each : kernel_names<T>::all(words, instrumented)) print(each);
      // Points in half precision (kmeans_half_test.cpp).
      if (sizeof(T) == 4 && (words == 1 || !instrumented))
        for (const ballast::cuda::kernel_request& each : kernel_names<T>::all(words, instrumented, true)) print(each);
      for (const ballast::cuda::kernel_request& each : kernel_names<T>::candidates(instrumented)) print(each);
      if (words == 1)
        for (const bool half : {false, true})
          for (const ballast::cuda::kernel_request& each : kernel_names<T>::serving(instrumented, half)) print(each);
      for (const bool enqueued : {false, true})
        if (words == 1) print(kernel_names<T>::batch(2, 2, simt::emulated_capabilities(), instrumented, enqueued));
    }
  }
  // kmeans_spherical_test.cpp
  for (const bool instrumented : {false, true})
    for (const bool half : {false, true})
      if (!half || sizeof(T) == 4) print(kernel_names<T>::unit_rows(half, instrumented));
  for (const shape& each : k_shapes) {
    for (int variant = 0; variant < 16; ++variant) {
      const bool check = variant % 2 == 0, weighted = variant / 2 % 2 != 0, instrumented = variant / 4 % 2 != 0, two = variant / 8 != 0;
      if ((weighted && !each.weights) || (instrumented && !each.faults) || (!check && !each.faults) || (sizeof(T) == 8 && !two)) continue;
      pass_problem problem{sizeof(T) == 8, each.n, each.k, two ? 2 : 1, weighted, check, true};
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

}  // namespace

int main() {
  print_all<float>();
  print_all<double>();
}
