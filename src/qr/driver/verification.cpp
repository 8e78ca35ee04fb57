// The checks of a factorization and their consequences: blocks, panels, and the end.
// Layer: algorithm (driver). See factorization.hpp; docs/design/qr.md says what each check covers.
// Source: P. Du et al., 2011, §4 (checksums of the whole matrix), §5 (recovery).
#include <algorithm>
#include <cmath>
#include <limits>

#include "abft/locate.hpp"
#include "abft/threshold.hpp"
#include "abft/weights.hpp"
#include "qr/checks/checks.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr {

// The comparisons of panel k are steps of one interval: 0 to 2 when it was factored, 3 the checkpoint of V (with a single group: 2, then 3
// for its T, and 4 for the transfer), 4 R, 5 the entry, which the first panel does not have. A panel that is verified once has only 0 to 2.
template <class S>
inject::position factorization<S>::panel_position(index k, index step) const {
  const index steps = shape_.single_group ? index{run_.hybrid ? 5 : 4} : verified_once() ? index{3} : k == 0 ? index{5} : index{6};
  return {k, shape_.count() + 1, step, steps};
}

// Verifies data that cannot be computed again: compares a second time if the comparison was struck. `look` returns its finding.
template <class S>
template <class Look>
typename factorization<S>::settled_check factorization<S>::look_twice(Look&& look) const {
  settled_check made{.state = abft::attempts(repairs_ ? 1 : 0)};
  for (;;) {
    abft::finding seen = look();
    seen.bits = 1;  // the same data
    made.how = made.state.judge(seen);
    if (made.how == abft::outcome::open && abft::comparison_struck(seen)) continue;
    if (made.how == abft::outcome::open) made.how = abft::outcome::uncorrectable;
    return made;
  }
}

// Compares a residual of block b. Between the two thresholds the bits of the block decide; without repair the residual passes.
template <class S>
abft::finding factorization<S>::compare_tiers(const inject::position& where, double residual, const abft::tiers& limits, const char* name,
                                              index b) const {
  abft::finding seen = compare(run_, where, residual, limit_of(limits), name, shape_[b].first);
  if (passes(seen) || !repairs_) return seen;
  seen.judged = !(residual <= limits.wrong);
  if (!seen.judged) seen.bits = work_->hash_block(b);
  return seen;
}

// Judges `residual`, which was just measured. If it fails, locates and rebuilds the fault, and verifies again.
template <class S>
abft::finding factorization<S>::verify_block(index b, bool finished, const inject::position& where, const char* name, double residual) {
  const layout::block& here = shape_[b];
  const abft::tiers& limits = encoded_.thresholds[static_cast<std::size_t>(here.group)];
  abft::finding seen = compare_tiers(where, residual, limits, name, b);
  if (passes(seen) || !seen.judged || !repairs_) return seen;
  const double threshold = limits.clean;
  const index located = work_->correct_block(b, finished, threshold, where);
  if (located < 0) return seen;
  double independent = 0;
  work_->measure_block(b, finished, &residual);
  work_->measure_independent(b, finished, &independent);
  work_->wait();
  // Errors in several columns can look like one column to the weights that located it; the independent weights show the difference.
  if (!passes(compare(run_, where, residual, threshold, name, here.first)) ||
      !passes(compare(run_, where, independent, threshold, name, here.first)))
    return seen;
  seen.word = abft::k_pass;
  seen.corrected = true;
  seen.index = here.first + located;
  return seen;
}

// Verifies the factored panel: Q is orthogonal; τ‖v‖² = 2; Qᵀ applied to the checksums gives R's checksums over zeros; the transferred data
// arrived unchanged.
template <class S>
abft::finding factorization<S>::verify_panel(index k) {
  panel_sums sums;
  work_->measure_panel(k, &sums);
  work_->wait();
  return verify_sums(k, sums);
}

