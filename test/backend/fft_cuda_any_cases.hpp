// Problems on the cuda backend of more than three axes, with loops around the batch, or with strides that are negative or 0: for the
// program that finds out which kernels they need and for the tests that run them.
// Layer: backend tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ballast/fft.hpp>

#include "backend/fft_cases.hpp"
#include "support/effort.hpp"

namespace ballast::fft {

struct any_case {
  const char* name;
  fft::problem problem;
  direction way = direction::forward;
  bool in_place = false;
  bool at_smoke = false;
  std::int64_t memory = 0;  // bytes of the device; 0: those of machine::whole
  machine where = machine::whole;

  fft::options options() const { return {where == machine::fallback ? kernels::fallback_at_first : kernels::own}; }
};

// Real to real, split numbers, and the transforms of a convolution.
inline std::vector<any_case> cases_of_several_steps() {
  constexpr auto f32 = precision::f32, f64 = precision::f64;
  constexpr auto forward = direction::forward, inverse = direction::inverse;
  using enum real_kind;
  return {
      {"reals_to_reals",
       {.kind = kind::r2r, .precision = f32, .shape = {4, 8}, .batch = 5, .norm = norm::ortho, .real_kinds = {dct2, dst4}},
       forward,
       false,
       true},
      {"reals_to_reals_in_place",
       {.kind = kind::r2r, .precision = f32, .shape = {9}, .batch = 5, .real_kinds = {dct1}},
       inverse,
       true,
       true},
      {"r2hc_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {r2hc}}, forward, false, true},
      {"hc2r_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {hc2r}}, inverse, false, true},
      {"dht_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {dht}}, forward, false, true},
      {"dct1_of_9", {.kind = kind::r2r, .precision = f32, .shape = {9}, .batch = 3, .real_kinds = {dct1}}, inverse, false, true},
      {"dct2_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {dct2}}, forward, false, true},
      {"dct3_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {dct3}}, inverse, false, true},
      {"dct4_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {dct4}}, forward, false, true},
      {"dst1_of_7", {.kind = kind::r2r, .precision = f32, .shape = {7}, .batch = 3, .real_kinds = {dst1}}, inverse, false, true},
      {"dst2_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {dst2}}, forward, false, true},
      {"dst3_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {dst3}}, inverse, false, true},
      {"dst4_of_8", {.kind = kind::r2r, .precision = f32, .shape = {8}, .batch = 3, .real_kinds = {dst4}}, forward, false, true},
      {"dct1_of_17_in_double", {.kind = kind::r2r, .precision = f64, .shape = {17}, .batch = 3, .real_kinds = {dct1}}, forward},
      {"dct2_of_31_in_double", {.kind = kind::r2r, .precision = f64, .shape = {31}, .batch = 3, .real_kinds = {dct2}}, inverse},
      {"dct4_of_9_in_double", {.kind = kind::r2r, .precision = f64, .shape = {9}, .batch = 3, .real_kinds = {dct4}}, forward},
      {"dst1_of_10_in_double", {.kind = kind::r2r, .precision = f64, .shape = {10}, .batch = 3, .real_kinds = {dst1}}, forward},
      {"dst3_of_12_in_double", {.kind = kind::r2r, .precision = f64, .shape = {12}, .batch = 3, .real_kinds = {dst3}}, inverse},
      {"dht_of_67_in_double", {.kind = kind::r2r, .precision = f64, .shape = {67}, .batch = 3, .real_kinds = {dht}}, forward},
      // Three chunks of 167 lines, of which the last one has 166.
      {"reals_to_reals_in_chunks",
       {.kind = kind::r2r, .precision = f32, .shape = {9}, .batch = 500, .real_kinds = {dct4}},
       forward,
       false,
       true,
       std::int64_t{4} << 20},
      // The transforms of a convolution of 20 and 13 points.
      {"reals_of_a_convolution", {.kind = kind::r2c, .precision = f32, .shape = {32}}, forward, false, true},
      {"spectrum_of_a_convolution", {.kind = kind::c2r, .precision = f32, .shape = {32}}, inverse, false, true},
      {"split", {.precision = f32, .shape = {4, 8}, .batch = 3, .split = true}, forward, false, true},
      {"split_in_place", {.precision = f32, .shape = {8}, .batch = 3, .norm = norm::ortho, .split = true}, inverse, true, true},
      {"split_spectra",
       {.kind = kind::r2c, .precision = f32, .shape = {4, 8}, .batch = 2, .output = {{1, 5}, -24}, .split = true},
       forward},
      {"reals_of_split_spectra_of_four_axes",
       {.kind = kind::c2r, .precision = f64, .shape = {2, 2, 2, 8}, .batch = 2, .split = true},
       inverse},
      {"mixed_kinds_that_run_backwards",
       {.kind = kind::r2r,
        .precision = f64,
        .shape = {3, 4, 8},
        .batch = 4,
        .norm = norm::forward,
        .input = {{40, -8, 1}, -120},
        .output = {{1, 4, 16}, 130},
        .real_kinds = {dht, dct3, dst1},
        .loops = {{2, 0, 700}}},
       inverse},
  };
}

// Short lengths, which share their kernels. 64 points are two stages.
inline std::vector<any_case> cases_of_any_layout() {
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
    std::vector<any_case> made = cases_of_any_layout();
    for (any_case& each : cases_of_several_steps()) made.push_back(std::move(each));
    std::erase_if(made, [](const any_case& each) { return test::chosen_effort() == test::effort::smoke && !each.at_smoke; });
    return made;
  }();
  return cases;
}

}  // namespace ballast::fft
