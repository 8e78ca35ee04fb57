// Driver of the protected QR factorization: input, passes, panels.
// Layer: algorithm (driver). See factorization.hpp.
#include "qr/factorization.hpp"

#include <algorithm>
#include <cmath>

#include "abft/threshold.hpp"
#include "qr/checks.hpp"
#include "qr/weights.hpp"
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
      shape_(layout_of(A.rows, A.columns, on.panel_width(std::min(A.rows, A.columns)), scheme == k_qr_update)),
      work_(on.make_factorizer(shape_, A, tau, source)) {}

template <class S>
void factorization<S>::run() {
  const bool scaled = prepare_input();
  if (protected_) encode();
  run::attempt(run_.seen, run_.how.protection, "qr", 0, [&](int number) {
    if (number > 0) work_->restart();
    return pass();
  });
  if (repairs_ && run_.seen.uncorrectable()) {
    work_->give_back();
  } else if (scaled) {
    work_->unscale();
  }
  work_->wait();
}

// Scans the columns, decides what protection is possible, and scales columns of extreme size: whether it did.
template <class S>
bool factorization<S>::prepare_input() {
  std::vector<column_size> sizes(static_cast<std::size_t>(shape_.n));
  work_->scan(sizes.data());
  work_->wait();
  finite_ = std::all_of(sizes.begin(), sizes.end(), [](const column_size& each) { return each.finite; });
  // Inf and NaN make every sum Inf or NaN: no check is possible.
  protected_ = run_.how.protection != protection::off && finite_;
  repairs_ = protected_ && run_.how.protection == protection::correct;
  if (!finite_) return false;
  const auto extreme = [](const column_size& each) { return std::abs(each.exponent) > abft::k_moderate_exponent<S>; };
  std::vector<int> shifts;
  for (const column_size& each : sizes) {
    shifts.push_back(extreme(each) ? -each.exponent : 0);
    norms_.push_back(std::ldexp(each.norm, each.exponent + shifts.back()));
  }
  if (std::none_of(sizes.begin(), sizes.end(), extreme)) return false;
  work_->scale(shifts.data());
  return true;
}

template <class S>
void factorization<S>::encode() {
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  const index n = shape_.n;
  std::vector<double> weights(at(3 * n)), norm;
  double total = 0;
  for (const layout::group& g : shape_.groups) {
    double squares = 0;
    for (index l = 0; l < g.width; ++l) {
      const index j = g.first + l;
      const double size = norms_[at(j)];
      const double d = abft::equilibrating(size);
      const double random = random_signed(k_certificate_stream, static_cast<std::uint64_t>(j));
      weights[at(j)] = d;
      weights[at(n + j)] = d * abft::equispaced_weight(l, g.width);
      weights[at(2 * n + j)] = d * random;
      squares += (d * size) * (d * size);
      total += (d * size * random) * (d * size * random);
    }
    norm.push_back(std::sqrt(squares));
  }
  std::vector<double> squares(shape_.groups.size() + 1);
  work_->encode(weights.data(), repairs_, squares.data());
  work_->wait();
  // Columns that point the same way add up in their checksum, and their roundings with them. With one group for the whole matrix, hundreds
  // of equal columns make the same error.
  for (std::size_t g = 0; g < norm.size(); ++g)
    threshold_.push_back(abft::qr_row_threshold<S>(norm[g] + (shape_.single_group ? 4 : 1) * std::sqrt(squares[g]), shape_.m));
  certificate_threshold_ = abft::qr_row_threshold<S>(std::sqrt(total) + std::sqrt(squares.back()), shape_.m);
}

// One whole factorization. A finding that fails: it must be done again from the input, because of this.
template <class S>
abft::finding factorization<S>::pass() {
  work_->begin_pass();
  if (!prepare_panel(0)) return restart_;
  for (index k = 0; k < shape_.panels; ++k) {
    const index next = k + 1;
    bool next_good = true;
    work_->advance(k, next + 1, [&] {
      if (next >= shape_.count()) return;
      work_->update(k, next);
      if (next < shape_.panels) next_good = prepare_panel(next);
    });
    if (run_.how.on_progress) run_.how.on_progress({k + 1, shape_.panels, "block column"});
    if (!next_good) return restart_;
  }
  work_->end_pass();
  return protected_ ? finish() : abft::finding{};
}

// Panel k verified on entry, factored, and verified again. False: no attempt passed. An earlier panel's V or T may have been struck after
// it was verified; then all blocks behind it are wrong.
template <class S>
bool factorization<S>::prepare_panel(index k) {
  abft::attempts state(repairs_ ? abft::k_repeats : 0);
  const abft::outcome how = state.settle([&](int number) {
    if (number > 0) rebuild_block(k, k);
    return try_panel(k, number);
  });
  if (repairs_ && how == abft::outcome::uncorrectable) {
    restart_ = state.first();
    return false;
  }
  run_.seen.settled("qr.panel", how, state, 0);
  return true;
}

template <class S>
abft::finding factorization<S>::try_panel(index k, int number) {
  work_->begin_panel(k);
  const abft::finding entry = enter_panel(k);
  if (!passes(entry) && repairs_) return entry;
  // With protection::detect the computation goes on.
  if (!passes(entry) || entry.corrected)
    run_.seen.detected(entry.check, entry.index, entry.residual, entry.threshold,
                       entry.corrected ? action::corrected : action::uncorrectable, 0);
  work_->factor_panel(k, finite_);
  abft::finding seen = protected_ ? verify_panel(k) : abft::finding{};
  if (repairs_ && (!passes(seen) || number > 0)) seen.bits = work_->hash_panel(k);
  if (passes(seen) || !repairs_) work_->end_panel(k);
  return seen;
}

// The first block is not verified: its checksums were just made from it, and its panel's check covers it.
template <class S>
abft::finding factorization<S>::enter_panel(index k) {
  if (!protected_ || shape_.single_group || k == 0) return {};
  double residual = 0;
  work_->measure_block(k, false, &residual);
  work_->wait();
  return verify_block(k, false, panel_place(k, 5), "qr.panel_entry", residual);
}

// Block b as it was after panel upto − 1, from the input.
template <class S>
void factorization<S>::rebuild_block(index b, index upto) {
  work_->reload(b);
  for (index k = 0; k < upto; ++k) work_->update(k, b);
}

template class factorization<float>;
template class factorization<double>;

}  // namespace ballast::qr
