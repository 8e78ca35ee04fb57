// Factors panels of a grid: a tree of triangles over the process column, reflectors from its Q, and messages along the process rows.
// Layer: algorithm, over grid_products.hpp and the kernels of one rank. docs/design/distributed.md, "QR on a grid".
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "qr/api/grid_products.hpp"
#include "qr/arithmetic/reconstruct.hpp"

namespace ballast::qr {

template <class S>
class grid_panels {
 public:
  // A panel that is being factored.
  struct started {
    grid_panel<S> panel;
    // On the ranks that have its columns: its rows, where the rank's own reflectors lie until V replaces them, and their tau, T and V1, the
    // first rows of V. The rank's own Q is I − V T Vᴴ.
    matrix_view<S> home;
    std::vector<S> tau, T, V1;
    // Several ranks have rows: the rank's rows of the small Q times U⁻¹, and where the first row is, the first rows of the joint V, and R.
    matrix<S> small;
    std::vector<S> top, R;
  };

  grid_panels(rank_call<S>& here, grid_lines& lines, grid_products<S>& products, index panels)
      : here_(here), lines_(lines), products_(products), by_(host::kernels_of<S>(here.run())), panels_(panels) {}

  // `block`: the columns of the panel in the rank's memory, if it has them.
  started start(index number, const grid_piece& of, const matrix_view<S>& block) {
    started made{.panel = grid_panel<S>(here_, number, lines_.seat(), of),
                 .home = {},
                 .tau = {},
                 .T = {},
                 .V1 = {},
                 .small = {},
                 .top = {},
                 .R = {}};
    if (made.panel.mine) made.home = made.panel.below(block);
    return made;
  }

  // Factors the rank's rows; fewer than the panel is wide stay as they are. `finite`: the matrix has no Inf and no NaN.
  void factor_rows(started& of, bool finite) {
    const grid_panel<S>& now = of.panel;
    if (!now.mine || now.rows == 0) return;
    here_.strike(site::panel, {now.number, panels_, 0, 2}, of.home);
    if (now.rows >= now.width) factor(of.home, of.tau, of.T, of.V1, finite);
  }

  // The exchanges of complete(): the same number on all ranks.
  index exchanges(const grid_panel<S>& of) const {
    const bool columns = lines_.size(grid_line::column) > 1;
    return (columns && holders(of) > 1 ? 1 : 0) + (columns ? 1 : 0) + (lines_.size(grid_line::row) > 1 ? 1 : 0);
  }
  // Joins the rows of all ranks to R and to V, tau and T, and brings these to all ranks that need them. meanwhile() is called within each
  // exchange.
  template <class Work>
  void complete(started& of, bool finite, const Work& meanwhile) {
    grid_panel<S>& now = of.panel;
    const bool leads = now.mine && now.has_top, joint = holders(now) > 1;
    if (lines_.size(grid_line::column) > 1) {
      std::vector<grid_message> parts(at(lines_.size(grid_line::column)));
      if (joint) {
        std::vector<grid_message> triangles(parts.size());
        if (now.mine && !leads) put_triangle(of, triangles[at(now.process_row)]);
        const auto sends = [&](int p) { return leads && triangle_of(p, now) > 0; };
        lines_.begin(grid_line::column, triangles, lines_.those(grid_line::column, sends));
        meanwhile();
        std::vector<grid_reader> came = lines_.end(grid_line::column);
        if (leads) join(of, finite, came, parts);
      } else if (leads) {
        keep(of);
        for (grid_message& each : parts) put_factor(now, each);
      }
      const bool takes = now.mine && !leads;
      lines_.begin(grid_line::column, parts, takes ? lines_.only(grid_line::column, now.process_row) : lines_.nobody(grid_line::column));
      meanwhile();
      std::vector<grid_reader> came = lines_.end(grid_line::column);
      if (takes) take_part(of, came[at(now.process_row)]);
    } else if (leads) {
      keep(of);
    }
    if (now.mine) make_v(of, joint);
    if (now.mine) products_.seal(now);
    products_.begin_spread(now);
    if (lines_.size(grid_line::row) > 1) meanwhile();
    products_.end_spread(now);
  }

 private:
  index rows_of_panel(int process_row, const grid_panel<S>& now) const {
    const cyclic_axis& rows = lines_.seat().layout.rows;
    return rows.count(process_row) - rows.count_below(process_row, now.first);
  }
  index triangle_of(int process_row, const grid_panel<S>& now) const { return std::min(rows_of_panel(process_row, now), now.width); }
  // The process rows that have rows of the panel.
  int holders(const grid_panel<S>& now) const {
    int made = 0;
    for (int p = 0; p < lines_.size(grid_line::column); ++p) made += rows_of_panel(p, now) > 0 ? 1 : 0;
    return made;
  }

