// Computes the factors T of stored reflectors, and applies Q to blocks of columns.
// Layer: backend (host). See applier.hpp.
#include "qr/host/applier.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "abft/attempt.hpp"
#include "core/at.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "qr/checks/applied.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/strike.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::host {

using core::at;

namespace {

constexpr index k_block_columns = 96;  // the most columns of the operand in one block

}  // namespace

// -------------------------------------------------------------------------------------------------------- one block of columns

template <class S>
class block_of_columns final : public applied_block<S> {
 public:
  block_of_columns(const panel_applier<S>& Q, bool transposed, const operand<S>& from, index task, index tasks, index first, index width,
                   matrix_view<S> result)
      : Q_(Q),
        transposed_(transposed),
        from_(from),
        task_(task),
        tasks_(tasks),
        first_(first),
        width_(width),
        X_(result.data + first * result.column_stride),
        ldx_(result.column_stride),
        W_(Q.panel_width * width),
        norm_(at(width)),
        encoded_(at(k_vectors * width)),
        shift_(at(width), 0),
        odd_(at(width), 0) {}

  void compute(bool again, applied_sums* seen) override;
  std::uint64_t hash() override;
  void unscale() override;

 private:
  void load();
  void scale();
  void encode(bool again);
  void transform(const panel_set<S>& panels);
  void verify(applied_sums& seen);

  using wide = wide_of<S>;

  // The operand.
  S read(index i, index j) const { return from_.conjugated ? conjugate(from_.view(i, j)) : from_.view(i, j); }

  const panel_applier<S>& Q_;
  panel_set<S> own_;  // used if the block is recomputed
  const bool transposed_;
  const operand<S> from_;
  const index task_, tasks_, first_, width_;
  S* const X_;  // the columns within the result: nothing is stored after the check
  const index ldx_;
  core::aligned_buffer<S> W_;   // scratch memory of a product
  core::vector<double> norm_;   // norms of the scaled columns
  core::vector<wide> encoded_;  // width × k_vectors: the expected (op(Q) x)ᴴa
  core::vector<int> shift_;     // column j is computed as 2^shift · x
  core::vector<char> odd_;      // marks columns with Inf or NaN
};

template <class S>
void block_of_columns<S>::compute(bool again, applied_sums* seen) {
  load();
  if (Q_.panels == 0) return;
  scale();
  if (seen != nullptr) encode(again);
  // The panels that all blocks share may have been struck.
  if (again) own_ = Q_.make_panels();
  transform(again ? own_ : Q_.shared_);
  if (seen != nullptr) verify(*seen);
}

template <class S>
void block_of_columns<S>::load() {
  const index m = Q_.m_;
  for (index j = 0; j < width_; ++j) {
    S* const x = X_ + j * ldx_;
    if (from_.identity) {
      std::fill_n(x, m, S(0));
      x[first_ + j] = 1;
      continue;
    }
    for (index i = 0; i < from_.view.rows; ++i) x[i] = read(i, first_ + j);
    std::fill(x + from_.view.rows, x + m, S(0));
  }
}

// Scales columns of extreme size, and marks those with Inf or NaN.
template <class S>
void block_of_columns<S>::scale() {
  const index m = Q_.m_;
  for (index j = 0; j < width_; ++j) {
    S* const x = X_ + j * ldx_;
    column_size size = size_of(Q_.kernels_, m, x);
    const auto shift_of = [](const column_size& of) { return abft::product_shift<real_of<S>>(of.exponent); };
    // A struck size must not scale a column to nothing, which passes every check, nor leave it without checks: two in a row must agree.
    for (int scans = 1; (shift_of(size) != 0 || !size.finite) && scans < k_most_scans; ++scans) {
      const column_size before = std::exchange(size, size_of(Q_.kernels_, m, x));
      if (shift_of(before) == shift_of(size) && before.finite == size.finite) break;
    }
    odd_[at(j)] = size.finite ? 0 : 1;
    const int shift = shift_[at(j)] = shift_of(size);
    for (index i = 0; shift != 0 && i < m; ++i) x[i] = scaled(x[i], shift);
    norm_[at(j)] = std::ldexp(size.norm, size.exponent + shift);
  }
}

