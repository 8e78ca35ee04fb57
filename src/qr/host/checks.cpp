// The sums and residuals of the checks: blocks, the factored panel, the certificate, the whole matrix.
// Layer: backend (host). See factorizer.hpp; docs/design/qr.md says what each check covers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "abft/threshold.hpp"
#include "core/at.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "qr/checks/largest.hpp"
#include "qr/checks/repair.hpp"
#include "qr/checks/weights.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/strike.hpp"
#include "qr/sites.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr::host {

using core::at;

namespace {

constexpr index k_r_rows = 512;  // rows of R that one task sums: fixed, like k_slab_rows

double sum_of_squares_of(const double* y, index count) {
  // Eight partial sums that a compiler can keep in registers.
  double lanes[8] = {};
  index i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int l = 0; l < 8; ++l) lanes[l] += y[i + l] * y[i + l];
  }
  for (; i < count; ++i) lanes[0] += y[i] * y[i];
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <class Wide>
double sum_of_squares(const Wide* y, index count) {
  return sum_of_squares_of(reals(y), k_reals<Wide> * count);
}

// Returns the larger of the norms of `count` vectors. The sum of squares of vector q is the sum over `tasks` of squares[q + count · task].
// NaN is kept.
double largest_norm(const core::vector<double>& squares, int count) {
  largest norm;
  for (int q = 0; q < count; ++q) {
    double sum = 0;
    for (std::size_t t = static_cast<std::size_t>(q); t < squares.size(); t += static_cast<std::size_t>(count)) sum += squares[t];
    norm.add(std::sqrt(sum));
  }
  return norm.value();
}

}  // namespace

// -------------------------------------------------------------------------------------------------------------------- a block

template <class S>
typename blocked_factorizer<S>::extent blocked_factorizer<S>::extent_of(index b, bool finished) const {
  return finished && shape_[b].panel ? extent{shape_[b].first, true} : extent{shape_.m, false};
}

// Computes r and s of block b: y = [r, s], at 0 and m; as many values as the block has rows. Returns the larger norm.
template <class S>
double blocked_factorizer<S>::residuals(index b, const extent& taken, core::aligned_buffer<wide>& y) const {
  const index m = shape_.m;
  const S* const c = checksums(shape_[b].group);
  y = core::aligned_buffer<wide>(2 * m);
  core::parallel_for(run_.threads, (m + k_slab_rows - 1) / k_slab_rows, [&](index t, int) {
    const index top = t * k_slab_rows;
    for (index q = 0; q < 2; ++q)
      std::transform(c + top + q * m, c + std::min(top + k_slab_rows, m) + q * m, y.data() + top + q * m,
                     [](const S& each) { return static_cast<wide>(each); });
  });
  return subtract_block(b, taken, 2, 0, y.data());
}

// y_q ← y_q − block b times weights first_weight + q, for `count` vectors of m values. Returns the largest norm of y_q.
template <class S>
double blocked_factorizer<S>::subtract_block(index b, const extent& taken, int count, index first_weight, wide* y) const {
  const layout::block& here = shape_[b];
  const index m = shape_.m, n = shape_.n;
  const double* const z = weights_.data() + first_weight * n + here.first;
  const index rows = taken.full + (taken.triangle ? here.width : 0);
  const S* const X = A_ + here.first * lda_;
  const index tasks = (rows + k_slab_rows - 1) / k_slab_rows;
  core::vector<double> squares(at(tasks * count));
  core::parallel_for(run_.threads, tasks, [&](index t, int) {
    const index top = t * k_slab_rows;
    const index end = std::min(top + k_slab_rows, rows);
    const index full = std::min(end, taken.full);
    if (full > top) kernels_.subtract_weighted(full - top, here.width, X + top, lda_, count, z, n, y + top, m);
    for (index i = std::max(top, taken.full); i < end; ++i) {
      for (index j = i - taken.full; j < here.width; ++j) {
        for (int q = 0; q < count; ++q) y[i + q * m] -= static_cast<wide>(X[i + j * lda_]) * z[j + q * n];
      }
    }
    for (int q = 0; q < count; ++q) squares[at(q + t * count)] = sum_of_squares(y + top + q * m, end - top);
  });
  return largest_norm(squares, count);
}

