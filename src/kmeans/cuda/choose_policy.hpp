// Which pass and update kernels a problem gets, and how its panel is laid out.
// Layer: backend "cuda" of K-Means.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/device.hpp"
#include "kmeans/cuda/pass.hpp"
#include "kmeans/cuda/update.hpp"

namespace ballast::kmeans::cuda {

// What a choice depends on.
struct pass_problem {
  bool f64 = false;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int words = 1;
  bool weighted = false;
  bool check = true;
  bool sums = true;  // labels and sums; false: labels only
};

// By rules from the capabilities of the device. docs/design/kmeans-cuda.md has the reasons.
pass_policy choose_pass(const pass_problem& what, const ballast::cuda::capabilities& on);
panel_shape shape_of(const pass_problem& what, const pass_policy& chosen);

ballast::cuda::kernel_request pass_request(const pass_problem& what, const pass_policy& chosen, bool instrumented);
ballast::cuda::kernel_request update_request(const pass_problem& what, bool instrumented);

}  // namespace ballast::kmeans::cuda
