// Driver of the protected application of Q.
// Layer: algorithm. See application.hpp.
#include "qr/application.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/parallel.hpp"

namespace ballast::qr {

using inject::site;

namespace {

constexpr index k_block_columns = 96;  // of the operand that one task takes

}  // namespace

template <class S>
orthogonal_factor<S>::orthogonal_factor(const context& run, index m, index count, const S* V, index ldv, const S* tau)
    : kernels_(kernels_of<S>(run.which)), run_(run), m_(m), count_(count), tau_(tau) {
  if (count == 0) return;
  nb_ = panel_width(count, run.which == backend::reference);
  panels_ = (count + nb_ - 1) / nb_;
  V1_ = core::aligned_buffer<S>(core::checked_product(panels_, nb_ * nb_));
  T_ = core::aligned_buffer<S>(core::checked_product(panels_, nb_ * nb_));
  std::vector<char> odd(static_cast<std::size_t>(panels_), 0);
  for (index k = 0; k < panels_; ++k) {
    const index first = k * nb_;
    const index w = std::min(nb_, count - first);
    S* const V1 = V1_.data() + k * nb_ * nb_;
    const S* const v = V + first + first * ldv;
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) V1[i + j * w] = i < j ? S(0) : i == j ? S(1) : v[i + j * ldv];
    }
    panel_.push_back({m - first, w, V1, v + w, ldv, T_.data() + k * nb_ * nb_});
  }
  core::parallel_for(run.threads, panels_, [&](index k, int) {
    const block_reflector<S>& H = panel_[static_cast<std::size_t>(k)];
    double squares = 0;
    for (index j = 0; j < H.width; ++j) {
      kernels_.squares(H.width, 1, H.V1 + j * H.width, H.width, &squares);
      if (H.rows > H.width) kernels_.squares(H.rows - H.width, 1, H.V2 + j * H.ldv, H.ldv, &squares);
      squares += static_cast<double>(tau_[k * nb_ + j]) * tau_[k * nb_ + j];
    }
    if (!std::isfinite(squares)) odd[static_cast<std::size_t>(k)] = 1;
  });
  finite_ = std::none_of(odd.begin(), odd.end(), [](char o) { return o != 0; });
  core::parallel_for(run.threads, panels_, [&](index k, int) { form(k); });
}

// T of panel k, verified and if need be computed again.
template <class S>
void orthogonal_factor<S>::form(index k) {
  const block_reflector<S>& H = panel_[static_cast<std::size_t>(k)];
  S* const T = T_.data() + k * nb_ * nb_;
  failure first;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    kernels_.triangular_factor(H, tau_ + k * nb_, T);
    if constexpr (inject::active_injector::enabled) {
      for (index j = 0; j < H.width; ++j) run_.injector.strike(site::qr_t, {k * nb_ + j, count_, 0, 1}, T + j * H.width, j + 1);
    }
    if (run_.how.protection == protection::off || !finite_) return;
    failure seen;
    double size = 0;
    const double residual = deviation(k, size);
    if (passes(run_.seen, run_.injector, {k, panels_, 0, 1}, residual, abft::qr_orthogonality_threshold<S>(size, m_), "qr.t", k * nb_,
               seen)) {
      if (attempt > 0) run_.seen.detected(first.site, first.place, first.residual, first.threshold, action::recomputed, 0);
      return;
    }
    if (attempt == 0) first = seen;
    if (run_.how.protection == protection::detect) break;
  }
  run_.seen.detected(first.site, first.place, first.residual, first.threshold, action::uncorrectable, 0);
}

