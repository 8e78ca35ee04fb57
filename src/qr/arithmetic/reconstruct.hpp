// Reconstructs Householder reflectors from orthonormal columns: LU of Q − diag(sign), whose L is V; tau_j = −sign_j U_jj. The signs are
// real for complex numbers, too, so that R keeps its real diagonal.
// Layer: algorithm, backend-free. In host memory.
// Source: G. Ballard, J. Demmel, L. Grigori, M. Jacquelin, H. D. Nguyen, E. Solomonik, Reconstructing Householder vectors from TSQR, 2014.
#pragma once

#include <cstdint>

#include "qr/arithmetic/scalar.hpp"

namespace ballast::qr {

// LU without pivoting of the `rows` × `width` columns at Q (rows ≥ width), whose first element lies on the diagonal of the whole Q; `sign`
// is chosen so that |Re U_jj| ≥ 1. L (unit diagonal) and U overwrite Q.
template <class S>
void factor_signed(std::int64_t rows, std::int64_t width, S* Q, std::int64_t ldq, S* sign, S* tau) {
  for (std::int64_t c = 0; c < width; ++c) {
    S* const a = Q + c * ldq;
    sign[c] = real_part(a[c]) > 0 ? S(-1) : S(1);
    a[c] -= sign[c];
    tau[c] = -real_part(sign[c]) * a[c];
    for (std::int64_t i = c + 1; i < rows; ++i) a[i] /= a[c];
    for (std::int64_t l = c + 1; l < width; ++l) {
      S* const t = Q + l * ldq;
      for (std::int64_t i = c + 1; i < rows; ++i) t[i] -= times(a[i], t[c]);
    }
  }
}

}  // namespace ballast::qr