// Computes xᴴb for b = op(Q)ᴴa. The operand is read again, so that a wrong load does not agree with itself.
template <class S>
void block_of_columns<S>::encode(bool again) {
  const index m = Q_.m_, rows = from_.view.rows;
  core::aligned_buffer<wide> own;
  if (again) own = Q_.under_q(transposed_);
  const wide* const b = again ? own.data() : Q_.b_.data();
  std::fill(encoded_.begin(), encoded_.end(), wide(0));
  core::vector<S> column;
  for (index j = 0; j < width_; ++j) {
    wide* const to = encoded_.data() + j;
    if (from_.identity) {
      for (index q = 0; q < k_vectors; ++q) to[q * width_] = b[first_ + j + q * m];
      continue;
    }
    const int e = shift_[at(j)];
    const S* x = &from_.view(0, first_ + j);
    if (e != 0 || from_.view.row_stride != 1 || from_.conjugated) {
      column.resize(at(rows));
      for (index i = 0; i < rows; ++i) column[at(i)] = e == 0 ? read(i, first_ + j) : scaled(read(i, first_ + j), e);
      x = column.data();
    }
    Q_.kernels_.dot(rows, 1, x, rows, k_vectors, b, m, to, width_);
  }
}

// Applies all panels in turn. Panels that begin below the last row of the identity's columns leave their zeros alone.
template <class S>
void block_of_columns<S>::transform(const panel_set<S>& panels) {
  const index m = Q_.m_, nb = Q_.panel_width;
  const bool unit = from_.identity;
  const index used = unit ? std::min(Q_.panels, (first_ + width_ - 1) / nb + 1) : Q_.panels;
  const auto first_changed = [&](index k) { return unit ? std::max<index>(0, k * nb - first_) : 0; };
  index struck = 0, changed = 0;
  if constexpr (inject::active_injector::enabled) {
    for (index k = 0; k < used; ++k) changed += width_ - first_changed(k);
  }
  for (index s = 0; s < used; ++s) {
    const index k = transposed_ ? s : used - 1 - s;
    const block_reflector<S>& H = panels.all[at(k)];
    S* const from = X_ + k * nb;
    Q_.kernels_.product(H, width_, from, ldx_, W_.data());
    if constexpr (inject::active_injector::enabled)
      strike(Q_.run_.injector, site::product, {task_, tasks_, s, used}, W_.data(), H.width * width_);
    Q_.kernels_.update(H, transposed_, width_, W_.data(), from, ldx_);
    if constexpr (inject::active_injector::enabled) {
      // The rows of each column that this panel has changed.
      for (index j = first_changed(k); j < width_; ++j)
        strike(Q_.run_.injector, site::q, {task_, tasks_, struck++, changed}, from + j * ldx_, m - k * nb);
    }
  }
}

template <class S>
void block_of_columns<S>::verify(applied_sums& seen) {
  const index m = Q_.m_;
  if constexpr (inject::active_injector::enabled)
    strike(Q_.run_.injector, site::checksum, {task_, tasks_, 0, 1}, encoded_.data(), k_vectors * width_);
  core::vector<wide> found(at(k_vectors * width_), wide(0));
  Q_.kernels_.dot(m, width_, X_, ldx_, k_vectors, Q_.a_.data(), m, found.data(), width_);
  seen = compare_applied(width_, encoded_.data(), found.data(), norm_.data(), odd_.data());
}

template <class S>
std::uint64_t block_of_columns<S>::hash() {
  const index m = Q_.m_;
  abft::result_hash made;
  for (index j = 0; j < width_; ++j) add_numbers(made, X_ + j * ldx_, m);
  return made.bits();
}

template <class S>
void block_of_columns<S>::unscale() {
  for (index j = 0; j < width_; ++j) {
    const int e = shift_[at(j)];
    for (index i = 0; e != 0 && i < Q_.m_; ++i) X_[i + j * ldx_] = scaled(X_[i + j * ldx_], -e);
  }
}

// ------------------------------------------------------------------------------------------------------------------ all panels

template <class S>
panel_applier<S>::panel_applier(const context& run, const kernels<S>& arithmetic, index panel_width, const matrix_view<const S>& V,
                                const S* tau)
    : run_(run), kernels_(arithmetic), m_(V.rows), V_(V), tau_(tau) {
  if (V.columns == 0) return;
  this->panel_width = panel_width;
  this->most_columns = k_block_columns;
  this->panels = (V.columns + panel_width - 1) / panel_width;
}

