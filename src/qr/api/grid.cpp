// QR on a grid of the ranks of a group. See include/ballast/qr_grid.hpp.
// Layer: algorithm, over the drivers of one rank and group/session.hpp. docs/design/distributed.md, "QR on a grid".
#include <ballast/qr_grid.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "group/device_threads.hpp"
#include "qr/api/grid_work.hpp"
#include "qr/api/group_operation.hpp"
#include "qr/api/packed_rows.hpp"
#include "qr/api/substitution_check.hpp"
#include "qr/sites.hpp"

namespace ballast::qr {

namespace {

template <class S>
problem problem_on_grid(const cyclic_layout& of) {
  return {precision_of<real_of<S>>, of.rows.size, of.columns.size, 1, is_complex<S>};
}

void check_group_of_grid(const execution& where, std::string_view token) {
  if (!where.group) throw invalid_argument_error(fmt::format("{}: group: expected one whose ranks have the matrix, got none", token));
  if (wire::on_devices(where))
    throw unsupported_error(fmt::format("{}: group: expected ranks of an engine for a grid, got devices", token));
}

template <class S>
grid_factors<S> factor_grid_of(std::span<const S> local, std::span<const int> desc, const process_grid& grid, const execution& where,
                               const call& now) {
  grid_factors<S> made;
  made.where = where;
  made.grid = grid;
  const std::string token = desc.size() == 9 ? to_token(problem_of<S>(desc[2], desc[3])) : "qr";
  check_group_of_grid(where, token);
  group_operation<S> call(where, now, token, group_call::factor_grid, 0);
  made.report = call.run([&] {
    grid_seat seat;
    matrix_view<const S> A;
    const auto check = [&] {
      seat = {layout_of(desc, grid, call.over().size()), static_cast<int>(call.over().place())};
      A = local_view(local, desc, seat.layout, seat.rank);
      return alike_in(desc, grid);
    };
    call.check_together(check, unlike_layouts(token));
    std::copy(desc.begin(), desc.end(), made.desc.begin());
    made.rank = seat.rank;
    made.desc[8] = static_cast<int>(std::max<index>(A.rows, 1));
    made.storage = matrix<S>(A.rows, A.columns, order::column_major);
    made.tau.assign(at(std::min(seat.layout.rows.size, seat.layout.columns.size)), S(0));
    rank_call<S> here(call, problem_on_grid<S>(seat.layout));
    here.work([&] {
      factorization_on_grid<S> work(here, call.over(), seat, A, made.storage.view(), made.tau);
      call.attempt("qr.grid", [&](int) { return work.pass(); });
    });
  });
  return made;
}

// ---------------------------------------------------------------- The factors in a call.

template <class S>
struct grid_part {
  grid_seat seat;
  matrix_view<const S> storage;
  std::span<const S> tau;
  index m() const { return seat.layout.rows.size; }
  index n() const { return seat.layout.columns.size; }
  index steps() const { return static_cast<index>(tau.size()); }
};

template <class S>
std::string token_of(const grid_factors<S>& of) {
  return to_token(problem_of<S>(of.desc[2], of.desc[3]));
}

// The factors on the ranks of the call. Throws invalid_argument_error if they are not what factor_grid has returned.
template <class S>
grid_part<S> part_of(const grid_factors<S>& of, group_operation<S>& call) {
  const std::string token = token_of(of);
  const grid_seat seat{layout_of(of.desc, of.grid, call.over().size()), static_cast<int>(call.over().place())};
  check_tau(std::span<const S>(of.tau), std::min(seat.layout.rows.size, seat.layout.columns.size), token);
  if (of.rank != seat.rank)
    throw invalid_argument_error(fmt::format("{}: group: expected rank {} of the grid, got {}", token, of.rank, seat.rank));
  if (of.storage.rows() != seat.rows() || of.storage.columns() != seat.columns() || of.storage.order() != order::column_major)
    throw invalid_argument_error(fmt::format("{}: storage: expected {} × {} in column-major order, got {} × {}", token, seat.rows(),
                                             seat.columns(), of.storage.rows(), of.storage.columns()));
  return {seat, of.storage.view(), of.tau};
}

// Checks an operand of the rank: its rows, and as many columns as the others of the process column.
template <class S>
void check_operand(group_operation<S>& call, const grid_part<S>& of, const matrix_view<const S>& C, const char* name,
                   const std::string& token) {
  check_view(C, name, token, 0);
  if (C.rows != of.seat.rows())
    throw invalid_argument_error(fmt::format("{}: {}: expected {} rows, got {}", token, name, of.seat.rows(), C.rows));
  const auto counts = call.over().gather(std::span<const std::int64_t>(&C.columns, 1));
  for (int r = 0; r < of.seat.layout.grid.rows; ++r) {
    const std::int64_t other = counts[at(of.seat.layout.rank_at(r, of.seat.column()))].at(0);
    if (other != C.columns)
      throw invalid_argument_error(
          fmt::format("{}: {}: expected as many columns on all ranks of a process column, got {} and {}", token, name, C.columns, other));
  }
}

// ---------------------------------------------------------------- Products with Q.

// result ← op(Q) C for this rank's part of C.
template <class S>
class product_on_grid {
 public:
  // `identity`: C has the rank's columns of the identity.
  product_on_grid(rank_call<S>& here, wire::exchange& over, const grid_part<S>& of, const matrix_view<const S>& C,
                  const matrix_view<S>& result, bool transposed, bool identity)
      : here_(here),
        of_(of),
        C_(C),
        transposed_(transposed),
        identity_(identity),
        lines_(over, of.seat),
        panels_(panels_of_grid(of.seat.layout, of.steps())),
        columns_(here, lines_, of.m(), of.steps(), result, pieces(C.columns)),
        products_(here, lines_, of.m(), panels_.size()) {}

