// Two-dimensional complex transforms whose rows are divided among the ranks of a group.
// Layer: interface; implemented in src/fft/api/slab.cpp. docs/distributed.md shows its use.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <span>

#include <ballast/execution.hpp>
#include <ballast/fft.hpp>
#include <ballast/report.hpp>

namespace ballast::fft {
inline namespace abi_1 {

// The layout of a transform. transposed: each rank has neighbouring columns, each contiguous. natural: each rank has rows, as those of the
// data; this takes a second exchange.
enum class slab_order : std::uint8_t { transposed, natural };

// X[a, b] = s Σ_i Σ_j x[i, j] e^{∓2πi (a i / n0 + b j / n1)} of n0 × n1 numbers, as fft::plan computes it, with fft::norm's s. Rank p of P
// has rows ⌊p n0 / P⌋ … ⌊(p + 1) n0 / P⌋ − 1, row-major, and of a transposed transform columns ⌊p n1 / P⌋ … ⌊(p + 1) n1 / P⌋ − 1: its
// column b is contiguous, element a at (b − first_column()) · n0 + a. All ranks make the plan and its calls together, on the group of
// `where`, whose ranks must still be all that made the plan. `in` and `out` do not overlap. A result does not depend on the number of
// ranks, up to the rounding of batches of another size. Covered: the lines as in fft::plan; the messages as in docs/distributed.md; the
// copies before and after them by sums over the source and the destination, which must agree to the bit, or all ranks exchange again (check
// "group.transpose"). Not covered: the copies of `in`, and to `out`. Errors: invalid_argument_error (lengths, sizes of in and out,
// different calls on the ranks), rank_lost_error, and those of fft::plan. A rank moves all of its data once, in natural order twice. Memory
// of a call: two copies of the rank's data.
template <class T>
class slab_plan {
 public:
  BALLAST_API slab_plan(std::int64_t n0, std::int64_t n1, const execution& where, slab_order result = slab_order::transposed,
                        fft::norm scaling = fft::norm::backward);

  BALLAST_API std::int64_t rows() const;  // this rank's, as the three below
  BALLAST_API std::int64_t first_row() const;
  BALLAST_API std::int64_t columns() const;
  BALLAST_API std::int64_t first_column() const;

  // Transforms rows() × n1 numbers into columns() × n0, in natural order into rows() × n1.
  BALLAST_API report forward(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now = {}) const;
  // The other way: in the layout that forward() gives, out by rows.
  BALLAST_API report inverse(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now = {}) const;

  struct implementation;  // src/fft/api/slab.cpp

 private:
  std::shared_ptr<const implementation> implementation_;
};

extern template class slab_plan<float>;
extern template class slab_plan<double>;

}  // namespace abi_1
}  // namespace ballast::fft