template <class S>
void blocked_factorizer<S>::measure_block(index b, bool finished, double* residual) {
  core::aligned_buffer<wide> y;
  if (shape_[b].panel && !finished) seals_.R[at(2 * b)] = seal_of_r(b, 0, shape_[b].first);
  *residual = residuals(b, extent_of(b, finished), y);
}

template <class S>
index blocked_factorizer<S>::correct_block(index b, bool finished, double threshold, const inject::position& where) {
  const layout::block& here = shape_[b];
  const extent rows = extent_of(b, finished);
  core::aligned_buffer<wide> y;
  residuals(b, rows, y);
  return repair_block<real>({.columns = here.width,
                             .X = reals(A_ + here.first * lda_),
                             .ldx = k_reals<S> * lda_,
                             .full_rows = rows.full,
                             .triangle = rows.triangle,
                             .components = k_reals<S>,
                             .c1 = reals(checksums(here.group)),
                             .d = weights_.data() + here.first,
                             .e = weights_.data() + shape_.n + here.first,
                             .r = reals(y.data()),
                             .s = reals(y.data() + shape_.m),
                             .threshold = threshold},
                            run_.injector, where);
}

template <class S>
void blocked_factorizer<S>::measure_independent(index b, bool finished, double* residual) {
  const layout::block& here = shape_[b];
  const index m = shape_.m;
  const index passed = !here.panel ? shape_.panels : finished ? b + 1 : b;
  core::aligned_buffer<wide> y(m);
  std::fill_n(y.data(), m, wide(0));
  subtract_input(0, m, here.first, here.width, 1, 2, y.data(), m);
  for (index i = 0; i < m; ++i) y[i] = -y[i];
  for (index k = 0; k < passed; ++k) apply_narrow(kernels_, run_.threads, reflector(k), true, 1, y.data() + shape_[k].first, m);
  *residual = subtract_block(b, extent_of(b, finished), 1, 2, y.data());
}

// -------------------------------------------------------------------------------------------------------------------- a panel

// Two passes over V. The first multiplies it with the certificate's product, p = V T x, and the checksums c1 and c2; the second with the
// same vectors without p.
template <class S>
void blocked_factorizer<S>::measure_panel(index k, panel_sums* seen) {
  const layout::block& b = shape_[k];
  const index w = b.width;
  const products sums = judge_reflectors(k, seen);
  checkpoints_[at(k)] = sums.checkpoint;
  abft::result_hash seal;
  add_numbers(seal, t(k), w * w);
  seals_.T[at(k)] = seal.bits();
  if (!shape_.single_group) seals_.R[at(2 * k + 1)] = seal_of_r(k, b.first, w);
  seen->data = panel_residual(k, sums.z);
}

template <class S>
void blocked_factorizer<S>::measure_reflectors(index k, panel_sums* seen) {
  copy_v1(k);
  (void)judge_reflectors(k, seen);
}

// Checks V, T and tau against each other. Returns panel_products.
template <class S>
auto blocked_factorizer<S>::judge_reflectors(index k, panel_sums* seen) const -> products {
  const layout::block& b = shape_[k];
  core::vector<double> x(at(b.width));
  for (index j = 0; j < b.width; ++j) x[at(j)] = random_signed(k_orthogonality_stream, static_cast<std::uint64_t>(b.first + j));
  products sums = panel_products(k, x);
  judge_orthogonality(k, x, sums, seen);
  seen->reflectors = reflector_residual(k, sums.checkpoint.data() + 3 * b.width);
  return sums;
}

