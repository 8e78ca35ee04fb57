// The fixture of the tests of complex matrices on cuda.
// Layer: backend tests.
#pragma once

#include <complex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/effort.hpp"
#include "support/qr_complex_subject.hpp"

namespace ballast::qr::subjects {

template <class Setting>
class qr_cuda_complex : public qr_complex<Setting> {
 protected:
  // No scheme is named: small matrices take the kernels for batches.
  static run::settings how() { return qr_complex<Setting>::how(""); }
  // Each takes another kernel, or another way through one.
  static std::vector<std::pair<index, index>> sizes() {
    std::vector<std::pair<index, index>> all = {{1, 1},   {5, 1},   {1, 5},   {8, 8},    {3, 5},    {16, 7},   {7, 16},  {31, 32},
                                                {40, 24}, {64, 64}, {33, 70}, {100, 60}, {70, 100}, {200, 20}, {150, 60}};
    if (!test::sampled()) all.insert(all.end(), {{128, 128}, {256, 120}, {130, 200}, {256, 256}});
    return all;
  }
};

using complex_on_cuda = testing::Types<setting<std::complex<float>, backend::cuda>, setting<std::complex<double>, backend::cuda>>;

}  // namespace ballast::qr::subjects
