// Reads the tokens of convolutions.
// Layer: test harness. Needs no package, so that test/gpu can use it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/convolve.hpp>
#include <ballast/error.hpp>

namespace ballast::test {

// Reads lengths such as 64x65, and removes them from the begin of `text`. Returns an empty list if there are none.
inline std::vector<std::int64_t> read_lengths(std::string_view& text) {
  std::vector<std::int64_t> made;
  for (;;) {
    std::int64_t length = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), length);
    if (read.ec != std::errc()) return {};
    made.push_back(length);
    text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
    if (!text.starts_with('x')) return made;
    text.remove_prefix(1);
  }
}

// The inverse of to_token: convolve_real_f32_n4096_m33_full, correlate_complex_f64_n64x64_m5x5_same, and so on. Throws
// invalid_argument_error.
inline fft::convolution_problem parse_convolution(std::string_view text) {
  for (const bool correlate : {false, true}) {
    for (const bool complex : {false, true}) {
      for (const precision type : {precision::f32, precision::f64}) {
        for (const auto mode : {fft::convolution_mode::full, fft::convolution_mode::same, fft::convolution_mode::valid}) {
          fft::convolution_problem made{
              .precision = type, .complex = complex, .correlate = correlate, .first = {1}, .second = {1}, .mode = mode};
          const std::string token = to_token(made);
          std::string_view rest = text;
          const std::string begin = token.substr(0, token.find("_n") + 2);
          if (!rest.starts_with(begin)) continue;
          rest.remove_prefix(begin.size());
          made.first = read_lengths(rest);
          if (made.first.empty() || !rest.starts_with("_m")) continue;
          rest.remove_prefix(2);
          made.second = read_lengths(rest);
          if (made.second.size() == made.first.size() && std::ranges::min(made.first) > 0 && std::ranges::min(made.second) > 0 &&
              to_token(made) == text)
            return made;
        }
      }
    }
  }
  throw invalid_argument_error("expected a convolution such as convolve_real_f32_n4096_m33_full, got \"" + std::string(text) + '"');
}

}  // namespace ballast::test
