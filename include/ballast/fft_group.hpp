// Transforms of one, two or three dimensions whose data are divided among the ranks of a group.
// Layer: interface; implemented in src/fft/api/group_plan.cpp. docs/distributed.md shows its use.
// Source: D. Bailey, FFTs in external or hierarchical memory, 1990 (one dimension by two); D. Takahashi, Fast Fourier Transform Algorithms
// for Parallel Computers, 2019 (slabs and pencils).
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/fft.hpp>
#include <ballast/report.hpp>

namespace ballast::fft {
inline namespace abi_1 {

// The axes that are divided. slabs: one, among all ranks: at most as many ranks compute as that axis is long. pencils (three dimensions):
// two, among the rows and columns of a grid of ranks.
enum class division : std::uint8_t { slabs, pencils };

// The layout of a spectrum. transposed: as the last step of the transform leaves it. natural: divided as the data are; this takes one more
// exchange.
enum class result_order : std::uint8_t { transposed, natural };

struct distribution {
  // Real data, as of kind::r2c and c2r. The spectrum has the last axis n/2 + 1; of one dimension half of it is left, see below.
  bool real = false;
  fft::division division = fft::division::slabs;
  fft::result_order order = fft::result_order::transposed;
  fft::norm norm = fft::norm::backward;
  // Pencils: the rows and columns of the grid, whose product is the number of ranks; rank p is in row ⌊p / columns⌋ and column p mod
  // columns. {0, 0}: as near to a square as possible.
  std::array<int, 2> grid = {};
};

// The part of an array that a rank has: elements first[a] … first[a] + count[a] − 1 of each axis a, without gaps in memory. `order` lists
// the axes from the slowest to the contiguous one. Axes that an array does not have are 1 long and come last in `order`.
struct box {
  std::array<std::int64_t, 3> first = {}, count = {1, 1, 1};
  std::array<int, 3> order = {0, 1, 2};
  std::int64_t size() const { return count[0] * count[1] * count[2]; }
};

// X = s Σ x e^{∓2πi (…)} over all axes, as fft::plan computes it, with fft::norm's s. Part p of an axis of n elements that is divided into
// P parts has elements ⌊p n / P⌋ … ⌊(p + 1) n / P⌋ − 1.
//   n0 × n1                 data: axis 0 divided, row-major. Transposed spectrum: axis 1 divided, order (1, 0): each column is contiguous
//   n0 × n1 × n2, slabs     data: axis 0 divided, row-major. Transposed spectrum: axis 1 divided, order (1, 2, 0)
//   n0 × n1 × n2, pencils   data: axes 0 and 1 divided by rows and columns of the grid, row-major. Transposed spectrum: axes 1 and 2, order
//                           (1, 2, 0)
//   N                       N = A B, see shape(). x[a B + b] is element (a, b) of data A × B, axis 0 divided, row-major: neighbouring
//                           elements of x. X[a + A b] is element (a, b) of a spectrum A × B. Transposed: axis 0 divided, row-major.
//                           Natural: axis 1 divided, order (1, 0): neighbouring elements of X. A is the divisor of N next to √N: a prime N
//                           is on one rank
//                         Real data, transposed order only: (⌊A/2⌋ + 1) × B, those with k mod A ≤ A/2, since X[N − k] = conj X[k]
// A natural spectrum of two or three dimensions has the layout of the data, of real data with the last axis n/2 + 1.
// On a group of devices (group::devices) the plan and its calls are made once: data() and spectrum() are the whole arrays, in the order
// above, in host memory or in memory of any device; work on them by other streams than the default stream of each device must have ended.
// The devices are the ranks of the division. Data stay in their memory from the first step to the last one, and travel while others are
// transformed. The members ..._divided take an operand for each device, so that no memory needs to hold a whole array. fft::plan on such a
// group is a group_plan in natural order; it takes c2c, r2c and c2r of one array without gaps (else unsupported_error), in place too.
// All ranks make the plan and its calls together, on the group of `where`, whose ranks must still be all that made the plan. `in` and `out`
// have exactly the sizes of the boxes, and do not overlap. Results do not depend on the number of ranks, up to the rounding of batches of
// another size. Exchanges of all data: slabs and two dimensions 1, pencils 2, one dimension 2; natural order one more.
// Covered: the lines as in fft::plan; the messages as in docs/distributed.md; the copies before and after them by sums over the source and
// the destination, which must agree to the bit, or all ranks exchange again (check "group.transpose"); of one dimension the product with
// the factors between the two steps, which is computed twice from two tables (check "group.twiddle"). Not covered: data between the store
// of one step and the loads of the next. If something is uncorrectable, `out` is not to be used: nothing is stored there, unless it
// happened in the last lines. Memory of a call, which the plan keeps for the next one: the rank's data once for slabs and two dimensions,
// otherwise twice, and some MiB for what travels; on a device twice its part beside the operands, and once more for operands that lie
// elsewhere. Errors: invalid_argument_error (shape, grid, sizes of in and out, different calls on the ranks), rank_lost_error, and those of
// fft::plan.
template <class T>
class group_plan {
 public:
  // shape: one, two or three lengths, slowest axis first.
  BALLAST_API group_plan(const std::vector<std::int64_t>& shape, const execution& where, const distribution& how = {});

  // The lengths of the array that the boxes divide: those of the data, of one dimension A and B.
  BALLAST_API std::vector<std::int64_t> shape() const;
  // This rank's part of the data, and of the spectrum.
  BALLAST_API box data() const;
  BALLAST_API box spectrum() const;

  // Transforms data().size() numbers into spectrum().size(), and back. A plan for real data throws invalid_argument_error for complex ones,
  // and the other way.
  BALLAST_API report forward(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now = {}) const;
  BALLAST_API report forward(std::span<const T> in, std::span<std::complex<T>> out, const call& now = {}) const;
  BALLAST_API report inverse(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now = {}) const;
  BALLAST_API report inverse(std::span<const std::complex<T>> in, std::span<T> out, const call& now = {}) const;

  // On a group of devices: the part of device number `device` of its list. Throws invalid_argument_error.
  BALLAST_API box data_of(int device) const;
  BALLAST_API box spectrum_of(int device) const;
  // The same transforms on a group of devices with operands that are given divided: element p of `in` and of `out` is the part of device p,
  // with data_of(p).size() or spectrum_of(p).size() numbers. No part overlaps another, except that in[p] and out[p] may begin at one
  // address. Parts in the memory of their own device, at multiples of an element's size, are read where they lie, others are copied. If no
  // exchange follows the last step, it stores to `out` there: if such a call is uncorrectable, or ends by an error, `out` may hold parts of
  // a result. Throws invalid_argument_error also for another number of parts, unsupported_error on ranks of an engine.
  BALLAST_API report forward_divided(std::span<const std::span<const std::complex<T>>> in, std::span<const std::span<std::complex<T>>> out,
                                     const call& now = {}) const;
  BALLAST_API report forward_divided(std::span<const std::span<const T>> in, std::span<const std::span<std::complex<T>>> out,
                                     const call& now = {}) const;
  BALLAST_API report inverse_divided(std::span<const std::span<const std::complex<T>>> in, std::span<const std::span<std::complex<T>>> out,
                                     const call& now = {}) const;
  BALLAST_API report inverse_divided(std::span<const std::span<const std::complex<T>>> in, std::span<const std::span<T>> out,
                                     const call& now = {}) const;

  struct implementation;  // src/fft/api/group_plan.cpp

 private:
  std::shared_ptr<const implementation> implementation_;
};

extern template class group_plan<float>;
extern template class group_plan<double>;

}  // namespace abi_1
}  // namespace ballast::fft
