// Convolutions in one dimension on the cuda backend: for the program that finds out which kernels they need and for the tests that run
// them. Layer: backend tests.
#pragma once

#include <cstdint>
#include <vector>

#include <ballast/convolve.hpp>

namespace ballast::fft {

struct device_convolution_case {
  convolution_problem problem;
  std::int64_t most_elements = 0;  // the most that a group of blocks has; 0: as chosen
};

// One block, several, several groups of them, tiles that are not full, either operand the longer one, one element.
inline std::vector<device_convolution_case> device_convolution_cases() {
  constexpr auto f32 = precision::f32, f64 = precision::f64;
  using enum convolution_mode;
  return {
      {{.precision = f32, .first = {20}, .second = {13}}},
      {{.precision = f32, .first = {300}, .second = {9}}},
      {{.precision = f32, .correlate = true, .first = {300}, .second = {9}, .mode = same}, 96},
      {{.precision = f32, .correlate = true, .first = {9}, .second = {300}, .mode = valid}, 96},
      {{.precision = f64, .first = {9}, .second = {300}, .mode = same}},
      {{.precision = f32, .complex = true, .correlate = true, .first = {9}, .second = {300}}},
      {{.precision = f64, .complex = true, .correlate = true, .first = {300}, .second = {9}, .mode = same}, 96},
      {{.precision = f32, .first = {2500}, .second = {2500}}},
      {{.precision = f32, .first = {1}, .second = {1}}},
  };
}

}  // namespace ballast::fft
