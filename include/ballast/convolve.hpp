// Protected convolution and correlation of signals of any rank, by Fourier transforms.
// Layer: interface; implemented in src/fft/api. Source: docs/protection.md, "Convolution".
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>

namespace ballast::fft {
inline namespace abi_1 {

// The part of the sums that is stored, for lengths n and m of the operands along an axis. full: all n + m − 1. same: the n from
// ⌊(m − 1)/2⌋ on. valid: the |n − m| + 1 from min(n, m) − 1 on, in which no operand is continued by zeros.
enum class convolution_mode : std::uint8_t { full, same, valid };

BALLAST_API std::string_view to_string(convolution_mode value) noexcept;

// The sums of x with shape `first` and h with shape `second`, both continued by zeros, along each axis:
//   convolve   y_k = Σ_j x_j h_{k−j}
//   correlate  y_k = Σ_j x_j conj(h_{j−k+m−1}): the convolution with h reversed and conjugated; k = m − 1 is no shift
struct convolution_problem {
  ballast::precision precision = ballast::precision::f32;
  bool complex = false;                               // both operands and the result are
  bool correlate = false;                             // otherwise convolve
  std::vector<std::int64_t> first = {}, second = {};  // shapes of the same rank, lengths ≥ 1, slowest axis first
  convolution_mode mode = convolution_mode::full;
};

// The one-line name of a problem: convolve_real_f32_n4096_m33_full, correlate_complex_f64_n64x64_m5x5_same.
BALLAST_API std::string to_token(const convolution_problem& value);

// A prepared convolution. Immutable and thread-safe; copies share it. A plan that was moved from can only be assigned to or destroyed.
//
// Operands are contiguous in C order and lie in host memory; with the backend cuda they may lie in device memory. `out` overlaps neither of
// the others. A long 1-D signal, on cuda an operand of any rank, is cut into blocks whose convolutions overlap and are added. Inf and NaN
// in the data spread to all results of their block, and are no fault. Covered: everything from the reading of the operands to the store of
// the result. The transforms are protected as those of fft::plan; products and sums of blocks are computed twice; each block is verified
// from end to end by Σ y_k zᵏ = Σ x_j zʲ · Σ h_l zˡ at two fixed points z with |z| = 1, from another reading of the operands. Effects below
// about 400·u·√(log₂N + 1)·(‖x‖‖h‖ + ‖y‖) of a block of N points can pass. With the backend cuda everything runs on the device; a result in
// device memory after an uncorrectable fault is undefined. Complexity O(n log m) in blocks, O(N log N) otherwise, N being the points of the
// full result. Throws invalid_argument_error, uncorrectable_error if a fault persists (call::throw_on_uncorrectable), device_error,
// out_of_memory_error.
class BALLAST_API convolution {
 public:
  // Throws invalid_argument_error (shapes), unsupported_error (backend, scheme), out_of_memory_error. Schemes: those of fft::plan.
  explicit convolution(convolution_problem problem, const execution& where = {});
  ~convolution();
  convolution(const convolution&);
  convolution(convolution&&) noexcept;
  convolution& operator=(const convolution&);
  convolution& operator=(convolution&&) noexcept;

  report run(std::span<const float> first, std::span<const float> second, std::span<float> out, const call& now = {}) const;
  report run(std::span<const double> first, std::span<const double> second, std::span<double> out, const call& now = {}) const;
  report run(std::span<const std::complex<float>> first, std::span<const std::complex<float>> second, std::span<std::complex<float>> out,
             const call& now = {}) const;
  report run(std::span<const std::complex<double>> first, std::span<const std::complex<double>> second, std::span<std::complex<double>> out,
             const call& now = {}) const;

  const convolution_problem& problem() const;
  const std::vector<std::int64_t>& output_shape() const;
  ballast::backend backend() const;

  struct implementation;  // src/fft/api/convolution.cpp

 private:
  const implementation& made() const;
  std::shared_ptr<const implementation> implementation_;
};

}  // namespace abi_1
}  // namespace ballast::fft