  abft::finding pass() {
    bad_ = {};
    bool odd = false;
    for (index j = 0; j < of_.storage.columns; ++j)
      for (index i = 0; i < of_.storage.rows; ++i) odd = odd || !is_finite(of_.storage(i, j));
    columns_.load(C_, odd);
    const index count = static_cast<index>(panels_.size());
    std::optional<grid_panel<S>> now;
    for (index s = -1; s < count; ++s) {
      std::optional<grid_panel<S>> next;
      if (s + 1 < count) next.emplace(stored_panel(transposed_ ? s + 1 : count - 2 - s));
      step(now, next);
      now = std::move(next);
    }
    for (index i = 0; i < columns_.pieces(); ++i) {
      if (of_.seat.rows() > 0) here_.strike(site::q, {i, columns_.pieces(), 0, 1}, columns_.block(i));
      note(columns_.judge(i, of_.seat.rows(), 0));
      note(columns_.compare_seal(i));
    }
    abft::finding found = bad_.value_or(abft::finding{});
    found.bits = columns_.bits();
    return found;
  }

 private:
  static std::vector<typename grid_columns<S>::piece> pieces(index count) {
    std::vector<typename grid_columns<S>::piece> made;
    for (index c = 0; c < count; c += k_widest_grid_panel)
      made.push_back({c, std::min(k_widest_grid_panel, count - c), static_cast<index>(made.size()), c});
    return made;
  }
  void note(const abft::finding& found) {
    if (!passes(found) && !bad_) bad_ = found;
  }

