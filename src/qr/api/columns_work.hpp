// The work of one rank in the calls of column_factors: the factorization of its block columns, and products with Q. Its columns lie in the
// memory of its engine: of the host, or of a device.
// Layer: algorithm, over columns.hpp and the drivers of one rank. docs/design/distributed.md, "QR of columns".
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "qr/api/columns.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/host/columns.hpp"

namespace ballast::qr {

using core::at;

inline constexpr index k_most_block = 96;  // applier::most_columns of the host's backends

// A rank's part of the factors.
template <class S>
struct column_part {
  block_columns own;
  matrix_view<const S> storage;
  std::span<const S> tau;  // in host memory
};

// ---------------------------------------------------------------- The factorization.

// One factorization on one rank. Two buffers hold the rank's columns, followed by the checksum of each of its blocks. Each update reads one
// and writes the other, so that a struck update is computed again. Finished rows and panels gather in the first buffer, their home.
template <class S>
class factorization_of_columns {
 public:
  // `block_of(i)`: the rank's i-th block of the input, m × its width. `tau`: of all panels, in host memory. `home`: where finished columns
  // gather, m × (own.count() + its blocks); null: memory of the engine.
  factorization_of_columns(rank_call<S>& here, index m, const block_columns& own, std::function<matrix_view<const S>(index)> block_of,
                           std::span<S> tau, std::shared_ptr<S> home = nullptr)
      : here_(here),
        block_of_(std::move(block_of)),
        tau_(tau),
        own_(own),
        m_(m),
        steps_(std::min(m, own_.columns)),
        local_blocks_((own_.count() + own_.block - 1) / own_.block),
        buffers_{home != nullptr ? std::move(home) : here.allocate(m_, own_.count() + local_blocks_),
                 here.allocate(m_, own_.count() + local_blocks_)},
        weights_(at(own_.count())),
        norms_(at(local_blocks_)),
        seals_(at(local_blocks_)) {}

  // One attempt from the input; its finding on this rank.
  std::optional<abft::finding> pass() {
    bad_ = {};
    given_up_ = false;
    load();
    const index panels = panels_of(steps_, own_.block);
    std::optional<own_panel<S>> next;
    if (panels > 0 && mine(0)) next.emplace(factor_panel(0));
    if (panels > 0) send(0, next);
    for (index k = 0; k < panels; ++k) {
      panel_message<S> came = here_.take_panel(k, m_, own_, steps_);
      here_.strike(site::reflector, {k, panels, 0, 1}, came.V());
      // All ranks see the same flags.
      if (came.stopped && here_.repairs()) break;
      std::optional<own_panel<S>> now = std::exchange(next, std::nullopt);
      std::copy(came.tau.begin(), came.tau.end(), tau_.begin() + k * own_.block);
      orthogonal_factor<S> Q(here_.run(), here_.on(), now ? now->V : came.V(), now ? now->reachable.get() : came.reachable_tau());
      Q.prepare(true);
      index first = first_block_after(k);
      if (k + 1 < panels && mine(k + 1)) {
        update(Q, k, first, first + 1);
        next.emplace(factor_panel(k + 1));
        ++first;
      }
      if (k + 1 < panels) send(k + 1, next);
      update(Q, k, first, local_blocks_);
      if (!now && here_.is_protected()) note_seal(k, here_.seal(came.V(), came.tau) == came.seal);
    }
    if (!(here_.repairs() && (bad_ || given_up_))) finish(panels);
    if (given_up_) return std::nullopt;
    abft::finding found = bad_.value_or(abft::finding{});
    found.bits = abft::k_seal_of_nothing;
    for (const std::uint64_t each : seals_) found.bits = abft::chained(found.bits, each) | 1;
    return found;
  }

  // The factors go to this matrix; else they stay where they gather.
  void store_to(const matrix_view<S>& there) { stored_ = there; }

 private:
  bool mine(index b) const { return b % own_.ranks == own_.rank; }
  // The first of this rank's blocks whose number in the whole matrix is above k.
  index first_block_after(index k) const { return k < own_.rank ? 0 : (k - own_.rank) / own_.ranks + 1; }
  index width_of(index i) const { return std::min(own_.block, own_.count() - i * own_.block); }

  matrix_view<S> buffer(index k) { return column_major(buffers_[k % 2].get(), m_, own_.count() + local_blocks_, std::max<index>(m_, 1)); }
  matrix_view<S> block(index k, index i) { return buffer(k).block(0, i * own_.block, m_, width_of(i)); }
  matrix_view<S> checksum(index k, index i) { return buffer(k).block(0, own_.count() + i, m_, 1); }
  bool is_checked(index i) const { return here_.is_protected() && finite_ && !std::isnan(norms_[at(i)]); }

