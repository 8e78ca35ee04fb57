// Protected discrete Fourier transforms.
// Layer: interface; implemented in src/fft.
// Source: S. Wu, Y. Zhai, J. Liu et al., TurboFFT, PPoPP 2025 (two-sided checksums); docs/protection.md.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/pending_report.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>

namespace ballast::fft {

// c2c: complex to complex. r2c: real to the non-redundant half of the spectrum (last axis n/2 + 1), forward.
// c2r: that half spectrum to real, inverse; the imaginary parts of the elements that must be real are ignored.
enum class kind : std::uint8_t { c2c, r2c, c2r };

// With w = exp(-2πi/n): forward y[k] = s Σ_j x[j] w^{jk}, inverse x[j] = s' Σ_k y[k] w^{-jk}, for each axis.
enum class direction : std::uint8_t { forward, inverse };

// The factors, N being the product of the shape. backward: s = 1, s' = 1/N. ortho: s = s' = 1/√N. forward: s = 1/N, s' = 1.
enum class norm : std::uint8_t { backward, ortho, forward };

BALLAST_API std::string_view to_string(kind value) noexcept;
BALLAST_API std::string_view to_string(direction value) noexcept;
BALLAST_API std::string_view to_string(norm value) noexcept;

// Where the elements of one side are, in units of that side's element type (real or complex). Empty strides and distance 0:
// contiguous in C order, signals one after the other. Otherwise one stride for each axis, and the distance between signals.
struct layout {
  std::vector<std::int64_t> strides = {};
  std::int64_t distance = 0;
};

struct problem {
  fft::kind kind = fft::kind::c2c;
  ballast::precision precision = ballast::precision::f32;
  std::vector<std::int64_t> shape = {};  // 1 to 3 lengths ≥ 1, slowest axis first; the lengths of the real side for r2c and c2r
  std::int64_t batch = 1;                // how many signals, ≥ 1
  fft::norm norm = fft::norm::backward;
  layout input = {};
  layout output = {};
};

// The one-line name of a problem and direction: fft_c2c_f32_n1024_b16384_fwd, fft_r2c_f64_n320x320_b256_fwd.
// Norm (default backward) and layouts are not part of it.
BALLAST_API std::string to_token(const problem& value, direction way);

struct token {
  fft::problem problem;
  fft::direction direction = fft::direction::forward;
};

// The inverse of to_token. Throws invalid_argument_error that says what is wrong with `text`.
BALLAST_API token parse_token(std::string_view text);

// A transform, prepared: twiddle factors, checksum weights, thresholds, choice of passes. Immutable; copies share it.
// execute calls may run at the same time from several threads. One that was moved from can only be assigned to or destroyed: everything
// else throws invalid_argument_error.
class BALLAST_API plan {
 public:
  // Throws invalid_argument_error (shape, batch, strides, sizes that overflow), unsupported_error (backend, scheme), std::bad_alloc.
  // Schemes: "verify_before_store" (default): checksums of every signal (cuda: of every line of a pass), verified before its tile is
  // stored. Only on cuda, the schemes that TurboFFT compares: "one_sided" (verified after the store), "threadblock" and
  // "multi_transaction_2", "_4", … "_32" (two-sided, corrected after the store), "thread" (every butterfly by itself), "offline" (around
  // cuFFT); and, with protection off, the variants "v0" (1-D c2c of 2^k points), "v1", "v2", "tuned". docs/design/fft-cuda.md.
  // Backend automatic: a CUDA device if there is one; but calls with both operands on the host stay on the CPU, whatever the stream, if
  // copying them to the device and back would take longer (docs/design/cuda.md). report::backend says what ran.
  explicit plan(fft::problem problem, ballast::execution how = {});
  ~plan();
  plan(const plan&);
  plan(plan&&) noexcept;
  plan& operator=(const plan&);
  plan& operator=(plan&&) noexcept;

  // Transforms `in` into `out`. Spans reach at least to the last element of the layouts (invalid_argument_error if shorter).
  // In place: out.data() == in.data() (for r2c and c2r: the same address, rows padded to n/2 + 1 complex elements, and layouts
  // that say so); any other overlap is an error. Elements of `out` between strided elements are not touched. Operands in device memory lie
  // at a multiple of their element's size (8 bytes for std::complex<float>), or the call is refused (invalid_argument_error). Inf and NaN
  // in the data give the Inf and NaN that the mathematics gives, and are no fault. Covered: a signal from the moment it lies in the tile
  // and its checksum is made, every stage, twiddle factors, the result up to its store, the checks themselves, and, but on cuda, what waits
  // in memory between two passes, and the store. Not covered: `in` until it is read, `out` afterwards; on cuda also the store, what passes
  // load and store in between, and a line's elements while they are exchanged to make the spectrum of real data, or read twice to undo
  // that. Effects below about 400·u·√(log₂N + 1)·‖y‖ can pass (docs/design/fft.md). With verify_before_store a tile that stays wrong is not
  // stored; others may have been. Complexity O(batch · N log N) for any N. Throws uncorrectable_error if a fault persists (see
  // execution::throw_on_uncorrectable).
  report forward(std::span<const std::complex<float>> in, std::span<std::complex<float>> out) const;    // c2c f32
  report forward(std::span<const std::complex<double>> in, std::span<std::complex<double>> out) const;  // c2c f64
  report forward(std::span<const float> in, std::span<std::complex<float>> out) const;                  // r2c f32
  report forward(std::span<const double> in, std::span<std::complex<double>> out) const;                // r2c f64
  report inverse(std::span<const std::complex<float>> in, std::span<std::complex<float>> out) const;    // c2c f32
  report inverse(std::span<const std::complex<double>> in, std::span<std::complex<double>> out) const;  // c2c f64
  report inverse(std::span<const std::complex<float>> in, std::span<float> out) const;                  // c2r f32
  report inverse(std::span<const std::complex<double>> in, std::span<double> out) const;                // c2r f64

  // The same on the stream of the execution, without waiting: for the cuda backend, in and out in device memory, with the element types,
  // layouts and aliasing of forward and inverse. A CUDA graph can capture it once it has run outside of one (execution::wait_for_kernels).
  // Whether faults persisted is in the report. Throws invalid_argument_error, unsupported_error (other backends), std::bad_alloc.
  [[nodiscard]] pending_report enqueue(direction way, const void* in, void* out) const;

  // Bytes of device memory that one execution needs beside operands and tables, for execution::workspace; 0 for other backends than cuda.
  // What waits between passes is at most a 256th of the device's memory, or what one signal needs.
  std::int64_t workspace_bytes() const;

  const fft::problem& problem() const;

  struct implementation;  // src/fft/api/plan.hpp

 private:
  const implementation& made() const;
  std::shared_ptr<const implementation> implementation_;
};

}  // namespace ballast::fft
