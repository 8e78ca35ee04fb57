// Problems on the cuda backend of more than three axes, with loops around the batch, or with strides that are negative or 0: for the
// program that finds out which kernels they need and for the tests that run them.
// Layer: backend tests.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ballast/fft.hpp>

#include "support/effort.hpp"

namespace ballast::fft {

struct any_case {
  const char* name;
  fft::problem problem;
  direction way = direction::forward;
  bool in_place = false;
  bool at_smoke = false;
};

// Short lengths, which share their kernels. 64 points are two stages.
inline std::vector<any_case> every_any_case() {
  constexpr auto f32 = precision::f32, f64 = precision::f64;
  constexpr auto forward = direction::forward, inverse = direction::inverse;
  return {
      {"four_axes", {.precision = f32, .shape = {2, 2, 2, 64}, .batch = 2, .norm = norm::ortho}, forward, false, true},
      {"four_axes_in_place", {.precision = f32, .shape = {2, 2, 2, 64}, .batch = 2, .norm = norm::ortho}, forward, true, true},
      {"eight_axes", {.precision = f64, .shape = {2, 2, 2, 2, 2, 2, 2, 2}}, inverse},
      {"reals_of_four_axes", {.kind = kind::r2c, .precision = f32, .shape = {2, 4, 2, 8}, .batch = 2}, forward, false, true},
      {"reals_of_four_axes_in_place",
       {.kind = kind::r2c,
        .precision = f32,
        .shape = {2, 4, 2, 8},
        .batch = 2,
        .input = {{80, 20, 10, 1}, 160},
        .output = {{40, 10, 5, 1}, 80}},
       forward,
       true},
      {"spectra_of_four_axes", {.kind = kind::c2r, .precision = f32, .shape = {2, 4, 2, 8}, .batch = 2}, inverse, false, true},
      {"spectra_of_four_axes_in_place",
       {.kind = kind::c2r,
        .precision = f32,
        .shape = {2, 4, 2, 8},
        .batch = 2,
        .input = {{40, 10, 5, 1}, 80},
        .output = {{80, 20, 10, 1}, 160}},
       inverse,
       true},
      {"odd_reals_of_five_axes", {.kind = kind::r2c, .precision = f64, .shape = {2, 2, 2, 2, 5}}, forward},
      {"odd_spectra_of_five_axes",
       {.kind = kind::c2r, .precision = f64, .shape = {2, 2, 2, 2, 5}, .batch = 2, .norm = norm::forward, .loops = {{2, 96, 160}}},
       inverse},
      {"loop_in_another_order",
       {.precision = f32, .shape = {16}, .batch = 3, .input = {{1}, 20}, .output = {{4}, 1}, .loops = {{4, 70, 64}}},
       forward},
      {"one_signal_many_times", {.precision = f64, .shape = {12}, .batch = 5, .input = {{1}, 0}, .output = {{1}, 12}}, inverse},
      {"loops_in_opposite_directions",
       {.precision = f32, .shape = {8}, .batch = 5, .input = {{2}, -17}, .output = {{1}, 8}, .loops = {{3, 100, -45}, {2, -300, 200}}},
       inverse,
       false,
       true},
      {"axes_that_run_backwards",
       {.precision = f32, .shape = {4, 8}, .batch = 2, .input = {{8, -1}, 40}, .output = {{-9, 1}, 50}},
       forward,
       false,
       true},
      {"an_axis_that_stands_still", {.precision = f32, .shape = {4, 8}, .batch = 2, .input = {{0, 1}, 8}}, forward},
      {"backwards_in_place",
       {.precision = f32, .shape = {4, 8}, .batch = 2, .input = {{-8, 1}, -32}, .output = {{-8, 1}, -32}},
       forward,
       true},
      {"reals_that_run_backwards",
       {.kind = kind::r2c, .precision = f32, .shape = {4, 8}, .batch = 3, .input = {{8, -1}, 40}, .output = {{5, 1}, 25}},
       forward},
      {"pairs_of_reals_in_rows_that_run_backwards",
       {.kind = kind::r2c, .precision = f32, .shape = {4, 8}, .batch = 3, .input = {{-8, 1}, -40}, .output = {{5, 1}, 25}},
       forward,
       false,
       true},
      {"spectra_to_reals_in_rows_that_run_backwards",
       {.kind = kind::c2r,
        .precision = f32,
        .shape = {4, 8},
        .batch = 3,
        .input = {{5, 1}, 25},
        .output = {{-8, 1}, 40},
        .loops = {{2, 0, 160}}},
       inverse},
  };
}

// Those whose kernels are compiled for the emulator.
inline const std::vector<any_case>& any_cases() {
  static const std::vector<any_case> cases = [] {
    std::vector<any_case> made = every_any_case();
    std::erase_if(made, [](const any_case& each) { return test::chosen_effort() == test::effort::smoke && !each.at_smoke; });
    return made;
  }();
  return cases;
}

}  // namespace ballast::fft
