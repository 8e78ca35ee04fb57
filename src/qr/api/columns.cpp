// QR of block columns on the ranks of a group. See include/ballast/qr_columns.hpp.
// Layer: algorithm, over the drivers of one rank and group/session.hpp. docs/design/distributed.md, "QR of columns".
#include <ballast/qr_columns.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "group/device_threads.hpp"
#include "qr/api/columns.hpp"
#include "qr/api/columns_work.hpp"
#include "qr/api/device_columns.hpp"
#include "qr/api/group_operation.hpp"
#include "qr/api/packed_rows.hpp"
#include "qr/api/substitution_check.hpp"
#include "qr/host/columns.hpp"
#include "qr/sites.hpp"

namespace ballast::qr {

using core::at;

namespace {

void check_group_of_ranks(const execution& where, std::string_view token) {
  if (!where.group) throw invalid_argument_error(fmt::format("{}: group: expected one whose ranks have the columns, got none", token));
}

template <class S>
column_factors<S> factor_columns_of(matrix_view<const S> A, std::int64_t block, const execution& where, const call& now) {
  if (wire::on_devices(where)) {
    if constexpr (is_complex<S>)
      throw unsupported_error("qr: A: expected real numbers on a group of devices, got complex ones");
    else
      return factor_columns_on_devices(A, block, where, now);
  }
  column_factors<S> made;
  made.where = where;
  const std::string part = to_token(problem_of<S>(A.rows, A.columns));
  check_group_of_ranks(where, part);
  group_operation<S> call(where, now, part, group_call::factor_columns, block);
  made.report = call.run([&] {
    if (block < 1 || block > k_most_block)
      throw invalid_argument_error(fmt::format("{}: block: expected 1 to {} columns, got {}", part, k_most_block, block));
    check_view(A, "A", part, 0);
    if (A.rows < 1) throw invalid_argument_error(fmt::format("{}: A: expected at least one row, got {}", part, A.rows));
    const std::int64_t shape[] = {A.rows, A.columns};
    std::int64_t n = 0;
    std::vector<std::int64_t> counts;
    for (const auto& each : call.over().gather(std::span<const std::int64_t>(shape))) {
      if (each[0] != A.rows)
        throw invalid_argument_error(fmt::format("{}: A: expected as many rows on all ranks, got {} and {}", part, A.rows, each[0]));
      counts.push_back(each[1]);
      n += each[1];
    }
    if (n < 1) throw invalid_argument_error(fmt::format("{}: A: expected at least one column on all ranks, got none", part));
    const std::string token = to_token(problem_of<S>(A.rows, n));
    call.poses(token);
    made.own = {n, block, static_cast<int>(call.over().size()), 0};
    for (std::size_t p = 0; p < counts.size(); ++p) {
      made.own.rank = static_cast<int>(p);
      if (made.own.count() != counts[p])
        throw invalid_argument_error(fmt::format("{}: A: expected {} of {} columns in blocks of {} on rank {} of {}, got {}", token,
                                                 made.own.count(), n, block, p, counts.size(), counts[p]));
    }
    made.own.rank = static_cast<int>(call.over().place());
    made.storage = matrix<S>(A.rows, A.columns, order::column_major);
    made.tau.assign(at(std::min(A.rows, n)), S(0));
    rank_call<S> here(call, {precision_of<real_of<S>>, A.rows, n, 1, is_complex<S>});
    here.work([&] {
      factorization_of_columns<S> work(
          here, A.rows, made.own,
          [&](index i) { return A.block(0, i * block, A.rows, std::min<index>(block, made.own.count() - i * block)); }, made.tau);
      work.store_to(made.storage.view());
      call.attempt("qr.columns", [&](int) { return work.pass(); });
    });
  });
  return made;
}

// ---------------------------------------------------------------- Products with Q.

template <class S>
void check_factors(const column_factors<S>& of) {
  const std::string token = to_token(problem_of<S>(of.storage.rows(), of.own.columns));
  check_group_of_ranks(of.where, token);
  check_tau(std::span<const S>(of.tau), std::min(of.storage.rows(), of.own.columns), token);
  if (of.storage.columns() != of.own.count() || of.storage.order() != order::column_major)
    throw invalid_argument_error(
        fmt::format("{}: storage: expected {} columns in column-major order, got {}", token, of.own.count(), of.storage.columns()));
}

template <class S>
column_part<S> part_of(const column_factors<S>& of) {
  return {of.own, of.storage.view(), of.tau};
}

template <class S>
computed<S> product(const column_factors<S>& of, bool transposed, matrix_view<const S> C, const call& now) {
  check_factors(of);
  const index m = of.storage.rows();
  const problem size{precision_of<real_of<S>>, m, of.own.columns, 1, is_complex<S>};
  group_operation<S> call(of.where, now, to_token(size), transposed ? group_call::apply_transposed : group_call::apply, of.own.columns);
  computed<S> made;
  made.report = call.run([&] {
    check_view(C, "C", to_token(size), 0);
    if (C.rows != m) throw invalid_argument_error(fmt::format("{}: C: expected {} rows, got {}", to_token(size), m, C.rows));
    made.values = packed_rows(C, -1);
    rank_call<S> here(call, size);
    here.check_ranks(of.own);
    here.work([&] { apply_panels(here, part_of(of), transposed, made.values.view(), nullptr); });
  });
  return made;
}

template <class S>
computed<S> columns_of_q(const column_factors<S>& of, const call& now) {
  check_factors(of);
  const index m = of.storage.rows();
  const problem size{precision_of<real_of<S>>, m, of.own.columns, 1, is_complex<S>};
  const block_columns mine = of.q_columns();
  group_operation<S> call(of.where, now, to_token(size), group_call::q_columns, of.own.columns);
  computed<S> made;
  made.report = call.run([&] {
    made.values = matrix<S>(m, mine.count(), order::column_major);
    for (index j = 0; j < mine.count(); ++j) made.values(mine.global(j), j) = 1;
    rank_call<S> here(call, size);
    here.check_ranks(of.own);
    here.work([&] { apply_panels(here, part_of(of), false, made.values.view(), &mine); });
  });
  return made;
}

// ---------------------------------------------------------------- Least squares.

// X ← R⁻¹ Y on this rank's columns, with R's block columns from their owners, the last first. Computed in double, except for the solves
// with the diagonal blocks.
template <class S>
class back_substitution {
 public:
  using wide = wide_of<S>;
  back_substitution(rank_call<S>& here, wire::exchange& over, const column_factors<S>& of, const matrix<S>& Y)
      : here_(here), over_(over), of_(of), Y_(Y), rows_(at(of.own.columns)) {
    std::iota(rows_.begin(), rows_.end(), index{0});
  }

