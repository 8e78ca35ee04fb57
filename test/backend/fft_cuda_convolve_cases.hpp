// Convolutions on the cuda backend: for the program that finds out which kernels they need and for the tests that run them.
// Layer: backend tests.
#pragma once

#include <cstdint>
#include <vector>

#include <ballast/convolve.hpp>

namespace ballast::fft {

struct device_convolution_case {
  convolution_problem problem;
  std::int64_t most_elements = 0;  // the most that a group of blocks has; 0: as chosen
};

// One block, several, several groups of them, tiles that are not full, either operand the longer one, one element. With several axes:
// blocks along one axis or more of them, groups along the first axis or the last, either operand the longer one along an axis, blocks of
// one point along an axis, a block of many tiles, more axes than the kernels are compiled for.
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
      {{.precision = f32, .first = {90, 60}, .second = {3, 3}, .mode = same}, 96},
      {{.precision = f64, .complex = true, .correlate = true, .first = {3, 2}, .second = {60, 90}}, 96},
      {{.precision = f32, .first = {5, 40}, .second = {12, 7}, .mode = valid}},
      {{.precision = f64, .correlate = true, .first = {17, 23}, .second = {5, 31}}},
      {{.precision = f32, .complex = true, .first = {33, 90}, .second = {1, 3}, .mode = same}},
      {{.precision = f64, .first = {1, 64, 1}, .second = {3, 1, 1}}},
      {{.precision = f32, .first = {150, 150}, .second = {130, 130}, .mode = valid}},
      {{.precision = f32, .complex = true, .correlate = true, .first = {7, 9, 5}, .second = {3, 2, 4}, .mode = same}},
      {{.precision = f32, .correlate = true, .first = {60, 3, 60}, .second = {2, 2, 3}}, 96},
      {{.precision = f64, .first = {5, 6, 7}, .second = {6, 2, 3}, .mode = valid}},
      {{.precision = f64, .complex = true, .first = {4, 5, 6}, .second = {3, 3, 3}}},
      {{.precision = f32, .correlate = true, .first = {3, 4, 1, 2, 3, 5}, .second = {2, 1, 1, 2, 3, 2}, .mode = same}},
      {{.precision = f64, .complex = true, .correlate = true, .first = {40, 2, 3, 34}, .second = {2, 2, 2, 2}}, 96},
  };
}

}  // namespace ballast::fft