// The first pass: computes Vᴴ times the vectors, the checkpoint of V and ‖p‖².
template <class S>
auto blocked_factorizer<S>::panel_products(index k, const core::vector<double>& x) const -> products {
  const layout::block& b = shape_[k];
  const block_reflector<S> H = reflector(k);
  const index m = shape_.m, w = b.width;
  const bool checksummed = !shape_.single_group;
  const int vectors = checksummed ? 4 : 2;
  const S* const c = checksums(b.group) + b.first;
  core::vector<wide> tx(at(w), 0.0);
  for (index j = 0; j < w; ++j) {
    for (index i = 0; i <= j; ++i) tx[at(i)] -= static_cast<wide>(H.T[i + j * w]) * x[at(j)];
  }
  const index tasks = slabs(H);
  core::vector<wide> partial(at(tasks * 4 * w), 0.0);
  core::vector<double> of_v(at(tasks * 4 * w), 0.0), of_p(at(tasks), 0.0);
  core::parallel_for(run_.threads, tasks, [&](index task, int) {
    const slab<S> part = slab_of(H, task);
    core::vector<wide> y(at(4 * part.rows));
    std::copy_n(certificate_.carried.data() + b.first + part.top, part.rows, y.data());
    wide* const p = y.data() + part.rows;
    kernels_.subtract(part.rows, w, part.X, part.ld, 1, tx.data(), w, p, part.rows);
    if (checksummed) {
      for (int q = 0; q < 2; ++q) {
        for (index i = 0; i < part.rows; ++i) y[at(i + (2 + q) * part.rows)] = static_cast<wide>(c[part.top + i + q * m]);
      }
    }
    kernels_.dot(part.rows, w, part.X, part.ld, vectors, y.data(), part.rows, partial.data() + task * 4 * w, w);
    checkpoint_slab(kernels_, w, part, row_weights_.data() + k_reals<S> * b.first, of_v.data() + task * 4 * w);
    for (index i = 0; i < part.rows; ++i) of_p[at(task)] += square_of(p[i]);
  });
  products made{core::vector<wide>(at(4 * w), 0.0), core::vector<double>(at(4 * w), 0.0)};
  for (std::size_t i = 0; i < partial.size(); ++i) {
    made.z[i % made.z.size()] += partial[i];
    made.checkpoint[i % made.z.size()] += of_v[i];
  }
  for (const double each : of_p) made.p_squares += each;
  return made;
}

// Compares Tᴴ Vᴴ V T x with (T + Tᴴ) x.
template <class S>
void blocked_factorizer<S>::judge_orthogonality(index k, const core::vector<double>& x, const products& sums, panel_sums* seen) const {
  const block_reflector<S> H = reflector(k);
  const index w = H.width;
  const wide* const g = sums.z.data() + w;
  const double p_norm = std::sqrt(sums.p_squares);
  seen->orthogonality = 0;
  seen->orthogonality_threshold = 1;
  for (index i = 0; i < w; ++i) {
    wide residual = 0;
    double scale = 0;
    for (index j = 0; j <= i; ++j) {
      const wide t = conjugate(static_cast<wide>(H.T[j + i * w]));
      residual += times(t, g[j] - x[at(j)]);
      scale += std::abs(t) * (std::abs(g[j]) + p_norm + std::abs(x[at(j)]));
    }
    for (index j = i; j < w; ++j) {
      const wide t = static_cast<wide>(H.T[i + j * w]);
      residual -= t * x[at(j)];
      scale += std::abs(t) * std::abs(x[at(j)]);
    }
    const double threshold = thresholds::orthogonality<real>(scale, k_reals<S> * shape_.m);
    if (!is_finite(residual) || !std::isfinite(threshold)) {
      seen->orthogonality = std::numeric_limits<double>::quiet_NaN();  // no later row may replace it
      return;
    }
    if (std::abs(residual) * seen->orthogonality_threshold > seen->orthogonality * threshold) {
      seen->orthogonality = std::abs(residual);
      seen->orthogonality_threshold = threshold;
    }
    if (seen->orthogonality > seen->orthogonality_threshold) return;
  }
}

// tau must equal T's diagonal to the bit. `squares`: ‖v‖² of each column.
template <class S>
double blocked_factorizer<S>::reflector_residual(index k, const double* squares) const {
  const layout::block& b = shape_[k];
  largest worst;
  for (index j = 0; j < b.width; ++j) {
    worst.add(qr::reflector_residual(static_cast<wide_of<S>>(tau_[b.first + j]), squares[j]));
  }
  worst.add(taus_differ(k));
  return worst.value();
}