  abft::finding pass(matrix<S>& X) {
    const index n = of_.own.columns, p = Y_.columns(), block = of_.own.block, panels = panels_of(n, block);
    std::vector<wide> y(at(n * p));
    for (index j = 0; j < p; ++j)
      for (index i = 0; i < n; ++i) y[at(i + j * n)] = static_cast<wide>(Y_(i, j));
    refused_ = -1;
    unlike_ = -1;
    send(panels - 1);
    for (index k = panels - 1; k >= 0; --k) {
      const index top = k * block, width = std::min(block, n - top);
      matrix_message<S> R = here_.take_matrix(static_cast<int>(k % of_.own.ranks), top + width, width);
      if (k > 0) send(k - 1);
      if (here_.is_protected() && without_pivot(R.view(), top) != R.refused) unlike_ = k;
      if (R.refused >= 0) refused_ = R.refused;  // all messages are taken before the call ends, so that all ranks see it
      here_.strike(site::store, {k, panels, 0, 1}, column_major(R.values.data(), R.rows, R.columns));
      if (p == 0 || refused_ >= 0) continue;
      solve_block(R.view(), top, width, y, X);
      std::vector<wide> x(at(width * p));
      for (index j = 0; j < p; ++j)
        for (index i = 0; i < width; ++i) x[at(i + j * width)] = static_cast<wide>(X(top + i, j));
      if (top > 0) host::subtract_columns<S>(here_.run(), R.view().block(0, 0, top, width), p, x.data(), width, y.data(), n);
    }
    if (!here_.is_protected()) return {};
    here_.run().seen.checked(at(panels));
    const abft::finding found = refused_ >= 0 ? abft::finding{} : check(X);
    if (unlike_ >= 0) return {.word = abft::k_fail, .residual = std::numeric_limits<double>::quiet_NaN(), .index = unlike_};
    return found;
  }
  // A column that depends on the others, as the last pass has seen; −1: there is none.
  index refused() const { return refused_; }

