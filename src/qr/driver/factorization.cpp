// Driver of the protected QR factorization: the input, passes, panels.
// Layer: algorithm (driver). See factorization.hpp.
#include "qr/driver/factorization.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "abft/weights.hpp"
#include "core/aligned_buffer.hpp"
#include "qr/checks/checks.hpp"
#include "qr/checks/weights.hpp"
#include "qr/driver/application.hpp"
#include "qr/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::qr {

namespace {

layout layout_of(index m, index n, index panel_width, bool single_group) {
  layout made;
  made.m = m;
  made.n = n;
  made.steps = std::min(m, n);
  made.panel_width = panel_width;
  made.single_group = single_group;
  for (index first = 0; first < n;) {
    layout::block b;
    b.first = first;
    b.panel = first < made.steps;
    b.width = std::min(panel_width, (b.panel ? made.steps : n) - first);
    b.group = single_group ? 0 : made.count();
    first += b.width;
    made.panels += b.panel ? 1 : 0;
    made.blocks.push_back(b);
    if (!single_group) made.groups.push_back({b.first, b.width});
  }
  if (single_group) made.groups.push_back({0, n});
  return made;
}

}  // namespace

template <class S>
factorization<S>::factorization(const context& run, engine<S>& on, std::string_view scheme, const matrix_view<S>& A, S* tau,
                                const matrix_view<const S>& source)
    : run_(run),
      on_(on),
      A_(A),
      shape_(
          layout_of(A.rows, A.columns, on.panel_width(A.rows, std::min(A.rows, A.columns)), scheme == k_qr_update || scheme == k_hybrid)),
      work_(on.make_factorizer(shape_, A, tau, source)) {}

template <class S>
void factorization<S>::run(bool keep_r) {
  run::attempt(run_.seen, run_.how.protection, "qr", 0, [&](int number) {
    if (number > 0) work_->restart();
    const bool scaled = prepare_input();
    if (protected_) encode();
    abft::finding seen = pass();
    if (!passes(seen)) return seen;
    if (keep_r) keep(scaled);
    if (scaled) work_->unscale();
    return protected_ ? verify_norms() : seen;
  });
  if (repairs_ && run_.seen.uncorrectable()) work_->give_back();
  work_->wait();
}

template <class S>
void factorization<S>::keep(bool scaled) {
  const index n = shape_.n;
  worked_r_ = A_.block(0, 0, n, n);
  if (!scaled) return;
  if (!kept_r_) kept_r_ = on_.allocate(core::checked_product(n, n));
  const matrix_view<S> kept = column_major(kept_r_.get(), n, n);
  work_->wait();
  copy_verified<S>(run_, on_, worked_r_, kept);
  on_.wait();
  worked_r_ = kept;
}

// Scans the columns, decides which protection is possible, and scales columns of extreme size. Returns true if it scaled any.
template <class S>
bool factorization<S>::prepare_input() {
  core::vector<column_size>& sizes = columns_.sizes;
  sizes.resize(static_cast<std::size_t>(shape_.n));
  work_->scan(sizes.data());
  if (run_.how.protection != protection::off) {  // while a device scans
    work_->prepare(run_.how.protection == protection::correct);
    draw_weights();
  }
  work_->wait();
  // A norm that says it was struck counts as odd, too: without it, a column that was scaled to nothing would agree with a norm of 0.
  const auto odd = [](const column_size& each) {
    const bool zero = each.norm == 0 && each.exponent == 0, normal = each.norm >= 1 && std::isfinite(each.norm);
    return !each.finite || !(zero || normal);
  };
  finite_ = std::none_of(sizes.begin(), sizes.end(), odd);
  if (!finite_) {
    // A struck scan must not disable protection.
    core::vector<column_size> again(sizes.size());
    work_->scan(again.data());
    work_->wait();
    for (std::size_t j = 0; j < sizes.size(); ++j) sizes[j] = odd(sizes[j]) ? again[j] : sizes[j];
    finite_ = std::none_of(sizes.begin(), sizes.end(), odd);
  }
  // Inf and NaN make every sum Inf or NaN: no check is possible.
  protected_ = run_.how.protection != protection::off && finite_;
  repairs_ = protected_ && run_.how.protection == protection::correct;
  columns_.shifts.clear();
  if (!finite_) {
    columns_.shifts.resize(sizes.size(), 0);
    return false;
  }
  columns_.norms.clear();
  for (const column_size& each : sizes) {
    columns_.shifts.push_back(abft::moderating_shift<real_of<S>>(each.exponent));
    columns_.norms.push_back(each.norm * abft::power_of_two(each.exponent + columns_.shifts.back()));
  }
  if (std::none_of(columns_.shifts.begin(), columns_.shifts.end(), [](int shift) { return shift != 0; })) return false;
  work_->scale(columns_.shifts.data());
  return true;
}

