// The work of one rank in the calls of grid_factors: panels, products with them, and the substitution with R.
// Layer: algorithm, over grid_lines.hpp and the drivers of one rank. docs/design/distributed.md, "QR on a grid".
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "qr/api/grid_lines.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/arithmetic/reconstruct.hpp"

namespace ballast::qr {

// The columns of A are cut where a block of columns ends, and those that become panels where a block of rows ends, too: the rows of a
// panel's triangle belong to one rank.
struct grid_piece {
  index first = 0, width = 0;  // columns of the whole matrix
};
inline constexpr index k_widest_grid_panel = 64;

inline std::vector<grid_piece> pieces_of(const cyclic_layout& of, index steps) {
  std::vector<grid_piece> made;
  for (index c = 0; c < of.columns.size;) {
    index end = std::min({of.columns.size, (c / of.columns.block + 1) * of.columns.block, c + k_widest_grid_panel});
    if (c < steps) end = std::min({end, steps, (c / of.rows.block + 1) * of.rows.block});
    made.push_back({c, end - c});
    c = end;
  }
  return made;
}

// The pieces whose columns become reflectors, without those right of a wide matrix's square.
inline std::vector<grid_piece> panels_of_grid(const cyclic_layout& of, index steps) {
  std::vector<grid_piece> made = pieces_of(of, steps);
  std::erase_if(made, [&](const grid_piece& each) { return each.first >= steps; });
  return made;
}

// A rank's rows of a panel: H_1 … H_w = I − V T Vᴴ.
template <class S>
struct grid_panel {
  grid_panel(rank_call<S>& here, index number, const grid_seat& seat, const grid_piece& of)
      : number(number),
        first(of.first),
        top(seat.rows_below(of.first)),
        rows(seat.rows() - top),
        width(of.width),
        process_row(seat.layout.rows.owner(of.first)),
        process_column(seat.layout.columns.owner(of.first)),
        has_top(seat.row() == process_row),
        mine(seat.column() == process_column),
        memory(here.allocate(rows, width)),
        tau(at(width), S(0)),
        T(at(width * width), S(0)) {}
  index number, first;
  index top, rows, width;  // its rows of V begin in the rank's row `top`
  int process_row, process_column;
  bool has_top, mine;  // this rank has its first row; its columns
  std::shared_ptr<S> memory;
  std::vector<S> tau, T;
  std::uint64_t seal = 0, seal_of_t = 0;  // V's; that of T and tau
  matrix_view<S> V() const { return column_major(memory.get(), rows, width, std::max<index>(rows, 1)); }
  matrix_view<S> below(const matrix_view<S>& of) const { return of.block(top, 0, rows, of.columns); }
};

// Writes the zeros and ones of V's triangle.
template <class S>
void unit_lower(const matrix_view<S>& V) {
  for (index j = 0; j < V.columns; ++j) {
    std::fill_n(&V(0, j), j, S(0));
    V(j, j) = S(1);
  }
}

// Products with panels over a process column.
template <class S>
class grid_products {
 public:
  grid_products(rank_call<S>& here, grid_lines& lines, index m, std::size_t panels)
      : here_(here), lines_(lines), m_(m), panels_(static_cast<index>(panels)) {}