  // Factors F, with its T and V1. Columns of extreme size, and zeros, Inf and NaN, are left to the driver of one rank, which scales them.
  void factor(const matrix_view<S>& F, std::vector<S>& tau, std::vector<S>& T, std::vector<S>& V1, bool finite) {
    const index w = F.columns;
    tau.resize(at(w));
    T.resize(at(w * w));
    V1.assign(at(w * w), S(0));
    const bool moderate = is_moderate(F);
    if (moderate)
      by_.factor_panel(F.rows, w, F.data, F.column_stride, tau.data(), T.data(), here_.run().threads, finite, false);
    else
      factorization<S>(here_.run(), here_.on(), here_.scheme(), F, tau.data(), {}).run();
    for (index j = 0; j < w; ++j) {
      V1[at(j + j * w)] = S(1);
      for (index i = j + 1; i < w; ++i) V1[at(i + j * w)] = F(i, j);
    }
    if (!moderate) by_.triangular_factor({F.rows, w, V1.data(), F.data + w, F.column_stride, nullptr}, tau.data(), T.data());
  }
  // Returns whether all columns have norms of which products and squares stay in range.
  bool is_moderate(const matrix_view<S>& F) const {
    std::vector<double> squares(at(F.columns), 0.0);
    by_.squares(F.rows, F.columns, F.data, F.column_stride, squares.data());
    const double most = std::ldexp(1.0, 2 * abft::k_moderate_exponent<real_of<S>>);
    return std::ranges::all_of(squares, [&](double each) { return each >= 1 / most && each <= most; });
  }

  static block_reflector<S> own_reflectors(const started& of) {
    return {of.panel.rows, of.panel.width, of.V1.data(), of.home.data + of.panel.width, of.home.column_stride, of.T.data()};
  }
  // C ← H C for C with zeros below its first H.width rows.
  void multiply(const block_reflector<S>& H, const matrix_view<S>& C) const {
    std::vector<S> W(at(H.width * C.columns));
    block_reflector<S> first = H;
    first.rows = H.width;
    by_.product(first, C.columns, C.data, C.column_stride, W.data());
    by_.update(H, false, C.columns, W.data(), C.data, C.column_stride);
  }

  // The rank's reflectors are those of the panel.
  void keep(started& of) {
    of.panel.tau = of.tau;
    of.panel.T = of.T;
    seal_factor(of.panel);
  }
  void seal_factor(grid_panel<S>& now) {
    here_.strike(site::tau, {now.number, panels_, 0, 1}, column_major(now.tau.data(), now.width, index{1}, now.width));
    now.seal_of_t = products_.seal_of_t(now);
  }
  void put_factor(const grid_panel<S>& now, grid_message& to) const {
    to.put(&now.seal_of_t, 1);
    to.put(now.tau.data(), now.width);
    to.put(now.T.data(), now.width * now.width);
  }
  void take_part(started& of, grid_reader& from) {
    grid_panel<S>& now = of.panel;
    from.take(&now.seal_of_t, 1);
    from.take(now.tau.data(), now.width);
    from.take(now.T.data(), now.width * now.width);
    of.small = matrix<S>(std::min(now.rows, now.width), now.width, order::column_major);
    from.take(of.small.view());
  }
  void put_triangle(const started& of, grid_message& to) const {
    const grid_panel<S>& now = of.panel;
    matrix<S> R(std::min(now.rows, now.width), now.width, order::column_major);
    for (index j = 0; j < now.width; ++j)
      for (index i = 0; i < (now.rows < now.width ? now.rows : j + 1); ++i) R(i, j) = of.home(i, j);
    to.put(std::as_const(R).view());
  }

