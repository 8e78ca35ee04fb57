// Chooses the pass and update kernels for a problem, and the layout of its packed centroids.
// Layer: backend "cuda" of K-Means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"
#include "kmeans/cuda/assign/pass.hpp"
#include "kmeans/cuda/update/update.hpp"

namespace ballast::kmeans::cuda {

// The properties that a choice depends on.
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

// Returns the policy by rules over the capabilities of the device (docs/design/kmeans-cuda.md has the reasons), or the entry of the tuning
// table for the problem, if it can run. `tuned` null: the table of the installation.
pass_policy choose_pass(const pass_problem& problem, const ballast::cuda::capabilities& on, const pass_tuning* tuned = nullptr);
// Returns the policy of a pass that adds every row, as the first one of a run does, beside `chosen` for the others; nothing if that is
// `chosen` as well. Later passes add few rows and may be faster with sums in global memory. A block of the first one adds in shared
// memory then, if it has room there: in global memory all blocks add to the same few sums at the same time.
std::optional<pass_policy> first_pass(const pass_problem& problem, const pass_policy& chosen, const ballast::cuda::capabilities& on);
// Returns one of a small set of policies that computes the problem on any device, slower than the one above but with the same labels and
// sums: its kernels are in the bundle and serve the first calls of a problem. It reads the packed centroids from global memory, and keeps
// rows in registers if they have 1, 2, 4 or 8 k-slices and the call is of the most common kind: checked, unweighted, with the usual words.
pass_policy general_pass(const pass_problem& problem, const ballast::cuda::capabilities& on);
// Returns the problems whose general passes are all there are, with sums.
std::vector<pass_problem> general_problems();
// Returns whether waiting for a kernel of the problem's own, some three seconds, is shorter than the time that iterations with a general
// pass lose. A prediction: docs/design/cuda.md, "The first call".
bool worth_waiting(const pass_problem& problem, std::int64_t m);
// Returns the policies that the tuner chooses from: storage of packed centroids and of sums, groups of tiles, chunks, and the warps and
// blocks that a multiprocessor can hold. The choice of the rules is among them.
std::vector<pass_policy> pass_space(const pass_problem& problem, const ballast::cuda::capabilities& on);
// Returns whether policies differ in exactly one of these: tiles; storage and chunks of packed centroids; warps and blocks; storage of
// sums.
bool neighbours(const pass_policy& a, const pass_policy& b);
packed_shape shape_of(const pass_problem& problem, const pass_policy& chosen);

ballast::cuda::kernel_request pass_request(const pass_problem& problem, const pass_policy& chosen, bool instrumented);
ballast::cuda::kernel_request update_request(const pass_problem& problem, bool instrumented);
// The kernels that add the sums of the devices of a group.
ballast::cuda::kernel_request join_offer_request(bool instrumented);
ballast::cuda::kernel_request join_add_request(bool instrumented);

// Sets the register budgets of the kernels with injection: an injection is a function call, around which a thread saves its registers to
// memory.
void allow_strikes(std::vector<ballast::cuda::kernel_request>& kernels);

}  // namespace ballast::kmeans::cuda
