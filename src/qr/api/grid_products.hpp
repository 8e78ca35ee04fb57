// Panels of a grid, and products with them over a process column.
// Layer: algorithm, over grid_lines.hpp. docs/design/distributed.md, "QR on a grid".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "qr/api/grid_lines.hpp"
#include "qr/arithmetic/random.hpp"

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

template <class S>
index columns_of(std::span<const matrix_view<S>> X) {
  index made = 0;
  for (const auto& each : X) made += each.columns;
  return made;
}

// Products with panels over a process column.
template <class S>
class grid_products {
 public:
  using wide = wide_of<S>;
  grid_products(rank_call<S>& here, grid_lines& lines, index m, std::size_t panels)
      : here_(here), lines_(lines), m_(m), panels_(static_cast<index>(panels)) {}

  // to ← Vᴴ X, the part of this rank; X: its rows of V. One matrix of w rows for each X.
  void multiply(const grid_panel<S>& of, std::span<const matrix_view<S>> X, S* to) {
    const kernels<S>& by = host::kernels_of<S>(here_.run());
    const index w = of.width, ldv = std::max<index>(of.rows, 1);
    for (const auto& each : X) {
      if (of.rows > 0 && each.columns > 0)
        by.cross_product(of.rows, w, each.columns, of.memory.get(), ldv, each.data, each.column_stride, to, w);
      to += w * each.columns;
    }
  }
  // Shows the injector the first column of such a product, which is in step `step` of 2.
  void strike_product(const grid_panel<S>& of, index step, S* product, index count) {
    if (count > 0) here_.strike(site::product, {of.number, panels_, step, 2}, column_major(product, of.width, index{1}, of.width));
  }

  // The sums over the process column of Vᴴ X for a panel whose T is not known, after before(w) other numbers: VᴴV, and the tau of the rank
  // with the first row. begin_join multiplies and sends this rank's part; end_join computes T, and compares both; a finding in `bad`.
  static index before(index w) { return w * (w + 1); }
  grid_sums<S> begin_join(const grid_panel<S>& of, std::span<const matrix_view<S>> X) {
    const index w = of.width, columns = columns_of(X);
    grid_sums<S> sums(here_.is_protected() ? w : 0, before(w) + w * columns);
    const matrix_view<S> V = of.V();
    multiply(of, std::span(&V, 1), sums.numbers());
    if (of.has_top) std::copy(of.tau.begin(), of.tau.end(), sums.numbers() + w * w);
    multiply(of, X, sums.numbers() + before(w));
    strike_product(of, 0, sums.numbers() + before(w), columns);
    if (here_.is_protected()) {
      const std::vector<wide> z = gram_times(of, random_vector(of), nullptr);
      std::copy(z.begin(), z.end(), sums.wides());
    }
    lines_.begin(grid_line::column, sums);
    return sums;
  }
  void end_join(grid_panel<S>& of, grid_sums<S>& sums, std::optional<abft::finding>& bad, bool finite) {
    const index w = of.width;
    lines_.end(grid_line::column, sums);
    std::copy_n(sums.numbers() + w * w, w, of.tau.begin());
    form_t(of, sums.numbers());
    of.seal_of_t = seal_of_t(of);
    if (here_.is_protected() && finite) check(of, sums.numbers(), {sums.wides(), sums.wides() + w}, bad);
  }

  // X ← X − V op(T) W for W = Vᴴ X over all ranks, which becomes op(T) W: Hᴴ X if transposed, else H X. Each X has a T of its own: a wrong
  // one that served columns and their checksums would agree with itself.
  void subtract(const grid_panel<S>& of, bool transposed, S* W, std::span<const matrix_view<S>> X) {
    const kernels<S>& by = host::kernels_of<S>(here_.run());
    const index w = of.width;
    if (of.rows == 0) return;
    for (const auto& each : X) {
      if (each.columns == 0) continue;
      own_t_.assign(of.T.begin(), of.T.end());
      here_.strike(site::t, {of.number, panels_, 1, 2}, column_major(own_t_.data(), w, w, w));
      by.triangular_product(transposed, w, each.columns, own_t_.data(), W);
      by.subtract_product(of.rows, each.columns, w, of.memory.get(), of.rows, W, w, each.data, each.column_stride);
      W += w * each.columns;
    }
  }

