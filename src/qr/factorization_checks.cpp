// The checks of the factorization: block residuals, the factored panel, the checkpoint of V, the certificate.
// Layer: algorithm. See factorization.hpp; docs/design/qr.md says what each check covers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/counter_rng.hpp"
#include "core/parallel.hpp"
#include "qr/factorization.hpp"

namespace ballast::qr {

namespace {

constexpr index k_slab_rows = 1024;  // fixed, so that sums do not depend on the threads
constexpr index k_r_rows = 512;

}  // namespace

// V is summed over in slabs of rows: V1, then k_slab_rows of V2 at a time. They stay in a core's cache while several sums pass over them.
template <class S>
index factorization<S>::slabs(const block_reflector<S>& H) const {
  return 1 + (H.rows - H.width + k_slab_rows - 1) / k_slab_rows;
}

namespace {

template <class S>
struct slab_of {
  slab_of(const block_reflector<S>& H, index t)
      : top(t == 0 ? 0 : H.width + (t - 1) * k_slab_rows),
        rows(t == 0 ? H.width : std::min(k_slab_rows, H.rows - top)),
        X(t == 0 ? H.V1 : H.V2 + (top - H.width)),
        ld(t == 0 ? H.width : H.ldv) {}
  index top, rows;
  const S* X;
  index ld;
};

}  // namespace

// y_q −= R · (weights of column first_weight + q) for R in A's storage; y has m rows.
template <class S>
void factorization<S>::subtract_r(int count, index first_weight, double* y, index ldy) const {
  const double* const z = weights_.data() + first_weight * n_;
  core::parallel_for(run_.threads, (m_ + k_r_rows - 1) / k_r_rows, [&](index t, int) {
    const index top = t * k_r_rows;
    const index end = std::min(top + k_r_rows, m_);
    for (const block& b : blocks_) {
      const index full = std::min(end, b.panel ? b.first : m_);
      if (full > top) kernels_.subtract(full - top, b.width, A_ + top + b.first * lda_, lda_, count, z + b.first, n_, y + top, ldy);
      if (!b.panel) continue;
      for (index i = std::max(top, b.first); i < std::min(end, b.first + b.width); ++i) {
        for (int q = 0; q < count; ++q) {
          double sum = 0;
          for (index j = i; j < b.first + b.width; ++j) sum += static_cast<double>(A_[i + j * lda_]) * z[j + q * n_];
          y[i + q * ldy] -= sum;
        }
      }
    }
  });
}

// r and s of block b: y = [r, s], at 0 and m; as many values as the block has rows. Returns the largest.
template <class S>
double factorization<S>::residuals(index b, index full_rows, bool triangle, core::aligned_buffer<double>& y) const {
  const block& here = blocks_[static_cast<std::size_t>(b)];
  const S* const c = C_.data() + 2 * here.group * m_;
  const double* const d = weights_.data() + here.first;
  const index rows = full_rows + (triangle ? here.width : 0);
  const S* const X = A_ + here.first * lda_;
  if (y.size() == 0) y = core::aligned_buffer<double>(2 * m_);
  const index tasks = (rows + k_slab_rows - 1) / k_slab_rows;
  std::vector<double> worst(static_cast<std::size_t>(tasks));
  core::parallel_for(run_.threads, tasks, [&](index t, int) {
    const index top = t * k_slab_rows;
    const index end = std::min(top + k_slab_rows, rows);
    for (int q = 0; q < 2; ++q) {
      for (index i = top; i < end; ++i) y[i + q * m_] = static_cast<double>(c[i + q * m_]);
    }
    const index full = std::min(end, full_rows);
    if (full > top) kernels_.subtract(full - top, here.width, X + top, lda_, 2, d, n_, y.data() + top, m_);
    for (index i = std::max(top, full_rows); i < end; ++i) {
      for (index j = i - full_rows; j < here.width; ++j) {
        const double x = static_cast<double>(X[i + j * lda_]);
        y[i] -= x * d[j];
        y[i + m_] -= x * d[j + n_];
      }
    }
    largest size;
    size.add(y.data() + top, end - top);
    size.add(y.data() + m_ + top, end - top);
    worst[static_cast<std::size_t>(t)] = size.value();
  });
  largest size;
  size.add(worst.data(), tasks);
  return size.value();
}

template <class S>
bool factorization<S>::block_passes(index b, index full_rows, bool triangle, const inject::place& where, const char* check, failure& seen,
                                    bool& corrected, index& place) {
  const block& here = blocks_[static_cast<std::size_t>(b)];
  const double threshold = abft::qr_row_threshold<S>(groups_[static_cast<std::size_t>(here.group)].norm, m_);
  core::aligned_buffer<double> y;
  const auto worst = [&] { return residuals(b, full_rows, triangle, y); };
  const double first = worst();
  if (passes(run_.seen, run_.injector, where, first, threshold, check, here.first, seen)) return true;
  if (!repairs_ || std::abs(first) <= threshold) return false;  // within the threshold: the comparison itself was hit
  const checked_block<S> all{m_,
                             here.width,
                             A_ + here.first * lda_,
                             lda_,
                             full_rows,
                             triangle,
                             C_.data() + 2 * here.group * m_,
                             weights_.data() + here.first,
                             y.data(),
                             y.data() + m_,
                             threshold};
  const index located = repair_block(all, run_.injector, where);
  failure again;
  if (located < 0 || !passes(run_.seen, run_.injector, where, worst(), threshold, check, here.first, again)) return false;
  corrected = true;
  place = here.first + located;
  return true;
}

// C ← H_kᵀ C for a few checksum columns (leading dimension m), in double.
template <class S>
void factorization<S>::update_narrow(index k, index columns, S* C) const {
  const block_reflector<S> H = reflector(k);
  const index w = H.width;
  const index tasks = slabs(H);
  const index size = w * columns;
  const auto load = [&](const slab_of<S>& slab, std::vector<double>& y) {
    y.resize(static_cast<std::size_t>(columns * slab.rows));
    for (index q = 0; q < columns; ++q) {
      for (index i = 0; i < slab.rows; ++i) y[static_cast<std::size_t>(i + q * slab.rows)] = static_cast<double>(C[slab.top + i + q * m_]);
    }
  };
  std::vector<double> partial(static_cast<std::size_t>(tasks * size), 0.0), z(static_cast<std::size_t>(size), 0.0),
      tz(static_cast<std::size_t>(size), 0.0);
  core::parallel_for(run_.threads, tasks, [&](index t, int) {
    const slab_of<S> slab(H, t);
    std::vector<double> y;
    load(slab, y);
    for (index q = 0; q < columns; q += 4)
      kernels_.dot(slab.rows, w, slab.X, slab.ld, static_cast<int>(std::min<index>(4, columns - q)), y.data() + q * slab.rows, slab.rows,
                   partial.data() + t * size + q * w, w);
  });
  for (std::size_t i = 0; i < partial.size(); ++i) z[i % z.size()] += partial[i];
  for (index q = 0; q < columns; ++q) {
    for (index i = 0; i < w; ++i) {
      for (index j = 0; j <= i; ++j)
        tz[static_cast<std::size_t>(i + q * w)] += static_cast<double>(H.T[j + i * w]) * z[static_cast<std::size_t>(j + q * w)];
    }
  }
  core::parallel_for(run_.threads, tasks, [&](index t, int) {
    const slab_of<S> slab(H, t);
    std::vector<double> y;
    load(slab, y);
    for (index q = 0; q < columns; q += 4)
      kernels_.subtract(slab.rows, w, slab.X, slab.ld, static_cast<int>(std::min<index>(4, columns - q)), tz.data() + q * w, w,
                        y.data() + q * slab.rows, slab.rows);
    for (index q = 0; q < columns; ++q) {
      for (index i = 0; i < slab.rows; ++i) C[slab.top + i + q * m_] = static_cast<S>(y[static_cast<std::size_t>(i + q * slab.rows)]);
    }
  });
}

// c1, c2, c3 and ‖v‖² of each column of V (4 × width) over one slab; `first` is V's first row in A.
template <class S>
void factorization<S>::checkpoint_slab(const block_reflector<S>& H, index first, index t, double* sums) const {
  const slab_of<S> slab(H, t);
  std::fill_n(sums, 4 * H.width, 0.0);
  kernels_.moments(slab.rows, H.width, slab.X, slab.ld, row_weights_.data() + first + slab.top, sums, H.width);
}

// The same over all of V.
template <class S>
void factorization<S>::checkpoint(index k, const S* V1, std::vector<double>& sums) const {
  block_reflector<S> H = reflector(k);
  H.V1 = V1;
  const index size = 4 * H.width;
  const index tasks = slabs(H);
  std::vector<double> partial(static_cast<std::size_t>(tasks * size));
  core::parallel_for(run_.threads, tasks,
                     [&](index t, int) { checkpoint_slab(H, blocks_[static_cast<std::size_t>(k)].first, t, partial.data() + t * size); });
  sums.assign(static_cast<std::size_t>(size), 0.0);
  for (std::size_t i = 0; i < partial.size(); ++i) sums[i % static_cast<std::size_t>(size)] += partial[i];
}

// max |τ‖v‖² − 2|; a tau of 0 belongs to v = e₁, and tau must be T's diagonal to the bit.
template <class S>
double factorization<S>::reflector_residual(index k, const std::vector<double>& sums) const {
  const block& b = blocks_[static_cast<std::size_t>(k)];
  const S* const T = T_.data() + k * nb_ * nb_;
  largest worst;
  for (index j = 0; j < b.width; ++j) {
    const double tau = static_cast<double>(tau_[b.first + j]);
    const double norm = sums[static_cast<std::size_t>(3 * b.width + j)];
    worst.add(tau == 0 ? norm - 1 : tau * norm - 2);
    if (seal_of(tau_ + b.first + j, 1) != seal_of(T + j * (b.width + 1), 1)) worst.add(std::numeric_limits<double>::quiet_NaN());
  }
  return worst.value();
}

// The factored panel: Qᵀ applied to the checksums must give R's checksums over zeros; Q must be orthogonal; τ‖v‖² = 2. Checkpoints V, and
// takes the certificate's product one panel further. Two passes over V.
template <class S>
bool factorization<S>::panel_passes(index k, failure& seen) {
  const block& b = blocks_[static_cast<std::size_t>(k)];
  const block_reflector<S> H = reflector(k);
  const index w = b.width;
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  const auto step = [&](index s) {
    return inject::place{k, static_cast<index>(blocks_.size()) + 1, s, by_update_ ? index{4} : k == 0 ? index{5} : index{6}};
  };
  // Vectors beside V: the certificate's product, p = V T x for a random x, and the checksums c1, c2.
  const int vectors = by_update_ ? 2 : 4;
  const S* const c = by_update_ ? nullptr : C_.data() + 2 * b.group * m_ + b.first;

  std::vector<double> x(at(w)), tx(at(w), 0.0);
  for (index j = 0; j < w; ++j) {
    x[at(j)] = random_signed(k_orthogonality_stream, static_cast<std::uint64_t>(b.first + j));
    for (index i = 0; i <= j; ++i) tx[at(i)] -= static_cast<double>(H.T[i + j * w]) * x[at(j)];
  }
  const index tasks = slabs(H);
  const index size = 9 * w;  // z of up to 4 vectors, 4 checkpoint sums, ‖p‖²
  std::vector<double> partial(at(tasks * size), 0.0);
  core::parallel_for(run_.threads, tasks, [&](index t, int) {
    const slab_of<S> slab(H, t);
    std::vector<double> y(at(4 * slab.rows));
    std::copy_n(carried_.data() + b.first + slab.top, slab.rows, y.data());
    double* const p = y.data() + slab.rows;
    kernels_.subtract(slab.rows, w, slab.X, slab.ld, 1, tx.data(), w, p, slab.rows);
    if (!by_update_) {
      for (int q = 0; q < 2; ++q) {
        for (index i = 0; i < slab.rows; ++i) y[at(i + (2 + q) * slab.rows)] = static_cast<double>(c[slab.top + i + q * m_]);
      }
    }
    double* const sums = partial.data() + t * size;
    kernels_.dot(slab.rows, w, slab.X, slab.ld, vectors, y.data(), slab.rows, sums, w);
    checkpoint_slab(H, b.first, t, sums + 4 * w);
    for (index i = 0; i < slab.rows; ++i) sums[8 * w] += p[i] * p[i];
  });
  std::vector<double> z(at(size), 0.0);
  for (std::size_t i = 0; i < partial.size(); ++i) z[i % z.size()] += partial[i];
  std::vector<double>& sums = checkpoints_[at(k)];
  sums.assign(z.begin() + 4 * w, z.begin() + 8 * w);

  // Tᵀ Vᵀ V T x against (T + Tᵀ) x.
  const double* const g = z.data() + w;
  const double p_norm = std::sqrt(z[at(8 * w)]);
  double worst = 0, worst_threshold = 1;
  for (index i = 0; i < w; ++i) {
    double residual = 0, scale = 0;
    for (index j = 0; j <= i; ++j) {
      const double t = static_cast<double>(H.T[j + i * w]);
      residual += t * (g[j] - x[at(j)]);
      scale += std::abs(t) * (std::abs(g[j]) + p_norm + std::abs(x[at(j)]));
    }
    for (index j = i; j < w; ++j) {
      const double t = static_cast<double>(H.T[i + j * w]);
      residual -= t * x[at(j)];
      scale += std::abs(t) * std::abs(x[at(j)]);
    }
    const double threshold = abft::qr_orthogonality_threshold<S>(scale, m_);
    if (!std::isfinite(residual) || !std::isfinite(threshold)) {
      worst = std::numeric_limits<double>::quiet_NaN();  // no later row may take its place
      break;
    }
    if (std::abs(residual) * worst_threshold > worst * threshold) {
      worst = std::abs(residual);
      worst_threshold = threshold;
    }
    if (worst > worst_threshold) break;
  }
  if (!passes(run_.seen, run_.injector, step(0), worst, worst_threshold, "qr.orthogonality", b.first, seen)) return false;
  if (!passes(run_.seen, run_.injector, step(1), reflector_residual(k, sums), abft::qr_reflector_threshold<S>(m_), "qr.tau", b.first, seen))
    return false;

  // y ← y − V Tᵀ z.
  std::vector<double> tz(at(3 * w), 0.0);
  for (int q = 0; q < (by_update_ ? 1 : 3); ++q) {
    const double* const from = z.data() + (q == 0 ? 0 : q + 1) * w;
    for (index i = 0; i < w; ++i) {
      for (index j = 0; j <= i; ++j) tz[at(i + q * w)] += static_cast<double>(H.T[j + i * w]) * from[j];
    }
  }
  const double* const d = weights_.data() + b.first;
  std::vector<double> residual(at(tasks), 0.0), head(at(2 * w));
  core::parallel_for(run_.threads, tasks, [&](index t, int) {
    const slab_of<S> slab(H, t);
    std::vector<double> y(at(3 * slab.rows));
    std::copy_n(carried_.data() + b.first + slab.top, slab.rows, y.data());
    double* const r = y.data() + slab.rows;
    if (!by_update_) {
      for (int q = 0; q < 2; ++q) {
        for (index i = 0; i < slab.rows; ++i) r[i + q * slab.rows] = static_cast<double>(c[slab.top + i + q * m_]);
      }
    }
    kernels_.subtract(slab.rows, w, slab.X, slab.ld, by_update_ ? 1 : 3, tz.data(), w, y.data(), slab.rows);
    std::copy_n(y.data(), slab.rows, next_.data() + b.first + slab.top);
    if (by_update_) return;
    if (t == 0) {
      std::copy_n(r, 2 * w, head.data());
      for (int q = 0; q < 2; ++q) {
        for (index j = 0; j < w; ++j) {
          for (index i = 0; i <= j; ++i) r[i + q * w] -= static_cast<double>(A_[b.first + i + (b.first + j) * lda_]) * d[j + q * n_];
        }
      }
    }
    largest most;
    most.add(r, 2 * slab.rows);
    residual[at(t)] = most.value();
  });
  if (!by_update_) {
    largest most;
    most.add(residual.data(), tasks);
    if (!passes(run_.seen, run_.injector, step(2), most.value(), abft::qr_row_threshold<S>(groups_[at(b.group)].norm, m_), "qr.panel",
                b.first, seen))
      return false;
    // From here the checksums of the panel are those of R.
    for (int q = 0; q < 2; ++q) {
      for (index i = 0; i < w; ++i) C_[2 * b.group * m_ + b.first + i + q * m_] = static_cast<S>(head[at(i + q * w)]);
    }
  }
  std::copy_n(next_.data() + b.first, H.rows, carried_.data() + b.first);
  return true;
}

// Up to two struck elements in each column of V, from c1, c2, c3 (paper §6): the δ of the three sums give their rows, and the sums of the
// others their values. ‖v‖² is the witness.
template <class S>
bool factorization<S>::repair_v(index k, const std::vector<double>& sums, index& place) {
  const block& b = blocks_[static_cast<std::size_t>(k)];
  const std::vector<double>& kept = checkpoints_[static_cast<std::size_t>(k)];
  const index w = b.width;
  std::vector<index> order;  // rows by weight
  const double* const weight = row_weights_.data();
  for (index l = 0; l < w; ++l) {
    const auto sum_of = [&](const std::vector<double>& from, int q) { return from[static_cast<std::size_t>(l + q * w)]; };
    bool differs = false;
    for (int q = 0; q < 4; ++q) differs |= !(sum_of(kept, q) == sum_of(sums, q));
    if (!differs) continue;
    const index j = b.first + l;
    S* const v = A_ + j * lda_;  // v(i), i > j; v(j) = 1
    place = j;

    // The sums with some elements taken out, in long double: this path is rare.
    const auto without = [&](index i1, index i2, long double* rest) {
      rest[0] = 1;
      rest[1] = weight[j];
      rest[2] = static_cast<long double>(weight[j]) * weight[j];
      rest[3] = 1;
      for (index i = j + 1; i < m_; ++i) {
        if (i == i1 || i == i2) continue;
        const long double x = v[i];
        rest[0] += x;
        rest[1] += weight[i] * x;
        rest[2] += static_cast<long double>(weight[i]) * weight[i] * x;
        rest[3] += x * x;
      }
    };
    // Values for rows i1 (and i2), then all four sums must come out: what the sums' own rounding allows.
    const double slack = 16 * abft::unit_roundoff<double> * std::sqrt(static_cast<double>(m_));
    const auto settle = [&](index i1, index i2, bool commit) {
      long double rest[4];
      without(i1, i2, rest);
      const long double a = sum_of(kept, 0) - rest[0], c = sum_of(kept, 1) - rest[1];
      S x1 = 0, x2 = 0;
      if (i2 < 0) {
        x1 = static_cast<S>(a);
      } else {
        const long double gap = static_cast<long double>(weight[i2]) - weight[i1];
        x2 = static_cast<S>((c - weight[i1] * a) / gap);
        x1 = static_cast<S>(a - static_cast<long double>(x2));
      }
      const auto close = [&](long double made, int q) {
        return std::abs(static_cast<double>(made) - sum_of(kept, q)) <= slack * std::max(1.0, std::abs(sum_of(kept, q)));
      };
      const auto contribution = [&](index i, S x) {
        if (i < 0) return;
        const long double wide = x;
        rest[0] += wide;
        rest[1] += weight[i] * wide;
        rest[2] += static_cast<long double>(weight[i]) * weight[i] * wide;
        rest[3] += wide * wide;
      };
      contribution(i1, x1);
      contribution(i2, x2);
      for (int q = 0; q < 4; ++q) {
        if (!close(rest[q], q)) return false;
      }
      if (commit) v[i1] = x1;
      if (commit && i2 >= 0) v[i2] = x2;
      return true;
    };

    // Inf and NaN tell their rows themselves.
    std::vector<index> odd;
    for (index i = j + 1; i < m_ && odd.size() < 3; ++i) {
      if (!std::isfinite(v[i])) odd.push_back(i);
    }
    if (!odd.empty()) {
      if (odd.size() > 2 || !settle(odd[0], odd.size() == 2 ? odd[1] : -1, true)) return false;
      continue;
    }
    const double d1 = sum_of(kept, 0) - sum_of(sums, 0), d2 = sum_of(kept, 1) - sum_of(sums, 1), d3 = sum_of(kept, 2) - sum_of(sums, 2);
    if (!std::isfinite(d1) || !std::isfinite(d2) || !std::isfinite(d3)) return false;
    if (order.empty()) {
      order.resize(static_cast<std::size_t>(m_));
      std::iota(order.begin(), order.end(), index{0});
      std::sort(order.begin(), order.end(), [&](index a, index c) { return weight[a] < weight[c]; });
    }
    // Where in `order` the weight nearest to `wanted` is.
    const auto nearest = [&](double wanted) -> std::size_t {
      auto up = std::lower_bound(order.begin(), order.end(), wanted, [&](index i, double value) { return weight[i] < value; });
      if (up == order.end()) --up;
      if (up != order.begin() && std::abs(weight[*(up - 1)] - wanted) < std::abs(weight[*up] - wanted)) --up;
      return static_cast<std::size_t>(up - order.begin());
    };
    const std::size_t here = nearest(d2 / d1);
    const index one = order[here];
    if (one > j && settle(one, -1, false)) {
      // A fault so small that a neighbour by weight would explain the sums as well is not placed.
      const auto told_apart = [&](std::size_t other) { return std::abs(d1) * std::abs(weight[order[other]] - weight[one]) > 4 * slack; };
      if ((here > 0 && !told_apart(here - 1)) || (here + 1 < order.size() && !told_apart(here + 1))) return false;
      settle(one, -1, true);
      continue;
    }
    bool found = false;
    index first = -1, second = -1;
    for (index i = j + 1; i < m_; ++i) {
      const double rest = d2 - weight[i] * d1;
      const double wanted = (d3 - weight[i] * d2) / rest;
      if (!(wanted >= 1 - 1e-6 && wanted <= 2 + 1e-6) || 1e-9 * std::abs(rest) < slack) continue;
      const index other = order[nearest(wanted)];
      // The sums are known to about 1e-16 of their size; most rows have no partner that near.
      if (other <= i || std::abs(weight[other] - wanted) > 1e-9 || !settle(i, other, false)) continue;
      if (found) return false;
      found = true;
      first = i;
      second = other;
    }
    if (found) settle(first, second, true);
    if (!found) return false;
  }
  return true;
}

template <class S>
typename factorization<S>::outcome factorization<S>::finish_v(index k) {
  const block& b = blocks_[static_cast<std::size_t>(k)];
  const index w = b.width;
  const inject::place where{k, static_cast<index>(blocks_.size()) + 1, by_update_ ? index{2} : index{3},
                            by_update_ ? index{4}
                            : k == 0   ? index{5}
                                       : index{6}};
  outcome result;
  // V as it is stored now, its triangle included.
  core::aligned_buffer<S> V1(w * w);
  const auto extract = [&] {
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) V1[i + j * w] = i < j ? S(0) : i == j ? S(1) : A_[b.first + i + (b.first + j) * lda_];
    }
  };
  const std::vector<double>& kept = checkpoints_[static_cast<std::size_t>(k)];
  std::vector<double> sums;
  const auto change = [&] {
    extract();
    checkpoint(k, V1.data(), sums);
    largest worst;
    for (std::size_t i = 0; i < sums.size(); ++i) worst.add(sums[i] == kept[i] ? 0 : sums[i] - kept[i]);
    return worst.value();
  };
  // The same sums in the same order: they agree to the bit, or V has changed.
  const double changed = change();
  result.good = passes(run_.seen, run_.injector, where, changed, 0, "qr.checkpoint", b.first, result.seen);
  if (!result.good && repairs_ && changed != 0) {
    index place = b.first;
    result.good = result.repaired = repair_v(k, sums, place);
    result.seen.place = place;
    result.done = action::corrected;
    extract();
  } else if (!result.good && repairs_) {
    // The comparison was hit: look again.
    failure again;
    result.good = result.repaired = passes(run_.seen, run_.injector, where, change(), 0, "qr.checkpoint", b.first, again);
    result.done = action::recomputed;
    if (result.good) run_.seen.false_alarm();
  }
  if (!result.good) return result;
  std::memcpy(V1_.data() + k * nb_ * nb_, V1.data(), static_cast<std::size_t>(w * w) * sizeof(S));
  // T and tau have not changed since they were verified, to the bit.
  largest guard;
  if (seal_of(T_.data() + k * nb_ * nb_, w * w) != T_seal_[static_cast<std::size_t>(k)])
    guard.add(std::numeric_limits<double>::quiet_NaN());
  for (index j = 0; j < w; ++j) {
    if (seal_of(tau_ + b.first + j, 1) != seal_of(T_.data() + k * nb_ * nb_ + j * (w + 1), 1))
      guard.add(std::numeric_limits<double>::quiet_NaN());
  }
  inject::place last = where;
  ++last.step;
  if (by_update_) {
    failure seen;
    if (!passes(run_.seen, run_.injector, last, guard.value(), 0, "qr.t", b.first, seen)) {
      result.good = false;
      result.seen = seen;
    }
  } else {
    run_.seen.checked(1);
    if (guard.value() != 0) {
      result.good = false;
      result.seen = {"qr.t", b.first, guard.value(), 0};
    }
  }
  return result;
}

