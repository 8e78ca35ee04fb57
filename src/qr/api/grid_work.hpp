// The factorization of a matrix on a grid: the work of one rank.
// Layer: algorithm, over grid_panels.hpp. docs/design/distributed.md, "QR on a grid".
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "qr/api/grid_panels.hpp"

namespace ballast::qr {

// One factorization on one rank, from A to `storage`, both this rank's parts.
template <class S>
class factorization_on_grid {
 public:
  factorization_on_grid(rank_call<S>& here, wire::exchange& over, const grid_seat& seat, const matrix_view<const S>& A,
                        const matrix_view<S>& storage, std::span<S> tau)
      : here_(here),
        A_(A),
        tau_(tau),
        seat_(seat),
        steps_(static_cast<index>(tau.size())),
        lines_(over, seat),
        pieces_(pieces_of(seat.layout, steps_)),
        count_(static_cast<index>(panels_of_grid(seat.layout, steps_).size())),
        columns_(here, lines_, seat.layout.rows.size, steps_, storage, own_pieces()),
        products_(here, lines_, seat.layout.rows.size, at(count_)),
        panels_(here, lines_, products_, count_) {}

  // One attempt from the input; its finding on this rank.
  std::optional<abft::finding> pass() {
    bad_ = {};
    given_up_ = false;
    columns_.load(A_, false);
    index own = 0;  // the first of the rank's pieces that is no panel yet
    std::optional<started> now;
    for (index k = -1; k < count_; ++k) {
      if (now && now->panel.mine) ++own;
      std::optional<started> next;
      if (k + 1 < count_)
        next.emplace(panels_.start(k + 1, pieces_[at(k + 1)], own < columns_.pieces() ? columns_.block(own) : matrix_view<S>{}));
      if (now)
        step(now->panel, next, own);
      else
        begin(*next);
      now = std::move(next);
      if (now && here_.repairs() && lines_.any_has(bad_ || given_up_)) break;
    }
    if (!(here_.repairs() && (bad_ || given_up_))) finish(own);
    if (given_up_) return std::nullopt;
    abft::finding found = bad_.value_or(abft::finding{});
    found.bits = columns_.bits();
    return found;
  }

 private:
  using started = typename grid_panels<S>::started;

  std::vector<typename grid_columns<S>::piece> own_pieces() const {
    std::vector<typename grid_columns<S>::piece> made;
    for (std::size_t k = 0; k < pieces_.size(); ++k)
      if (seat_.layout.columns.owner(pieces_[k].first) == seat_.column())
        made.push_back({seat_.columns_below(pieces_[k].first), pieces_[k].width, static_cast<index>(k), pieces_[k].first});
    return made;
  }

  void note(const abft::finding& found) {
    if (!passes(found) && !bad_) bad_ = found;
    given_up_ = given_up_ || here_.lost();
  }

  void begin(started& first) {
    panels_.factor_rows(first, columns_.is_finite());
    panels_.complete(first, columns_.is_finite(), [] {});
    note({});
  }

  // Applies a panel to the rank's later columns, of which the first are its piece number `own`, and makes the next panel of those
  // meanwhile: it is updated first, and the exchanges that complete it run while the rest is updated.
  void step(grid_panel<S>& now, std::optional<started>& next, index own) {
    products_.strike(now);
    std::copy(now.tau.begin(), now.tau.end(), tau_.begin() + now.first);
    const index w = now.width, ahead = next && next->panel.mine ? 1 : 0;
    const index rest = own + ahead, since = own - (now.mine ? 1 : 0);
    const bool probed = now.mine && here_.is_protected() && columns_.is_finite();
    const bool others = now.number + (next ? 2 : 1) < static_cast<index>(pieces_.size());  // any rank has columns in the rest
    const matrix_view<S> all = now.below(columns_.all());

    // The next panel, the checksum of this one, and whether this one is unitary.
    const matrix_view<S> first[] = {ahead != 0 ? now.below(columns_.block(own)) : all.block(0, 0, now.rows, 0),
                                    now.below(columns_.checksums(since, rest))};
    grid_sums<S> of_first(probed ? w + 1 : 0, w * columns_of<S>(first));
    products_.multiply(now, first, of_first.numbers());
    products_.strike_product(now, 0, of_first.numbers(), columns_of<S>(first));
    if (probed) products_.probe(now, of_first.wides());
    lines_.begin(grid_line::column, of_first);

    update_of_rest work{*this, now, all, rest};
    if (others && lines_.size(grid_line::column) > 1) work.multiply(0, work.columns());
    lines_.end(grid_line::column, of_first);
    products_.subtract(now, true, of_first.numbers(), first);
    if (probed) note(products_.judge(now, of_first.wides()));
    if (now.mine) note(columns_.judge(own - 1, now.top, now.has_top ? w : 0));
    if (ahead != 0) strike_trailing(now, own);

    if (others) lines_.begin(grid_line::column, work.sums());
    if (next) panels_.factor_rows(*next, columns_.is_finite());
    if (others) lines_.end(grid_line::column, work.sums());
    if (next) {
      const index parts = panels_.exchanges(next->panel);
      index part = 0;
      panels_.complete(*next, columns_.is_finite(), [&] {
        ++part;
        work.until(work.columns() * part / parts);
      });
    }
    work.finish();
    note({});
    for (index i = rest; i < columns_.pieces(); ++i) strike_trailing(now, i);
    if (!here_.is_protected()) return;
    std::copy_n(tau_.begin() + now.first, w, now.tau.begin());
    note(columns_.alike(products_.is_whole(now), now.number));
  }