// The largest element of (I − V T Vᵀ) x − H_1(H_2(… x)) for a random x. Holds for any reflectors, whatever their tau.
template <class S>
double orthogonal_factor<S>::deviation(index k, double& size) const {
  const block_reflector<S>& H = panel_[static_cast<std::size_t>(k)];
  const index w = H.width;
  const index below = H.rows - w;
  std::vector<double> x(static_cast<std::size_t>(H.rows)), y, z(static_cast<std::size_t>(w), 0.0), tz(static_cast<std::size_t>(w), 0.0);
  double norm = 0;
  for (index i = 0; i < H.rows; ++i) {
    x[static_cast<std::size_t>(i)] = random_signed(k_orthogonality_stream, static_cast<std::uint64_t>(k * nb_ + i));
    norm += x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(i)];
  }
  y = x;
  double longest = std::sqrt(norm);
  for (index j = w; j-- > 0;) {
    double dot = 0, squares = 0;
    kernels_.dot(w, 1, H.V1 + j * w, w, 1, y.data(), H.rows, &dot, 1);
    kernels_.squares(w, 1, H.V1 + j * w, w, &squares);
    if (below > 0) {
      kernels_.dot(below, 1, H.V2 + j * H.ldv, H.ldv, 1, y.data() + w, H.rows, &dot, 1);
      kernels_.squares(below, 1, H.V2 + j * H.ldv, H.ldv, &squares);
    }
    dot *= static_cast<double>(tau_[k * nb_ + j]);
    kernels_.subtract(w, 1, H.V1 + j * w, w, 1, &dot, 1, y.data(), H.rows);
    if (below > 0) kernels_.subtract(below, 1, H.V2 + j * H.ldv, H.ldv, 1, &dot, 1, y.data() + w, H.rows);
    longest = std::max(longest, std::abs(dot) * std::sqrt(squares));
  }
  kernels_.dot(w, w, H.V1, w, 1, x.data(), H.rows, z.data(), w);
  if (below > 0) kernels_.dot(below, w, H.V2, H.ldv, 1, x.data() + w, H.rows, z.data(), w);
  size = longest;
  for (index i = 0; i < w; ++i) {
    double sum = 0;
    for (index j = i; j < w; ++j) {
      const double t = static_cast<double>(H.T[i + j * w]);
      tz[static_cast<std::size_t>(i)] += t * z[static_cast<std::size_t>(j)];
      sum += std::abs(t * z[static_cast<std::size_t>(j)]);
    }
    size = std::max(size, sum);
  }
  kernels_.subtract(w, w, H.V1, w, 1, tz.data(), w, x.data(), H.rows);
  if (below > 0) kernels_.subtract(below, w, H.V2, H.ldv, 1, tz.data(), w, x.data() + w, H.rows);
  largest worst;
  for (std::size_t i = 0; i < x.size(); ++i) worst.add(x[i] - y[i]);
  return worst.value();
}

