// Transforms of any rank in arrays with strides, in nests of loops, and of reals: their tokens, data, exact results, and cuFFT's way to
// them. Layer: gpu-check.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/fft.hpp>

#include "fft/problem.hpp"

namespace ballast::gpu_check {

// A problem, and how it lies in memory:
//   fft_…             contiguous
//   columns_fft_…     1-D: the columns of a matrix of b columns
//   transposed_fft_…  1-D: rows to columns
//   middleP_fft_…     1-D: the middle axis of P × n × b/P, two nested loops
//   windows_fft_…     1-D: windows of the input that begin n/4 after each other, which overlap
//   axes_fft_…        2-D: the first and the last axis of n₁ × b × n₂
// c2c, r2c or r2r. Unnormalised.
struct placed_problem {
  std::string token;
  fft::problem problem;
  fft::direction way = fft::direction::forward;
  fft::array_problem shape;

  std::int64_t in_words() const { return shape.input.extent * (shape.input.real ? 1 : 2); }
  std::int64_t out_words() const { return shape.output.extent * (shape.output.real ? 1 : 2); }
  std::int64_t bytes() const {  // that a transform moves, at least
    return shape.signals() * shape.points() * (shape.input.real ? 2 : 4) * (problem.precision == precision::f32 ? 4 : 8);
  }
};

// Throws invalid_argument_error.
placed_problem parse_placed(std::string_view text);

// Runs the plan once on a stream. `wait`: until the results lie in memory; then returns the report, otherwise an empty one.
template <class T>
report run_placed(const placed_problem& what, const fft::plan& plan, const void* in, void* out, bool wait, void* stream);

// The relative error of a signal ‖y − ŷ‖₂/‖y‖₂ of the first and of the last signal; the larger one. word(i): word i of the input.
template <class T>
double error_of_placed(const placed_problem& what, const std::function<T(std::int64_t)>& word, const std::vector<T>& out);

// Returns the function that enqueues cuFFT's calls for the problem: one; one for each step of the outer loops; or one for the last three
// axes and one for each line of planes of the others. Throws unsupported_error if cuFFT cannot compute it.
std::function<void(const void* in, void* out)> cufft_way(const placed_problem& what);

}  // namespace ballast::gpu_check