  // This rank's part of Vᴴ p and ‖p‖² for p = V T x with a random x: w + 1 numbers.
  void probe(const grid_panel<S>& of, wide* to) {
    double squares = 0;
    const std::vector<wide> z = gram_times(of, multiplied(of.T.data(), false, random_vector(of), nullptr), &squares);
    std::copy(z.begin(), z.end(), to);
    to[of.width] = squares;
  }
  // Compares Tᴴ(Vᴴ p) with (T + Tᴴ) x: they are the same if and only if I − V T Vᴴ is unitary; and tau with T's diagonal. `sums`: over the
  // process column.
  abft::finding judge(const grid_panel<S>& of, const wide* sums) {
    const index w = of.width;
    const double length = std::sqrt(size_of_number(sums[w]));
    std::vector<double> sizes(at(w), 0.0);
    const std::vector<wide> seen = multiplied(of.T.data(), true, std::vector<wide>(sums, sums + w), &sizes);
    const std::vector<wide> expected = t_and_adjoint_times(of, random_vector(of), sizes);
    // The columns of V are no longer than √2, so the rounding of Vᴴ p has the size of ‖p‖.
    (void)multiplied(of.T.data(), true, std::vector<wide>(at(w), wide(length)), &sizes);
    const abft::finding found = compare_all(of, seen, expected, sizes);
    if (!passes(found)) return found;
    here_.run().seen.checked(1);
    bool alike = true;
    for (index j = 0; j < w; ++j) alike = alike && same_bits<S>(of.tau[at(j)], of.T[at(j + j * w)]);
    abft::finding differs = found;
    differs.word = abft::k_fail;
    differs.residual = std::numeric_limits<double>::quiet_NaN();
    return alike ? found : differs;
  }

  // Sends a panel along the process rows from the ranks that have its columns. A rank may compute between the two halves.
  void begin_spread(const grid_panel<S>& of) {
    const index w = of.width;
    grid_message block;
    if (of.mine && lines_.size(grid_line::row) > 1) {
      block.put(&of.seal, 1);
      block.put(&of.seal_of_t, 1);
      block.put(of.tau.data(), w);
      block.put(of.T.data(), w * w);
      block.put(matrix_view<const S>(of.V()));
    }
    lines_.begin(grid_line::row, std::span(&block, 1),
                 of.mine ? lines_.nobody(grid_line::row) : lines_.only(grid_line::row, of.process_column));
  }
  void end_spread(grid_panel<S>& of) {
    const index w = of.width;
    std::vector<grid_reader> came = lines_.end(grid_line::row);
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
    here_.strike(site::t, {of.number, panels_, 0, 2}, column_major(of.T.data(), of.width, of.width, of.width));
  }
  std::uint64_t seal_of_t(const grid_panel<S>& of) const {
    return abft::seal_of(reals(of.T.data()), of.width * of.width * k_reals<S>, abft::seal_of(reals(of.tau.data()), of.width * k_reals<S>));
  }

 private:
  // The random x of a panel's checks.
  static std::vector<wide> random_vector(const grid_panel<S>& of) {
    std::vector<wide> x(at(of.width));
    for (index j = 0; j < of.width; ++j) x[at(j)] = random_signed(k_orthogonality_stream, static_cast<std::uint64_t>(of.first + j));
    return x;
  }
  // M v or Mᴴ v for a square matrix, in double. Adds the sizes of the terms of each element to `sizes` unless that is null.
  static std::vector<wide> multiplied(const S* M, bool transposed, const std::vector<wide>& v, std::vector<double>* sizes) {
    const index w = static_cast<index>(v.size());
    std::vector<wide> made(at(w), wide(0));
    for (index i = 0; i < w; ++i)
      for (index j = 0; j < w; ++j) {
        const wide each = transposed ? conjugate(static_cast<wide>(M[j + i * w])) : static_cast<wide>(M[i + j * w]);
        made[at(i)] += times(each, v[at(j)]);
        if (sizes != nullptr) (*sizes)[at(i)] += size_of_number(each) * size_of_number(v[at(j)]);
      }
    return made;
  }
  // (T + Tᴴ) x.
  static std::vector<wide> t_and_adjoint_times(const grid_panel<S>& of, const std::vector<wide>& x, std::vector<double>& sizes) {
    std::vector<wide> made = multiplied(of.T.data(), false, x, &sizes);
    const std::vector<wide> other = multiplied(of.T.data(), true, x, &sizes);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] += other[i];
    return made;
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