  // Applies a panel, if there is one, and brings the next one to the ranks of the process rows. One half of the columns is multiplied while
  // the products of the other are summed, and updated while those of the first are; the next panel goes while the first half is updated.
  void step(std::optional<grid_panel<S>>& now, std::optional<grid_panel<S>>& next) {
    if (!now) return spread(next, [] {});
    const index w = now->width, all = columns_.count();
    // A column e_j of the identity is not changed by the panels below its row.
    const index begin = identity_ ? std::min(of_.seat.columns_below(now->first), all) : 0, half = begin + (all - begin) / 2;
    const matrix_view<S> below = now->below(columns_.all());
    const matrix_view<S> first[] = {below.block(0, begin, now->rows, half - begin)};
    const matrix_view<S> second[] = {below.block(0, half, now->rows, all - half), now->below(columns_.checksums(0, columns_.pieces()))};
    grid_sums<S> of_first = products_.begin_join(*now, first);
    grid_sums<S> of_second(0, w * columns_of<S>(second));
    products_.multiply(*now, second, of_second.numbers());
    products_.strike_product(*now, 1, of_second.numbers(), columns_of<S>(second));
    products_.end_join(*now, of_first, bad_, columns_.is_finite());
    products_.strike(*now);
    lines_.begin(grid_line::column, of_second);
    products_.subtract(*now, transposed_, of_first.numbers() + products_.before(w), first);
    lines_.end(grid_line::column, of_second);
    spread(next, [&] { products_.subtract(*now, transposed_, of_second.numbers(), second); });
    if (here_.is_protected()) note(columns_.alike(products_.is_whole(*now), now->number));
  }
  // Sends a panel of the factors, if there is one, to the ranks that do not have its columns.
  template <class Work>
  void spread(std::optional<grid_panel<S>>& next, const Work& meanwhile) {
    if (next) products_.begin_spread(*next);
    meanwhile();
    if (next) products_.end_spread(*next);
  }
  // A panel of the factors; its numbers only on the ranks that have its columns.
  grid_panel<S> stored_panel(index k) {
    grid_panel<S> made(here_, k, of_.seat, panels_[at(k)]);
    std::copy_n(of_.tau.begin() + made.first, made.width, made.tau.begin());
    if (!made.mine) return made;
    here_.copy(of_.storage.block(made.top, of_.seat.columns_below(made.first), made.rows, made.width), made.V());
    if (made.has_top) unit_lower(made.V());
    products_.seal(made);
    return made;
  }

  rank_call<S>& here_;
  const grid_part<S>& of_;
  const matrix_view<const S> C_;
  const bool transposed_, identity_;
  grid_lines lines_;
  const std::vector<grid_piece> panels_;
  grid_columns<S> columns_;
  grid_products<S> products_;
  std::optional<abft::finding> bad_;
};

template <class S>
matrix<S> product_of(group_operation<S>& call, rank_call<S>& here, const grid_part<S>& of, bool transposed, const matrix_view<const S>& C,
                     bool identity) {
  matrix<S> made(C.rows, C.columns, order::column_major);
  product_on_grid<S> work(here, call.over(), of, C, made.view(), transposed, identity);
  call.attempt("qr.grid", [&](int) { return std::optional(work.pass()); });
  return made;
}

template <class S>
computed<S> product_on(const grid_factors<S>& of, bool transposed, matrix_view<const S> C, const call& now) {
  const std::string token = token_of(of);
  check_group_of_grid(of.where, token);
  group_operation<S> call(of.where, now, token, transposed ? group_call::apply_transposed : group_call::apply, of.desc[3]);
  computed<S> made;
  made.report = call.run([&] {
    const grid_part<S> part = part_of(of, call);
    check_operand(call, part, C, "C", token);
    const matrix<S> packed = packed_rows(C, -1);
    rank_call<S> here(call, problem_on_grid<S>(part.seat.layout));
    here.work([&] { made.values = product_of(call, here, part, transposed, packed.view(), false); });
  });
  return made;
}

template <class S>
computed<S> q_on_grid(const grid_factors<S>& of, const call& now) {
  const std::string token = token_of(of);
  check_group_of_grid(of.where, token);
  group_operation<S> call(of.where, now, token, group_call::q_columns, of.desc[3]);
  computed<S> made;
  made.report = call.run([&] {
    const grid_part<S> part = part_of(of, call);
    call.over().barrier();  // all make this call: the exchanges of lines do not compare it
    const grid_seat& seat = part.seat;
    matrix<S> identity(seat.rows(), seat.columns_below(part.steps()), order::column_major);
    for (index j = 0; j < part.steps(); ++j)
      if (seat.layout.rank_of(j, j) == seat.rank) identity(seat.rows_below(j), seat.columns_below(j)) = S(1);
    rank_call<S> here(call, problem_on_grid<S>(seat.layout));
    here.work([&] { made.values = product_of(call, here, part, false, std::as_const(identity).view(), true); });
  });
  return made;
}

// ---------------------------------------------------------------- Least squares.

// X ← R⁻¹ Y, panel by panel from the last. The rank with a triangle of R sends it, and the columns of R above it, along its process row;
// the ranks of the triangle's process row solve for their columns, and send the solution along their process column. Computed in double,
// except for the solves with the triangles.
template <class S>
class substitution_on_grid {
 public:
  using wide = wide_of<S>;
  substitution_on_grid(rank_call<S>& here, wire::exchange& over, const grid_part<S>& of, const matrix<S>& Y)
      : here_(here), of_(of), Y_(Y), lines_(over, of.seat), panels_(pieces_of(of.seat.layout, of.steps())) {}

