// Computes the factors T of stored reflectors in wide panels, and applies Q to blocks of columns.
// Layer: backend "cuda" of QR. See applier.hpp.
#include "qr/cuda/engine/applier.hpp"

#include <algorithm>
#include <cmath>

#include "abft/attempt.hpp"
#include "core/at.hpp"
#include "qr/checks/applied.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

using core::at;

namespace {

// Returns the columns of the operand in one block: VᵀC has tiles of 128 × 128, one for each multiprocessor that is not computing op(Q)ᵀa
// meanwhile. One tile more than there are free multiprocessors takes as long as twice as many.
index block_columns(const ballast::cuda::capabilities& on, index width) {
  constexpr index tile = 128;
  const index free = on.multiprocessors - k_chain_clusters[k_chain_cluster_count - 1].blocks;
  return tile * std::max<index>(1, free / ((width + tile - 1) / tile));
}

}  // namespace

// -------------------------------------------------------------------------------------------------------- one block of columns

template <class S>
class block_of_columns final : public applied_block<S> {
 public:
  block_of_columns(device_applier<S>& Q, bool transposed, const operand<S>& from, index task, index tasks, index first, index width,
                   matrix_view<S> result)
      : Q_(Q),
        on_(Q.on_),
        transposed_(transposed),
        from_(from),
        task_(task),
        tasks_(tasks),
        first_(first),
        width_(width),
        X_(result.data + first * result.column_stride),
        ldx_(result.column_stride),
        norm_(at(width)),
        shift_(at(width), 0),
        odd_(at(width), 0) {
    if (Q.panels == 0) return;
    W_ = on_.template allocate_of<S>(2 * Q.panel_width * width);
    sums_ = on_.template allocate_of<wide>(2 * k_vectors * width);
    sizes_ = on_.template allocate_of<column_result>(width);
    shifts_ = on_.template allocate_of<int>(width);
  }

  void wait() override { on_.wait(); }
  void compute(bool again, applied_sums* seen) override;
  std::uint64_t hash() override;
  void unscale() override;

 private:
  using buffer = ballast::cuda::device_buffer;
  using wide = wide_of<S>;
  void load();
  void scale();
  void measure();
  void shift(int sign);
  void transform(const buffer& T);
  void dots(const S* X, index row_stride, index column_stride, index rows, bool conjugated, const int* shifts, const wide* b, wide* to);
  bool shifted() const {
    return std::any_of(shift_.begin(), shift_.end(), [](int e) { return e != 0; });
  }

  device_applier<S>& Q_;
  session<S>& on_;
  const bool transposed_;
  const operand<S> from_;
  const index task_, tasks_, first_, width_;
  S* const X_;  // the columns within the result: nothing is stored after the check
  const index ldx_;
  buffer W_, sums_, sizes_, shifts_;
  core::vector<double> norm_;  // norms of the scaled columns
  core::vector<int> shift_;    // column j is computed as 2^shift_j · x
  core::vector<char> odd_;     // marks columns with Inf or NaN
};

template <class S>
void block_of_columns<S>::compute(bool again, applied_sums* seen) {
  load();
  if (Q_.panels == 0) return;
  scale();
  // The T, a and b that all blocks share may have been struck. Other blocks may go on with a: its values are the same.
  if (again && seen != nullptr) Q_.draw();
  const buffer own_t = again ? Q_.make_t() : buffer();
  const buffer own_b = again && seen != nullptr ? Q_.under_q(transposed_) : buffer();
  transform(again ? own_t : Q_.T_);
  if (seen == nullptr) return;
  // xᴴb for b = op(Q)ᴴa, from another reading of the operand, so that a wrong load does not agree with itself.
  on_.join(on_.update_stream());
  wide* const encoded = static_cast<wide*>(sums_.data());
  wide* const found = encoded + k_vectors * width_;
  const auto* const b = static_cast<const wide*>((again ? own_b : Q_.b_).data());
  const bool unit = from_.identity;
  dots(unit ? nullptr : &from_.view(0, first_), from_.view.row_stride, from_.view.column_stride, unit ? Q_.m_ : from_.view.rows,
       from_.conjugated, shifted() ? static_cast<const int*>(shifts_.data()) : nullptr, b, encoded);
  on_.strike(site::checksum, {task_, tasks_, 0, 1}, encoded, k_vectors * width_);
  dots(X_, 1, ldx_, Q_.m_, false, nullptr, static_cast<const wide*>(Q_.a_.data()), found);
  on_.template fetch<wide>(encoded, 2 * k_vectors * width_, [this, seen](const wide* made) {
    *seen = compare_applied(width_, made, made + k_vectors * width_, norm_.data(), odd_.data());
  });
}

