// The sums and residuals of the checks, and repair.
// Layer: backend "cuda" of QR. See factorizer.hpp; docs/design/qr.md says what each check covers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/at.hpp"
#include "qr/checks/checkpoint_repair.hpp"
#include "qr/checks/repair.hpp"
#include "qr/cuda/engine/factorizer.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

using core::at;

// Returns memory for at least `count` doubles. The old contents are lost if the memory must grow.
template <class S>
double* device_factorizer<S>::numbers(buffer& of, index count) {
  const index bytes = core::checked_product(count, static_cast<index>(sizeof(double)));
  if (of.bytes() < bytes) of = on_.allocate(bytes);
  return static_cast<double*>(of.data());
}

// -------------------------------------------------------------------------------------------------------------------- seals

template <class S>
void device_factorizer<S>::hash(const S* X, index ld, index rows, index columns, bool upper, unsigned long long* to) {
  if (rows <= 0) return;
  on_.launch(work::hash, columns, hash_arguments<S>{X, ld, rows, upper, to});
}

// -------------------------------------------------------------------------------------------------------------------- a block

// y = init − block b times weights first_weight …, `count` vectors of m values. Also computes the largest norm of these vectors.
template <class S>
void device_factorizer<S>::weigh_block(index b, bool finished, const S* init, const wide* from, int count, index first_weight, wide* y,
                                       double* norm, unsigned long long* seal, stream on) {
  const index m = shape_.m;
  double* const squares = numbers(scratch_.partial, k_weigh_sums * row_blocks(m));
  on_.launch(work::weigh, row_blocks(m),
             weigh_arguments<S>{.X = A_,
                                .row_stride = 1,
                                .column_stride = lda_,
                                .shifts = nullptr,
                                .rows = m,
                                .blocks = blocks(),
                                .first_block = b,
                                .chunks = 1,
                                .r = finished,
                                .z = weights() + first_weight * shape_.n,
                                .ldz = shape_.n,
                                .count = count,
                                .init = init,
                                .from = from,
                                .ldi = m,
                                .to = y,
                                .squares = squares,
                                .norm = norm,
                                .seal = seal,
                                .hashes = reinterpret_cast<unsigned long long*>(squares + count * row_blocks(m)),
                                .arrived = arrived(),
                                .gate = gate_of_checks(),
                                .limit = ahead_.limits.entry},
             on);
}

template <class S>
void device_factorizer<S>::measure_entry(index k, double* norm, stream on) {
  weigh_block(k, false, checksums(shape_[k].group), nullptr, 2, 0, nullptr, norm,
              static_cast<unsigned long long*>(checks_.seals.data()) + 3 * k + 1, on);
}

template <class S>
void device_factorizer<S>::measure_block(index b, bool finished, double* residual) {
  double* const norm = numbers(scratch_.sums, 1);
  if (shape_[b].panel && !finished) {
    measure_entry(b, norm, on_.main());
  } else {
    weigh_block(b, finished, checksums(shape_[b].group), nullptr, 2, 0, nullptr, norm, nullptr, on_.main());
  }
  on_.template fetch<double>(norm, 1, [residual](const double* made) { *residual = *made; });
}

template <class S>
core::vector<S> device_factorizer<S>::read_block(index b) {
  const layout::block& here = shape_[b];
  core::vector<S> made(at(shape_.m * here.width));
  const auto bytes = static_cast<index>(made.size() * sizeof(S));
  buffer packed = on_.allocate(bytes);
  copy_columns(column_major<const S>(A_, shape_.m, shape_.n, lda_), here.first, here.width, static_cast<S*>(packed.data()), shape_.m,
               false);
  on_.copy(made.data(), packed.data(), bytes);
  on_.wait();
  return made;
}

template <class S>
void device_factorizer<S>::write_block(index b, const core::vector<S>& values) {
  const layout::block& here = shape_[b];
  const index m = shape_.m;
  const buffer from = on_.upload(values.data(), m * here.width);
  copy_columns(column_major<const S>(static_cast<const S*>(from.data()), m, here.width), 0, here.width, A_ + here.first * lda_, lda_,
               false);
}