  // This rank's part of Vᴴ(V x), in double; and of ‖V x‖² where it is asked for.
  std::vector<wide> gram_times(const grid_panel<S>& of, const std::vector<wide>& x, double* squares) {
    const kernels<S>& by = host::kernels_of<S>(here_.run());
    const index w = of.width, rows = of.rows;
    std::vector<wide> minus = x, y(at(rows), wide(0)), z(at(w), wide(0));
    if (rows == 0) return z;
    for (wide& each : minus) each = -each;
    by.subtract(rows, w, of.memory.get(), rows, 1, minus.data(), w, y.data(), rows);
    by.dot(rows, w, of.memory.get(), rows, 1, y.data(), rows, z.data(), w);
    if (squares != nullptr)
      for (const wide& each : y) *squares += square_of(each);
    return z;
  }

  // For random x, in double: G x = z = Vᴴ(V x), and Tᴴ G T x = (T + Tᴴ) x, which holds if and only if I − V T Vᴴ is unitary.
  void check(const grid_panel<S>& of, const S* G, const std::vector<wide>& z, std::optional<abft::finding>& bad) {
    const index w = of.width;
    const std::vector<wide> x = random_vector(of);
    std::vector<double> sizes(at(w), 0.0);
    const std::vector<wide> Gx = multiplied(G, false, x, &sizes);
    double length = 0;
    for (index j = 0; j < w; ++j) length += size_of_number(times(z[at(j)], x[at(j)]));
    for (index j = 0; j < w; ++j) sizes[at(j)] += std::sqrt(size_of_number(G[j + j * w]) * length);
    note(of, Gx, z, sizes, bad);

    const std::vector<wide> p = multiplied(of.T.data(), false, x, nullptr);
    std::vector<double> of_g(at(w), 0.0), of_t(at(w), 0.0);
    const std::vector<wide> seen = multiplied(of.T.data(), true, multiplied(G, false, p, &of_g), nullptr);
    const std::vector<wide> expected = t_and_adjoint_times(of, x, of_t);
    for (index i = 0; i < w; ++i)
      for (index j = 0; j <= i; ++j) of_t[at(i)] += size_of_number(of.T[at(j + i * w)]) * of_g[at(j)];
    note(of, seen, expected, of_t, bad);
  }

  // Compares the element that is largest beside its threshold.
  abft::finding compare_all(const grid_panel<S>& of, const std::vector<wide>& seen, const std::vector<wide>& expected,
                            const std::vector<double>& sizes) {
    double residual = 0, threshold = 1;
    for (std::size_t i = 0; i < seen.size() && !std::isnan(residual); ++i) {
      const double each = size_of_number(seen[i] - expected[i]), limit = thresholds::orthogonality<real_of<S>>(sizes[i], k_reals<S> * m_);
      if (each * threshold <= residual * limit) continue;
      residual = each;
      threshold = limit;
    }
    return compare(here_.run(), {of.number, panels_, 0, 1}, residual, threshold, "qr.grid", of.number);
  }
  void note(const grid_panel<S>& of, const std::vector<wide>& seen, const std::vector<wide>& expected, const std::vector<double>& sizes,
            std::optional<abft::finding>& bad) {
    const abft::finding found = compare_all(of, seen, expected, sizes);
    if (!passes(found) && !bad) bad = found;
  }

  rank_call<S>& here_;
  grid_lines& lines_;
  const index m_, panels_;
  std::vector<S> own_t_;
};

}  // namespace ballast::qr
