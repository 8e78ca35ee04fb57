// Protected discrete Fourier transforms, and the real transforms of their family: cosine, sine, Hartley.
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
// c2r: that half spectrum to real, inverse; the imaginary parts of the elements that must be real are ignored. r2r: real to real, one of
// the eleven real_kinds along each axis.
enum class kind : std::uint8_t { c2c, r2c, c2r, r2r };

// The real transforms y = L x of n points, with the definitions (and without the factors) of FFTW. `r` and `i` are the real and imaginary
// parts of a half spectrum Y, which a "half complex" array stores as r_0, r_1, …, r_{n/2}, i_{(n+1)/2−1}, …, i_1.
//   r2hc  the half complex spectrum of x: Y_k = Σ_j x_j e^{−2πi jk/n}
//   hc2r  the reals of a half complex spectrum: y_j = Σ_k X_k e^{2πi jk/n}; n times the inverse of r2hc
//   dht   y_k = Σ_j x_j (cos 2πjk/n + sin 2πjk/n)
//   dct1  y_k = x_0 + (−1)^k x_{n−1} + 2 Σ_{0<j<n−1} x_j cos πjk/(n−1), n ≥ 2
//   dct2  y_k = 2 Σ_j x_j cos π(j+½)k/n
//   dct3  y_k = x_0 + 2 Σ_{j>0} x_j cos πj(k+½)/n
//   dct4  y_k = 2 Σ_j x_j cos π(j+½)(k+½)/n
//   dst1  y_k = 2 Σ_j x_j sin π(j+1)(k+1)/(n+1)
//   dst2  y_k = 2 Σ_j x_j sin π(j+½)(k+1)/n
//   dst3  y_k = (−1)^k x_{n−1} + 2 Σ_{j<n−1} x_j sin π(j+1)(k+½)/n
//   dst4  y_k = 2 Σ_j x_j sin π(j+½)(k+½)/n
enum class real_kind : std::uint8_t { r2hc, hc2r, dht, dct1, dct2, dct3, dct4, dst1, dst2, dst3, dst4 };

// The kind of L', where L' L = N times the identity: hc2r for r2hc, dct3 for dct2, dst3 for dst2, and the reverse; the others are their
// own.
BALLAST_API real_kind inverse_of(real_kind value) noexcept;
// N: 2(n − 1) for dct1, 2(n + 1) for dst1, n for r2hc, hc2r and dht, 2n for the others.
BALLAST_API std::int64_t logical_length(real_kind value, std::int64_t n) noexcept;

// With w = exp(-2πi/n): forward y[k] = s Σ_j x[j] w^{jk}, inverse x[j] = s' Σ_k y[k] w^{-jk}, for each axis. r2r: forward y = s L x,
// inverse x = s' L' y.
enum class direction : std::uint8_t { forward, inverse };

// The factors, N being the product of the shape, for r2r that of the logical lengths. backward: s = 1, s' = 1/N. ortho: s = s' = 1/√N.
// forward: s = 1/N, s' = 1.
enum class norm : std::uint8_t { backward, ortho, forward };

BALLAST_API std::string_view to_string(kind value) noexcept;
BALLAST_API std::string_view to_string(real_kind value) noexcept;
BALLAST_API std::string_view to_string(direction value) noexcept;
BALLAST_API std::string_view to_string(norm value) noexcept;

// The places of the elements of one side, in units of that side's element type (real or complex). Empty strides and distance 0:
// contiguous in C order, signals one after the other. Otherwise one stride for each axis, and the distance between signals. Strides and
// distances may be negative, and on the input side 0. A span begins at the lowest element of its layout. Elements of the output are
// distinct: sorted by size, each of its strides and distances steps over the elements of the smaller ones.
struct layout {
  std::vector<std::int64_t> strides = {};
  std::int64_t distance = 0;
};

// A loop over signals: how many, and the distances between them on both sides, as in a layout.
struct loop {
  std::int64_t count = 1;
  std::int64_t input = 0;
  std::int64_t output = 0;
};

// A transform over all axes of `shape`, for batch · Π loops.count signals.
struct problem {
  fft::kind kind = fft::kind::c2c;
  ballast::precision precision = ballast::precision::f32;
  std::vector<std::int64_t> shape = {};  // any number of lengths ≥ 1, slowest axis first; the lengths of the real side for r2c and c2r
  std::int64_t batch = 1;                // how many signals in the innermost loop, ≥ 1
  fft::norm norm = fft::norm::backward;
  layout input = {};
  layout output = {};
  std::vector<real_kind> real_kinds = {};  // r2r: one for each axis
  std::vector<loop> loops = {};            // the loops around the batch, the outermost first
  bool split = false;                      // not r2r: complex sides are two arrays, one of real and one of imaginary parts
};