  void load() {
    for (index i = 0; i < local_blocks_; ++i) {
      const auto given = here_.reach(block_of_(i));
      here_.copy(given.view, block(0, i));
      // From the input itself, so that the checksum covers the copy.
      const matrix_view<const S> from = given.view.row_stride == 1 ? given.view : block(0, i);
      if (here_.is_protected())
        norms_[at(i)] = here_.on().encode_columns(from, own_.global(i * own_.block), weights_.data() + i * own_.block, checksum(0, i).data);
      seals_[at(i)] = 0;
    }
    // Inf and NaN of one rank reach all others by its panels.
    const std::int64_t odd = std::ranges::any_of(norms_, [](double each) { return std::isinf(each); }) ? 1 : 0;
    finite_ = true;
    for (const std::int64_t each : here_.gather(odd)) finite_ = finite_ && each == 0;
  }

  // Applies panel k to the rank's blocks first … last − 1 and to their checksums. R's rows go home.
  void update(orthogonal_factor<S>& Q, index k, index first, index last) {
    if (first >= last) return;
    const index top = k * own_.block;
    std::vector<typename orthogonal_factor<S>::range> ranges;
    // On the host a block's bits do not depend on the others. A device needs wide products.
    const index most = here_.on_device() ? Q.most_columns() : k_most_block, end = std::min(last * own_.block, own_.count());
    const index width = here_.on_device() ? most : own_.block;
    for (index j = first * own_.block; j < end; j += width) ranges.push_back({j, std::min(width, end - j)});
    if (here_.is_protected())
      for (index i = first; i < last; i += most) ranges.push_back({own_.count() + i, std::min(most, last - i)});
    const matrix_view<S> from = buffer(k), to = buffer(k + 1);
    const auto below = [&](const matrix_view<S>& of) { return of.block(top, 0, m_ - top, of.columns); };
    Q.apply_to(true, {.view = below(from)}, below(to), ranges);
    if (here_.lost()) given_up_ = true;
    for (index i = first; i < last; ++i)
      here_.strike(site::trailing, {k * local_blocks_ + i, panels_of(steps_, own_.block) * local_blocks_, 0, 1},
                   to.block(top, i * own_.block, m_ - top, 1));
    if ((k + 1) % 2 == 0) return;
    const index rows = std::min(own_.block, m_ - top);
    const auto go_home = [&](index column, index columns) {
      here_.copy(to.block(top, column, rows, columns), from.block(top, column, rows, columns));
    };
    go_home(first * own_.block, std::min(last * own_.block, own_.count()) - first * own_.block);
    if (here_.is_protected()) go_home(own_.count() + first, last - first);
  }

  // Factors block column k, which has had all its updates, at home; checks it and its checksum.
  own_panel<S> factor_panel(index k) {
    const index i = k / own_.ranks, top = k * own_.block, rows = m_ - top;
    const matrix_view<S> at_work = block(k, i).block(top, 0, rows, width_of(i)), at_home = block(0, i).block(top, 0, rows, width_of(i));
    const index count = std::min(rows, width_of(i));
    own_panel<S> made{.V = at_home.block(0, 0, rows, count), .tau = std::vector<S>(at(count)), .reachable = here_.allocate(count, 1)};
    factorization<S>(here_.run(), here_.on(), here_.scheme(), at_work, made.reachable.get(), {}).run();
    if (here_.lost()) given_up_ = true;
    here_.on().copy(column_major<const S>(made.reachable.get(), count, 1), column_major(made.tau.data(), count, index{1}));
    here_.on().wait();
    if (at_work.data != at_home.data) here_.copy(at_work, at_home);
    if (is_checked(i)) {
      orthogonal_factor<S> Q(here_.run(), here_.on(), made.V, made.reachable.get());
      Q.prepare(true);
      const typename orthogonal_factor<S>::range one{0, 1};
      const matrix_view<S> from = checksum(k, i).block(top, 0, rows, 1), to = checksum(k + 1, i).block(top, 0, rows, 1);
      Q.apply_to(true, {.view = from}, to, std::span(&one, 1));
      const matrix_view<S> home = checksum(0, i).block(top, 0, rows, 1);
      if (to.data != home.data) here_.copy(to, home);
      if (here_.lost()) given_up_ = true;
    }
    judge(i, top);
    made.seal = here_.seal(made.V, made.tau);
    return made;
  }

  // Compares a block with its checksum, and seals it.
  void judge(index i, index panel) {
    if (is_checked(i)) {
      const double residual = here_.on().residual_of_columns(block(0, i), panel, weights_.data() + i * own_.block, checksum(0, i).data);
      const abft::tiers limits = thresholds::residual<real_of<S>>(norms_[at(i)], k_reals<S> * m_, width_of(i), k_reals<S> * steps_);
      const index number = own_.global(i * own_.block) / own_.block;
      note(compare(here_.run(), {number, own_.blocks(), 0, 1}, residual, limits.wrong, "qr.columns", number));
    }
    seals_[at(i)] = here_.on().hash(block(0, i));
    here_.strike(site::r, {i, local_blocks_, 0, 1}, block(0, i).block(0, 0, panel < 0 ? m_ : panel + 1, 1));
  }