template <class S>
abft::finding factorization<S>::verify_sums(index k, const panel_sums& sums) {
  const layout::block& b = shape_[k];
  abft::finding seen = verify_reflectors(k, sums);
  if (passes(seen) && run_.hybrid) seen = compare(run_, panel_position(k, 4), sums.sent, 0, "qr.transfer", b.first);
  if (passes(seen) && !shape_.single_group)
    seen = compare_tiers(panel_position(k, 2), sums.data, encoded_.thresholds[static_cast<std::size_t>(b.group)], "qr.panel", k);
  return seen;
}

// Returns the limits that the driver itself uses, so that a panel that passes in the backend passes here, too.
template <class S>
panel_limits factorization<S>::limits_of(index k) const {
  if (!protected_) return {};
  const double limit = limit_of(encoded_.thresholds[static_cast<std::size_t>(shape_[k].group)]);
  return {true, repairs_, limit, limit, thresholds::reflector<real_of<S>>(k_reals<S> * shape_.m)};
}

// Returns whether panel k, which was begun ahead, passes. If not, nothing is reported yet. A comparison that was struck is repeated: the
// backend has compared by itself.
template <class S>
bool factorization<S>::judge_ahead(index k, const panel_seen& seen) {
  settled_check entry{.state = abft::attempts(0)}, panel{.state = abft::attempts(0)};
  if (protected_) {
    const layout::block& b = shape_[k];
    const double limit = limits_of(k).data;
    if (has_entry(k)) entry = look_twice([&] { return compare(run_, panel_position(k, 5), seen.entry, limit, "qr.panel_entry", b.first); });
    if (repairs_ && !abft::stands(entry.how)) return false;
    panel = look_twice([&] {
      const abft::finding reflectors = verify_reflectors(k, seen.sums);
      if (!passes(reflectors) || shape_.single_group) return reflectors;
      return compare(run_, panel_position(k, 2), seen.sums.data, limit, "qr.panel", b.first);
    });
    if (repairs_ && !abft::stands(panel.how)) return false;
  }
  if (repairs_ ? !seen.passed : seen.held) return false;
  run_.seen.settled("qr.panel_entry", entry.how, entry.state, 0);
  run_.seen.settled("qr.panel", panel.how, panel.state, 0);
  return true;
}

// Returns the reason why panel k, which was begun ahead and factored, did not pass. If no number is too large, the backend's own comparison
// was struck.
template <class S>
abft::finding factorization<S>::verify_ahead(index k, const panel_seen& seen) {
  if (!protected_) return {};
  if (has_entry(k)) {
    const abft::finding entry = compare(run_, panel_position(k, 5), seen.entry, limits_of(k).entry, "qr.panel_entry", shape_[k].first);
    if (!passes(entry)) return entry;
  }
  abft::finding made = verify_sums(k, seen.sums);
  if (passes(made)) made = {.word = abft::k_fail, .index = shape_[k].first, .check = "qr.panel"};
  return made;
}

// ------------------------------------------------------------------------------------------------------------------ the end

// Enqueues the measurements of the finished factorization, so that one wait covers all of them.
template <class S>
void factorization<S>::measure_end() {
  end_.measured = true;
  end_.sums.assign(verified_once() ? 0 : shape_.blocks.size(), {});
  if (!end_.sums.empty()) work_->measure_all(end_.sums.data());
  work_->measure_certificate(&end_.certificate);
  columns_.r_scanned = false;
  // If columns are scaled, R will still change.
  if (std::all_of(columns_.shifts.begin(), columns_.shifts.end(), [](int shift) { return shift == 0; })) scan_r();
}

