// The problems of the pass test, for the test and for the program that prints their kernels.
// Layer: test.
#pragma once

#include <vector>

#include "kmeans/cuda/policy/choose_policy.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::kmeans::cuda {

// A problem on a device of this compute capability: 9 multiplies by warpgroups in f32 and has rings, 8 has neither.
struct tested_pass {
  pass_problem what;
  int major = 9;
};

inline std::vector<tested_pass> tested_passes() {
  std::vector<tested_pass> made;
  for (const bool f64 : {false, true}) {
    const int words = f64 ? 2 : 1;
    for (const bool check : {true, false}) {
      made.push_back({{f64, 8, 8, words, false, check}});
      made.push_back({{f64, 20, 37, words, false, check}});
      if (!f64) made.push_back({{f64, 40, 37, words, false, check}});  // one group by a warpgroup
    }
    made.push_back({{f64, 20, 37, 2, true, true}});         // weights
    made.push_back({{f64, 5, 300, 2, false, true}});        // two sections
    made.push_back({{f64, 150, 12, words, false, true}});   // rows do not fit into registers
    made.push_back({{f64, 150, 300, words, false, true}});  // nor do the sums fit into shared memory
    made.push_back({{f64, 150, 300, 2, true, true}});       // the same with weights
    made.push_back({{f64, 20, 900, words, false, true}});   // the same with short rows
    if (!f64) {
      made.push_back({{f64, 256, 500, words, false, true}});  // the longest rows in registers, in chunks of eight slices
      made.push_back({{f64, 288, 400, words, false, true}});  // rows are read again, by 12 warps
      made.push_back(
          {{f64, 320, 368, words, false, true}});  // rows and packed centroids through a ring, in five chunks: two, two and one together
    }
    if (f64) made.push_back({{f64, 64, 450, words, false, true}});  // the longest rows in registers, the packed centroids through a ring
    made.push_back({{f64, 20, 37, words, false, true}, 8});
    made.push_back({{f64, 150, 300, words, false, true}, 8});
  }
  return made;
}

// Problems that general passes compute: rows in registers, rows that are read again, weights, sums in either memory.
inline std::vector<pass_problem> tested_general_passes() {
  return {{false, 20, 37, 1, false, true}, {false, 40, 37, 1, false, true},  {false, 20, 37, 2, true, true}, {true, 20, 37, 2, false, true},
          {true, 16, 37, 2, false, true},  {false, 20, 37, 1, false, false}, {true, 20, 37, 2, false, false}};
}

}  // namespace ballast::kmeans::cuda
