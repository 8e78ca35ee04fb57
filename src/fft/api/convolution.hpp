// The contents of a convolution, and its execution.
// Layer: algorithm, backend-free.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

#include <ballast/convolve.hpp>

#include "core/memory.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/convolve/convolve.hpp"
#include "inject/active.hpp"
#include "run/recorder.hpp"
#include "run/sampling.hpp"
#include "run/settings.hpp"

namespace ballast::fft {

// The powers of two points on the unit circle for each axis, as many as its length: [point][axis][exponent].
template <class W>
using circle_powers = std::array<std::vector<std::vector<std::complex<W>>>, 2>;
template <class W>
circle_powers<W> make_circle_powers(const std::vector<std::int64_t>& lengths);

// The product of lengths.
inline std::int64_t points_of(const std::vector<std::int64_t>& lengths) {
  std::int64_t made = 1;
  for (const std::int64_t n : lengths) made *= n;
  return made;
}

// It has that many members because the division into blocks is stored, not computed in every call.
struct convolution::implementation {
  // Returns the implementation for the next call: this one, or the one without protection (execution::sampled).
  const implementation& next() const { return sampled.next(*this, 0); }

  convolution_problem problem;
  execution where;
  shared_text token;
  ballast::backend backend = ballast::backend::cpu;
  shared_text scheme;
  std::vector<std::int64_t> out_shape, out_first;             // the stored part of the sums
  bool swapped = false;                                       // the second operand is the one that is divided
  std::vector<std::int64_t> signal, kernel, padded;           // lengths of the divided operand, of the other one, of transforms
  std::int64_t step = 0, blocks = 1, group = 1;               // 1-D: points and number of blocks; blocks that are transformed together
  std::unique_ptr<const cuda::device_convolution> on_device;  // cuda: it does all of the work, and the members below are not set
  std::unique_ptr<const transform> forward, backward, of_kernel;
  double scale = 1;
  // With protection, those for the precision.
  struct {
    circle_powers<double> for_f32;
    circle_powers<long double> for_f64;
  } powers;
  mutable core::arena memory;
  run::sampled_plans<implementation> sampled;

  std::int64_t points() const { return points_of(padded); }
};

// The operands of one call, with data of type T or of complex numbers of it.
template <class T>
struct convolution_call {
  const convolution::implementation& of;
  const T *first, *second;
  T* out;
  const run::settings& how;
  run::recorder& seen;
  inject::active_injector& injector;
};
// Computes and verifies the result.
template <class T>
void run_convolution(const convolution_call<T>& call);

extern template circle_powers<double> make_circle_powers(const std::vector<std::int64_t>&);
extern template circle_powers<long double> make_circle_powers(const std::vector<std::int64_t>&);
extern template void run_convolution(const convolution_call<float>&);
extern template void run_convolution(const convolution_call<double>&);

}  // namespace ballast::fft