 private:
  void solve_block(const matrix_view<const S>& R, index top, index width, const std::vector<wide>& y, matrix<S>& X) {
    const index n = of_.own.columns, p = Y_.columns();
    matrix<S> right(width, p, order::column_major), found(width, p, order::column_major);
    for (index j = 0; j < p; ++j)
      for (index i = 0; i < width; ++i) right(i, j) = static_cast<S>(y[at(top + i + j * n)]);
    solve_triangle<S>(here_.run(), here_.on(), false, R.block(top, 0, width, width), std::as_const(right).view(), found.view());
    for (index j = 0; j < p; ++j)
      for (index i = 0; i < width; ++i) X(top + i, j) = found(i, j);
  }

  // Every rank sums its columns of R; all get the sums of all.
  abft::finding check(const matrix<S>& X) {
    const substitution_check<S> by(of_.own.columns, rows_);
    std::vector<index> columns(at(of_.own.count()));
    for (index j = 0; j < of_.own.count(); ++j) columns[at(j)] = of_.own.global(j);
    const auto own = by.of_r(of_.storage.view().block(0, 0, of_.own.columns, of_.own.count()), columns);
    auto all = by.none(of_.own.columns);
    const auto values = over_.gather(std::span<const wide>(own.values));
    const auto sizes = over_.gather(std::span<const double>(own.sizes));
    for (int rank = 0; rank < of_.own.ranks; ++rank) {
      const block_columns part{of_.own.columns, of_.own.block, of_.own.ranks, rank};
      for (index j = 0; j < part.count(); ++j) {
        all.values[at(part.global(j))] = values[at(rank)].at(at(j));
        all.sizes[at(part.global(j))] = sizes[at(rank)].at(at(j));
      }
    }
    return by.judge(here_, by.of_solution(all, X.view(), Y_.view().block(0, 0, of_.own.columns, Y_.columns())));
  }

  void send(index k) {
    if (k % of_.own.ranks != of_.own.rank) return here_.send_matrix({}, -1);
    const index block = of_.own.block, top = k * block, width = std::min(block, of_.own.columns - top);
    const matrix_view<const S> R = of_.storage.view().block(0, k / of_.own.ranks * block, top + width, width);
    std::vector<S> pivots(at(width));
    for (index l = 0; l < width; ++l) pivots[at(l)] = R(top + l, l);
    here_.strike(site::pivot, {k, panels_of(of_.own.columns, block), 0, 1}, column_major(pivots.data(), width, index{1}));
    here_.send_matrix(R, without_pivot(R, top, pivots));
  }

  // Returns the first column of a block column of R without a pivot, −1 if all have one. The owner looks, and every rank that has got the
  // block compares. `pivots`: those that the owner has read.
  index without_pivot(const matrix_view<const S>& R, index top, std::span<const S> pivots = {}) const {
    index refused = -1;
    for (index l = R.columns - 1; l >= 0; --l) {
      double most = 0;
      for (index i = 0; i <= top + l; ++i) most = std::max(most, size_of_number(R(i, l)));
      const double pivot = size_of_number(pivots.empty() ? R(top + l, l) : pivots[at(l)]);
      if (pivot <= thresholds::least_pivot<real_of<S>>(of_.own.columns) * most) refused = top + l;
    }
    return refused;
  }