// Copies the numbers of one block to the host, which locates and rebuilds the fault: repair is rare.
template <class S>
index device_factorizer<S>::correct_block(index b, bool finished, double threshold, const inject::position& where) {
  const layout::block& here = shape_[b];
  const index m = shape_.m, w = here.width;
  wide* const y = sums_in(scratch_.vectors, 2 * m);
  weigh_block(b, finished, checksums(here.group), nullptr, 2, 0, y, nullptr, nullptr, on_.main());
  core::vector<double> r(at(2 * k_reals<S> * m)), d(at(w)), e(at(w));
  core::vector<S> c(at(m));
  on_.copy(r.data(), y, 2 * m * static_cast<index>(sizeof(wide)));
  on_.copy(d.data(), weights() + here.first, w * static_cast<index>(sizeof(double)));
  on_.copy(e.data(), weights() + shape_.n + here.first, w * static_cast<index>(sizeof(double)));
  on_.copy(c.data(), checksums(here.group), m * static_cast<index>(sizeof(S)));
  core::vector<S> X = read_block(b);
  const bool triangle = finished && here.panel;
  const index found = repair_block<real>({.columns = w,
                                          .X = reals(X.data()),
                                          .ldx = k_reals<S> * m,
                                          .full_rows = triangle ? here.first : m,
                                          .triangle = triangle,
                                          .components = k_reals<S>,
                                          .c1 = reals(c.data()),
                                          .d = d.data(),
                                          .e = e.data(),
                                          .r = r.data(),
                                          .s = r.data() + k_reals<S> * m,
                                          .threshold = threshold},
                                         on_.run().injector, where);
  if (found < 0) return found;
  write_block(b, X);
  return found;
}

template <class S>
void device_factorizer<S>::measure_independent(index b, bool finished, double* residual) {
  const layout::block& here = shape_[b];
  const index m = shape_.m;
  const index passed = !here.panel ? shape_.panels : finished ? b + 1 : b;
  wide* const y = sums_in(scratch_.vectors, 2 * m);
  wide* const next = y + m;
  on_.launch(work::weigh, row_blocks(m),
             weigh_arguments<S>{.X = source_.data,
                                .row_stride = source_.row_stride,
                                .column_stride = source_.column_stride,
                                .shifts = shifts(),
                                .rows = m,
                                .blocks = blocks(),
                                .first_block = b,
                                .chunks = 1,
                                .r = false,
                                .z = weights() + 2 * shape_.n,
                                .ldz = shape_.n,
                                .count = 1,
                                .ldi = m,
                                .to = y});
  for (index k = 0; k < passed; ++k) {
    const reflectors<S> h = reflector(k);
    wide* const tz = sums_in(scratch_.sums, judge_sums());
    wide* const sums = tz + h.width;
    products({.h = h, .y = y + shape_[k].first}, qr::reals(sums));
    on_.launch(work::small, 1, small_arguments<S>{h, true, sums, tz});
    on_.launch(work::transformed, transformed_blocks<S>(h.rows),
               transformed_arguments<S>{.h = h, .tz = tz, .y = y + shape_[k].first, .next = next + shape_[k].first});
    on_.copy(y + shape_[k].first, next + shape_[k].first, h.rows * static_cast<index>(sizeof(wide)));
  }
  double* const norm = numbers(scratch_.sums, 1);
  weigh_block(b, finished, nullptr, y, 1, 2, nullptr, norm, nullptr, on_.main());
  on_.template fetch<double>(norm, 1, [residual](const double* made) { *residual = *made; });
}

// -------------------------------------------------------------------------------------------------------------------- a panel

// Computes the sums of each block of rows. Returns the arguments of the kernel that adds them up.
template <class S>
fold_arguments device_factorizer<S>::partial_products(const products_arguments<S>& given, double* sums, stream on) {
  const index blocks = product_blocks(given.h.rows, k_pass_blocks), count = k_panel_sums<S> * given.h.width + 1;
  products_arguments<S> all = given;
  all.partial = numbers(scratch_.partial, blocks * count);
  all.columns = given.h.width;
  all.blocks = blocks;
  on_.launch(products_of(nb()), blocks, all, on);
  return {all.partial, blocks, count, sums};
}

template <class S>
void device_factorizer<S>::products(const products_arguments<S>& given, double* sums) {
  const fold_arguments fold = partial_products(given, sums, on_.main());
  on_.launch(work::fold, (fold.count + 31) / 32, fold);
}

