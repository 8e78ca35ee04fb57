// Recovers a struck column by a rank-one update with Givens rotations, in LAPACK's storage.
// Layer: backend (host). See factorizer.hpp.
// Source: P. Du et al., 2011, §5; G. Golub, C. Van Loan, §12.5 (rank-one update); G. Ballard et al., 2014 (reconstruction of reflectors
// from orthonormal columns, which brings Q̃JG back into LAPACK's storage).
#include <algorithm>
#include <cmath>

#include "qr/arithmetic/reconstruct.hpp"
#include "qr/host/factorizer.hpp"

namespace ballast::qr::host {

// The explicit factors during the recovery.
template <class S>
struct blocked_factorizer<S>::rotated {
  index length = 0;           // columns of Q and rows of R: steps, plus one if m > steps
  core::aligned_buffer<S> w;  // Q̃ᴴ a_j; its tail is folded into one element
  core::aligned_buffer<S> Q;  // m × length
  core::aligned_buffer<S> R;  // length × n
};

// Ã = Q̃R̃ differs from A in column j. Let w = Q̃ᴴa_j, and let R̄ be R̃ without its column j (R̃_j may be too large to subtract). Then
// A = Q̃(R̄ + w e_jᵀ). Rotations J, from the bottom up, turn w into a multiple of e₁ and R̄ into an upper Hessenberg matrix. Rotations G,
// from the top down, make that R again: A = (Q̃JG) R. Complex rows of R are then turned until the diagonal is real.
template <class S>
void blocked_factorizer<S>::recover_column(index j) {
  rotated work = split_column(j);
  rotate_back(j, work);
  if constexpr (is_complex<S>) make_diagonal_real(work);
  core::vector<S> sign(static_cast<std::size_t>(shape_.steps));
  reflectors_of(work, sign);
  for (index c = 0; c < shape_.n; ++c) {
    for (index i = 0; i < shape_.m; ++i) {
      if (i <= c && i < shape_.steps) {
        A_[i + c * lda_] = real_part(sign[static_cast<std::size_t>(i)]) * work.R[i + c * work.length];
      } else if (c < shape_.steps) {
        A_[i + c * lda_] = work.Q[i + c * shape_.m];
      }
    }
  }
  for (index p = 0; p < shape_.panels; ++p) {
    copy_v1(p);
    kernels_.triangular_factor(reflector(p), tau_ + shape_[p].first, t(p));
  }
}

// Computes w, Q̃ and R̄. If m > steps, the part of a_j outside the span of Q̃'s columns becomes one more column of Q̃.
template <class S>
typename blocked_factorizer<S>::rotated blocked_factorizer<S>::split_column(index j) {
  const index m = shape_.m, n = shape_.n, k = shape_.steps;
  const bool spare = m > k;
  rotated made;
  made.length = k + (spare ? 1 : 0);
  made.w = core::aligned_buffer<S>(m);
  core::aligned_buffer<S> W(shape_.panel_width * made.length);
  S* const w = made.w.data();
  for (index i = 0; i < m; ++i) w[i] = from_source(i, j);
  for (index p = 0; p < shape_.panels; ++p) apply(p, 1, w + shape_[p].first, m, W.data(), nullptr);

  made.Q = core::aligned_buffer<S>(core::checked_product(m, made.length));
  S* const Q = made.Q.data();
  std::fill(Q, Q + made.Q.size(), S(0));
  for (index i = 0; i < k; ++i) Q[i + i * m] = 1;
  if (spare) {
    double squares = 0;
    for (index i = k; i < m; ++i) squares += square_of(static_cast<wide>(w[i]));
    const double norm = std::sqrt(squares);
    for (index i = k; i < m; ++i) Q[i + k * m] = norm > 0 ? static_cast<S>(static_cast<wide>(w[i]) / norm) : S(i == k);
    w[k] = static_cast<S>(norm);
  }
  for (index p = shape_.panels; p-- > 0;) {
    const block_reflector<S> H = reflector(p);
    S* const C = Q + shape_[p].first;
    kernels_.product(H, made.length, C, m, W.data());
    kernels_.update(H, false, made.length, W.data(), C, m);
  }

  made.R = core::aligned_buffer<S>(core::checked_product(made.length, n));
  for (index c = 0; c < n; ++c) {
    for (index i = 0; i < made.length; ++i) made.R[i + c * made.length] = i <= c && i < k && c != j ? A_[i + c * lda_] : S(0);
  }
  return made;
}

// Applies the two sweeps of rotations, J and G. A rotation with (c, s) = (x, y) / ‖(x, y)‖ is [c̄ s̄; −s c]: it turns (x, y) into (‖(x, y)‖,
// 0).
template <class S>
void blocked_factorizer<S>::rotate_back(index j, rotated& work) const {
  const index m = shape_.m, n = shape_.n, length = work.length;
  S* const R = work.R.data();
  S* const w = work.w.data();
  const auto quotient = [](const S& x, double size) { return static_cast<S>(static_cast<wide>(x) / size); };
  // Rotates rows i and i + 1 of R, from column `first` on, and columns i and i + 1 of Q.
  const auto rotate = [&](index i, index first, S cosine, S sine) {
    for (index c = first; c < n; ++c) {
      S& a = R[i + c * length];
      S& b = R[i + 1 + c * length];
      const S up = times(conjugate(cosine), a) + times(conjugate(sine), b);
      b = times(cosine, b) - times(sine, a);
      a = up;
    }
    S* const a = work.Q.data() + i * m;
    S* const b = a + m;
    for (index r = 0; r < m; ++r) {
      const S up = times(cosine, a[r]) + times(sine, b[r]);
      b[r] = times(conjugate(cosine), b[r]) - times(conjugate(sine), a[r]);
      a[r] = up;
    }
  };
  for (index i = length - 1; i-- > 0;) {
    if (w[i + 1] == S(0)) continue;
    const double size = std::hypot(size_of_number(w[i]), size_of_number(w[i + 1]));
    rotate(i, i, quotient(w[i], size), quotient(w[i + 1], size));
    w[i] = static_cast<S>(size);
  }
  R[j * length] += w[0];
  for (index i = 0; i + 1 < length && i < n; ++i) {
    const S below = R[i + 1 + i * length];
    if (below == S(0)) continue;
    const S diagonal = R[i + i * length];
    const double size = std::hypot(size_of_number(diagonal), size_of_number(below));
    rotate(i, i, quotient(diagonal, size), quotient(below, size));
    R[i + 1 + i * length] = 0;
  }
}

// Q R = (Q D)(D̄ R) with |D_ii| = 1.
template <class S>
void blocked_factorizer<S>::make_diagonal_real(rotated& work) const {
  const index m = shape_.m;
  for (index i = 0; i < shape_.steps; ++i) {
    S* const row = work.R.data() + i;
    const S diagonal = row[i * work.length];
    if (imaginary_part(diagonal) == 0) continue;
    const double size = size_of_number(diagonal);
    const S turn = static_cast<S>(static_cast<wide>(diagonal) / size);
    for (index c = i; c < shape_.n; ++c) row[c * work.length] = times(conjugate(turn), row[c * work.length]);
    row[i * work.length] = static_cast<S>(size);
    for (index r = 0; r < m; ++r) work.Q[r + i * m] = times(work.Q[r + i * m], turn);
  }
}

// Reconstructs the reflectors of Q's first `steps` columns: LU of Q − diag(sign), panel by panel; V is L, and tau_j = −sign_j U_jj.
template <class S>
void blocked_factorizer<S>::reflectors_of(rotated& work, core::vector<S>& sign) {
  const index m = shape_.m, k = shape_.steps;
  S* const Q = work.Q.data();
  for (index p = 0; p < shape_.panels; ++p) {
    const layout::block& b = shape_[p];
    const index end = b.first + b.width;
    factor_signed(m - b.first, b.width, Q + b.first * (m + 1), m, sign.data() + b.first, tau_ + b.first);
    for (index l = end; l < k; ++l) {  // U12
      S* const t = Q + l * m;
      for (index c = b.first; c < end; ++c) {
        for (index i = c + 1; i < end; ++i) t[i] -= times(Q[i + c * m], t[c]);
      }
    }
    if (end < m && end < k)
      kernels_.subtract_product(m - end, k - end, b.width, Q + end + b.first * m, m, Q + b.first + end * m, m, Q + end + end * m, m);
  }
  for (index c = 0; c < k; ++c) {
    // A reflector without a tail is stored with tau = 0. A complex tau that is not 2 stays.
    S& flip = sign[static_cast<std::size_t>(c)];
    if (std::all_of(Q + c + 1 + c * m, Q + m + c * m, [](const S& v) { return v == S(0); }) && imaginary_part(tau_[c]) == 0) {
      tau_[c] = 0;
      flip = -flip;
    }
  }
}

template class blocked_factorizer<float>;
template class blocked_factorizer<double>;
template class blocked_factorizer<std::complex<float>>;
template class blocked_factorizer<std::complex<double>>;

}  // namespace ballast::qr::host