  rank_call<S>& here_;
  wire::exchange& over_;
  const column_factors<S>& of_;
  const matrix<S>& Y_;
  std::vector<index> rows_;
  index refused_ = -1, unlike_ = -1;  // unlike_: a block column about whose pivots this rank and its owner have found different things
};

template <class S>
computed<S> solution_of(const column_factors<S>& of, matrix_view<const S> B, const call& now) {
  check_factors(of);
  const index m = of.storage.rows(), n = of.own.columns;
  const problem size{precision_of<real_of<S>>, m, n, 1, is_complex<S>};
  group_operation<S> call(of.where, now, to_token(size), group_call::solve, n);
  computed<S> made;
  index refused = -1;
  made.report = call.run([&] {
    check_view(B, "B", to_token(size), 0);
    if (m < n)
      throw invalid_argument_error(fmt::format("{}: A: expected at least as many rows as columns for least squares", to_token(size)));
    if (B.rows != m) throw invalid_argument_error(fmt::format("{}: B: expected {} rows, got {}", to_token(size), m, B.rows));
    rank_call<S> here(call, size);
    here.check_ranks(of.own);
    here.work([&] {
      matrix<S> Y = packed_rows(B, -1);
      apply_panels(here, part_of(of), true, Y.view(), nullptr);
      made.values = matrix<S>(n, B.columns, order::column_major);
      back_substitution<S> work(here, call.over(), of, Y);
      call.attempt("qr.substitution", [&](int) { return std::optional(work.pass(made.values)); });
      refused = work.refused();
    });
  });
  if (refused >= 0)
    throw rank_deficient_error(
        fmt::format("{}: expected columns of full rank for least squares, got column {} of R without a pivot", to_token(size), refused));
  return made;
}

}  // namespace

inline namespace abi_1 {

#define BALLAST_DEFINE(S)                                                                                                 \
  column_factors<S> factor_columns(matrix_view<const S> A, std::int64_t block, const execution& where, const call& now) { \
    return prepare_call(where.group, [&] { return factor_columns_of<S>(A, block, where, now); });                         \
  }
BALLAST_DEFINE(float)
BALLAST_DEFINE(double)
BALLAST_DEFINE(std::complex<float>)
BALLAST_DEFINE(std::complex<double>)
#undef BALLAST_DEFINE

template <class T>
matrix<T> column_factors<T>::r() const {
  if constexpr (!is_complex<T>)
    if (!devices.empty()) return r_of_devices(*this);
  matrix<T> made(std::min(storage.rows(), own.columns), storage.columns(), order::column_major);
  for (index j = 0; j < made.columns(); ++j) {
    const index end = std::min(made.rows(), own.global(j) + 1);
    for (index i = 0; i < end; ++i) made(i, j) = storage(i, j);
  }
  return made;
}

template <class T>
block_columns column_factors<T>::q_columns() const {
  return {std::min(storage.rows(), own.columns), own.block, own.ranks, own.rank};
}

template <class T>
computed<T> column_factors<T>::q(const call& now) const {
  if constexpr (!is_complex<T>)
    if (!devices.empty()) return q_of_devices(*this, now);
  return prepare_call(where.group, [&] { return columns_of_q(*this, now); });
}

template <class T>
computed<T> column_factors<T>::apply(matrix_view<const T> C, const call& now) const {
  if constexpr (!is_complex<T>)
    if (!devices.empty()) return product_of_devices(*this, false, C, now);
  return prepare_call(where.group, [&] { return product(*this, false, C, now); });
}

template <class T>
computed<T> column_factors<T>::apply_transposed(matrix_view<const T> B, const call& now) const {
  if constexpr (!is_complex<T>)
    if (!devices.empty()) return product_of_devices(*this, true, B, now);
  return prepare_call(where.group, [&] { return product(*this, true, B, now); });
}

template <class T>
computed<T> column_factors<T>::solve(matrix_view<const T> B, const call& now) const {
  if constexpr (!is_complex<T>)
    if (!devices.empty()) return solution_of_devices(*this, B, now);
  return prepare_call(where.group, [&] { return solution_of(*this, B, now); });
}

template class column_factors<float>;
template class column_factors<double>;
template class column_factors<std::complex<float>>;
template class column_factors<std::complex<double>>;

}  // namespace abi_1
}  // namespace ballast::qr