  // Finds the first column that depends on the others; −1: there is none. The same on all ranks. With protection it looks twice, since what
  // it finds decides whether there is a result.
  abft::finding find_refused(index& refused) {
    refused = column_without_pivot();
    if (!here_.is_protected()) return {};
    here_.run().seen.checked(1);
    const index again = column_without_pivot();
    if (again == refused) return {};
    return {.word = abft::k_fail, .residual = std::numeric_limits<double>::quiet_NaN(), .index = std::max(again, refused)};
  }

  index column_without_pivot() {
    const index n = of_.n();
    std::vector<S> pivots(at(of_.storage.columns), S(0));
    std::vector<double> most(at(of_.storage.columns), 0.0);
    std::vector<index> numbers = of_.seat.layout.columns_of(of_.seat.rank);
    for (index j = 0; j < of_.storage.columns; ++j) {
      const index number = numbers[at(j)], rows = of_.seat.rows_below(number + 1);
      for (index i = 0; i < rows; ++i) most[at(j)] = std::max(most[at(j)], size_of_number(of_.storage(i, j)));
      if (of_.seat.layout.rows.owner(number) == of_.seat.row()) pivots[at(j)] = of_.storage(rows - 1, j);
    }
    if (!pivots.empty()) here_.strike(site::pivot, {}, column_major(pivots.data(), of_.storage.columns, index{1}));
    grid_message block;
    block.put(most.data(), static_cast<index>(most.size()));
    std::vector<grid_reader> came = lines_.exchange(grid_line::column, block);
    for (int p = 0; p < lines_.size(grid_line::column); ++p) {
      if (p == lines_.place(grid_line::column)) continue;
      std::vector<double> other(most.size());
      came[at(p)].take(other.data(), static_cast<index>(other.size()));
      for (std::size_t j = 0; j < most.size(); ++j) most[j] = std::max(most[j], other[j]);
    }
    index made = n;
    for (index j = 0; j < of_.storage.columns; ++j)
      if (of_.seat.layout.rows.owner(numbers[at(j)]) == of_.seat.row() &&
          size_of_number(pivots[at(j)]) <= thresholds::least_pivot<real_of<S>>(n) * most[at(j)])
        made = std::min(made, numbers[at(j)]);
    for (const std::int64_t each : here_.gather(made)) made = std::min<index>(made, each);
    return made < n ? made : -1;
  }

  abft::finding pass(matrix<S>& X) {
    const index rows = of_.seat.rows(), p = Y_.columns();
    std::vector<wide> y(at(rows * p));
    for (index j = 0; j < p; ++j)
      for (index i = 0; i < rows; ++i) y[at(i + j * rows)] = static_cast<wide>(Y_(i, j));
    for (std::size_t k = panels_.size(); k-- > 0;) step(static_cast<index>(k), X, y);
    return here_.is_protected() ? check(X) : abft::finding{};
  }