  // Factors the triangles of all ranks, and finds the joint R, V1, tau and T; each rank gets its rows of the small Q times U⁻¹.
  void join(started& of, bool finite, std::vector<grid_reader>& came, std::vector<grid_message>& parts) {
    grid_panel<S>& now = of.panel;
    const index w = now.width;
    const int places = lines_.size(grid_line::column), own = lines_.place(grid_line::column);
    std::vector<index> tops = {0};
    for (int p = 0; p < places; ++p) tops.push_back(tops.back() + triangle_of(p, now));
    matrix<S> stack(tops.back(), w, order::column_major), Q(tops.back(), w, order::column_major);
    const auto rows_of = [&](matrix<S>& all, int p) { return all.view().block(tops[at(p)], 0, tops[at(p) + 1] - tops[at(p)], w); };
    for (int p = 0; p < places; ++p) {
      const matrix_view<S> part = rows_of(stack, p);
      if (p != own && part.rows > 0) came[at(p)].take(part);
      if (p == own)
        for (index j = 0; j < w; ++j) std::copy_n(&of.home(0, j), j + 1, &part(0, j));
    }
    here_.strike(site::panel, {now.number, panels_, 1, 2}, stack.view());
    std::vector<S> tau, T, V1;
    factor(stack.view(), tau, T, V1, finite);
    for (index j = 0; j < w; ++j) Q(j, j) = S(1);
    multiply({stack.rows(), w, V1.data(), &stack(0, 0) + w, stack.rows(), T.data()}, Q.view());

    // The first rows of the whole Q: Q − diag(sign) = V1 U, and T = −U diag(sign) V1⁻ᴴ.
    std::vector<S>& top = of.top;
    top.resize(at(w * w));
    for (index j = 0; j < w; ++j) std::copy_n(&rows_of(Q, own)(0, j), w, &top[at(j * w)]);
    block_reflector<S> first = own_reflectors(of);
    first.rows = w;
    multiply(first, column_major(top.data(), w, w, w));
    std::vector<S> sign(at(w)), minus(at(w * w), S(0)), U1(at(w * w), S(0)), turned(at(w * w), S(0));
    factor_signed<S>(w, w, top.data(), w, sign.data(), now.tau.data());
    of.R.assign(at(w * w), S(0));
    for (index j = 0; j < w; ++j) {
      minus[at(j + j * w)] = S(-1);
      for (index i = 0; i <= j; ++i) {
        of.R[at(i + j * w)] = times(sign[at(i)], stack(i, j));
        U1[at(i + j * w)] = i == j ? S(1) : conjugate(top[at(j + i * w)]);
        turned[at(j + i * w)] = -conjugate(times(top[at(i + j * w)], sign[at(j)]));
      }
    }
    by_.solve(false, w, w, top.data(), w, minus.data(), w);  // −U⁻¹
    by_.solve(true, w, w, U1.data(), w, turned.data(), w);   // Tᴴ
    for (index j = 0; j < w; ++j) {
      for (index i = 0; i < w; ++i) now.T[at(i + j * w)] = i < j ? conjugate(turned[at(j + i * w)]) : S(0);
      now.T[at(j + j * w)] = now.tau[at(j)];
    }
    seal_factor(now);
    for (int p = 0; p < places; ++p) {
      const matrix_view<S> part = rows_of(Q, p);
      matrix<S> small(part.rows, w, order::column_major);
      by_.subtract_product(part.rows, w, w, part.data, part.column_stride, minus.data(), w, small.data(), std::max<index>(part.rows, 1));
      if (p == own) {
        of.small = std::move(small);
        continue;
      }
      put_factor(now, parts[at(p)]);
      parts[at(p)].put(std::as_const(small).view());
    }
    for (index j = 0; j < w; ++j) {
      std::fill_n(&top[at(j * w)], j, S(0));
      top[at(j + j * w)] = S(1);
    }
  }

  // V, and the finished panel at home.
  void make_v(started& of, bool joint) {
    grid_panel<S>& now = of.panel;
    const index w = now.width;
    const matrix_view<S> V = now.V();
    if (now.rows == 0) return;
    if (!joint) {
      here_.copy(of.home, V);
      unit_lower(V);
      return;
    }
    const index t = of.small.rows();
    for (index j = 0; j < w; ++j) {
      std::copy_n(&of.small(0, j), t, &V(0, j));
      std::fill_n(&V(0, j) + t, now.rows - t, S(0));
    }
    if (now.rows >= w) multiply(own_reflectors(of), V);
    if (now.has_top)
      for (index j = 0; j < w; ++j) std::copy_n(&of.top[at(j * w)], w, &V(0, j));
    here_.copy(V, of.home);
    if (now.has_top)
      for (index j = 0; j < w; ++j) std::copy_n(&of.R[at(j * w)], j + 1, &of.home(0, j));
  }

  rank_call<S>& here_;
  grid_lines& lines_;
  grid_products<S>& products_;
  const kernels<S>& by_;
  const index panels_;
};

}  // namespace ballast::qr
