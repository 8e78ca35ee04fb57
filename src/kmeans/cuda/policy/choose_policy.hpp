// Which pass and update kernels a problem gets, and how its panel is laid out.
// Layer: backend "cuda" of K-Means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"
#include "kmeans/cuda/assign/pass.hpp"
#include "kmeans/cuda/update/update.hpp"

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

class pass_tuning;

// By rules from the capabilities of the device (docs/design/kmeans-cuda.md has the reasons); or what the table has for the problem, if that
// fits. `tuned` null: the table of the installation.
pass_policy choose_pass(const pass_problem& what, const ballast::cuda::capabilities& on, const pass_tuning* tuned = nullptr);
// What the tuner chooses from: places of the panel and of the sums, groups of tiles, chunks, warps and blocks that a multiprocessor can
// hold; the rules' choice is in it.
std::vector<pass_policy> pass_space(const pass_problem& what, const ballast::cuda::capabilities& on);
// Whether policies differ in one of these alone: tiles; the panel's place and chunks; warps and blocks; the place of the sums.
bool neighbours(const pass_policy& a, const pass_policy& b);
panel_shape shape_of(const pass_problem& what, const pass_policy& chosen);

ballast::cuda::kernel_request pass_request(const pass_problem& what, const pass_policy& chosen, bool instrumented);
ballast::cuda::kernel_request update_request(const pass_problem& what, bool instrumented);

// Budgets of the kernels among these that can be struck: strikes are calls, around which a thread keeps in memory what it holds.
void allow_strikes(std::vector<ballast::cuda::kernel_request>& kernels);

}  // namespace ballast::kmeans::cuda
