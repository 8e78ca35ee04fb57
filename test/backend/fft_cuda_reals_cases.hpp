// Real-to-real transforms on the cuda backend whose lines are one pass each, for the program that finds out which kernels they need and for
// the tests that run them. fft_cuda_any_cases.hpp has short ones, and those in steps.
// Layer: backend tests.
#pragma once

#include <cstdint>
#include <vector>

#include <ballast/fft.hpp>

#include "backend/fft_cuda_any_cases.hpp"

namespace ballast::fft {

inline const std::vector<any_case>& reals_cases() {
  constexpr auto f32 = precision::f32, f64 = precision::f64;
  constexpr auto forward = direction::forward, inverse = direction::inverse;
  using enum real_kind;
  const auto line = [](const char* name, precision type, real_kind what, std::int64_t n, std::int64_t batch,
                       direction way = direction::forward, norm scale = norm::backward, bool in_place = false) {
    return any_case{
        name, {.kind = kind::r2r, .precision = type, .shape = {n}, .batch = batch, .norm = scale, .real_kinds = {what}}, way, in_place};
  };
  const auto fallback = [](any_case of) {
    of.where = machine::fallback;
    return of;
  };
  static const std::vector<any_case> cases = {
      line("r2hc", f32, r2hc, 64, 7),
      line("hc2r", f32, hc2r, 64, 7),
      line("dht", f32, dht, 64, 7),
      line("dct1", f32, dct1, 33, 7),
      line("dct2", f32, dct2, 64, 7),
      line("dct3", f32, dct3, 64, 7),
      line("dct4", f32, dct4, 64, 7),
      line("dst1", f32, dst1, 31, 7),
      line("dst2", f32, dst2, 64, 7),
      line("dst3", f32, dst3, 64, 7),
      line("dst4", f32, dst4, 64, 7),
      line("dct2_of_1024", f32, dct2, 1024, 2, forward, norm::ortho),
      line("dct3_of_1024", f32, dct3, 1024, 2, inverse, norm::backward, true),
      line("dct4_of_2000_in_double", f64, dct4, 2000, 1, forward, norm::ortho),
      line("dct1_of_513_in_double", f64, dct1, 513, 2, inverse, norm::ortho, true),
      line("dst3_of_90_in_double", f64, dst3, 90, 5),
      line("odd_dct2", f32, dct2, 45, 7),
      line("odd_dst3", f32, dst3, 45, 7),
      line("odd_hc2r_in_double", f64, hc2r, 105, 5),
      line("odd_dht_in_double", f64, dht, 105, 5),
      // The steps that serve until the kernels of one pass are compiled.
      fallback(line("dct2_by_fallback_kernels", f32, dct2, 64, 7, forward, norm::ortho)),
      fallback(line("odd_dst3_in_double_by_fallback_kernels", f64, dst3, 45, 5, inverse)),
      {"short_lines",
       {.kind = kind::r2r, .precision = f32, .shape = {4, 8}, .batch = 5, .norm = norm::ortho, .real_kinds = {dct2, dst4}},
       forward},
      {"columns",
       {.kind = kind::r2r, .precision = f32, .shape = {48, 40}, .batch = 2, .norm = norm::ortho, .real_kinds = {dct2, dst3}},
       forward},
      {"columns_of_three_axes_in_place",
       {.kind = kind::r2r, .precision = f64, .shape = {17, 20, 6}, .batch = 2, .real_kinds = {dct1, dct4, r2hc}},
       inverse,
       true},
      {"loops_and_gaps",
       {.kind = kind::r2r,
        .precision = f32,
        .shape = {64},
        .batch = 5,
        .input = {{2}, -130},
        .output = {{1}, 70},
        .real_kinds = {dst2},
        .loops = {{3, 700, 400}, {2, -3000, 2000}}},
       forward},
  };
  return cases;
}

}  // namespace ballast::fft
