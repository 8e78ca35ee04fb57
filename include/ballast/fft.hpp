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
inline namespace abi_1 {

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

// The places of the elements of one side, in units of that side's element type (real or complex). Empty strides and distance 0:
// contiguous in C order, signals one after the other. Otherwise one stride for each axis, and the distance between signals.
struct layout {
  std::vector<std::int64_t> strides = {};
  std::int64_t distance = 0;
};

// A transform over all axes of `shape`, for `batch` signals.
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

// A parsed token.
struct token {
  fft::problem problem;
  fft::direction direction = fft::direction::forward;
};

// The inverse of to_token. Throws invalid_argument_error that says what is wrong with `text`.
BALLAST_API token parse_token(std::string_view text);

// The kernels of the cuda backend are compiled for each problem, which takes a compiler seconds if they are neither in the bundle nor in
// the cache. own: the first call waits for them, and every call of a problem gives the same bits. fallback_at_first: until they are
// compiled, kernels that suit every problem compute, with other rounding, more slowly, and with memory of their own beside call::workspace;
// report::fallback_kernels says when.
enum class kernels : std::uint8_t { own, fallback_at_first };

// Options of a plan.
struct options {
  fft::kernels kernels = fft::kernels::own;
};

// A prepared transform: twiddle factors, checksum weights, thresholds, choice of passes. Immutable and thread-safe; copies share it. After
// the first call in each direction, a call allocates no memory on the host or the device (copies of host operands to a device excepted). A
// plan that was moved from can only be assigned to or destroyed: everything else throws invalid_argument_error.
//
// All calls: `in` and `out` reach at least to the last element of the layouts (invalid_argument_error if shorter). In place: out.data() ==
// in.data() (for r2c and c2r: the same address, rows padded to n/2 + 1 complex elements, and layouts that say so); any other overlap is an
// error. Elements of `out` between strided elements are not touched. Operands in device memory lie at a multiple of their element's size (8
// bytes for std::complex<float>), or the call is refused (invalid_argument_error). Inf and NaN in the data give the Inf and NaN that the
// mathematics gives, and are no fault.
// Covered: a signal from the moment it lies in the tile and its checksum is computed, every stage, twiddle factors, the result up to its
// store, the checks themselves; on the CPU also the data in memory between two passes, and the store. Not covered: `in` until it is read,
// `out` afterwards; on cuda also the store, the data in memory between two passes, and a line's elements while they are exchanged to form
// the spectrum of real data, or read twice to undo that. Effects below about 400·u·√(log₂N + 1)·‖y‖ can pass (docs/protection.md). With the
// scheme verify_before_store a tile that stays wrong is not stored; others may have been.
// Complexity O(batch · N log N) for any N. Throws uncorrectable_error if a fault persists (call::throw_on_uncorrectable), device_error,
// out_of_memory_error.
class BALLAST_API plan {
 public:
  // Throws invalid_argument_error (shape, batch, strides, sizes that overflow), unsupported_error (backend, scheme), out_of_memory_error.
  // Schemes: "verify_before_store" (default): checksums of every signal (cuda: of every line of a pass), verified before its tile is
  // stored. Only on cuda, the schemes that TurboFFT compares: "one_sided" (verified after the store), "threadblock" and
  // "multi_transaction_2", "_4", … "_32" (two-sided, corrected after the store), "thread" (every butterfly by itself), "offline" (around
  // cuFFT); and, with protection off, the variants "v0" (1-D c2c of 2^k points), "v1", "v2", "tuned". docs/design/fft-cuda.md.
  // Backend automatic: a CUDA device if there is one; but calls with both operands on the host stay on the CPU, on any stream, if copying
  // them to the device and back would take longer (docs/design/cuda.md). report::backend says what ran.
  explicit plan(fft::problem problem, const execution& where = {}, const options& wanted = {});
  ~plan();
  plan(const plan&);
  plan(plan&&) noexcept;
  plan& operator=(const plan&);
  plan& operator=(plan&&) noexcept;

  // Transforms `in` into `out`.
  report forward(std::span<const std::complex<float>> in, std::span<std::complex<float>> out, const call& now = {}) const;    // c2c f32
  report forward(std::span<const std::complex<double>> in, std::span<std::complex<double>> out, const call& now = {}) const;  // c2c f64
  report forward(std::span<const float> in, std::span<std::complex<float>> out, const call& now = {}) const;                  // r2c f32
  report forward(std::span<const double> in, std::span<std::complex<double>> out, const call& now = {}) const;                // r2c f64
  report inverse(std::span<const std::complex<float>> in, std::span<std::complex<float>> out, const call& now = {}) const;    // c2c f32
  report inverse(std::span<const std::complex<double>> in, std::span<std::complex<double>> out, const call& now = {}) const;  // c2c f64
  report inverse(std::span<const std::complex<float>> in, std::span<float> out, const call& now = {}) const;                  // c2r f32
  report inverse(std::span<const std::complex<double>> in, std::span<double> out, const call& now = {}) const;                // c2r f64

  // The same on call::stream without waiting: for the cuda backend, both operands in device memory. A CUDA graph can capture the call once
  // the plan has run outside of one. The report has the verdict. Throws unsupported_error for other backends.
  [[nodiscard]] pending_report enqueue_forward(std::span<const std::complex<float>> in, std::span<std::complex<float>> out,
                                               const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_forward(std::span<const std::complex<double>> in, std::span<std::complex<double>> out,
                                               const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_forward(std::span<const float> in, std::span<std::complex<float>> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_forward(std::span<const double> in, std::span<std::complex<double>> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(std::span<const std::complex<float>> in, std::span<std::complex<float>> out,
                                               const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(std::span<const std::complex<double>> in, std::span<std::complex<double>> out,
                                               const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(std::span<const std::complex<float>> in, std::span<float> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(std::span<const std::complex<double>> in, std::span<double> out, const call& now = {}) const;

  // Bytes of device memory that one call needs beside operands and tables, for call::workspace; 0 for other backends than cuda. The data
  // between passes take at most a 256th of the device's memory, or the size of one signal.
  std::int64_t workspace_bytes() const;

  const fft::problem& problem() const;
  ballast::backend backend() const;  // the one that was chosen for operands in its own memory

  struct implementation;  // src/fft/api/plan.hpp

 private:
  const implementation& made() const;
  std::shared_ptr<const implementation> implementation_;
};

}  // namespace abi_1
}  // namespace ballast::fft
