// QR factorization and least squares of a tall matrix whose rows are divided among the ranks of a group.
// Layer: interface; implemented in src/qr/api/rows.cpp. docs/distributed.md shows its use.
// Source: J. Demmel, L. Grigori, M. Hoemmen, J. Langou, Communication-optimal parallel and sequential QR and LU factorizations, 2012.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/qr.hpp>
#include <ballast/report.hpp>
#include <ballast/view.hpp>

namespace ballast::qr {
inline namespace abi_1 {

// The factors of one device's rows in the memory of that device, as factors<T> has them. Copies share the memory, which is released with
// the last of them. Not to be written.
template <class T>
class device_factors {
 public:
  int device = -1;                     // its number in the driver's order
  matrix_view<const T> storage;        // m' × n, column-major without gaps
  std::span<const T> tau;              // min(m', n)
  std::shared_ptr<const void> memory;  // owns both

  // A copy in host memory, without report.
  BALLAST_API factors<T> on_host() const;
};

extern template class device_factors<float>;
extern template class device_factors<double>;

// A = Q R, m × n, m ≥ n, with the rows of A on the ranks of a group: each factors its own rows, and the first rank factors the triangles of
// all in the order of ranks and sends the factors to all. So R has the same bits on every rank. Its signs and rounding depend on how the
// rows are divided.
// On a group of devices (group::devices) a call is made once, with all m rows, which may lie in host memory or in memory of any device, in
// any strides; work on them by other streams than the default stream of each device must have ended. The devices have equal shares of the
// rows; fewer devices take part if one would have fewer rows than A has columns. "The rank's rows" below are then all rows. Rows come to
// their device by one copy, except for those that lie there already; the factors of a device's rows stay in its memory, and results lie in
// host memory. The bits depend on the number of devices that take part, and on nothing else.
// All ranks call the members in the same order, on the group that made the object, with as many ranks. Errors: invalid_argument_error
// (shapes; different calls on the ranks), rank_lost_error, uncorrectable_error and the others of factors<T>. The report of each call is
// that of all ranks. Covered: the factorizations and products as in factors<T>, the messages as in docs/distributed.md, rows that come to a
// device from another of the group. Not covered: rows that come to a device from host memory or leave it for there, the triangle of a rank
// between its factorization and its message, and factors in the memory of a device between two calls. Flops
// of a rank: 2 m' n² for its m' rows; the first rank also 2 K n², K the rows of all triangles. A rank sends its triangle, and the first the
// factors of K × n, to all.
template <class T>
class row_factors {
 public:
  factors<T> own;                          // the factors of this rank's rows; empty if it has none
  factors<T> joined;                       // the factors of all ranks' triangles, one below the other; the same on all
  std::vector<device_factors<T>> devices;  // the factors of each device's rows; then `own` is empty. None without a group of devices
  ballast::report report;

  BALLAST_API matrix<T> r() const;  // n × n, upper triangular
  // The rank's rows of Q, m' × n.
  [[nodiscard]] BALLAST_API computed<T> q(const call& now = {}) const;
  // The rank's rows of Q C; C: n × p, the same on all ranks.
  [[nodiscard]] BALLAST_API computed<T> apply(matrix_view<const T> C, const call& now = {}) const;
  // Qᵀ B, n × p, the same bits on all ranks; B: the rank's rows, m' × p.
  [[nodiscard]] BALLAST_API computed<T> apply_transposed(matrix_view<const T> B, const call& now = {}) const;
  // The X of least ‖A X − B‖, n × p, the same bits on all ranks; B: the rank's rows, m' × p. Throws rank_deficient_error on all ranks.
  [[nodiscard]] BALLAST_API computed<T> solve(matrix_view<const T> B, const call& now = {}) const;

  execution where;                 // the execution that factor_rows was given
  std::vector<std::int64_t> tops;  // by rank: the first of its rows in `joined`; and the number of all
};

extern template class row_factors<float>;
extern template class row_factors<double>;

// Factors the matrix whose rows the ranks of where.group pass, m' × n each, m' ≥ 0.
BALLAST_API row_factors<float> factor_rows(matrix_view<const float> A, const execution& where, const call& now = {});
BALLAST_API row_factors<double> factor_rows(matrix_view<const double> A, const execution& where, const call& now = {});

// The same for a group of devices and rows that are divided already: parts[p] are the rows for device p of the group, m' × n each, m' ≥ 1,
// one below the other. There are 1 to as many parts as devices. A part is read where it lies if that is the memory of its device.
BALLAST_API row_factors<float> factor_rows(std::span<const matrix_view<const float>> parts, const execution& where, const call& now = {});
BALLAST_API row_factors<double> factor_rows(std::span<const matrix_view<const double>> parts, const execution& where, const call& now = {});

}  // namespace abi_1
}  // namespace ballast::qr