// Draws weights for columns of norm 1; encode() equilibrates them.
template <class S>
void factorization<S>::draw_weights() {
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  const index n = shape_.n;
  encoded_.weights.resize(at(3 * n));
  encoded_.ratio.clear();
  encoded_.ratio.reserve(at(n));
  for (const layout::group& g : shape_.groups) {
    const column_weights drawn(g.first, g.width);
    encoded_.ratio.insert(encoded_.ratio.end(), drawn.ratio.begin(), drawn.ratio.end());
    double* const of_group = encoded_.weights.data() + g.first;
    for (index l = 0; l < g.width; ++l) {
      of_group[l] = drawn.sign[at(l)];
      of_group[n + l] = drawn.sign[at(l)] * drawn.ratio[at(l)];
      of_group[2 * n + l] = random_signed(k_certificate_stream, static_cast<std::uint64_t>(g.first + l));
    }
  }
}

template <class S>
void factorization<S>::encode() {
  const index n = shape_.n;
  encoded_.weighted.clear();
  double total = 0;
  for (const layout::group& g : shape_.groups) {
    std::array<double, 3> squares{};  // squared norms of the weighted columns
    for (index q = 0; q < 3; ++q) {
      const double* const norms = columns_.norms.data() + g.first;
      double* const weights = encoded_.weights.data() + q * n + g.first;
      double sum = 0;
      for (index l = 0; l < g.width; ++l) {
        weights[l] *= abft::equilibrating(norms[l]);
        sum += weights[l] * norms[l] * (weights[l] * norms[l]);
      }
      squares[static_cast<std::size_t>(q)] = sum;
    }
    encoded_.weighted.push_back(std::sqrt(*std::max_element(squares.begin(), squares.end())));
    total += squares[2];
  }
  encoded_.weighted.push_back(std::sqrt(total));
  encoded_.squares.resize(encoded_.weighted.size());
  work_->encode(encoded_.weights.data(), repairs_, encoded_.squares.data());
  encoded_.waits = true;
}

// If weighted columns point in the same direction, they add up in their checksum, and so do their roundings. A complex reflector of m
// numbers is two real ones of 2m components.
template <class S>
void factorization<S>::await_thresholds() {
  if (!encoded_.waits) return;
  encoded_.waits = false;
  work_->await_encoded();
  encoded_.thresholds.clear();
  for (std::size_t g = 0; g < shape_.groups.size(); ++g)
    encoded_.thresholds.push_back(thresholds::residual<real_of<S>>(
        encoded_.weighted[g] + std::sqrt(encoded_.squares[g]), k_reals<S> * shape_.m, shape_.groups[g].width, k_reals<S> * shape_.steps));
  encoded_.certificate_threshold =
      thresholds::residual<real_of<S>>(encoded_.weighted.back() + std::sqrt(encoded_.squares.back()), k_reals<S> * shape_.m, shape_.n)
          .wrong;
}

// Does one whole factorization. If the finding fails, it must be repeated from the input; the finding is the reason.
template <class S>
abft::finding factorization<S>::pass() {
  work_->begin_pass();
  panels_.begun = panels_.judged = panels_.advanced = 0;
  panels_.goes_ahead = finite_;
  end_.measured = false;
  if (!bring_panel(0)) return restart_;
  while (panels_.advanced < shape_.panels) {
    const index k = panels_.advanced++, next = k + 1;
    bool next_good = true;
    work_->advance(k, next + 1, [&] {
      if (next >= shape_.count()) return;
      work_->update(k, next);
      if (next < shape_.panels) next_good = bring_panel(next);
    });
    tell_progress(k + 1);
    if (protected_ && verified_once()) {
      work_->end_pass();
      measure_end();
    }
    // Two panels stay ahead, so that the backend has work while the host judges.
    if (!next_good || !judge_panels(next < shape_.panels ? k : shape_.panels)) return restart_;
  }
  if (!end_.measured) {
    work_->end_pass();
    if (protected_) measure_end();
  }
  return protected_ ? finish() : abft::finding{};
}

// An exception of the callback cancels the call: its arguments are what they were before, if there is a copy.
template <class S>
void factorization<S>::tell_progress(index done) {
  if (!run_.how.on_progress) return;
  try {
    run_.how.on_progress({done, shape_.panels, "block column"});
  } catch (...) {
    if (repairs_) {
      work_->give_back();
      work_->wait();
    }
    throw;
  }
}

// Begins panel k ahead, or computes and judges it at once, after all earlier panels. Returns false if all must be repeated.
template <class S>
bool factorization<S>::bring_panel(index k) {
  if (panels_.goes_ahead && work_->goes_ahead(k)) {
    begin_ahead(k);
    return true;
  }
  await_thresholds();
  if (!judge_panels(k)) return false;
  if (panels_.advanced < k) return true;  // an earlier panel was computed again, and this one follows it
  panels_.begun = panels_.judged = k + 1;
  return prepare_panel(k, nullptr);
}