  // Returns Vᴴ X over all ranks of the process column; X: the rank's rows of V. `form`: computes T, too, from VᴴV and the tau of the rank
  // with the first row, and compares both; a finding in `bad`. Ranks that do not take part only exchange.
  std::vector<S> joined(grid_panel<S>& of, std::span<const matrix_view<S>> X, bool form, bool take_part, std::optional<abft::finding>& bad,
                        bool finite) {
    if (!take_part) {
      (void)lines_.exchange(grid_line::column, std::vector<grid_message>(1));
      return {};
    }
    const kernels<S>& by = host::kernels_of<S>(here_.run());
    const index w = of.width, rows = of.rows, squares = form ? w * (w + 1) : 0;
    index columns = 0;
    for (const auto& each : X) columns += each.columns;
    std::vector<S> own(at(squares + w * columns), S(0));
    const S* const V = of.memory.get();
    const index ldv = std::max<index>(rows, 1);
    if (form && rows > 0) by.cross_product(rows, w, w, V, ldv, V, ldv, own.data(), w);
    if (form && of.has_top) std::copy(of.tau.begin(), of.tau.end(), own.begin() + w * w);
    S* to = own.data() + squares;
    for (const auto& each : X) {
      if (rows > 0 && each.columns > 0) by.cross_product(rows, w, each.columns, V, ldv, each.data, each.column_stride, to, w);
      to += w * each.columns;
    }
    if (columns > 0) here_.strike(site::product, {of.number, panels_, 0, 1}, column_major(own.data() + squares, w, index{1}, w));
    std::vector<double> x(at(w));
    for (index j = 0; j < w; ++j) x[at(j)] = random_signed(k_orthogonality_stream, static_cast<std::uint64_t>(of.first + j));
    std::vector<wide> z;
    if (form && here_.is_protected()) z = gram_times(of, x);
    lines_.sum(grid_line::column, own, z);
    if (form) {
      std::copy_n(own.begin() + w * w, w, of.tau.begin());
      form_t(of, own.data());
      of.seal_of_t = seal_of_t(of);
      if (here_.is_protected() && finite) check(of, own.data(), x, z, bad);
      own.erase(own.begin(), own.begin() + squares);
    }
    return own;
  }

  // X ← X − V op(T) W for the products W of joined(): Hᴴ X if transposed, else H X. Each X has an op(T) of its own: a wrong one that served
  // columns and their checksums would agree with itself.
  void subtract(const grid_panel<S>& of, bool transposed, const std::vector<S>& W, std::span<const matrix_view<S>> X) {
    const kernels<S>& by = host::kernels_of<S>(here_.run());
    const index w = of.width;
    if (of.rows == 0 || W.empty()) return;
    std::vector<S> left(at(w * w)), M;
    const S* from = W.data();
    for (const auto& each : X) {
      if (each.columns == 0) continue;
      for (index j = 0; j < w; ++j)
        for (index i = 0; i < w; ++i) left[at(i + j * w)] = transposed ? of.T[at(i + j * w)] : conjugate(of.T[at(j + i * w)]);
      here_.strike(site::t, {of.number, panels_, 0, 1}, column_major(left.data(), w, w, w));
      M.resize(at(w * each.columns));
      by.cross_product(w, w, each.columns, left.data(), w, from, w, M.data(), w);
      by.subtract_product(of.rows, each.columns, w, of.memory.get(), std::max<index>(of.rows, 1), M.data(), w, each.data,
                          each.column_stride);
      from += w * each.columns;
    }
  }

  // Sends a panel along the process rows from the ranks that have its columns.
  void spread(grid_panel<S>& of) {
    const index w = of.width;
    std::vector<grid_message> block(1);
    if (of.mine) {
      block[0].put(&of.seal, 1);
      block[0].put(&of.seal_of_t, 1);
      block[0].put(of.tau.data(), w);
      block[0].put(of.T.data(), w * w);
      block[0].put(matrix_view<const S>(of.V()));
    }
    std::vector<grid_reader> came = lines_.exchange(grid_line::row, std::move(block));
    if (of.mine) return;
    grid_reader& from = came[at(of.process_column)];
    from.take(&of.seal, 1);
    from.take(&of.seal_of_t, 1);
    from.take(of.tau.data(), w);
    from.take(of.T.data(), w * w);
    from.take(of.V());
  }
  void seal(grid_panel<S>& of) {
    if (here_.is_protected()) of.seal = here_.on().hash(of.V());
  }
  // Returns whether V, tau and T still have the bits of their seals.
  bool is_whole(const grid_panel<S>& of) { return here_.on().hash(of.V()) == of.seal && seal_of_t(of) == of.seal_of_t; }
  void strike(grid_panel<S>& of) {
    if (of.rows > 0) here_.strike(site::reflector, {of.number, panels_, 0, 1}, of.V());
    here_.strike(site::t, {of.number, panels_, 0, 1}, column_major(of.T.data(), of.width, of.width, of.width));
  }