template <class S>
void block_of_columns<S>::load() {
  const index m = Q_.m_;
  const bool unit = from_.identity;
  on_.launch(work::copy, tiles(m, width_),
             copy_arguments<S>{unit ? nullptr : from_.view.data + first_ * from_.view.column_stride, from_.view.row_stride,
                               from_.view.column_stride, X_, 1, ldx_, m, width_, unit ? m : from_.view.rows, first_, nullptr, nullptr, 1,
                               false, from_.conjugated});
}

template <class S>
void block_of_columns<S>::shift(int sign) {
  on_.launch(
      work::copy, tiles(Q_.m_, width_),
      copy_arguments<S>{X_, 1, ldx_, X_, 1, ldx_, Q_.m_, width_, Q_.m_, 0, nullptr, static_cast<const int*>(shifts_.data()), sign, false});
}

// Scales columns of extreme size, and marks those with Inf or NaN.
template <class S>
void block_of_columns<S>::scale() {
  measure();
  // A struck size must not scale a column to nothing, which passes every check, nor leave it without checks: two scans in a row must agree.
  const auto usual = [&] { return !shifted() && std::none_of(odd_.begin(), odd_.end(), [](char odd) { return odd != 0; }); };
  for (int scans = 1; !usual() && scans < k_most_scans; ++scans) {
    const core::vector<int> shift = shift_;
    const core::vector<char> odd = odd_;
    measure();
    if (shift == shift_ && odd == odd_) break;
  }
  if (!shifted()) return;
  on_.copy(shifts_.data(), shift_.data(), width_ * static_cast<index>(sizeof(int)));
  shift(1);
}

// Computes the columns' norms, and the exponents that scale them.
template <class S>
void block_of_columns<S>::measure() {
  auto* const sizes = static_cast<column_result*>(sizes_.data());
  on_.scan(scan_arguments<S>{X_, ldx_, Q_.m_, 0, false, false, sizes}, width_, on_.main());
  on_.template fetch<column_result>(sizes, width_, [this](const column_result* made) {
    for (index j = 0; j < width_; ++j) {
      const int e = made[j].exponent;
      odd_[at(j)] = made[j].finite == 0 ? 1 : 0;
      shift_[at(j)] = abft::product_shift<real_of<S>>(e);
      norm_[at(j)] = std::ldexp(made[j].norm, e + shift_[at(j)]);
    }
  });
  on_.wait();
}

template <class S>
void block_of_columns<S>::dots(const S* X, index row_stride, index column_stride, index rows, bool conjugated, const int* shifts,
                               const wide* b, wide* to) {
  // Four blocks for each multiprocessor, if that leaves each of them k_dot_rows rows.
  const index groups = (width_ + k_dot_columns - 1) / k_dot_columns, wanted = 4 * on_.device()->about().multiprocessors;
  const index chunks = X == nullptr ? 1 : std::clamp<index>(wanted / groups, 1, std::max<index>(1, rows / k_dot_rows));
  const buffer parts = chunks > 1 ? on_.template allocate_of<wide>(chunks * k_vectors * width_) : buffer();
  wide* const made = chunks > 1 ? static_cast<wide*>(parts.data()) : to;
  on_.launch(work::dots, groups * chunks,
             dots_arguments<S>{X, row_stride, column_stride, rows, first_, width_, shifts, b, Q_.m_, made, chunks, conjugated});
  const index count = k_reals<S> * k_vectors * width_;
  if (chunks > 1) on_.launch(work::fold, (count + 31) / 32, fold_arguments{reals(made), chunks, count, reals(to)});
}