// R's rows of block b, or all rows of a block that never became a panel.
template <class S>
typename factorization<S>::outcome factorization<S>::finish_block(index b) {
  const block& here = blocks_[static_cast<std::size_t>(b)];
  const auto count = static_cast<index>(blocks_.size());
  outcome result;
  const inject::place where = here.panel ? inject::place{b, count + 1, 4, b == 0 ? index{5} : index{6}} : inject::place{b, count + 1, 0, 1};
  if constexpr (inject::active_injector::enabled) {
    if (!here.panel) run_.injector.strike(inject::site::qr_checksum, {b, count, 0, 1}, C_.data() + 2 * here.group * m_, 2 * m_);
  }
  failure first;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    bool corrected = false;
    index place = here.first;
    failure seen;
    result.good = block_passes(b, here.panel ? here.first : m_, here.panel, where, "qr.r", seen, corrected, place);
    if (attempt == 0) first = seen;
    if (result.good) {
      result.repaired = corrected || attempt > 0;
      result.done = attempt > 0 ? action::recomputed : action::corrected;
      result.seen = first;
      if (corrected && attempt == 0) result.seen.place = place;
      return result;
    }
    result.seen = first;
    if (!repairs_) return result;
    // A block without a panel can be had again from the input. A finished panel's rows cannot, alone; but if only the check was hit,
    // looking again settles it.
    if (!here.panel) {
      if (attempt + 1 < k_attempts) rebuild_block(b, panels_);
    } else if (attempt > 0 || std::abs(seen.residual) > seen.threshold || seen.residual != seen.residual) {
      return result;
    } else {
      run_.seen.false_alarm();
    }
  }
  return result;
}

