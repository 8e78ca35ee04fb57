// Checksums of divided blocks of columns. See columns.hpp.
// Layer: backend (host).
#include "qr/host/columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "abft/seal.hpp"
#include "abft/weights.hpp"
#include "core/at.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/kernels.hpp"

namespace ballast::qr::host {

using core::at;

template <class S>
double weights_of_columns(std::span<const column_size> sizes, index first, double* weights) {
  constexpr int least = sizeof(real_of<S>) == 4 ? -90 : -900;
  double squares = 0;
  bool judged = true, finite = true;
  for (std::size_t l = 0; l < sizes.size(); ++l) {
    const column_size& size = sizes[l];
    finite = finite && size.finite;
    judged = judged && size.finite && (size.norm == 0 || size.exponent >= least);
    // The norm times this power of two is in [1, 2).
    const double weighted = size.norm * abft::equilibrating(size.norm);
    weights[l] = random_signed(k_certificate_stream, static_cast<std::uint64_t>(first) + l);
    squares += weights[l] * weighted * (weights[l] * weighted);
    if (judged) weights[l] *= abft::equilibrating(size.norm) * abft::power_of_two(-size.exponent);
  }
  if (judged) return squares;
  return finite ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
}

template <class S>
double encode_columns(const context& run, const matrix_view<const S>& A, index first, double* weights, S* c) {
  const kernels<S>& by = kernels_of<S>(run);
  core::vector<column_size> sizes;
  for (index l = 0; l < A.columns; ++l) sizes.push_back(size_of(by, A.rows, &A(0, l)));
  const double squares = weights_of_columns<S>(sizes, first, weights);
  if (!std::isfinite(squares)) {
    std::fill_n(c, A.rows, S(0));
    return squares;
  }
  core::vector<wide_of<S>> sum(at(A.rows), wide_of<S>(0));
  by.subtract_weighted(A.rows, A.columns, A.data, A.column_stride, 1, weights, A.columns, sum.data(), A.rows);
  double of_sum = 0;
  for (index i = 0; i < A.rows; ++i) {
    c[i] = static_cast<S>(-sum[at(i)]);
    of_sum += square_of(sum[at(i)]);
  }
  return std::sqrt(squares) + std::sqrt(of_sum);
}

template <class S>
double residual_of_columns(const context& run, const matrix_view<const S>& A, index panel, const double* weights, const S* c) {
  const kernels<S>& by = kernels_of<S>(run);
  const index whole = panel < 0 ? A.rows : panel;
  core::vector<wide_of<S>> rest(at(A.rows));
  for (index i = 0; i < A.rows; ++i) rest[at(i)] = static_cast<wide_of<S>>(c[i]);
  if (whole > 0) by.subtract_weighted(whole, A.columns, A.data, A.column_stride, 1, weights, A.columns, rest.data(), A.rows);
  for (index l = 0; l < A.columns; ++l) {
    const index end = std::min(A.rows, whole + l + 1);
    for (index i = whole; i < end; ++i) rest[at(i)] -= static_cast<wide_of<S>>(A(i, l)) * weights[l];
  }
  double squares = 0;
  for (const wide_of<S>& each : rest) squares += square_of(each);
  return std::sqrt(squares);
}

template <class S>
std::uint64_t seal_of_columns(const matrix_view<const S>& A, std::uint64_t made) {
  // A chain waits for each of its products; those of four columns wait at the same time.
  constexpr index chains = 4;
  for (index l = 0; l < A.columns; l += chains) {
    const index columns = std::min(chains, A.columns - l);
    const real_of<S>* numbers[chains];
    std::uint64_t each[chains];
    for (index c = 0; c < chains; ++c) {
      numbers[c] = reals(&A(0, l + std::min(c, columns - 1)));
      each[c] = abft::k_seal_of_nothing;
    }
    for (index i = 0; i < A.rows * k_reals<S>; ++i)
      for (index c = 0; c < chains; ++c) each[c] = abft::seal_of(numbers[c] + i, 1, each[c]);
    for (index c = 0; c < columns; ++c) made = abft::chained(made, each[c]);
  }
  return made;
}

template <class S>
void subtract_columns(const context& run, const matrix_view<const S>& R, index count, const wide_of<S>* x, index ldx, wide_of<S>* y,
                      index ldy) {
  const kernels<S>& by = kernels_of<S>(run);
  for (index j = 0; j < count; j += 4)
    by.subtract(R.rows, R.columns, R.data, R.column_stride, static_cast<int>(std::min<index>(4, count - j)), x + j * ldx, ldx, y + j * ldy,
                ldy);
}

#define BALLAST_INSTANTIATE(S)                                                                                         \
  template double weights_of_columns<S>(std::span<const column_size>, index, double*);                                 \
  template double encode_columns<S>(const context&, const matrix_view<const S>&, index, double*, S*);                  \
  template double residual_of_columns<S>(const context&, const matrix_view<const S>&, index, const double*, const S*); \
  template std::uint64_t seal_of_columns<S>(const matrix_view<const S>&, std::uint64_t);                               \
  template void subtract_columns<S>(const context&, const matrix_view<const S>&, index, const wide_of<S>*, index, wide_of<S>*, index);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr::host