 private:
  void step(index k, matrix<S>& X, std::vector<wide>& y) {
    const grid_piece& now = panels_[at(k)];
    const auto panels = static_cast<index>(panels_.size());
    const grid_seat& seat = of_.seat;
    const index w = now.width, p = Y_.columns(), rows = seat.rows(), end = seat.rows_below(now.first + w), top = seat.rows_below(now.first);
    const int owner = seat.layout.columns.owner(now.first), solver = seat.layout.rows.owner(now.first);
    matrix<S> R(end, w, order::column_major);
    grid_message block;
    if (seat.column() == owner) {
      copy_alike<S>(of_.storage.block(0, seat.columns_below(now.first), end, w), R.view());
      for (index j = 0; j < w; ++j)
        for (index i = top + j + 1; i < end; ++i) R(i, j) = S(0);  // V lies below the diagonal
      block.put(std::as_const(R).view());
    }
    std::vector<grid_reader> came = lines_.exchange(
        grid_line::row, block, end > 0 && seat.column() != owner ? lines_.only(grid_line::row, owner) : lines_.nobody(grid_line::row));
    if (seat.column() != owner) came[at(owner)].take(R.view());
    if (end > 0) here_.strike(site::store, {k, panels, 0, 2}, R.view());

    matrix<S> x(w, p, order::column_major);
    grid_message solved;
    if (seat.row() == solver && p > 0) {
      matrix<S> right(w, p, order::column_major);
      for (index j = 0; j < p; ++j)
        for (index i = 0; i < w; ++i) right(i, j) = static_cast<S>(y[at(top + i + j * rows)]);
      solve_triangle<S>(here_.run(), here_.on(), false, std::as_const(R).view().block(top, 0, w, w), std::as_const(right).view(), x.view());
      for (index j = 0; j < p; ++j)
        for (index i = 0; i < w; ++i) X(top + i, j) = x(i, j);
      solved.put(std::as_const(x).view());
    }
    came = lines_.exchange(grid_line::column, solved,
                           p > 0 && seat.row() != solver ? lines_.only(grid_line::column, solver) : lines_.nobody(grid_line::column));
    if (p == 0) return;
    if (seat.row() != solver) came[at(solver)].take(x.view());
    here_.strike(site::store, {k, panels, 1, 2}, x.view());
    std::vector<wide> wide_x(at(w * p));
    for (index j = 0; j < p; ++j)
      for (index i = 0; i < w; ++i) wide_x[at(i + j * w)] = static_cast<wide>(x(i, j));
    if (top > 0) host::subtract_columns<S>(here_.run(), std::as_const(R).view().block(0, 0, top, w), p, wide_x.data(), w, y.data(), rows);
  }

  // Every process column sums its columns of R over its ranks, and sends the sums along the process rows.
  abft::finding check(const matrix<S>& X) {
    const grid_seat& seat = of_.seat;
    const substitution_check<S> by(of_.n(), seat.layout.rows_of(seat.rank));
    auto own = by.of_r(of_.storage, seat.layout.columns_of(seat.rank));
    lines_.sum(grid_line::column, own.values, own.sizes);
    grid_message block;
    block.put(own.values.data(), static_cast<index>(own.values.size()));
    block.put(own.sizes.data(), static_cast<index>(own.sizes.size()));
    std::vector<grid_reader> came =
        lines_.exchange(grid_line::row, block, lines_.those(grid_line::row, [&](int c) { return seat.layout.columns.count(c) > 0; }));
    auto all = by.none(of_.n());
    for (int c = 0; c < seat.layout.grid.columns; ++c) {
      const std::vector<index> numbers = seat.layout.columns.of(c);
      auto part = c == seat.column() ? own : by.none(static_cast<index>(numbers.size()));
      if (c != seat.column()) {
        came[at(c)].take(part.values.data(), static_cast<index>(numbers.size()));
        came[at(c)].take(part.sizes.data(), static_cast<index>(numbers.size()));
      }
      for (std::size_t j = 0; j < numbers.size(); ++j) {
        all.values[at(numbers[j])] = part.values[j];
        all.sizes[at(numbers[j])] = part.sizes[j];
      }
    }
    auto sums = by.of_solution(all, X.view(), Y_.view());
    lines_.sum(grid_line::column, sums.values, sums.sizes);
    return by.judge(here_, sums);
  }