// ‖Qᵀ (A w) − R w‖ by rows. carried_ is Qᵀ (A w) for the V that were verified, and those are the V that are stored: the checkpoints say so.
template <class S>
bool factorization<S>::certificate(failure& seen) {
  std::vector<double> y(carried_.data(), carried_.data() + m_);
  subtract_r(1, 2, y.data(), m_);
  largest worst;
  worst.add(y.data(), m_);
  const auto last = static_cast<index>(blocks_.size());
  return passes(run_.seen, run_.injector, {last, last + 1, by_update_ ? index{1} : index{0}, by_update_ ? index{2} : index{1}},
                worst.value(), abft::qr_row_threshold<S>(product_norm_, m_), "qr.certificate", -1, seen);
}

// Everything that can be verified once the factorization stands. Events wait until the certificate has agreed with the repairs.
template <class S>
bool factorization<S>::finish() {
  const auto count = static_cast<index>(blocks_.size());
  std::vector<outcome> seen(static_cast<std::size_t>(2 * count + 1));
  core::parallel_for(run_.threads, count, [&](index b, int) {
    const bool panel = blocks_[static_cast<std::size_t>(b)].panel;
    if (panel) seen[static_cast<std::size_t>(2 * b)] = finish_v(b);
    if (!by_update_) seen[static_cast<std::size_t>(2 * b + 1)] = finish_block(b);
  });
  const auto all_good = [&] { return std::all_of(seen.begin(), seen.end(), [](const outcome& each) { return each.good; }); };
  if (by_update_ && all_good()) seen.back() = update_passes();

  outcome proof;
  if (all_good() || !repairs_) {
    proof.good = certificate(proof.seen);
    if (!proof.good && repairs_ && std::abs(proof.seen.residual) <= proof.seen.threshold) {
      failure again;
      proof.good = proof.repaired = certificate(again);  // the comparison was hit
      proof.done = action::recomputed;
      if (proof.good) run_.seen.false_alarm();
    }
  }
  seen.push_back(proof);
  const bool good = all_good();
  if (!good && repairs_) {
    restart_ = std::find_if(seen.begin(), seen.end(), [](const outcome& each) { return !each.good; })->seen;
    return false;
  }
  for (const outcome& each : seen) {
    if (!each.good) {
      run_.seen.detected(each.seen.site, each.seen.place, each.seen.residual, each.seen.threshold, action::uncorrectable, 0);
    } else if (each.repaired) {
      run_.seen.detected(each.seen.site, each.seen.place, each.seen.residual, each.seen.threshold, each.done, 0);
    }
  }
  return true;
}

template class factorization<float>;
template class factorization<double>;

}  // namespace ballast::qr