template <class S>
void orthogonal_factor<S>::apply_block(bool transposed, index task, index tasks, index first, index width, loader load, bool unit,
                                       S* result) const {
  core::aligned_buffer<S> X(core::checked_product(m_, width + 2));
  core::aligned_buffer<S> W(nb_ * (width + 2));
  std::vector<double> d(static_cast<std::size_t>(2 * width)), y(static_cast<std::size_t>(2 * m_));
  std::vector<int> shift(static_cast<std::size_t>(width), 0);
  // Panels that leave a column of the identity alone: those that begin below its one.
  const index used = unit ? std::min(panels_, (first + width - 1) / nb_ + 1) : panels_;
  failure seen_first;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    load(first, width, X.data());
    bool checked = run_.how.protection != protection::off && finite_;
    double norm = 0;
    for (index j = 0; j < width; ++j) {
      S* const x = X.data() + j * m_;
      double squares = 0;
      kernels_.squares(m_, 1, x, m_, &squares);
      int e = squares > 0 && std::isfinite(squares) ? std::ilogb(squares) / 2 : 0;
      if (!(squares >= 0x1p-900 && squares <= 0x1p900)) {
        largest top;
        for (index i = 0; i < m_; ++i) top.add(static_cast<double>(x[i]));
        if (!std::isfinite(top.value())) {
          checked = false;  // Inf or NaN: nothing can be verified, and nothing is claimed
        } else if (top.value() > 0) {
          e = std::ilogb(top.value());
        }
      }
      shift[static_cast<std::size_t>(j)] = std::abs(e) > k_comfortable_exponent<S> ? -e : 0;
      if (shift[static_cast<std::size_t>(j)] != 0) {
        for (index i = 0; i < m_; ++i) x[i] = std::ldexp(x[i], -e);
        squares = 0;
        kernels_.squares(m_, 1, x, m_, &squares);
      }
      const double length = std::sqrt(squares);
      d[static_cast<std::size_t>(j)] = equilibrating(length);
      d[static_cast<std::size_t>(j + width)] = d[static_cast<std::size_t>(j)] * abft::equispaced_weight(j, width);
      norm += length * d[static_cast<std::size_t>(j)] * length * d[static_cast<std::size_t>(j)];
    }
    norm = std::sqrt(norm);
    S* const c = X.data() + width * m_;
    if (checked) {
      std::fill(y.begin(), y.end(), 0.0);
      kernels_.subtract(m_, width, X.data(), m_, 2, d.data(), width, y.data(), m_);
      double squares[2] = {};
      for (index i = 0; i < 2 * m_; ++i) {
        c[i] = static_cast<S>(-y[static_cast<std::size_t>(i)]);
        squares[i / m_] += y[static_cast<std::size_t>(i)] * y[static_cast<std::size_t>(i)];
      }
      norm += std::sqrt(std::max(squares[0], squares[1]));
    }
    const index columns = checked ? width + 2 : width;
    index struck = 0, changed = 0;
    if constexpr (inject::active_injector::enabled) {
      for (index k = 0; k < used; ++k) changed += unit ? width - std::max<index>(0, k * nb_ - first) : width;
    }
    for (index s = 0; s < used; ++s) {
      const index k = transposed ? s : used - 1 - s;
      const block_reflector<S>& H = panel_[static_cast<std::size_t>(k)];
      S* const from = X.data() + k * nb_;
      kernels_.product(H, columns, from, m_, W.data());
      if constexpr (inject::active_injector::enabled)
        run_.injector.strike(site::qr_product, {task, tasks, s, used}, W.data(), H.width * width);
      kernels_.update(H, transposed, columns, W.data(), from, m_);
      if constexpr (inject::active_injector::enabled) {
        // Each column's rows that this panel has changed; the identity's columns before the panel are still zero there.
        for (index j = unit ? std::max<index>(0, k * nb_ - first) : 0; j < width; ++j)
          run_.injector.strike(site::qr_q, {task, tasks, struck++, changed}, X.data() + k * nb_ + j * m_, m_ - k * nb_);
      }
    }
    const auto store = [&] {
      for (index j = 0; j < width; ++j) {
        const S* const x = X.data() + j * m_;
        S* const to = result + (first + j) * m_;
        const int e = shift[static_cast<std::size_t>(j)];
        for (index i = 0; i < m_; ++i) to[i] = e == 0 ? x[i] : std::ldexp(x[i], -e);
      }
    };
    if (!checked) return store();
    if constexpr (inject::active_injector::enabled) run_.injector.strike(site::qr_checksum, {task, tasks, 0, 1}, c, 2 * m_);
    const double threshold = abft::qr_row_threshold<S>(norm, m_);
    const inject::place where{task, tasks, 0, 1};
    const auto worst = [&] {
      for (index i = 0; i < 2 * m_; ++i) y[static_cast<std::size_t>(i)] = static_cast<double>(c[i]);
      kernels_.subtract(m_, width, X.data(), m_, 2, d.data(), width, y.data(), m_);
      largest size;
      for (const double each : y) size.add(each);
      return size.value();
    };
    failure seen;
    const double residual = worst();
    const bool good = passes(run_.seen, run_.injector, where, residual, threshold, "qr.q", first, seen);
    if (good) {
      if (attempt > 0) {
        run_.seen.detected(seen_first.site, seen_first.place, seen_first.residual, seen_first.threshold, action::recomputed, 0);
        const bool same = [&] {
          for (index j = 0; j < width; ++j) {
            if (shift[static_cast<std::size_t>(j)] != 0 ||
                std::memcmp(result + (first + j) * m_, X.data() + j * m_, static_cast<std::size_t>(m_) * sizeof(S)) != 0)
              return false;
          }
          return true;
        }();
        if (same) run_.seen.false_alarm();
      }
      return store();
    }
    if (run_.how.protection == protection::detect) {
      run_.seen.detected(seen.site, seen.place, seen.residual, seen.threshold, action::uncorrectable, 0);
      return store();
    }
    if (attempt == 0) {
      seen_first = seen;
      store();  // only to compare the next attempt with
    }
    if (std::abs(residual) <= threshold) continue;  // the comparison itself was hit
    const checked_block<S> all{m_, width, X.data(), m_, m_, false, c, d.data(), y.data(), y.data() + m_, threshold};
    const index located = repair_block(all, run_.injector, where);
    failure again;
    if (located >= 0 && passes(run_.seen, run_.injector, where, worst(), threshold, "qr.q", first, again)) {
      run_.seen.detected(seen_first.site, first + located, seen_first.residual, seen_first.threshold,
                         attempt > 0 ? action::recomputed : action::corrected, 0);
      return store();
    }
  }
  run_.seen.detected(seen_first.site, seen_first.place, seen_first.residual, seen_first.threshold, action::uncorrectable, 0);
}

template <class S>
core::aligned_buffer<S> orthogonal_factor<S>::apply(bool transposed, index columns, loader load, bool unit) const {
  core::aligned_buffer<S> result(core::checked_product(m_, columns));
  if (panels_ == 0) {
    load(0, columns, result.data());
    return result;
  }
  // At least two blocks where there are two columns, so that two threads have work.
  const index width = std::max<index>(1, std::min(k_block_columns, (columns + 1) / 2));
  const index tasks = (columns + width - 1) / width;
  core::parallel_for(run_.threads, tasks, [&](index t, int) {
    apply_block(transposed, t, tasks, t * width, std::min(width, columns - t * width), load, unit, result.data());
  });
  return result;
}

template class orthogonal_factor<float>;
template class orthogonal_factor<double>;

}  // namespace ballast::qr
