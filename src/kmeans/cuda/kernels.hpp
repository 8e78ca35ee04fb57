// The kernels of K-Means by name: what the host code loads, and the catalogue that is compiled without a GPU.
// Layer: backend "cuda" of K-Means.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device.hpp"

namespace ballast::kmeans::cuda {

// T: float or double. `instrumented`: the kernel that can be injected into.
template <class T>
struct kernel_names {
  using request = ballast::cuda::kernel_request;
  enum class work { ranges, sizes, totals_one_word, totals_two_words };

  static request columns(work what, bool instrumented);
  static request fold(work what);
  static request find();
  static request place(bool instrumented);
  static request facts(int words, bool instrumented);
  static request gather();
  static request distances(bool instrumented);
  static request finish();
  static request exact(bool instrumented);
  static request labelled(int words);
  static request seeding(int trials, bool instrumented);

  // All of them, for `words` words of a sum.
  static std::vector<request> all(int words, bool instrumented);
};

// The kernels around a pass, for every precision: in the bundle, and checked for registers and spills.
std::vector<ballast::cuda::kernel_request> engine_kernels();

}  // namespace ballast::kmeans::cuda