// Applies all panels in turn. Panels that begin below the last row of the identity's columns leave their zeros alone.
template <class S>
void block_of_columns<S>::transform(const buffer& T) {
  const index m = Q_.m_, nb = Q_.panel_width;
  const bool unit = from_.identity;
  const index used = unit ? std::min(Q_.panels, (first_ + width_ - 1) / nb + 1) : Q_.panels;
  const auto first_changed = [&](index k) { return unit ? std::max<index>(0, k * nb - first_) : 0; };
  index struck = 0, changed = 0;
  for (index k = 0; k < used; ++k) changed += width_ - first_changed(k);
  for (index s = 0; s < used; ++s) {
    const index k = transposed_ ? s : used - 1 - s;
    formed_reflector<S> H{Q_.form_v(k), m - k * nb, Q_.width_of(k), Q_.T_of(T, k)};
    // The identity's columns before a panel hold only zeros in the panel's rows. The panel's own columns are still the identity's, so that
    // VᴴC is Vᴴ.
    const index skipped = first_changed(k), columns = width_ - skipped;
    const index own = unit && first_ + skipped == k * nb ? std::min(H.width, columns) : 0;
    S* const W = static_cast<S*>(W_.data());
    S* const from = X_ + k * nb + skipped * ldx_;
    if (on_.multiplies(H, columns)) {
      if (Q_.image_.data() == nullptr) Q_.image_ = on_.allocate(session<S>::image_bytes(m, nb));
      on_.make_image(H, Q_.image_.data(), on_.main());
    }
    if (own > 0)
      on_.launch(work::copy, tiles(H.width, own),
                 copy_arguments<S>{H.V, H.rows, 1, W, 1, H.width, H.width, own, H.width, 0, nullptr, nullptr, 1, false, is_complex<S>});
    if (own < columns) on_.product(H, columns - own, from + own * ldx_, ldx_, W + own * H.width, on_.main());
    on_.strike(site::product, {task_, tasks_, s, used}, W, H.width * columns);
    on_.update(H, transposed_, columns, W, from, ldx_, on_.main());
    // The rows of each column that this panel has changed.
    for (index j = first_changed(k); j < width_ && on_.armed(site::q); ++j)
      on_.strike(site::q, {task_, tasks_, struck++, changed}, X_ + k * nb + j * ldx_, H.rows);
  }
}

template <class S>
std::uint64_t block_of_columns<S>::hash() {
  return on_.hash(X_, ldx_, Q_.m_, width_);
}

template <class S>
void block_of_columns<S>::unscale() {
  if (shifted()) shift(-1);
}

// ------------------------------------------------------------------------------------------------------------------ all panels

template <class S>
device_applier<S>::device_applier(session<S>& on, const matrix_view<const S>& V, const S* tau) : on_(on), m_(V.rows), V_(V), tau_(tau) {
  const index count = V.columns;
  if (count == 0) return;
  // Products of deep panels are fast, but the zeros of V and T cost width / count of the work each. At least two panels if there are two
  // columns, so that the smallest problem is computed, and struck, like large ones.
  const index wanted = count >= 4096 ? k_wide_most : count >= 1024 ? k_wide_most / 2 : k_wide_most / 4;
  this->panel_width = std::min({(count + 1) / 2, wanted, index{wide_most<S>}});
  this->most_columns = this->least_columns = block_columns(on.device()->about(), this->panel_width);
  this->panels = (count + this->panel_width - 1) / this->panel_width;
  scratch_ = on_.template allocate_of<S>(core::checked_product(m_, this->panel_width));
}