template <class S>
panel_result* device_factorizer<S>::panel_results() {
  if (scratch_.results.bytes() < static_cast<index>(sizeof(panel_result))) scratch_.results = on_.template allocate_of<panel_result>(1);
  return static_cast<panel_result*>(scratch_.results.data());
}

// The first pass over V, and the checks of V, T and tau against each other. Returns Tᴴ times the sums of checks_.carried, c1 and c2.
// `whole`: the sums include the checksum columns; and seals and the checkpoint are computed if the panel is verified again at the end.
// Otherwise only V, T and tau are read.
template <class S>
auto device_factorizer<S>::judge(index k, bool whole, panel_result* to, stream on) -> wide* {
  const layout::block& b = shape_[k];
  const reflectors<S> h = reflector(k);
  const index w = b.width, m = shape_.m;
  wide* const tx = sums_in(scratch_.sums, judge_sums());
  wide* const tz = tx + w;
  double* const sums = qr::reals(tz + 3 * w);
  double* const tx_size = sums + k_panel_sums<S> * w + 1;
  const bool kept = whole && !shape_.one_block();  // seals and the checkpoint are computed
  const double* const x = static_cast<const double*>(checks_.random.data()) + b.first;
  on_.launch(work::open, row_blocks(w), open_arguments<S>{h, x, tx, tx_size}, on);
  const fold_arguments fold =
      partial_products({.h = h,
                        .y = wides(checks_.carried) + b.first,
                        .tx = tx,
                        .c = whole && !shape_.single_group ? checksums(b.group) + b.first : nullptr,
                        .ldc = m,
                        .weights = kept ? static_cast<const double*>(checks_.row_weights.data()) + k_reals<S> * b.first : nullptr},
                       sums, on);
  double* const checkpoint = kept ? static_cast<double*>(checks_.checkpoints.data()) + 4 * nb() * k : nullptr;
  auto* const seals = kept ? static_cast<unsigned long long*>(checks_.seals.data()) + 3 * k : nullptr;
  const int hashes = !kept ? 0 : shape_.single_group ? 1 : 2;
  on_.launch(work::judge, (fold.count + 31) / 32 + hashes,
             judge_arguments<S>{h, fold, m, tau_ + b.first, x, tx, tx_size, tz, checkpoint, hashes > 0 ? seals : nullptr,
                                hashes > 1 ? seals + 2 : nullptr, to, arrived(), gate_of_checks(), ahead_.limits.reflectors},
             on);
  return tz;
}

// Makes two passes over V, like host::blocked_factorizer.
template <class S>
void device_factorizer<S>::measure_panel(index k, panel_sums* seen) {
  measure_panel_once(k, seen);
  if (settle()) measure_panel_once(k, seen);
}

template <class S>
void device_factorizer<S>::measure_panel_once(index k, panel_sums* seen) {
  on_.join(on_.check_stream());  // checks_.carried was initialized on this stream
  panel_result* const to = panel_results();
  sum_panel(k, to, on_.main());
  on_.template fetch<panel_result>(to, 1, [seen](const panel_result* made) {
    *seen = {made->orthogonality, made->orthogonality_threshold, made->reflectors, made->data};
  });
}

template <class S>
void device_factorizer<S>::sum_panel(index k, panel_result* to, stream on) {
  const layout::block& b = shape_[k];
  const reflectors<S> h = reflector(k);
  const bool checksummed = !shape_.single_group;
  const wide* const tz = judge(k, true, to, on);
  on_.launch(work::transformed, transformed_blocks<S>(h.rows),
             transformed_arguments<S>{.h = h,
                                      .tz = tz,
                                      .y = wides(checks_.carried) + b.first,
                                      .next = wides(checks_.next) + b.first,
                                      .c = checksummed ? checksums(b.group) + b.first : nullptr,
                                      .ldc = shape_.m,
                                      .d = weights() + b.first,
                                      .ldd = shape_.n,
                                      .head = wides(checks_.head),
                                      .squares = numbers(scratch_.partial, 2 * transformed_blocks<S>(h.rows)),
                                      .norm = &to->data,
                                      .arrived = arrived(),
                                      .gate = gate_of_checks(),
                                      .limit = ahead_.limits.data},
             on);
}

template <class S>
void device_factorizer<S>::measure_reflectors(index k, panel_sums* seen) {
  panel_result* const to = panel_results();
  (void)judge(k, false, to, on_.main());
  on_.template fetch<panel_result>(to, 1, [seen](const panel_result* made) {
    seen->orthogonality = made->orthogonality;
    seen->orthogonality_threshold = made->orthogonality_threshold;
    seen->reflectors = made->reflectors;
  });
}