 private:
  using wide = wide_of<S>;

  std::uint64_t seal_of_t(const grid_panel<S>& of) const {
    return abft::seal_of(reals(of.T.data()), of.width * of.width * k_reals<S>, abft::seal_of(reals(of.tau.data()), of.width * k_reals<S>));
  }

  // T's columns in turn: T_jj = tau_j, T_{i<j, j} = −tau_j T VᴴV.
  void form_t(grid_panel<S>& of, const S* G) const {
    const index w = of.width;
    std::vector<wide> T(at(w * w), wide(0));
    for (index j = 0; j < w; ++j) {
      const wide tau = static_cast<wide>(of.tau[at(j)]);
      T[at(j + j * w)] = tau;
      for (index i = 0; i < j; ++i) {
        wide sum = 0;
        for (index l = i; l < j; ++l) sum += times(T[at(i + l * w)], static_cast<wide>(G[l + j * w]));
        T[at(i + j * w)] = -times(tau, sum);
      }
    }
    for (std::size_t e = 0; e < T.size(); ++e) of.T[e] = static_cast<S>(T[e]);
  }

  // This rank's part of Vᴴ(V x), in double.
  std::vector<wide> gram_times(const grid_panel<S>& of, const std::vector<double>& x) {
    const kernels<S>& by = host::kernels_of<S>(here_.run());
    const index w = of.width, rows = of.rows;
    std::vector<double> minus(at(w));
    std::ranges::transform(x, minus.begin(), std::negate<>());
    std::vector<wide> y(at(rows), wide(0)), z(at(w), wide(0));
    if (rows == 0) return z;
    by.subtract_weighted(rows, w, of.memory.get(), rows, 1, minus.data(), w, y.data(), rows);
    by.dot(rows, w, of.memory.get(), rows, 1, y.data(), rows, z.data(), w);
    return z;
  }

  // For random x, in double: G x = z = Vᴴ(V x), and Tᴴ G T x = (T + Tᴴ) x, which holds if and only if I − V T Vᴴ is unitary.
  void check(const grid_panel<S>& of, const S* G, const std::vector<double>& x, const std::vector<wide>& z,
             std::optional<abft::finding>& bad) {
    const index w = of.width;
    const auto multiply = [&](const S* M, bool transposed, const std::vector<wide>& v, std::vector<double>* sizes) {
      std::vector<wide> made(at(w), wide(0));
      for (index i = 0; i < w; ++i)
        for (index j = 0; j < w; ++j) {
          const wide each = transposed ? conjugate(static_cast<wide>(M[j + i * w])) : static_cast<wide>(M[i + j * w]);
          made[at(i)] += times(each, v[at(j)]);
          if (sizes != nullptr) (*sizes)[at(i)] += size_of_number(each) * size_of_number(v[at(j)]);
        }
      return made;
    };
    const std::vector<wide> start(x.begin(), x.end());
    std::vector<double> sizes(at(w), 0.0);
    const std::vector<wide> Gx = multiply(G, false, start, &sizes);
    double length = 0;
    for (index j = 0; j < w; ++j) length += size_of_number(times(z[at(j)], start[at(j)]));
    std::vector<wide> expected = z, seen = Gx;
    for (index j = 0; j < w; ++j) sizes[at(j)] += std::sqrt(size_of_number(G[j + j * w]) * length);
    note(of, seen, expected, sizes, bad);

    const std::vector<wide> p = multiply(of.T.data(), false, start, nullptr);
    std::vector<double> of_g(at(w), 0.0), of_t(at(w), 0.0);
    const std::vector<wide> g = multiply(G, false, p, &of_g);
    seen = multiply(of.T.data(), true, g, nullptr);
    expected = multiply(of.T.data(), false, start, &of_t);
    const std::vector<wide> other = multiply(of.T.data(), true, start, &of_t);
    for (index i = 0; i < w; ++i) {
      expected[at(i)] += other[at(i)];
      for (index j = 0; j <= i; ++j) of_t[at(i)] += size_of_number(of.T[at(j + i * w)]) * of_g[at(j)];
    }
    note(of, seen, expected, of_t, bad);
  }