// Returns NaN if a tau of panel k differs from T's diagonal in any bit, else 0.
template <class S>
double blocked_factorizer<S>::taus_differ(index k) const {
  const layout::block& b = shape_[k];
  for (index j = 0; j < b.width; ++j) {
    if (!same_bits(tau_[b.first + j], t(k)[j * (b.width + 1)])) return std::numeric_limits<double>::quiet_NaN();
  }
  return 0;
}

// The second pass, y ← y − V Tᴴ z: for the certificate's product, and for the panel's checksums, which are compared with R above zeros.
template <class S>
double blocked_factorizer<S>::panel_residual(index k, const core::vector<wide>& z) {
  const layout::block& b = shape_[k];
  const block_reflector<S> H = reflector(k);
  const index m = shape_.m, n = shape_.n, w = b.width;
  const bool checksummed = !shape_.single_group;
  const int vectors = checksummed ? 3 : 1;
  const S* const c = checksums(b.group) + b.first;
  const double* const d = weights_.data() + b.first;
  core::vector<wide> tz(at(3 * w), 0.0);
  for (int q = 0; q < vectors; ++q) multiply_t(H, true, z.data() + (q == 0 ? 0 : q + 1) * w, tz.data() + q * w);
  head_.resize(at(2 * w));
  const index tasks = slabs(H);
  core::vector<double> squares(at(2 * tasks), 0.0);
  core::parallel_for(run_.threads, tasks, [&](index task, int) {
    const slab<S> part = slab_of(H, task);
    core::vector<wide> y(at(3 * part.rows));
    std::copy_n(certificate_.carried.data() + b.first + part.top, part.rows, y.data());
    wide* const r = y.data() + part.rows;
    if (checksummed) {
      for (int q = 0; q < 2; ++q) {
        for (index i = 0; i < part.rows; ++i) r[i + q * part.rows] = static_cast<wide>(c[part.top + i + q * m]);
      }
    }
    kernels_.subtract(part.rows, w, part.X, part.ld, vectors, tz.data(), w, y.data(), part.rows);
    std::copy_n(y.data(), part.rows, certificate_.next.data() + b.first + part.top);
    if (!checksummed) return;
    if (task == 0) {
      std::copy_n(r, 2 * w, head_.data());
      for (int q = 0; q < 2; ++q) {
        for (index j = 0; j < w; ++j) {
          for (index i = 0; i <= j; ++i) r[i + q * w] -= static_cast<wide>(A_[b.first + i + (b.first + j) * lda_]) * d[j + q * n];
        }
      }
    }
    for (index q = 0; q < 2; ++q) squares[at(q + 2 * task)] = sum_of_squares(r + q * part.rows, part.rows);
  });
  return largest_norm(squares, 2);
}

template <class S>
void blocked_factorizer<S>::accept_panel(index k) {
  const layout::block& b = shape_[k];
  if (!shape_.single_group) {
    for (int q = 0; q < 2; ++q) {
      for (index i = 0; i < b.width; ++i) checksums(b.group)[b.first + i + q * shape_.m] = static_cast<S>(head_[at(i + q * b.width)]);
    }
  }
  std::copy_n(certificate_.next.data() + b.first, shape_.m - b.first, certificate_.carried.data() + b.first);
}

// -------------------------------------------------------------------------------------------------------------------- the end

template <class S>
void blocked_factorizer<S>::measure_all(block_sums* seen) {
  core::parallel_for(run_.threads, shape_.count(), [&](index b, int) {
    const bool panel = shape_[b].panel;
    if (panel) {
      core::vector<double> sums;
      seen[b].v = change_of_v(b, sums);
      seen[b].t = change_of_t(b);
    }
    if (shape_.single_group) return;
    if constexpr (inject::active_injector::enabled) {
      if (!panel) strike(run_.injector, site::checksum, {b, shape_.count(), 0, 1}, checksums(shape_[b].group), 2 * shape_.m);
    }
    if (panel) {
      const index first = shape_[b].first, w = shape_[b].width;
      // The first panel has no rows above it, and so no check on entry that would seal them.
      const bool same = (b == 0 || seal_of_r(b, 0, first) == seals_.R[at(2 * b)]) && seal_of_r(b, first, w) == seals_.R[at(2 * b + 1)];
      seen[b].rows = same ? 0 : std::numeric_limits<double>::quiet_NaN();
    } else {
      measure_block(b, true, &seen[b].rows);
    }
  });
}