template <class S>
void device_factorizer<S>::accept_panel(index k) {
  take_over(k, on_.main());
}

// Allocates the memory that the check stream uses before that stream forks: allocation is ordered on the main stream.
template <class S>
void device_factorizer<S>::allocate_checks() {
  if (!checked()) return;
  const index rows = row_blocks(shape_.m);
  (void)numbers(scratch_.partial, std::max(k_weigh_sums * rows, std::min(rows, k_pass_blocks) * (k_panel_sums<S> * nb() + 1)));
  (void)numbers(scratch_.sums, judge_sums());
}

template <class S>
void device_factorizer<S>::take_over(index k, stream on) {
  const layout::block& b = shape_[k];
  const index rows = shape_.m - b.first;
  on_.launch(work::accept, slabs(rows),
             accept_arguments<S>{wides(checks_.head), shape_.single_group ? 0 : b.width, checksums(b.group) + b.first, shape_.m,
                                 wides(checks_.next) + b.first, wides(checks_.carried) + b.first, rows, gate()},
             on);
}

// -------------------------------------------------------------------------------------------------------------------- the end

// Recomputes the sums over V and the seals of T, tau and R as they are stored now: they have the same bits unless something has changed.
template <class S>
void device_factorizer<S>::measure_all(block_sums* seen) {
  const index panels = shape_.panels, count = shape_.count(), m = shape_.m;
  auto* const kept = static_cast<unsigned long long*>(checks_.seals.data());
  auto* const now = kept + 3 * panels;
  on_.device()->zero(now, 3 * panels * static_cast<index>(sizeof *now), on_.main());
  double* const again = static_cast<double*>(checks_.again.data());
  const panel_list<S> all{A_, lda_, m, shape_.steps, static_cast<int>(nb()), T(0)};
  on_.launch(work::seals, 2 * panels + (shape_.single_group ? 0 : shape_.steps), seals_arguments<S>{all, panels, now});
  // Handles as many panels at once as have sums of some 20 MB.
  const index together = std::max<index>(1, 8 * k_pass_blocks / product_blocks(m, k_pass_blocks));
  for (index k = 0; k < panels; k += together) {
    const index panels_here = std::min(together, panels - k), first = shape_[k].first, columns = shape_.steps - first;
    const index each = product_blocks(m - first, k_pass_blocks);
    double* const partial = numbers(scratch_.partial, panels_here * each * (k_panel_sums<S> * nb() + 1));
    on_.launch(products_of(nb()), panels_here * each,
               products_arguments<S>{.h = reflector(k),
                                     .weights = static_cast<const double*>(checks_.row_weights.data()) + k_reals<S> * first,
                                     .partial = partial,
                                     .columns = columns,
                                     .blocks = each});
    on_.launch(work::fold_checkpoints, panels_here * ((4 * nb() + 31) / 32),
               checkpoints_arguments{partial, m - first, columns, nb(), each, k_panel_sums<S>, again + 4 * nb() * k});
  }
  const index others = shape_.single_group ? 0 : count - panels;
  double* const ends = numbers(scratch_.vectors, panels + others);
  const index last = 4 * shape_[panels - 1].width;
  on_.launch(work::changes, panels,
             changes_arguments{again, static_cast<const double*>(checks_.checkpoints.data()), 4 * nb(), static_cast<int>(4 * nb()),
                               static_cast<int>(last), ends});
  if (others > 0) {
    for (index b = panels; b < count; ++b) on_.strike(site::checksum, {b, count, 0, 1}, checksums(shape_[b].group), 2 * m);
    double* const squares = numbers(scratch_.partial, 2 * row_blocks(m) * others);
    on_.launch(work::weigh, row_blocks(m) * others,
               weigh_arguments<S>{.X = A_,
                                  .row_stride = 1,
                                  .column_stride = lda_,
                                  .rows = m,
                                  .blocks = blocks(),
                                  .first_block = panels,
                                  .chunks = static_cast<int>(others),
                                  .r = true,
                                  .z = weights(),
                                  .ldz = shape_.n,
                                  .count = 2,
                                  .init = checksums(shape_[panels].group),
                                  .ldi = m,
                                  .squares = squares});
    on_.launch(work::norm, others, norm_arguments{squares, row_blocks(m), 2, ends + panels});
  }
  on_.template fetch<double>(ends, panels + others, [seen, panels, others](const double* made) {
    for (index k = 0; k < panels; ++k) seen[k].v = made[k];
    for (index b = panels; b < panels + others; ++b) seen[b].rows = made[b];
  });
  on_.template fetch<unsigned long long>(kept, 6 * panels, [seen, panels, single = shape_.single_group](const unsigned long long* made) {
    for (index k = 0; k < panels; ++k) {
      const auto changed = [&](index which) { return made[3 * k + which] != made[3 * (panels + k) + which]; };
      constexpr double odd = std::numeric_limits<double>::quiet_NaN();
      seen[k].t = changed(0) ? odd : 0;
      // The first panel has no rows above it.
      seen[k].rows = !single && ((k > 0 && changed(1)) || changed(2)) ? odd : 0;
    }
  });
  // Tau must still be T's diagonal.
  if (scratch_.results.bytes() < panels * static_cast<index>(sizeof(double))) scratch_.results = on_.template allocate_of<double>(panels);
  auto* const differ = static_cast<double*>(scratch_.results.data());
  on_.launch(work::taus, panels, taus_arguments<S>{tau_, T(0), nb(), shape_.steps, differ});
  on_.template fetch<double>(differ, panels, [seen, panels](const double* made) {
    for (index k = 0; k < panels; ++k) {
      if (made[k] != 0) seen[k].t = std::numeric_limits<double>::quiet_NaN();
    }
  });
}