  // Compares the element that is largest beside its threshold.
  void note(const grid_panel<S>& of, const std::vector<wide>& seen, const std::vector<wide>& expected, const std::vector<double>& sizes,
            std::optional<abft::finding>& bad) {
    double residual = 0, threshold = 1;
    for (std::size_t i = 0; i < seen.size() && !std::isnan(residual); ++i) {
      const double each = size_of_number(seen[i] - expected[i]), limit = thresholds::orthogonality<real_of<S>>(sizes[i], k_reals<S> * m_);
      if (each * threshold <= residual * limit) continue;
      residual = each;
      threshold = limit;
    }
    const abft::finding found = compare(here_.run(), {of.number, panels_, 0, 1}, residual, threshold, "qr.grid", of.number);
    if (!passes(found) && !bad) bad = found;
  }

  rank_call<S>& here_;
  grid_lines& lines_;
  const index m_, panels_;
};

// One factorization on one rank, from A to `storage`, both this rank's parts.
template <class S>
class factorization_on_grid {
 public:
  factorization_on_grid(rank_call<S>& here, wire::exchange& over, const grid_seat& seat, const matrix_view<const S>& A,
                        const matrix_view<S>& storage, std::span<S> tau)
      : here_(here),
        A_(A),
        storage_(storage),
        tau_(tau),
        seat_(seat),
        steps_(static_cast<index>(tau.size())),
        lines_(over, seat),
        panels_(pieces_of(seat.layout, steps_)),
        columns_(here, lines_, seat.layout.rows.size, steps_, seat.columns(), own_pieces()),
        products_(here, lines_, seat.layout.rows.size, panels_of_grid(seat.layout, steps_).size()) {}

  // One attempt from the input; its finding on this rank.
  std::optional<abft::finding> pass() {
    bad_ = {};
    given_up_ = false;
    lines_.begin();
    columns_.load(A_, false);
    index own = 0;  // the first of the rank's pieces that is no panel yet
    for (index k = 0; k < static_cast<index>(panels_.size()) && panels_[at(k)].first < steps_; ++k) {
      // All ranks see the same.
      if (lines_.stopped() && here_.repairs()) break;
      grid_panel<S> now(here_, k, seat_, panels_[at(k)]);
      factor_panel(now, own);
      if (now.mine) ++own;
      products_.spread(now);
      products_.strike(now);
      std::copy(now.tau.begin(), now.tau.end(), tau_.begin() + now.first);
      if (k + 1 < static_cast<index>(panels_.size())) update(now, own);
      if (here_.is_protected()) {
        std::copy_n(tau_.begin() + now.first, now.width, now.tau.begin());
        note(columns_.alike(products_.is_whole(now), k));
      }
    }
    if (!(here_.repairs() && (bad_ || given_up_))) finish(own);
    if (given_up_) return std::nullopt;
    abft::finding found = bad_.value_or(abft::finding{});
    found.bits = columns_.bits();
    return found;
  }

 private:
  std::vector<typename grid_columns<S>::piece> own_pieces() const {
    std::vector<typename grid_columns<S>::piece> made;
    for (std::size_t k = 0; k < panels_.size(); ++k)
      if (seat_.layout.columns.owner(panels_[k].first) == seat_.column())
        made.push_back({seat_.columns_below(panels_[k].first), panels_[k].width, static_cast<index>(k), panels_[k].first});
    return made;
  }

  void note(const abft::finding& found) {
    if (!passes(found) && !bad_) bad_ = found;
    if (bad_ || here_.lost()) lines_.stop();
    given_up_ = given_up_ || here_.lost();
  }

