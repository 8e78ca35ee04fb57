// The scheme qr_update: one pair of checksum columns for the whole matrix, verified when the factorization stands, and recovery of a
// struck column by a rank-one update with Givens rotations.
// Layer: algorithm. See factorization.hpp.
// Source: P. Du et al., 2011, §4 (checksums), §5 (recovery); G. Golub, C. Van Loan, §12.5 (rank-one update); G. Ballard et al., 2014
// (reflectors from orthonormal columns: what brings Q̃JG back into LAPACK's storage).
#include <algorithm>
#include <cmath>

#include "qr/factorization.hpp"

namespace ballast::qr {

template <class S>
typename factorization<S>::outcome factorization<S>::update_passes() {
  const auto last = static_cast<index>(blocks_.size());
  const inject::place where{last, last + 1, 0, 2};
  outcome result;
  if constexpr (inject::active_injector::enabled) run_.injector.strike(inject::site::qr_checksum, {}, C_.data(), 2 * m_);
  std::vector<double> y(static_cast<std::size_t>(2 * m_));
  for (index i = 0; i < 2 * m_; ++i) y[static_cast<std::size_t>(i)] = static_cast<double>(C_[i]);
  subtract_r(2, 0, y.data(), m_);
  largest worst;
  for (const double each : y) worst.add(each);
  const double top = worst.value();
  const double threshold = abft::qr_row_threshold<S>(groups_[0].norm, m_);
  result.good = passes(run_.seen, run_.injector, where, top, threshold, "qr.r", -1, result.seen);
  if (result.good || !repairs_) return result;
  if (std::abs(top) <= threshold) {  // the comparison was hit
    failure again;
    result.good = result.repaired = passes(run_.seen, run_.injector, where, top, threshold, "qr.r", -1, again);
    result.done = action::recomputed;
    if (result.good) run_.seen.false_alarm();
    return result;
  }
  if (!std::isfinite(top)) return result;
  double rr = 0, rs = 0, ss = 0;
  for (index i = 0; i < m_; ++i) {
    const double r = y[static_cast<std::size_t>(i)] / top, s = y[static_cast<std::size_t>(i + m_)] / top;
    rr += r * r;
    rs += r * s;
    ss += s * s;
  }
  // Place 0 stands for a fault in the first checksum itself.
  const auto weight = [&](index l) { return l == 0 ? 0.0 : abft::equispaced_weight(l - 1, n_); };
  const index found = abft::locate_column(rr, rs, ss, n_ + 1, weight).index;
  if (found <= 0 || !givens_recovery(found - 1)) return result;
  std::copy(product_.begin(), product_.end(), carried_.data());
  for (index k = 0; k < panels_; ++k) {
    failure again;
    if (!panel_passes(k, again)) return result;
    T_seal_[static_cast<std::size_t>(k)] =
        seal_of(T_.data() + k * nb_ * nb_, blocks_[static_cast<std::size_t>(k)].width * blocks_[static_cast<std::size_t>(k)].width);
  }
  result.good = result.repaired = true;
  result.seen.place = found - 1;
  result.done = action::corrected;
  return result;
}

// Ã = Q̃R̃ differs from A in column j. With w = Q̃ᵀa_j and R̄ = R̃ without its column j (R̃_j may be too large to subtract from):
// A = Q̃(R̄ + w e_jᵀ). Rotations J from the bottom up turn w into a multiple of e₁ and R̄ into an upper Hessenberg matrix, G from the top
// down brings that back to R: A = (Q̃JG) R.
template <class S>
bool factorization<S>::givens_recovery(index j) {
  const index k = steps_;
  const bool spare = m_ > k;  // one direction more: what of a_j lies outside the span of the first k columns of Q̃
  const index length = k + (spare ? 1 : 0);
  core::aligned_buffer<S> w(m_), W(nb_ * length);
  for (index i = 0; i < m_; ++i) w[i] = from_source(i, j);
  for (index p = 0; p < panels_; ++p) apply(p, 1, w.data() + blocks_[static_cast<std::size_t>(p)].first, m_, W.data(), nullptr);

  core::aligned_buffer<S> Q(core::checked_product(m_, length));
  std::fill(Q.data(), Q.data() + Q.size(), S(0));
  for (index i = 0; i < k; ++i) Q[i + i * m_] = 1;
  if (spare) {
    double squares = 0;
    for (index i = k; i < m_; ++i) squares += static_cast<double>(w[i]) * w[i];
    const double norm = std::sqrt(squares);
    for (index i = k; i < m_; ++i) Q[i + k * m_] = norm > 0 ? static_cast<S>(w[i] / norm) : static_cast<S>(i == k);
    w[k] = static_cast<S>(norm);
  }
  for (index p = panels_; p-- > 0;) {
    const block_reflector<S> H = reflector(p);
    S* const C = Q.data() + blocks_[static_cast<std::size_t>(p)].first;
    kernels_.product(H, length, C, m_, W.data());
    kernels_.update(H, false, length, W.data(), C, m_);
  }

  core::aligned_buffer<S> R(core::checked_product(length, n_));
  for (index c = 0; c < n_; ++c) {
    for (index i = 0; i < length; ++i) R[i + c * length] = i <= c && i < k && c != j ? A_[i + c * lda_] : S(0);
  }
  // Rows i and i + 1 of R, from column `first` on, and columns i and i + 1 of Q.
  const auto rotate = [&](index i, index first, S cosine, S sine) {
    for (index c = first; c < n_; ++c) {
      S& a = R[i + c * length];
      S& b = R[i + 1 + c * length];
      const S up = cosine * a + sine * b;
      b = cosine * b - sine * a;
      a = up;
    }
    S* const a = Q.data() + i * m_;
    S* const b = a + m_;
    for (index r = 0; r < m_; ++r) {
      const S up = cosine * a[r] + sine * b[r];
      b[r] = cosine * b[r] - sine * a[r];
      a[r] = up;
    }
  };
  for (index i = length - 1; i-- > 0;) {
    if (w[i + 1] == 0) continue;
    const double size = std::hypot(static_cast<double>(w[i]), static_cast<double>(w[i + 1]));
    rotate(i, i, static_cast<S>(w[i] / size), static_cast<S>(w[i + 1] / size));
    w[i] = static_cast<S>(size);
  }
  R[j * length] += w[0];
  for (index i = 0; i + 1 < length && i < n_; ++i) {
    const S below = R[i + 1 + i * length];
    if (below == 0) continue;
    const S diagonal = R[i + i * length];
    const double size = std::hypot(static_cast<double>(diagonal), static_cast<double>(below));
    rotate(i, i, static_cast<S>(diagonal / size), static_cast<S>(below / size));
    R[i + 1 + i * length] = 0;
  }

  // Reflectors of Q's first k columns: LU of Q − diag(sign), panel by panel; V is L, and tau_j = −sign_j U_jj.
  std::vector<S> sign(static_cast<std::size_t>(k));
  for (index p = 0; p < panels_; ++p) {
    const block& b = blocks_[static_cast<std::size_t>(p)];
    const index end = b.first + b.width;
    for (index c = b.first; c < end; ++c) {
      S* const a = Q.data() + c * m_;
      S& chosen = sign[static_cast<std::size_t>(c)];
      chosen = a[c] > 0 ? S(-1) : S(1);
      a[c] -= chosen;
      tau_[c] = -chosen * a[c];
      for (index i = c + 1; i < m_; ++i) a[i] /= a[c];
      for (index l = c + 1; l < end; ++l) {
        S* const t = Q.data() + l * m_;
        for (index i = c + 1; i < m_; ++i) t[i] -= a[i] * t[c];
      }
    }
    for (index l = end; l < k; ++l) {  // U12
      S* const t = Q.data() + l * m_;
      for (index c = b.first; c < end; ++c) {
        for (index i = c + 1; i < end; ++i) t[i] -= Q[i + c * m_] * t[c];
      }
    }
    if (end < m_ && end < k)
      kernels_.subtract_product(m_ - end, k - end, b.width, Q.data() + end + b.first * m_, m_, Q.data() + b.first + end * m_, m_,
                                Q.data() + end + end * m_, m_);
  }
  for (index c = 0; c < k; ++c) {
    // A reflector without a tail is written as tau = 0.
    S& flip = sign[static_cast<std::size_t>(c)];
    if (std::all_of(Q.data() + c + 1 + c * m_, Q.data() + m_ + c * m_, [](S v) { return v == 0; })) {
      tau_[c] = 0;
      flip = -flip;
    }
  }
  for (index c = 0; c < n_; ++c) {
    for (index i = 0; i < m_; ++i) {
      if (i <= c && i < k) {
        A_[i + c * lda_] = sign[static_cast<std::size_t>(i)] * R[i + c * length];
      } else if (c < k) {
        A_[i + c * lda_] = Q[i + c * m_];
      }
    }
  }
  for (index p = 0; p < panels_; ++p) {
    copy_v1(p);
    kernels_.triangular_factor(reflector(p), tau_ + blocks_[static_cast<std::size_t>(p)].first, T_.data() + p * nb_ * nb_);
  }
  return true;
}

template class factorization<float>;
template class factorization<double>;

}  // namespace ballast::qr