// Judges these measurements. Events wait until the certificate has confirmed the repairs; values that a repair may have changed are
// measured again.
template <class S>
abft::finding factorization<S>::finish() {
  work_->wait();
  core::vector<settled_check> seen;
  const auto failed = [](const settled_check& each) { return each.how == abft::outcome::uncorrectable; };
  for (index b = 0; b < static_cast<index>(end_.sums.size()); ++b) {
    const block_sums& here = end_.sums[static_cast<std::size_t>(b)];
    if (shape_[b].panel) {
      seen.push_back(finish_v(b, here.v));
      if (!failed(seen.back())) seen.push_back(finish_t(b, here.t));
    }
    if (!shape_.single_group) seen.push_back(finish_block(b, here.rows));
  }
  const auto all_good = [&] { return std::none_of(seen.begin(), seen.end(), failed); };
  if (shape_.single_group && all_good()) seen.push_back(look_twice([&] { return verify_matrix(); }));
  const bool changed = std::any_of(seen.begin(), seen.end(), [](const settled_check& each) { return each.how != abft::outcome::clean; });
  if (changed) columns_.r_scanned = false;
  if (all_good() || !repairs_) seen.push_back(finish_certificate(changed ? nullptr : &end_.certificate));
  if (repairs_ && !all_good()) return std::find_if(seen.begin(), seen.end(), failed)->state.first();
  for (const settled_check& each : seen) run_.seen.settled("qr", each.how, each.state, 0);
  return {};
}

// Verifies that Q is orthogonal and that τ‖v‖² = 2.
template <class S>
abft::finding factorization<S>::verify_reflectors(index k, const panel_sums& sums) const {
  const abft::finding seen = compare_tiers(panel_position(k, 0), sums.orthogonality,
                                           thresholds::reflector_tiers(sums.orthogonality_threshold), "qr.orthogonality", k);
  if (!passes(seen)) return seen;
  return compare_tiers(panel_position(k, 1), sums.reflectors,
                       thresholds::reflector_tiers(thresholds::reflector<real_of<S>>(k_reals<S> * shape_.m)), "qr.tau", k);
}

// If V and its checkpoint differ, one of them is wrong. V's own equations, computed anew, tell which: they must fail before the repair and
// hold after it. A change that is too small for them is repaired by computing everything again.
template <class S>
typename factorization<S>::settled_check factorization<S>::finish_v(index k, double change) {
  const auto good = [&] {
    panel_sums sums;
    work_->measure_reflectors(k, &sums);
    work_->wait();
    return passes(verify_reflectors(k, sums));
  };
  return look_twice([&] {
    abft::finding seen = compare(run_, panel_position(k, shape_.single_group ? 2 : 3), change, 0, "qr.checkpoint", shape_[k].first);
    if (passes(seen) || !repairs_ || abft::comparison_struck(seen)) return seen;
    if (good() || !work_->repair_v(k, &seen.index) || !good()) return seen;
    seen.word = abft::k_pass;
    seen.corrected = true;
    return seen;
  });
}

template <class S>
typename factorization<S>::settled_check factorization<S>::finish_t(index k, double change) {
  settled_check made;
  // With a single group the comparison is a step of its own. Otherwise panel_position has no step for it, and faults are not injected.
  abft::finding seen{.residual = change, .index = shape_[k].first, .check = "qr.t"};
  if (shape_.single_group) {
    seen = compare(run_, panel_position(k, 3), change, 0, "qr.t", shape_[k].first);
  } else {
    run_.seen.checked(1);
    if (change != 0) seen.word = abft::k_fail;
  }
  made.how = made.state.judge(seen);
  return made;
}

// Verifies R's rows of block b, a panel: they must equal the verified ones to the bit, or are rebuilt. Or verifies all rows of a block that
// never became a panel; such a block can be recomputed from the input.
template <class S>
typename factorization<S>::settled_check factorization<S>::finish_block(index b, double residual) {
  if (shape_[b].panel) return look_twice([&] { return verify_block(b, true, panel_position(b, 4), "qr.r", residual); });
  const inject::position where{b, shape_.count() + 1, 0, 1};
  settled_check made{.state = abft::attempts(repairs_ ? abft::k_repeats : 0)};
  made.how = made.state.settle([&](int number) {
    if (number > 0) {
      rebuild_block(b, shape_.panels);
      work_->measure_block(b, true, &residual);
      work_->wait();
    }
    abft::finding seen = verify_block(b, true, where, "qr.r", residual);
    if (number > 0) seen.bits = work_->hash_block(b);
    return seen;
  });
  return made;
}