  rank_call<S>& here_;
  const grid_part<S>& of_;
  const matrix<S>& Y_;
  grid_lines lines_;
  const std::vector<grid_piece> panels_;
};

template <class S>
computed<S> solution_on_grid(const grid_factors<S>& of, matrix_view<const S> B, const call& now) {
  const std::string token = token_of(of);
  check_group_of_grid(of.where, token);
  group_operation<S> call(of.where, now, token, group_call::solve, of.desc[3]);
  computed<S> made;
  index refused = -1;
  made.report = call.run([&] {
    const grid_part<S> part = part_of(of, call);
    if (part.m() < part.n())
      throw invalid_argument_error(fmt::format("{}: A: expected at least as many rows as columns for least squares", token));
    check_operand(call, part, B, "B", token);
    rank_call<S> here(call, problem_on_grid<S>(part.seat.layout));
    here.work([&] {
      const matrix<S> packed = packed_rows(B, -1);
      const matrix<S> Y = product_of(call, here, part, true, packed.view(), false);
      made.values = matrix<S>(part.seat.rows_below(part.n()), B.columns, order::column_major);
      substitution_on_grid<S> work(here, call.over(), part, Y);
      call.attempt("qr.substitution", [&](int) { return std::optional(work.find_refused(refused)); });
      if (refused < 0) call.attempt("qr.substitution", [&](int) { return std::optional(work.pass(made.values)); });
    });
  });
  if (refused >= 0)
    throw rank_deficient_error(
        fmt::format("{}: expected columns of full rank for least squares, got column {} of R without a pivot", token, refused));
  return made;
}

}  // namespace

inline namespace abi_1 {

#define BALLAST_DEFINE(S)                                                                                                            \
  grid_factors<S> factor_grid(std::span<const S> local, std::span<const int> desc, const process_grid& grid, const execution& where, \
                              const call& now) {                                                                                     \
    return prepare_call(where.group, [&] { return factor_grid_of<S>(local, desc, grid, where, now); });                              \
  }
BALLAST_DEFINE(float)
BALLAST_DEFINE(double)
BALLAST_DEFINE(std::complex<float>)
BALLAST_DEFINE(std::complex<double>)
#undef BALLAST_DEFINE

template <class T>
matrix<T> grid_factors<T>::r() const {
  const grid_seat seat{layout_of(desc, grid, static_cast<std::size_t>(grid.rows) * static_cast<std::size_t>(grid.columns)), rank};
  const std::vector<index> numbers = seat.layout.columns_of(seat.rank);
  matrix<T> made(seat.rows_below(static_cast<index>(tau.size())), storage.columns(), order::column_major);
  for (index j = 0; j < made.columns(); ++j) {
    const index end = std::min(made.rows(), seat.rows_below(numbers[at(j)] + 1));
    for (index i = 0; i < end; ++i) made(i, j) = storage(i, j);
  }
  return made;
}

template <class T>
computed<T> grid_factors<T>::q(const call& now) const {
  return prepare_call(where.group, [&] { return q_on_grid(*this, now); });
}

template <class T>
computed<T> grid_factors<T>::apply(matrix_view<const T> C, const call& now) const {
  return prepare_call(where.group, [&] { return product_on(*this, false, C, now); });
}

template <class T>
computed<T> grid_factors<T>::apply_transposed(matrix_view<const T> B, const call& now) const {
  return prepare_call(where.group, [&] { return product_on(*this, true, B, now); });
}

template <class T>
computed<T> grid_factors<T>::solve(matrix_view<const T> B, const call& now) const {
  return prepare_call(where.group, [&] { return solution_on_grid(*this, B, now); });
}

template class grid_factors<float>;
template class grid_factors<double>;
template class grid_factors<std::complex<float>>;
template class grid_factors<std::complex<double>>;

}  // namespace abi_1
}  // namespace ballast::qr