// Seals rows top … top + rows − 1 of block k that belong to R. A single changed number always changes the seal; several changed numbers do,
// unless the sum of their words in a column stays the same.
template <class S>
std::uint64_t blocked_factorizer<S>::seal_of_r(index k, index top, index rows) const {
  using word = std::conditional_t<sizeof(real) == 4, std::uint32_t, std::uint64_t>;
  const layout::block& b = shape_[k];
  core::vector<std::uint64_t> sums(at(b.width));
  core::parallel_for(run_.threads, b.width, [&](index l, int) {
    const real* const r = reals(A_ + top + (b.first + l) * lda_);
    const index count = k_reals<S> * std::min(rows, b.first + l + 1 - top);
    std::uint64_t sum = 0;
    for (index i = 0; i < count; ++i) {
      word each;
      std::memcpy(&each, r + i, sizeof each);
      sum += each;
    }
    sums[at(l)] = sum;
  });
  abft::result_hash seal;
  for (const std::uint64_t sum : sums) seal.add(sum);
  return seal.bits();
}

// y_q −= R · (weights of column first_weight + q) for R in A's storage; y has m rows.
template <class S>
void blocked_factorizer<S>::subtract_r(int count, index first_weight, wide* y, index ldy) const {
  const index m = shape_.m, n = shape_.n;
  const double* const z = weights_.data() + first_weight * n;
  core::parallel_for(run_.threads, (m + k_r_rows - 1) / k_r_rows, [&](index t, int) {
    const index top = t * k_r_rows;
    const index end = std::min(top + k_r_rows, m);
    for (const layout::block& b : shape_.blocks) {
      const index full = std::min(end, b.panel ? b.first : m);
      if (full > top) kernels_.subtract_weighted(full - top, b.width, A_ + top + b.first * lda_, lda_, count, z + b.first, n, y + top, ldy);
      if (!b.panel) continue;
      for (index i = std::max(top, b.first); i < std::min(end, b.first + b.width); ++i) {
        for (int q = 0; q < count; ++q) {
          wide sum = 0;
          for (index j = i; j < b.first + b.width; ++j) sum += static_cast<wide>(A_[i + j * lda_]) * z[j + q * n];
          y[i + q * ldy] -= sum;
        }
      }
    }
  });
}

// certificate_.carried is Qᴴ(A r) for the verified V; the checkpoints confirm that these are the stored V.
template <class S>
void blocked_factorizer<S>::measure_certificate(double* residual) {
  core::vector<wide> y(certificate_.carried.data(), certificate_.carried.data() + shape_.m);
  subtract_r(1, 2, y.data(), shape_.m);
  *residual = std::sqrt(sum_of_squares(y.data(), shape_.m));
}

template <class S>
void blocked_factorizer<S>::measure_matrix(matrix_sums* seen) {
  const index m = shape_.m;
  if constexpr (inject::active_injector::enabled) strike(run_.injector, site::checksum, {}, C_.data(), 2 * m);
  core::vector<wide> y(at(2 * m));
  for (index i = 0; i < 2 * m; ++i) y[at(i)] = static_cast<wide>(C_[i]);
  subtract_r(2, 0, y.data(), m);
  *seen = {largest_norm({sum_of_squares(y.data(), m), sum_of_squares(y.data() + m, m)}, 2)};
  for (index i = 0; i < k_reals<S> * m; ++i) {
    const double r = reals(y.data())[i] / seen->norm, s = reals(y.data() + m)[i] / seen->norm;
    seen->rr += r * r;
    seen->rs += r * s;
    seen->ss += s * s;
  }
}

template class blocked_factorizer<float>;
template class blocked_factorizer<double>;
template class blocked_factorizer<std::complex<float>>;
template class blocked_factorizer<std::complex<double>>;

}  // namespace ballast::qr::host