  // Applies the panel to the rank's pieces from `first` on, and to their checksums.
  void update(grid_panel<S>& now, index first) {
    const index column = first < columns_.pieces() ? columns_[first].first : columns_.count();
    const matrix_view<S> all = now.below(columns_.all());
    const matrix_view<S> X[] = {all.block(0, column, now.rows, columns_.count() - column),
                                all.block(0, columns_.count() + first, now.rows, here_.is_protected() ? columns_.pieces() - first : 0)};
    const std::vector<S> W = products_.joined(now, X, false, true, bad_, true);
    products_.subtract(now, true, W, X);
    for (index i = first; i < columns_.pieces() && now.rows > 0; ++i)
      here_.strike(site::trailing, {now.number * columns_.pieces() + i, static_cast<index>(panels_.size()) * columns_.pieces(), 0, 1},
                   now.below(columns_.block(i)));
  }

  // Factors a panel on the ranks of its process column; i: the number of its piece on those.
  void factor_panel(grid_panel<S>& now, index i) {
    const index w = now.width;
    matrix_view<S> at_home;
    if (now.mine) at_home = now.below(columns_.block(i));
    int holders = 0;  // the process rows that have rows of the panel
    for (int p = 0; p < seat_.layout.grid.rows; ++p) holders += rows_of_panel(p, now) > 0 ? 1 : 0;
    const std::shared_ptr<S> memory = here_.allocate(now.mine ? now.rows : 0, w), tau = here_.allocate(w, 1);
    const matrix_view<S> F = column_major(memory.get(), now.rows, w, std::max<index>(now.rows, 1));
    if (now.mine && now.rows > 0) {
      here_.copy(at_home, F);
      factor(F, tau.get());
    }
    if (holders > 1) {
      join_triangles(now, F, tau.get(), at_home);
    } else if (now.mine && now.has_top) {
      here_.copy(F, at_home);
      here_.copy(F, now.V());
      std::copy_n(tau.get(), w, now.tau.begin());
    }
    if (now.mine && now.has_top) unit_lower(now.V());
    if (now.mine) products_.seal(now);
    // T, and the checksum of the panel, which becomes that of R.
    std::vector<matrix_view<S>> X;
    if (now.mine && here_.is_protected()) X.push_back(now.below(columns_.checksum(i)));
    std::vector<S> W = products_.joined(now, X, true, now.mine, bad_, columns_.is_finite());
    if (now.mine) {
      products_.subtract(now, true, W, X);
      note(columns_.judge(i, now.top, now.has_top ? w : 0));
    }
    note({});
  }

  index rows_of_panel(int process_row, const grid_panel<S>& now) const {
    return seat_.layout.rows.count(process_row) - seat_.layout.rows.count_below(process_row, now.first);
  }
  index triangle_of(int process_row, const grid_panel<S>& now) const { return std::min(rows_of_panel(process_row, now), now.width); }

  void factor(const matrix_view<S>& F, S* tau) { factorization<S>(here_.run(), here_.on(), here_.scheme(), F, tau, {}).run(); }
  void times_q(const matrix_view<S>& F, const S* tau, const operand<S>& X, const matrix_view<S>& to) {
    orthogonal_factor<S>(here_.run(), here_.on(), F.block(0, 0, F.rows, std::min(F.rows, F.columns)), tau).apply(false, X, to);
  }

  // The ranks send their triangles to the one with the first row, which factors them all; V = Q U⁻¹ of each comes from its own reflectors,
  // applied to its rows of the small Q times U⁻¹.
  void join_triangles(grid_panel<S>& now, const matrix_view<S>& F, const S* tau, const matrix_view<S>& at_home) {
    const index w = now.width;
    const int places = seat_.layout.grid.rows;
    const bool leads = now.mine && now.has_top;
    std::vector<grid_message> triangles(at(places)), parts(at(places));
    if (now.mine && !leads && now.rows > 0) {
      matrix<S> R(triangle_of(seat_.row(), now), w, order::column_major);
      for (index j = 0; j < w; ++j)
        for (index i = 0; i < std::min(j + 1, R.rows()); ++i) R(i, j) = F(i, j);
      triangles[at(now.process_row)].put(std::as_const(R).view());
    }
    std::vector<grid_reader> came = lines_.exchange(grid_line::column, std::move(triangles));
    if (leads) lead(now, F, tau, at_home, came, parts);
    came = lines_.exchange(grid_line::column, std::move(parts));
    if (leads || !now.mine || now.rows == 0) return;
    matrix<S> small(triangle_of(seat_.row(), now), w, order::column_major);
    came[at(now.process_row)].take(small.view());
    times_q(F, tau, {.view = std::as_const(small).view()}, now.V());
    here_.copy(now.V(), at_home);
  }