// The two arrays of a split side, T being float, double, or const one of them. Both have the layout of the side, in units of T. They may
// lie in each other's gaps, as the parts of interleaved complex numbers do with strides of 2; on cuda not in host memory.
template <class T>
struct parts {
  std::span<T> real;
  std::span<T> imaginary;
};

// The one-line name of a problem and direction: fft_c2c_f32_n1024_b16384_fwd, fft_r2c_f64_n320x320_b256_fwd, for r2r with the kinds of the
// axes: fft_dct2_f32_n512_b64_fwd, fft_dct1xdst4_f64_n65x64_b1_inv; a single one stands for all. b is the number of signals. Norm (default
// backward) and layouts are not part of it.
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
// in.data(); any other overlap is an error, except of split sides. Layouts that give a signal other bytes on both sides (r2c and c2r need
// rows padded to n/2 + 1 complex elements) cost a copy of the input, and are refused in device memory and by enqueue_…. Elements of `out`
// between strided elements are not touched. Device memory at no multiple of an element's size (8 bytes for std::complex<float>) is refused
// (invalid_argument_error). Inf and NaN in the data give the Inf and NaN that the mathematics gives, and are no fault.
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
  // Every problem runs on every backend.
  // Schemes: "verify_before_store" (default): checksums of every signal (cuda: of every line of a pass), verified before its tile is
  // stored. Only on cuda: "end_to_end" (complex lines of two and three passes, if the input is kept: one check from input to output, after
  // the store, which covers the data in memory between the passes; all others as the default); the schemes that TurboFFT compares:
  // "one_sided" (verified after the store), "threadblock" and "multi_transaction_2", "_4", … "_32" (two-sided, corrected after the store),
  // "thread" (every butterfly by itself), "offline" (around cuFFT); and, with protection off, the variants "v0" (1-D c2c of 2^k points),
  // "v1", "v2", "tuned". docs/design/fft-cuda.md. Backend automatic: a CUDA device if there is one; but calls with both operands on the
  // host stay on the CPU, on any stream, if copying them to the device and back would take longer (docs/design/cuda.md). report::backend
  // says what ran.
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

  report forward(std::span<const float> in, std::span<float> out, const call& now = {}) const;    // r2r f32
  report forward(std::span<const double> in, std::span<double> out, const call& now = {}) const;  // r2r f64
  report inverse(std::span<const float> in, std::span<float> out, const call& now = {}) const;    // r2r f32
  report inverse(std::span<const double> in, std::span<double> out, const call& now = {}) const;  // r2r f64

  // Split problems. In place without a copy: c2c, with the same addresses for both parts.
  report forward(parts<const float> in, parts<float> out, const call& now = {}) const;        // c2c f32
  report forward(parts<const double> in, parts<double> out, const call& now = {}) const;      // c2c f64
  report forward(std::span<const float> in, parts<float> out, const call& now = {}) const;    // r2c f32
  report forward(std::span<const double> in, parts<double> out, const call& now = {}) const;  // r2c f64
  report inverse(parts<const float> in, parts<float> out, const call& now = {}) const;        // c2c f32
  report inverse(parts<const double> in, parts<double> out, const call& now = {}) const;      // c2c f64
  report inverse(parts<const float> in, std::span<float> out, const call& now = {}) const;    // c2r f32
  report inverse(parts<const double> in, std::span<double> out, const call& now = {}) const;  // c2r f64

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
  [[nodiscard]] pending_report enqueue_forward(std::span<const float> in, std::span<float> out, const call& now = {}) const;    // r2r
  [[nodiscard]] pending_report enqueue_forward(std::span<const double> in, std::span<double> out, const call& now = {}) const;  // r2r
  [[nodiscard]] pending_report enqueue_inverse(std::span<const float> in, std::span<float> out, const call& now = {}) const;    // r2r
  [[nodiscard]] pending_report enqueue_inverse(std::span<const double> in, std::span<double> out, const call& now = {}) const;  // r2r
  [[nodiscard]] pending_report enqueue_forward(parts<const float> in, parts<float> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_forward(parts<const double> in, parts<double> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_forward(std::span<const float> in, parts<float> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_forward(std::span<const double> in, parts<double> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(parts<const float> in, parts<float> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(parts<const double> in, parts<double> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(parts<const float> in, std::span<float> out, const call& now = {}) const;
  [[nodiscard]] pending_report enqueue_inverse(parts<const double> in, std::span<double> out, const call& now = {}) const;

  // Bytes of device memory that one call needs beside operands and tables, for call::workspace; 0 for other backends than cuda. The data
  // between passes take at most a 256th of the device's memory, or the size of one signal; split sides are copied as a whole.
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
