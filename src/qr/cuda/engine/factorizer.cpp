// Memory, panels and updates of one factorization.
// Layer: backend "cuda" of QR. See factorizer.hpp.
#include "qr/cuda/engine/factorizer.hpp"
#include "qr/sites.hpp"

#include <algorithm>

namespace ballast::qr::cuda {

namespace {

// Columns of a section: products of this width run near the device's peak rate, and recomputing a block costs a product of this width.
constexpr index k_section_columns = 4096;
constexpr index k_hold_blocks = 64;
// Elements for each multiprocessor above which an update concurrent with the lookahead takes longer than a panel of 128 columns: some 300
// µs on an H100 at 50 TFLOP/s.
constexpr index k_long_update = index{1} << 18;
// A panel of 64 columns of complex numbers takes as long, and an element twice the work.
template <class S>
constexpr index k_long = k_long_update / k_reals<S>;
// A panel takes longer than its update if its rows exceed the columns to update by more than this factor.
constexpr index k_cholesky_qr_update = 16;

}  // namespace

template <class S>
device_factorizer<S>::device_factorizer(session<S>& on, const layout& shape, const matrix_view<S>& A, S* tau,
                                        const matrix_view<const S>& source)
    : on_(on), shape_(shape), A_(A.data), lda_(A.column_stride), tau_(tau), source_(source) {
  panels_.T = on_.template allocate_of<S>(core::checked_product(shape.panels, nb() * nb()));
  ahead_.control = on_.template allocate_of<panel_control>(1);
  panels_.copies = std::min(k_copies, shape.panels);
  if (shape.one_block()) return;  // there are no updates
  for (index k = 0; k < panels_.copies; ++k) allocate_v(k);
  // Enough for every span, and for all checksum columns.
  const index columns = std::max(std::min(shape.n, k_section_columns + nb()), 2 * static_cast<index>(shape.groups.size()));
  for (buffer& each : updates_.W) each = on_.template allocate_of<S>(2 * (joins_pairs(0) ? 2 : 1) * nb() * columns);
}

template <class S>
void device_factorizer<S>::allocate_v(index k) {
  buffer& memory = panels_.V[k % panels_.copies];
  if (memory.data() == nullptr) memory = on_.template allocate_of<S>(core::checked_product(shape_.m, nb()));
}

// Later work on the main stream waits for the updates, and for the checks of panels that were begun ahead.
template <class S>
void device_factorizer<S>::join_all() {
  on_.join(on_.update_stream());
  on_.join(on_.check_stream());
}

template <class S>
S* device_factorizer<S>::scratch(buffer& of, index elements) {
  const index bytes = elements * static_cast<index>(sizeof(S));
  if (of.bytes() < bytes) of = on_.allocate(bytes);
  return static_cast<S*>(of.data());
}

// ------------------------------------------------------------------------------------------------------------ panels and updates

template <class S>
reflectors<S> device_factorizer<S>::reflector(index k) const {
  const layout::block& b = shape_[k];
  return {A_ + b.first + b.first * lda_, lda_, shape_.m - b.first, static_cast<int>(b.width), T(k), b.width};
}

template <class S>
void device_factorizer<S>::begin_pass() {
  panels_.formed = -1;
  panels_.unsettled = -1;
  ahead_.last = ahead_.undecided = -1;
  updates_.unpaired = -1;
  updates_.marked = panels_.t_marked = false;
  on_.device()->zero(ahead_.control.data(), sizeof(panel_control), on_.main());
  if (!checked()) return;
  on_.fork(on_.check_stream());
  on_.device()->copy(checks_.carried.data(), checks_.product.data(), checks_.carried.bytes(), on_.check_stream());  // after encode()
}

template <class S>
void device_factorizer<S>::begin_panel(index k) {
  if (!ahead_.begins) on_.join(on_.check_stream());  // the checks of panels begun ahead end on this stream
  if (checked() && !shape_.single_group)
    on_.strike(site::checksum, {k, shape_.count(), 0, 1}, checksums(shape_[k].group), 2 * shape_.m,
               ahead_.begins ? on_.check_stream() : on_.main());
}

// Factors panel k in one launch, or in parts of k_inner columns with one launch each; products then apply each part to the columns to its
// right.
template <class S>
void device_factorizer<S>::factor_by_reflectors(index k) {
  const layout::block& b = shape_[k];
  const index rows = shape_.m - b.first, w = b.width;
  S* const panel = A_ + b.first + b.first * lda_;
  const matrix_view<S> whole = column_major(panel, rows, w, lda_);
  if (on_.factor_small(whole, tau_ + b.first)) return on_.make_t(whole, w, tau_ + b.first, T(k));
  const bool one_part = w <= k_inner;
  S* const V = one_part ? nullptr : scratch(panels_.inner, rows * k_inner + k_inner * k_inner + 2 * k_inner * w);
  S* const part_t = one_part ? T(k) : V + rows * k_inner;
  S* const W = one_part ? nullptr : part_t + k_inner * k_inner;
  for (index p = 0; p < w; p += k_inner) {
    const index width = std::min<index>(k_inner, w - p), height = rows - p, right = w - p - width;
    S* const part = panel + p + p * lda_;
    const auto plan = on_.plan_panel(height, static_cast<int>(width));
    S* const pivots = plan.resident ? nullptr : scratch(panels_.pivots, 2 * rows);
    on_.launch_panel(plan.cluster, {part, lda_, height, static_cast<int>(width), tau_ + b.first + p, part_t, width, plan.slab, pivots});
    if (right == 0) continue;
    on_.form_v({part, lda_, height, static_cast<int>(width), part_t, width}, V, on_.main(), checked());
    const formed_reflector<S> H{V, height, width, part_t};
    S* const C = part + width * lda_;
    on_.product(H, right, C, lda_, W, on_.main());
    on_.update(H, true, right, W, C, lda_, on_.main());
  }
  if (!one_part) on_.make_t(whole, w, tau_ + b.first, T(k));
}

// With Inf or NaN no column may depend on the columns to its right, but in Cholesky QR all columns of a panel depend on each other.
template <class S>
void device_factorizer<S>::factor_panel(index k, bool finite) {
  const layout::block& b = shape_[k];
  const index m = shape_.m, rows = m - b.first, w = b.width;
  S* const panel = A_ + b.first + b.first * lda_;
  const bool by_cholesky_qr = finite && on_.uses_cholesky_qr(rows, w);
  for (index j = 0; j < w && on_.armed(site::panel); ++j)
    on_.strike(site::panel, by_cholesky_qr ? cholesky_qr_position(b.first + j, 0) : inject::position{b.first + j, shape_.steps, 0, 1},
               panel + j * lda_, rows);
  forget_v(k);
  if (by_cholesky_qr) {
    begin_cholesky_qr(k);
  } else {
    factor_by_reflectors(k);
  }
  // T and tau are complete before they are struck.
  if (ahead_.begins && (on_.armed(site::tau) || on_.armed(site::t))) on_.join(on_.check_stream());
  for (index j = 0; j < w; ++j) {
    if (!on_.armed(site::reflector) && !on_.armed(site::tau) && !on_.armed(site::t)) break;
    (void)settle();
    on_.strike(site::reflector, {b.first + j, std::min(m - 1, shape_.n), 0, 3}, panel + j + 1 + j * lda_, rows - j - 1);
    on_.strike(site::tau, {b.first + j, shape_.steps, 0, 1}, tau_ + b.first + j, 1);
    on_.strike(site::t, {b.first + j, shape_.steps, 0, 2}, T(k) + j * w, j + 1);
  }
  if (!shape_.one_block()) return;
  strike_kept(k);
  strike_stored();
}

template <class S>
void device_factorizer<S>::end_panel(index k) {
  (void)settle();
  if (!shape_.one_block()) strike_kept(k);
}

template <class S>
void device_factorizer<S>::strike_kept(index k) {
  const layout::block& b = shape_[k];
  S* const panel = A_ + b.first + b.first * lda_;
  // V and T are verified before they are struck.
  if (ahead_.begins && (on_.armed(site::reflector) || on_.armed(site::t))) on_.join(on_.check_stream());
  for (index j = 0; j < b.width; ++j) {
    if (!on_.armed(site::reflector) && !on_.armed(site::t)) break;
    (void)settle();
    on_.strike(site::reflector, {b.first + j, std::min(shape_.m - 1, shape_.n), 1, 3}, panel + j + 1 + j * lda_,
               shape_.m - b.first - j - 1);
    on_.strike(site::t, {b.first + j, shape_.steps, 1, 2}, T(k) + j * b.width, j + 1);
  }
}

// Only Cholesky QR panels: other panels overwrite the matrix while they are factored, so that their entry check must have passed before.
template <class S>
bool device_factorizer<S>::goes_ahead(index k) const {
  return on_.uses_cholesky_qr(shape_.m - shape_[k].first, shape_[k].width);
}

template <class S>
void device_factorizer<S>::begin_ahead(index k, core::function_ref<panel_limits()> limits) {
  ahead_.last = k;
  ahead_.begins = true;
  if (k > 0) ahead_.limits = limits();
  allocate_checks();
  on_.fork(on_.check_stream());
  begin_panel(k);
  if (checked() && k > 0 && !shape_.single_group) measure_entry(k, &record(k)->entry, on_.check_stream());
  factor_panel(k, true);
  if (k == 0) ahead_.limits = limits();  // the device computes the panel while the host waits for the limits
  if (ahead_.limits.measured) {
    on_.fork(on_.check_stream());
    sum_panel(k, &record(k)->sums, on_.check_stream());
    take_over(k, on_.check_stream());
  }
  end_panel(k);
  ahead_.begins = false;
}

template <class S>
panel_seen device_factorizer<S>::await_panel(index k) {
  const auto& made = *static_cast<const panel_record*>(on_.await(static_cast<int>(k % k_send_slots)));
  panel_seen seen;
  seen.factored = made.cholesky_qr.stage == k_cholesky_qr_orthonormal;
  seen.passed = made.passed == 1 && made.held == 0;
  seen.held = made.passed == 0 && made.held == 1;
  if (seen.held && expects_direct(k) && made.cholesky_qr.stage == k_cholesky_qr_factored) {
    ahead_.expects_direct = false;
    seen.again = true;
  }
  if (checked()) {
    seen.sums = {made.sums.orthogonality, made.sums.orthogonality_threshold, made.sums.reflectors, made.sums.data};
    if (k > 0 && !shape_.single_group) seen.entry = made.entry;
  }
  return seen;
}

template <class S>
void device_factorizer<S>::resume() {
  on_.put_off(nullptr);  // drops the update by a panel after the one that was held back
  join_all();
  on_.device()->zero(&control()->gate, sizeof(panel_gate), on_.main());
  draw(on_.main());  // a weight of the checks may have been struck; the values are the same
  panels_.formed = -1;
  ahead_.last = ahead_.undecided = -1;
  panels_.t_marked = false;
}

// Returns the columns that panel k updates together with block b.
template <class S>
typename device_factorizer<S>::span device_factorizer<S>::section_of(index k, index b) const {
  if (b == k + 1) return {shape_[b].first, shape_[b].width};
  const index each = std::max<index>(1, k_section_columns / nb()), far = first_far(k);
  const index begin = b < far ? k + 2 : std::max(b / each * each, far);
  const index end = b < far ? far : std::min((b / each + 1) * each, shape_.count());
  return {shape_[begin].first, shape_[end - 1].first + shape_[end - 1].width - shape_[begin].first};
}

template <class S>
bool device_factorizer<S>::updates_long(index rows, index columns) const {
  return rows * columns > k_long<S> * on_.device()->about().multiprocessors;
}

// Only if the updates, not the panels, limit the speed: joining a pair takes launches and products of its own.
template <class S>
bool device_factorizer<S>::joins_pairs(index k) const {
  const index first = k / 2 * 2, far = first + 4;
  if (shape_.single_group || first + 1 >= shape_.panels || far >= shape_.count()) return false;
  const index rows = shape_.m - shape_[first].first, columns = shape_.n - shape_[far].first;
  return updates_long(rows, columns) && rows <= k_cholesky_qr_update * columns;
}

// V = [V_k, V_k+1], the second below as many zeros as the first has columns, and
// T = [T_k, −T_k (V_kᴴ V_k+1) T_k+1; 0, T_k+1]: H_k H_k+1 = I − V T Vᴴ. `first` may already be at its place in `memory`.
template <class S>
formed_reflector<S> device_factorizer<S>::join_pair(index k, const S* first, const S* second, buffer& memory, stream on) {
  const index rows = shape_.m - shape_[k].first, a = shape_[k].width, b = shape_[k + 1].width, w = a + b;
  constexpr auto size = static_cast<index>(sizeof(S));
  S* const V = pair_memory(memory, on);
  S* const T = V + shape_.m * 2 * nb();
  S* const product = T + 4 * nb() * nb();
  S* const applied = product + nb() * nb();
  ballast::cuda::device& device = *on_.device();
  if (first != V) device.copy(V, first, rows * a * size, on);
  device.zero(V + rows * a, rows * b * size, on);
  device.copy_columns(V + rows * a + a, rows * size, second, (rows - a) * size, (rows - a) * size, b, on);
  device.zero(T, w * w * size, on);
  device.copy_columns(T, w * size, this->T(k), a * size, a * size, a, on);
  device.copy_columns(T + w * a + a, w * size, this->T(k + 1), b * size, b * size, b, on);
  ballast::cuda::blas& blas = on_.blas(on);
  blas.gemm(k_adjoint<S>, 'N', a, b, rows - a, S(1), V + a, rows, V + rows * a + a, rows, S(0), product, a);
  blas.gemm('N', 'N', a, b, a, S(1), this->T(k), a, product, a, S(0), applied, a);
  blas.gemm('N', 'N', a, b, b, S(-1), applied, a, this->T(k + 1), b, S(0), T + w * a, w);
  return {V, rows, w, T};
}

template <class S>
S* device_factorizer<S>::pair_memory(buffer& memory, stream on) {
  const index numbers = shape_.m * 2 * nb() + 6 * nb() * nb();
  if (memory.data() == nullptr) memory = {on_.device(), core::checked_product(numbers, static_cast<index>(sizeof(S))), on};
  return static_cast<S*>(memory.data());
}

// C ← Hᴴ C for the given columns; C begins with H's first row. Panel k is H's last panel. Injection may strike VᵀC of the blocks `struck`.
template <class S>
void device_factorizer<S>::apply(index k, formed_reflector<S> H, span columns, S* C, index ldc, S* W, stream on, span struck) {
  if (on_.multiplies(H, columns.width)) {
    const bool updates = on != on_.main(), there = updates && updates_.imaged == H.V;
    buffer& image = updates_.images[updates ? 1 : 0];
    if (image.data() == nullptr) image = {on_.device(), session<S>::image_bytes(shape_.m, (joins_pairs(0) ? 2 : 1) * nb()), on};
    if (there) {
      H.image = static_cast<const S*>(image.data());
    } else {
      on_.make_image(H, image.data(), on);
      if (updates) updates_.imaged = H.V;
    }
  }
  project(k, H, columns, C, ldc, {}, W, on, struck);
  on_.subtract(H, columns.width, W + H.width * columns.width, C, ldc, on);
}

// The part of apply() that does not change C: computes VᵀC and op(T) VᵀC. `more`: further columns, whose products are stored after C's.
template <class S>
void device_factorizer<S>::project(index k, const formed_reflector<S>& H, span columns, const S* C, index ldc, const some_columns<S>& more,
                                   S* W, stream on, span struck) {
  product_parts parts;
  if (on_.narrow(H, columns.width)) {
    parts = on_.product_in_parts(H, {C, ldc, columns.width}, more, on);
  } else {
    on_.product(H, columns.width, C, ldc, W, on);
  }
  for (index b = struck.first; b < struck.first + struck.width && on_.armed(site::product); ++b) {
    const index before = (shape_[b].first - columns.first) * H.width, count = H.width * shape_[b].width;
    for (index each = H.width > shape_[k].width ? k - 1 : k; each <= k; ++each) {
      const inject::position here = pair_place(each, b);
      if (parts.data != nullptr) {
        on_.strike(site::product, here, parts.data + k_reals<S> * before, k_reals<S> * count, on);
      } else {
        on_.strike(site::product, here, W + before, count, on);
      }
    }
  }
  if (panels_.t_marked && on == on_.main()) {
    on_.join_mark(on_.check_stream());
    panels_.t_marked = false;
  }
  on_.apply_t(H, true, columns.width + more.count, W, on, parts);
}

// Panel k's update of the next block, concurrent with the panel's checks. This is the only result after the panel that is written before
// the checks have passed. The updates of checksums wait for the checks; their products VᵀC do not.
template <class S>
void device_factorizer<S>::look_ahead(index k, index b) {
  const layout::block& here = shape_[b];
  const index row = shape_[k].first, w = here.width;
  const formed_reflector<S> H = formed(k, V(k));
  S* const W = static_cast<S*>(updates_.W[0].data());
  S* const C = A_ + row + here.first * lda_;
  some_columns<S> sums;
  const index groups = checked() && !shape_.single_group ? 2 * (shape_.count() - b) : 0;
  const bool together = groups > 0 && on_.narrow(H, groups);
  if (together) sums = {checksums(here.group) + row, shape_.m, groups};
  project(k, H, {here.first, w}, C, lda_, sums, W, on_.main(), {b, 1});
  const S* const TW = W + H.width * (w + sums.count);
  // The other updates would take multiprocessors from the lookahead, for which the next panel waits: they go first only if they take
  // longer.
  const bool others_first = updates_long(shape_.m - row, shape_.n - row);
  if (others_first) decide(k);
  on_.subtract(H, w, TW, C, lda_, on_.main());
  strike_updated(k, b, on_.main());
  if (!others_first) decide(k);
  if (together) {
    on_.subtract(H, groups, TW + H.width * w, checksums(here.group) + row, shape_.m, on_.check_stream());
  } else if (groups > 0) {
    update_checksums(k, H.V, b, shape_.count(), static_cast<S*>(updates_.W_of_checksums.data()), on_.check_stream());
  }
}

template <class S>
void device_factorizer<S>::decide(index k) {
  const layout::block& b = shape_[k];
  on_.fork(on_.check_stream());
  on_.launch(work::hold, k_hold_blocks,
             hold_arguments<S>{
                 &control()->gate, record(k), {{V(k), V(k) != nullptr ? (shape_.m - b.first) * b.width : 0}, {T(k), b.width * b.width}}},
             on_.check_stream());
  on_.send(static_cast<int>(k % k_send_slots), record(k), sizeof(panel_record), on_.check_stream());
  on_.follow(on_.update_stream(), on_.check_stream());
  ahead_.undecided = -1;
}

// Counts the pairs (k, b), b > k, in order.
template <class S>
inject::position device_factorizer<S>::pair_place(index k, index b) const {
  const index count = shape_.count();
  return {k * count - k * (k + 1) / 2 + b - k - 1, shape_.panels * count - shape_.panels * (shape_.panels + 1) / 2, 0, 1};
}

template <class S>
void device_factorizer<S>::strike_updated(index k, index b, stream on) {
  const layout::block& here = shape_[b];
  const index row = shape_[k].first;
  inject::position at = pair_place(k, b);
  at.steps = here.width;
  for (; at.step < here.width && on_.armed(site::trailing); ++at.step)
    on_.strike(site::trailing, at, A_ + row + (here.first + at.step) * lda_, shape_.m - row, on);
}

template <class S>
void device_factorizer<S>::update_checksums(index k, const S* V, index first_group, index last_group, S* W, stream on) {
  if (!checked() || first_group >= last_group) return;
  apply(k, formed(k, V), {0, 2 * (last_group - first_group)}, checksums(first_group) + shape_[k].first, shape_.m, W, on, {});
}

template <class S>
void device_factorizer<S>::update(index k, index b) {
  if (ahead_.undecided == k) return look_ahead(k, b);
  const layout::block& here = shape_[b];
  const S* V = this->V(k);
  if (panels_.formed != k) {
    S* const made = scratch(repeated_.V, shape_.m * nb());
    form_v(k, made, on_.main());
    V = made;
  }
  S* const W = static_cast<S*>(updates_.W[0].data());
  if (!shape_.single_group) update_checksums(k, V, b, b + 1, W, on_.main());
  formed_reflector<S> H = formed(k, V);
  if (joins_pairs(k) && b >= first_far(k)) {
    if (k % 2 == 0) return strike_updated(k, b, on_.main());  // the odd panel of the pair applies both
    S* const pair = pair_memory(repeated_.pair, on_.main());
    form_v(k - 1, pair, on_.main());
    H = join_pair(k - 1, pair, V, repeated_.pair, on_.main());
  }
  const index row = shape_.m - H.rows;
  const span all = section_of(k, b);
  if (all.width == here.width) {
    apply(k, H, all, A_ + row + here.first * lda_, lda_, W, on_.main(), {b, 1});
  } else {
    // A block is recomputed: in a product of the same shape, at an address of the same alignment, as before.
    constexpr index line = 256 / static_cast<index>(sizeof(S));
    S* const memory = scratch(repeated_.section, lda_ * all.width + line);
    S* const C = memory + reinterpret_cast<std::uintptr_t>(A_ + row + all.first * lda_) % 256 / sizeof(S);
    S* const own = C + (here.first - all.first) * lda_;
    const index rows = shape_.m - row;
    const auto move = [&](const S* from, S* to) {
      on_.launch(work::copy, tiles(rows, here.width),
                 copy_arguments<S>{from, 1, lda_, to, 1, lda_, rows, here.width, rows, 0, nullptr, nullptr, 1, false});
    };
    on_.device()->zero(C, (rows + lda_ * (all.width - 1)) * static_cast<index>(sizeof(S)), on_.main());
    move(A_ + row + here.first * lda_, own);
    apply(k, H, all, C, lda_, W, on_.main(), {b, 1});
    move(own, A_ + row + here.first * lda_);
  }
  strike_updated(k, b, on_.main());
}

template <class S>
void device_factorizer<S>::advance(index k, index first, core::function_ref<void()> ahead) {
  const index count = shape_.count();
  if (k + 1 == count && !shape_.single_group) {  // this is the last block
    if (ahead_.last == k) decide(k);
    return ahead();
  }
  // Block k + 1 has received its other updates before the next launches.
  if (updates_.marked) {
    on_.join_mark(on_.update_stream());
  } else {
    on_.join(on_.update_stream());
  }
  updates_.marked = false;
  form_v(k, V(k), on_.main());
  panels_.formed = k;
  updates_.imaged = nullptr;
  if (ahead_.last == k) {
    ahead_.undecided = k;
  } else {
    on_.fork(on_.update_stream());
  }
  // The lookahead is enqueued first, since the device waits for it and not for the other updates; those are put off.
  const bool begun_ahead = ahead_.last == k;
  on_.put_off([this, k, first, count, begun_ahead] {
    S* const W = static_cast<S*>(updates_.W[1].data());
    const auto update = [&](const formed_reflector<S>& H, index b, index end) {
      const index row = shape_.m - H.rows;
      while (b < end) {
        const span all = section_of(k, b);
        const index begin = b;
        while (b < end && shape_[b].first < all.first + all.width) ++b;
        apply(k, H, all, A_ + row + all.first * lda_, lda_, W, on_.update_stream(), {begin, b - begin});
      }
    };
    formed_reflector<S> H = formed(k, V(k));
    const index far = std::min(first_far(k), count);
    update(H, first, far);
    if (shape_.single_group) {
      update_checksums(k, H.V, 0, 1, W, on_.update_stream());
    } else if (!begun_ahead) {
      update_checksums(k, H.V, first, count, W, on_.update_stream());
    }
    const bool joined = updates_.unpaired >= 0 && updates_.unpaired == k - 1;
    updates_.unpaired = joins_pairs(k) && k % 2 == 0 ? k : -1;
    if (updates_.unpaired < 0 && far < count) {
      on_.mark(on_.update_stream());
      updates_.marked = true;
      if (joined) H = join_pair(k - 1, V(k - 1), H.V, updates_.pair, on_.update_stream());
      update(H, far, count);
    }
    for (index b = first; b < count; ++b) strike_updated(k, b, on_.update_stream());
  });
  try {
    ahead();
  } catch (...) {
    on_.put_off(nullptr);  // the deferred work would use this object
    throw;
  }
  if (ahead_.undecided == k) decide(k);  // there is no next block
  on_.catch_up();
}

template <class S>
void device_factorizer<S>::end_pass() {
  join_all();
  if (!shape_.one_block()) strike_stored();
}

template <class S>
void device_factorizer<S>::strike_stored() {
  if (on_.armed(site::r) || on_.armed(site::reflector)) (void)settle();
  const index m = shape_.m, n = shape_.n;
  for (index j = 0; j < n && on_.armed(site::r); ++j) on_.strike(site::r, {j, n, 0, 1}, A_ + j * lda_, std::min(j + 1, m));
  for (index j = 0; j < std::min(m - 1, n) && on_.armed(site::reflector); ++j)
    on_.strike(site::reflector, {j, std::min(m - 1, n), 2, 3}, A_ + j + 1 + j * lda_, m - j - 1);
}

template <class S>
std::uint64_t device_factorizer<S>::hash_block(index b) {
  const layout::block& here = shape_[b];
  return on_.hash(A_ + here.first * lda_, lda_, shape_.m, here.width);
}

template class device_factorizer<float>;
template class device_factorizer<double>;
template class device_factorizer<std::complex<float>>;
template class device_factorizer<std::complex<double>>;

}  // namespace ballast::qr::cuda
