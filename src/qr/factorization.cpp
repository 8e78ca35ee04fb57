// Driver of the protected QR factorization: input, passes, panels.
// Layer: algorithm (driver). See factorization.hpp.
#include "qr/factorization.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "abft/threshold.hpp"
#include "core/aligned_buffer.hpp"
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
  on_.copy(worked_r_, kept);
  on_.wait();
  worked_r_ = kept;
}

// Scans the columns, decides what protection is possible, and scales columns of extreme size: whether it did.
template <class S>
bool factorization<S>::prepare_input() {
  std::vector<column_size>& sizes = sizes_;
  sizes.resize(static_cast<std::size_t>(shape_.n));
  work_->scan(sizes.data());
  work_->wait();
  const auto odd = [](const column_size& each) { return !each.finite; };
  finite_ = std::none_of(sizes.begin(), sizes.end(), odd);
  if (!finite_) {
    // A struck scan must not switch protection off.
    std::vector<column_size> again(sizes.size());
    work_->scan(again.data());
    work_->wait();
    for (std::size_t j = 0; j < sizes.size(); ++j) sizes[j] = odd(sizes[j]) ? again[j] : sizes[j];
    finite_ = std::none_of(sizes.begin(), sizes.end(), odd);
  }
  // Inf and NaN make every sum Inf or NaN: no check is possible.
  protected_ = run_.how.protection != protection::off && finite_;
  repairs_ = protected_ && run_.how.protection == protection::correct;
  shifts_.clear();
  if (!finite_) {
    shifts_.resize(sizes.size(), 0);
    return false;
  }
  const auto extreme = [](const column_size& each) { return std::abs(each.exponent) > abft::k_moderate_exponent<S>; };
  norms_.clear();
  for (const column_size& each : sizes) {
    shifts_.push_back(extreme(each) ? -each.exponent : 0);
    norms_.push_back(std::ldexp(each.norm, each.exponent + shifts_.back()));
  }
  if (std::none_of(sizes.begin(), sizes.end(), extreme)) return false;
  work_->scale(shifts_.data());
  return true;
}

template <class S>
void factorization<S>::encode() {
  const auto at = [](index i) { return static_cast<std::size_t>(i); };
  const index n = shape_.n;
  std::vector<double> weights(at(3 * n)), norm;
  double total = 0;
  ratio_.resize(at(n));
  for (const layout::group& g : shape_.groups) {
    const column_weights drawn(g.first, g.width);
    std::array<double, 3> squares{};  // of the columns with each weight
    for (index l = 0; l < g.width; ++l) {
      const index j = g.first + l;
      const double d = abft::equilibrating(norms_[at(j)]);
      ratio_[at(j)] = drawn.ratio[at(l)];
      weights[at(j)] = d * drawn.sign[at(l)];
      weights[at(n + j)] = weights[at(j)] * drawn.ratio[at(l)];
      weights[at(2 * n + j)] = d * random_signed(k_certificate_stream, static_cast<std::uint64_t>(j));
      for (index q = 0; q < 3; ++q) squares[at(q)] += std::pow(weights[at(q * n + j)] * norms_[at(j)], 2);
    }
    norm.push_back(std::sqrt(*std::max_element(squares.begin(), squares.end())));
    total += squares[2];
  }
  std::vector<double> squares(shape_.groups.size() + 1);
  work_->encode(weights.data(), repairs_, squares.data());
  work_->wait();
  // Columns that point the same way, weights considered, add up in their checksum, and their roundings with them.
  threshold_.clear();
  for (std::size_t g = 0; g < norm.size(); ++g)
    threshold_.push_back(abft::qr_residual_thresholds<S>(norm[g] + std::sqrt(squares[g]), shape_.m, shape_.groups[g].width));
  certificate_threshold_ = abft::qr_residual_thresholds<S>(std::sqrt(total) + std::sqrt(squares.back()), shape_.m, n).wrong;
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
    work_->begin_panel(k);
    const settled_check entry = enter_panel(k);
    // With protection::detect the computation goes on.
    if (repairs_ && entry.how == abft::outcome::uncorrectable) return entry.state.first();
    run_.seen.settled("qr.panel_entry", entry.how, entry.state, 0);
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

// The first block is not verified: its checksums were just made from it, and its panel's check covers it.
template <class S>
typename factorization<S>::settled_check factorization<S>::enter_panel(index k) {
  settled_check made{.state = abft::attempts(repairs_ ? abft::k_repeats : 0)};
  if (!protected_ || shape_.single_group || k == 0) return made;
  made.how = made.state.settle([&](int number) {
    if (number > 0) rebuild_block(k, k);
    double residual = 0;
    work_->measure_block(k, false, &residual);
    work_->wait();
    return verify_block(k, false, panel_place(k, 5), "qr.panel_entry", residual);
  });
  return made;
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