  void strike_trailing(const grid_panel<S>& now, index i) {
    if (now.rows > 0)
      here_.strike(site::trailing, {now.number * columns_.pieces() + i, static_cast<index>(pieces_.size()) * columns_.pieces(), 0, 1},
                   now.below(columns_.block(i)));
  }

  // The update of a rank's pieces from number `rest` on, in parts, and of their checksums with the last part.
  class update_of_rest {
   public:
    update_of_rest(factorization_on_grid& of, const grid_panel<S>& now, const matrix_view<S>& all, index rest)
        : of_(of),
          now_(now),
          X_(columns_from(of, all, rest)),
          checksums_(now.below(of.columns_.checksums(rest, of.columns_.pieces()))),
          alone_(of.lines_.size(grid_line::column) == 1),
          sums_(0, now.width * (X_.columns + checksums_.columns)) {}

    index columns() const { return X_.columns; }
    grid_sums<S>& sums() { return sums_; }
    // This rank's part of the products of columns first … end − 1; those of the checksums with the last ones.
    void multiply(index first, index end) {
      const matrix_view<S> X[] = {X_.block(0, first, now_.rows, end - first),
                                  end == columns() ? checksums_ : checksums_.block(0, 0, now_.rows, 0)};
      S* const to = sums_.numbers() + now_.width * first;
      of_.products_.multiply(now_, X, to);
      of_.products_.strike_product(now_, 1, to, columns_of<S>(X));
    }
    // Updates columns as far as `end`.
    void until(index end) {
      if (end > done_) update(end);
    }
    void finish() {
      if (!finished_) update(columns());
    }

   private:
    static matrix_view<S> columns_from(const factorization_on_grid& of, const matrix_view<S>& all, index rest) {
      const index first = rest < of.columns_.pieces() ? of.columns_[rest].first : of.columns_.count();
      return all.block(0, first, all.rows, of.columns_.count() - first);
    }
    void update(index end) {
      if (alone_) multiply(done_, end);
      finished_ = end == columns();
      const matrix_view<S> X[] = {X_.block(0, done_, now_.rows, end - done_),
                                  finished_ ? checksums_ : checksums_.block(0, 0, now_.rows, 0)};
      of_.products_.subtract(now_, true, sums_.numbers() + now_.width * done_, X);
      done_ = end;
    }

    factorization_on_grid& of_;
    const grid_panel<S>& now_;
    const matrix_view<S> X_, checksums_;
    const bool alone_;
    grid_sums<S> sums_;
    index done_ = 0;
    bool finished_ = false;
  };

  // Pieces that never become panels are compared here, and the seals of all.
  void finish(index own) {
    for (index i = 0; i < columns_.pieces(); ++i) {
      if (i >= own) note(columns_.judge(i, seat_.rows(), 0));
      note(columns_.compare_seal(i));
    }
  }

  rank_call<S>& here_;
  const matrix_view<const S> A_;
  const std::span<S> tau_;
  const grid_seat seat_;
  const index steps_;
  grid_lines lines_;
  const std::vector<grid_piece> pieces_;
  const index count_;  // the number of panels: the first pieces
  grid_columns<S> columns_;
  grid_products<S> products_;
  grid_panels<S> panels_;
  std::optional<abft::finding> bad_;  // the first that this rank found in this attempt
  bool given_up_ = false;             // a panel failed for good, and was recorded
};

}  // namespace ballast::qr