  void lead(grid_panel<S>& now, const matrix_view<S>& F, const S* tau, const matrix_view<S>& at_home, std::vector<grid_reader>& came,
            std::vector<grid_message>& parts) {
    const kernels<S>& by = host::kernels_of<S>(here_.run());
    const index w = now.width;
    const int places = seat_.layout.grid.rows;
    std::vector<index> tops = {0};
    for (int p = 0; p < places; ++p) tops.push_back(tops.back() + triangle_of(p, now));
    const std::shared_ptr<S> memory = here_.allocate(tops.back(), w), of_small = here_.allocate(tops.back(), w),
                             tau_of_stack = here_.allocate(w, 1);
    const matrix_view<S> stack = column_major(memory.get(), tops.back(), w, tops.back()),
                         small = column_major(of_small.get(), tops.back(), w, tops.back());
    for (int p = 0; p < places; ++p) {
      const matrix_view<S> part = stack.block(tops[at(p)], 0, tops[at(p) + 1] - tops[at(p)], w);
      if (p != seat_.row() && part.rows > 0) came[at(p)].take(part);
      if (p == seat_.row())
        for (index j = 0; j < w; ++j)
          for (index i = 0; i < w; ++i) part(i, j) = i <= j ? F(i, j) : S(0);
    }
    factor(stack, tau_of_stack.get());
    times_q(stack, tau_of_stack.get(), {.view = {}, .identity = true}, small);
    times_q(F, tau, {.view = small.block(tops[at(seat_.row())], 0, w, w)}, now.V());

    // Q − diag(sign) = V U; minus ← −U⁻¹.
    const matrix_view<S> V = now.V();
    std::vector<S> sign(at(w)), minus(at(w * w), S(0));
    factor_signed<S>(w, w, V.data, V.column_stride, sign.data(), now.tau.data());
    for (index j = 0; j < w; ++j) minus[at(j + j * w)] = S(-1);
    by.solve(false, w, w, V.data, V.column_stride, minus.data(), w);
    const auto divide = [&](const matrix_view<S>& X) {
      const matrix<S> copy = packed_rows(matrix_view<const S>(X), -1);
      for (index j = 0; j < w; ++j) std::fill_n(&X(0, j), X.rows, S(0));
      by.subtract_product(X.rows, w, w, copy.data(), std::max<index>(X.rows, 1), minus.data(), w, X.data, X.column_stride);
    };
    if (now.rows > w) divide(V.block(w, 0, now.rows - w, w));
    divide(small);
    for (int p = 0; p < places; ++p)
      if (p != seat_.row()) parts[at(p)].put(matrix_view<const S>(small.block(tops[at(p)], 0, tops[at(p) + 1] - tops[at(p)], w)));
    here_.copy(V, at_home);
    for (index j = 0; j < w; ++j)
      for (index i = 0; i <= j; ++i) at_home(i, j) = times(sign[at(i)], stack(i, j));
  }

  // Pieces that never become panels are compared here, and the seals of all.
  void finish(index own) {
    for (index i = 0; i < columns_.pieces(); ++i) {
      if (i >= own) note(columns_.judge(i, seat_.rows(), 0));
      note(columns_.store(i, storage_.block(0, columns_[i].first, seat_.rows(), columns_[i].width)));
    }
  }

  rank_call<S>& here_;
  const matrix_view<const S> A_;
  const matrix_view<S> storage_;
  const std::span<S> tau_;
  const grid_seat seat_;
  const index steps_;
  grid_lines lines_;
  const std::vector<grid_piece> panels_;
  grid_columns<S> columns_;
  grid_products<S> products_;
  std::optional<abft::finding> bad_;  // the first that this rank found in this attempt
  bool given_up_ = false;             // a panel failed for good, and was recorded
};

}  // namespace ballast::qr