// Does not wait for the thresholds before the first panel is enqueued.
template <class S>
void factorization<S>::begin_ahead(index k) {
  work_->begin_ahead(k, [&] {
    await_thresholds();
    return limits_of(k);
  });
  panels_.begun = k + 1;
}

// Judges the panels before `upto` that were begun ahead and advanced. Computes one that does not pass again at once; the work that was
// enqueued after it is dropped. Returns false if all must be repeated.
template <class S>
bool factorization<S>::judge_panels(index upto) {
  while (panels_.judged < std::min({upto, panels_.begun, panels_.advanced})) {
    const index k = panels_.judged;
    const panel_seen seen = work_->await_panel(k);
    if (judge_ahead(k, seen)) {
      ++panels_.judged;
      continue;
    }
    end_.measured = false;
    if (!seen.held) {
      // Other blocks may have been updated with it.
      restart_ = verify_ahead(k, seen);
      return false;
    }
    work_->resume();
    if (seen.again) {
      begin_ahead(k);
      panels_.advanced = k;
      return true;
    }
    // The next block may have been updated with a wrong panel.
    if (repairs_ && seen.factored && k + 1 < shape_.count()) rebuild_block(k + 1, k);
    panels_.begun = panels_.judged = k + 1;
    panels_.advanced = k;
    return prepare_panel(k, &seen);
  }
  return true;
}

// Verifies panel k on entry, factors it, and verifies it again. `ahead`: the result of its first computation, if that was begun ahead.
// Returns false if no attempt passed: an earlier panel's V or T may have been struck after it was verified, and then all later blocks are
// wrong.
template <class S>
bool factorization<S>::prepare_panel(index k, const panel_seen* ahead) {
  abft::attempts state(repairs_ ? abft::k_repeats : 0);
  const abft::outcome how = state.settle([&](int number) {
    const panel_seen* const first = number == 0 ? ahead : nullptr;
    if (first != nullptr && first->factored) {
      abft::finding seen = verify_ahead(k, *first);
      if (repairs_) seen.bits = work_->hash_block(k);
      return seen;
    }
    if (number > 0) rebuild_block(k, k);
    if (first == nullptr) work_->begin_panel(k);
    const settled_check entry = enter_panel(k, first);
    // With protection::detect the computation continues.
    if (repairs_ && entry.how == abft::outcome::uncorrectable) return entry.state.first();
    run_.seen.settled("qr.panel_entry", entry.how, entry.state, 0);
    // A panel that needs the host is rarely the only one, and each costs the work that was begun after it.
    if (first != nullptr && entry.how == abft::outcome::clean) panels_.goes_ahead = false;
    work_->factor_panel(k, finite_);
    abft::finding seen = protected_ ? verify_panel(k) : abft::finding{};
    if (repairs_ && (!passes(seen) || number > 0)) seen.bits = work_->hash_block(k);
    return seen;
  });
  if (protected_ && abft::stands(how)) work_->accept_panel(k);
  if (abft::stands(how) || !repairs_) work_->end_panel(k);
  if (repairs_ && how == abft::outcome::uncorrectable) {
    restart_ = state.first();
    return false;
  }
  run_.seen.settled("qr.panel", how, state, 0);
  return true;
}

// The first block is not verified: its checksums were just computed from it, and its panel's check covers it. `ahead`: the residual was
// measured already.
template <class S>
typename factorization<S>::settled_check factorization<S>::enter_panel(index k, const panel_seen* ahead) {
  settled_check made{.state = abft::attempts(repairs_ ? abft::k_repeats : 0)};
  if (!has_entry(k)) return made;
  made.how = made.state.settle([&](int number) {
    if (number > 0) rebuild_block(k, k);
    double residual = ahead != nullptr ? ahead->entry : 0;
    if (number > 0 || ahead == nullptr) {
      work_->measure_block(k, false, &residual);
      work_->wait();
    }
    abft::finding seen = verify_block(k, false, panel_position(k, 5), "qr.panel_entry", residual);
    if (repairs_ && number > 0) seen.bits = work_->hash_block(k);
    return seen;
  });
  return made;
}

// Recomputes block b as it was after panel upto − 1, from the input.
template <class S>
void factorization<S>::rebuild_block(index b, index upto) {
  work_->reload(b);
  for (index k = 0; k < upto; ++k) work_->update(k, b);
}

template class factorization<float>;
template class factorization<double>;
template class factorization<std::complex<float>>;
template class factorization<std::complex<double>>;

}  // namespace ballast::qr