  void note(const abft::finding& found) {
    if (!passes(found) && !bad_) bad_ = found;
  }
  void note_seal(index number, bool alike) {
    here_.run().seen.checked(1);
    abft::finding found;
    if (!alike) {
      found.word = abft::k_fail;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.index = number;
      found.check = "qr.columns";
    }
    note(found);
  }

  void send(index k, const std::optional<own_panel<S>>& panel) {
    if (panel) std::copy(panel->tau.begin(), panel->tau.end(), tau_.begin() + k * own_.block);
    here_.send_panel(bad_.has_value() || given_up_, panel);
  }

  // Blocks that never become panels are compared here, and the seals of all.
  void finish(index panels) {
    for (index i = 0; i < local_blocks_; ++i) {
      const index number = own_.global(i * own_.block) / own_.block;
      // The last update lies in the buffer of the last step; R's rows of every step are at home.
      if (number >= panels) judge(i, -1);
      if (stored_) here_.copy(block(0, i), stored_->block(0, i * own_.block, m_, width_of(i)));
      const matrix_view<const S> kept = stored_ ? stored_->block(0, i * own_.block, m_, width_of(i)) : block(0, i);
      if (here_.is_protected()) note_seal(number, here_.on().hash(kept) == seals_[at(i)]);
    }
  }

  rank_call<S>& here_;
  const std::function<matrix_view<const S>(index)> block_of_;
  const std::span<S> tau_;
  const block_columns own_;
  const index m_, steps_, local_blocks_;
  std::shared_ptr<S> buffers_[2];
  std::optional<matrix_view<S>> stored_;
  std::vector<double> weights_, norms_;
  std::vector<std::uint64_t> seals_;
  std::optional<abft::finding> bad_;  // the first that this rank found in this attempt
  bool finite_ = true;
  bool given_up_ = false;  // a panel or an update failed for good, and was recorded
};

// Passes the panels of all ranks, in this or the reverse order, to use(k, V, tau). The next one is sent before.
template <class S, class Use>
void each_panel(rank_call<S>& here, const column_part<S>& of, bool forwards, const Use& use) {
  const index m = of.storage.rows, steps = static_cast<index>(of.tau.size()), panels = panels_of(steps, of.own.block);
  const auto number = [&](index s) { return forwards ? s : panels - 1 - s; };
  const auto panel = [&](index k) {
    std::optional<own_panel<S>> made;
    if (k % of.own.ranks != of.own.rank) return made;
    const index top = k * of.own.block, count = std::min(of.own.block, steps - top);
    made.emplace();
    made->V = of.storage.block(top, k / of.own.ranks * of.own.block, m - top, count);
    made->tau.assign(of.tau.begin() + top, of.tau.begin() + top + count);
    made->reachable = here.reachable(made->tau);
    made->seal = here.seal(made->V, made->tau);
    return made;
  };
  std::optional<own_panel<S>> next = panel(number(0));
  here.send_panel(false, next);
  for (index s = 0; s < panels; ++s) {
    const panel_message<S> came = here.take_panel(number(s), m, of.own, steps);
    const std::optional<own_panel<S>> now = std::exchange(next, std::nullopt);
    if (s + 1 < panels) {
      next = panel(number(s + 1));
      here.send_panel(false, next);
    }
    use(number(s), now ? now->V : came.V(), now ? now->reachable.get() : came.reachable_tau());
    if (!now && here.is_protected() && here.seal(came.V(), came.tau) != came.seal)
      throw error(fmt::format("qr: the reflectors of panel {} have changed in memory while they were used", number(s)));
  }
}

// C ← op(Q) C on this rank's columns, which its engine can reach. `identity`: C holds columns of the identity, of this division.
template <class S>
void apply_panels(rank_call<S>& here, const column_part<S>& of, bool transposed, const matrix_view<S>& C, const block_columns* identity) {
  const index m = C.rows, p = C.columns;
  const std::shared_ptr<S> memory = here.allocate(m, p);
  const matrix_view<S> other = column_major(memory.get(), m, p, std::max<index>(m, 1));
  each_panel(here, of, transposed, [&](index k, const matrix_view<const S>& V, const S* tau) {
    if (p == 0) return;
    const index top = k * of.own.block;
    // A column e_j of the identity is not changed by the panels below its row.
    index first = 0;
    while (identity != nullptr && first < p && identity->global(first) < top) first += identity->block;
    if (first >= p) return;
    orthogonal_factor<S> Q(here.run(), here.on(), V, tau);
    Q.prepare(transposed);
    const index host_width = identity != nullptr ? identity->block : std::min(k_most_block, std::max<index>(1, (p + 1) / 2));
    const index width = here.on_device() ? Q.most_columns() : host_width;
    std::vector<typename orthogonal_factor<S>::range> ranges;
    for (index j = first; j < p; j += width) ranges.push_back({j, std::min(width, p - j)});
    const matrix_view<S> from = C.block(top, 0, m - top, p), to = other.block(top, 0, m - top, p);
    Q.apply_to(transposed, {.view = from}, to, ranges);
    here.copy(to.block(0, first, m - top, p - first), from.block(0, first, m - top, p - first));
  });
}

}  // namespace ballast::qr