template <class S>
void panel_applier<S>::scan(bool* finite) {
  core::vector<char> odd(at(V_.columns), 0);
  core::parallel_for(run_.threads, V_.columns, [&](index j, int) {
    double squares = 0;
    if (j + 1 < m_) kernels_.squares(m_ - j - 1, 1, &V_(j + 1, j), V_.column_stride, &squares);
    if (!std::isfinite(squares + square_of(tau_[j]))) odd[at(j)] = 1;
  });
  *finite = std::none_of(odd.begin(), odd.end(), [](char o) { return o != 0; });
}

template <class S>
panel_set<S> panel_applier<S>::make_panels() const {
  const index nb = this->panel_width, ldv = V_.column_stride;
  panel_set<S> made;
  made.V1 = core::aligned_buffer<S>(core::checked_product(this->panels, nb * nb));
  made.T = core::aligned_buffer<S>(core::checked_product(this->panels, nb * nb));
  made.all.resize(at(this->panels));
  core::parallel_for(run_.threads, this->panels, [&](index k, int) {
    const index first = k * nb;
    const index w = std::min(nb, V_.columns - first);
    S* const V1 = made.V1.data() + k * nb * nb;
    S* const T = made.T.data() + k * nb * nb;
    const S* const v = V_.data + first + first * ldv;
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) V1[i + j * w] = i < j ? S(0) : i == j ? S(1) : v[i + j * ldv];
    }
    made.all[at(k)] = {m_ - first, w, V1, v + w, ldv, T};
    kernels_.triangular_factor(made.all[at(k)], tau_ + first, T);
    if constexpr (inject::active_injector::enabled) {
      for (index j = 0; j < w; ++j) strike(run_.injector, site::t, {first + j, V_.columns, 0, 1}, T + j * w, j + 1);
    }
  });
  return made;
}

template <class S>
void panel_applier<S>::form() {
  shared_ = make_panels();
}

// Computes op(Q)ᴴa for all a, one reflector after the other. It shares only V and tau with the products. op(Q) decides the order, and for
// complex numbers whether H_j or H_jᴴ is applied.
template <class S>
auto panel_applier<S>::under_q(bool transposed) const -> core::aligned_buffer<wide> {
  core::aligned_buffer<wide> b(k_vectors * m_);
  std::copy_n(a_.data(), k_vectors * m_, b.data());
  // With all vectors at once, V is read once. Two tasks, for two threads, give the same numbers.
  const int together = run_.threads > 1 ? k_vectors / 2 : k_vectors;
  core::parallel_for(run_.threads, k_vectors / together, [&](index task, int) {
    wide* const y = b.data() + task * together * m_;
    for (index s = 0; s < V_.columns; ++s) {
      const index j = transposed ? V_.columns - 1 - s : s;
      const index below = m_ - j - 1;
      wide sum[k_vectors];
      for (int q = 0; q < together; ++q) sum[q] = y[j + q * m_];
      if (below > 0) kernels_.dot(below, 1, &V_(j + 1, j), V_.column_stride, together, y + j + 1, m_, sum, 1);
      for (int q = 0; q < together; ++q) {
        sum[q] = times(sum[q], static_cast<wide>(transposed ? tau_[j] : conjugate(tau_[j])));
        y[j + q * m_] -= sum[q];
      }
      if (below > 0) kernels_.subtract(below, 1, &V_(j + 1, j), V_.column_stride, together, sum, 1, y + j + 1, m_);
    }
  });
  return b;
}

template <class S>
void panel_applier<S>::encode(bool transposed, bool /*few*/) {
  a_ = core::aligned_buffer<wide>(k_vectors * m_);
  for (index q = 0; q < k_vectors; ++q) {
    for (index i = 0; i < m_; ++i)
      a_[i + q * m_] = random_signed(k_application_stream + static_cast<std::uint64_t>(q), static_cast<std::uint64_t>(i));
  }
  b_ = under_q(transposed);
}

template <class S>
std::unique_ptr<applied_block<S>> panel_applier<S>::open(bool transposed, const operand<S>& X, index task, index tasks, index first,
                                                         index width, matrix_view<S> result) {
  return std::make_unique<block_of_columns<S>>(*this, transposed, X, task, tasks, first, width, result);
}

template <class S>
void panel_applier<S>::each(index count, core::function_ref<void(index)> body) {
  core::parallel_for(run_.threads, count, [&](index t, int) { body(t); });
}

template class panel_applier<float>;
template class panel_applier<double>;
template class panel_applier<std::complex<float>>;
template class panel_applier<std::complex<double>>;

}  // namespace ballast::qr::host