template <class S>
void device_applier<S>::scan(bool* finite) {
  const index count = V_.columns;
  const buffer sizes = on_.template allocate_of<column_result>(count + 1);
  auto* const to = static_cast<column_result*>(sizes.data());
  on_.scan(scan_arguments<S>{V_.data, V_.column_stride, m_, 1, false, true, to}, count, on_.main());
  on_.scan(scan_arguments<S>{tau_, count, count, 0, false, false, to + count}, 1, on_.main());
  on_.template fetch<column_result>(to, count + 1, [finite, count](const column_result* made) {
    *finite = std::all_of(made, made + count + 1, [](const column_result& each) { return each.finite != 0; });
  });
}

template <class S>
const S* device_applier<S>::form_v(index k) const {
  const index first = k * this->panel_width, ldv = V_.column_stride;
  S* const made = static_cast<S*>(scratch_.data());
  on_.form_v({V_.data + first * (ldv + 1), ldv, m_ - first, static_cast<int>(width_of(k)), nullptr, 0}, made, on_.main(),
             false);  // the check reads V itself
  return made;
}

// Computes T of all panels at once.
template <class S>
auto device_applier<S>::make_t() const -> buffer {
  const index nb = this->panel_width;
  buffer made = on_.template allocate_of<S>(core::checked_product(this->panels, nb * nb));
  on_.make_t({V_.data, m_, V_.columns, V_.row_stride, V_.column_stride}, nb, tau_, static_cast<S*>(made.data()));
  for (index j = 0; j < V_.columns && on_.armed(site::t); ++j)
    on_.strike(site::t, {j, V_.columns, 0, 1}, T_of(made, j / nb) + j % nb * width_of(j / nb), j % nb + 1);
  return made;
}

template <class S>
void device_applier<S>::form() {
  T_ = make_t();
}

template <class S>
auto device_applier<S>::under_q(bool transposed) const -> buffer {
  using wide = wide_of<S>;
  buffer made = on_.template allocate_of<wide>(k_vectors * m_);
  on_.copy(made.data(), a_.data(), made.bytes());
  on_.fork(on_.update_stream());
  // A real H_j is symmetric, so op(Q) only decides the order; a complex one is conjugated with it.
  on_.launch_chain({V_.data, V_.column_stride, m_, V_.columns, tau_, transposed, static_cast<wide*>(made.data())}, chain_parts_,
                   on_.update_stream());
  return made;
}

template <class S>
void device_applier<S>::encode(bool transposed, bool few) {
  chain_parts_ = on_.chain_parts(m_, V_.columns, few);
  a_ = on_.template allocate_of<wide_of<S>>(k_vectors * m_);
  if (is_complex<S>) on_.device()->zero(a_.data(), a_.bytes(), on_.main());
  draw();
  b_ = under_q(transposed);
}

template <class S>
void device_applier<S>::draw() {
  on_.launch(work::random, k_vectors * slabs(m_),
             random_arguments{static_cast<double*>(a_.data()), m_, k_application_stream, true, static_cast<int>(k_reals<S>)});
}

template <class S>
std::unique_ptr<applied_block<S>> device_applier<S>::open(bool transposed, const operand<S>& X, index task, index tasks, index first,
                                                          index width, matrix_view<S> result) {
  return std::make_unique<block_of_columns<S>>(*this, transposed, X, task, tasks, first, width, result);
}

template <class S>
void device_applier<S>::each(index count, core::function_ref<void(index)> body) {
  for (index t = 0; t < count; ++t) body(t);
}

template class device_applier<float>;
template class device_applier<double>;
template class device_applier<std::complex<float>>;
template class device_applier<std::complex<double>>;

}  // namespace ballast::qr::cuda