template <class S>
bool device_factorizer<S>::repair_v(index k, index* column) {
  const layout::block& b = shape_[k];
  const reflectors<S> h = reflector(k);
  const index m = shape_.m, w = b.width;
  double* const sums = numbers(scratch_.sums, judge_sums());
  products({.h = h, .weights = static_cast<const double*>(checks_.row_weights.data()) + k_reals<S> * b.first}, sums);
  core::vector<double> now(at(4 * w)), kept(at(4 * w)), weight(at(k_reals<S> * m));
  on_.copy(now.data(), sums + (k_panel_sums<S> - 4) * w, 4 * w * static_cast<index>(sizeof(double)));
  on_.copy(kept.data(), static_cast<const double*>(checks_.checkpoints.data()) + 4 * nb() * k, 4 * w * static_cast<index>(sizeof(double)));
  on_.copy(weight.data(), checks_.row_weights.data(), k_reals<S> * m * static_cast<index>(sizeof(double)));
  core::vector<S> V = read_block(k);
  checkpoint_repair<S> repair(m, weight.data());
  for (index l = 0; l < w; ++l) {
    if (!repair.column(V.data() + l * m, b.first + l, kept.data() + l, now.data() + l, w, column)) return false;
  }
  write_block(k, V);
  return true;
}

// checks_.carried is Qᴴ(A r) for the verified V; the checkpoints confirm that these are the stored V.
template <class S>
void device_factorizer<S>::measure_certificate(double* residual) {
  const index m = shape_.m, steps = shape_.steps, count = shape_.count();
  wide* const parts = sums_in(scratch_.parts, m * count);
  on_.launch(work::weigh, row_blocks(steps) * count,
             weigh_arguments<S>{.X = A_,
                                .row_stride = 1,
                                .column_stride = lda_,
                                .rows = steps,  // rows of R
                                .blocks = blocks(),
                                .first_block = 0,
                                .chunks = static_cast<int>(count),
                                .r = true,
                                .z = weights() + 2 * shape_.n,
                                .ldz = shape_.n,
                                .count = 1,
                                .ldi = m,
                                .to = parts});
  const index blocks = slabs(k_reals<S> * m);
  double* const squares = numbers(scratch_.partial, blocks);
  combine(parts, count, wides(checks_.carried), nullptr, squares, steps, on_.main());
  double* const norm = numbers(scratch_.sums, 1);
  on_.launch(work::norm, 1, norm_arguments{squares, blocks, 1, norm});
  on_.template fetch<double>(norm, 1, [residual](const double* made) { *residual = *made; });
}

template class device_factorizer<float>;
template class device_factorizer<double>;
template class device_factorizer<std::complex<float>>;
template class device_factorizer<std::complex<double>>;

}  // namespace ballast::qr::cuda