template <class S>
typename factorization<S>::settled_check factorization<S>::finish_certificate(const double* measured) {
  double residual = 0;
  if (measured != nullptr) {
    residual = *measured;
  } else {
    work_->measure_certificate(&residual);
    work_->wait();
  }
  const index last = shape_.count();
  const inject::position where{last, last + 1, shape_.single_group ? index{1} : index{0}, shape_.single_group ? index{3} : index{2}};
  return look_twice([&] { return compare(run_, where, residual, encoded_.certificate_threshold, "qr.certificate", -1); });
}

// Verifies the single group's checksums. Locates and recovers one struck column; then all panels are verified again.
template <class S>
abft::finding factorization<S>::verify_matrix() {
  matrix_sums sums;
  work_->measure_matrix(&sums);
  work_->wait();
  const index last = shape_.count();
  abft::finding seen = compare(run_, {last, last + 1, 0, 3}, sums.norm, encoded_.thresholds[0].wrong, "qr.r", -1);
  if (passes(seen) || !repairs_ || abft::comparison_struck(seen) || !std::isfinite(sums.norm)) return seen;
  // Index 0 stands for a fault in the first checksum itself. The certificate, which has other weights, detects a wrong location.
  const auto weight = [&](index l) { return l == 0 ? 0.0 : encoded_.ratio[static_cast<std::size_t>(l - 1)]; };
  const index found = abft::locate_column(sums.rr, sums.rs, sums.ss, shape_.n + 1, weight).index;
  if (found <= 0) return seen;
  work_->recover_column(found - 1);
  work_->begin_pass();
  for (index k = 0; k < shape_.panels; ++k) {
    if (!passes(verify_panel(k))) return seen;
    work_->accept_panel(k);
  }
  seen.word = abft::k_pass;
  seen.corrected = true;
  seen.index = found - 1;
  return seen;
}

template <class S>
void factorization<S>::scan_r() {
  columns_.r_sizes.resize(columns_.sizes.size());
  work_->scan_r(columns_.r_sizes.data());
  columns_.r_scanned = true;
}

// Orthogonal transformations preserve norms: column j of R must have the norm of column j of the input. This check covers the scan, which
// decides scales, weights and thresholds, and the scaling in both directions.
template <class S>
abft::finding factorization<S>::verify_norms() {
  if (!columns_.r_scanned) {
    scan_r();
    work_->wait();
  }
  const core::vector<column_size>& made = columns_.r_sizes;
  double residual = 0, threshold = 1;
  index worst = 0;
  const double unit = thresholds::column_norm<real_of<S>>(1, k_reals<S> * shape_.m);
  const double root = std::sqrt(static_cast<double>(k_reals<S> * shape_.m));
  constexpr int smallest =
      std::numeric_limits<real_of<S>>::min_exponent - std::numeric_limits<real_of<S>>::digits;  // 2 to it is the smallest number
  for (std::size_t j = 0; j < made.size(); ++j) {
    const column_size& was = columns_.sizes[j];
    // R holds Inf if the norm of a finite column exceeds the range.
    if (!made[j].finite && was.norm > 0 && was.exponent + std::ilogb(was.norm) >= std::numeric_limits<real_of<S>>::max_exponent - 1)
      continue;
    // Mostly 0. ldexp, since 0 times a power of two that is Inf would be NaN.
    const int up = made[j].exponent - was.exponent;
    const double norm = up == 0 ? made[j].norm : std::ldexp(made[j].norm, up);
    const double off = made[j].finite ? std::abs(norm - was.norm) : std::numeric_limits<double>::quiet_NaN();
    // Scaling back may change each element by up to the smallest number.
    const double limit = unit * was.norm + root * abft::power_of_two(smallest - was.exponent);
    if (off * threshold <= residual * limit) continue;
    residual = off;
    threshold = limit;
    worst = static_cast<index>(j);
    if (!(off <= limit)) break;
  }
  const index last = shape_.count();
  return compare(run_, {last, last + 1, shape_.single_group ? index{2} : index{1}, shape_.single_group ? index{3} : index{2}}, residual,
                 threshold, "qr.norm", worst);
}

template class factorization<float>;
template class factorization<double>;
template class factorization<std::complex<float>>;
template class factorization<std::complex<double>>;

}  // namespace ballast::qr
