// The problems of the pass test, for the test and for the program that prints their kernels.
// Layer: test.
#pragma once

#include <vector>

#include "kmeans/cuda/choose_policy.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::kmeans::cuda {

inline std::vector<pass_problem> tested_passes() {
  std::vector<pass_problem> made;
  for (const bool f64 : {false, true}) {
    for (const bool check : {true, false}) {
      const int words = f64 ? 2 : 1;
      made.push_back({f64, 8, 8, words, false, check});
      made.push_back({f64, 20, 37, words, false, check});
    }
    made.push_back({f64, 20, 37, 2, true, true});               // weights
    made.push_back({f64, 5, 300, 2, false, true});              // two sections
    made.push_back({f64, 150, 12, f64 ? 2 : 1, false, true});   // rows do not fit into registers
    made.push_back({f64, 150, 300, f64 ? 2 : 1, false, true});  // sums do not fit into shared memory
  }
  return made;
}

}  // namespace ballast::kmeans::cuda
