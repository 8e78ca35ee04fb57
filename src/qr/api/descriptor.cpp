// Redistribution between ScaLAPACK's layout and block columns. See include/ballast/qr_descriptor.hpp.
// Layer: algorithm, over group/session.hpp.
#include <ballast/qr_descriptor.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_columns.hpp>

#include "core/at.hpp"
#include "core/format.hpp"
#include "qr/api/grid_layout.hpp"
#include "qr/api/group_operation.hpp"
#include "qr/api/plan.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "run/dispatch.hpp"

namespace ballast::qr {

using core::at;

namespace {

// The sum of an element's words, each with its place in the whole matrix.
template <class S>
std::uint64_t hash_of(const S& x, index place) {
  std::uint64_t made = 0;
  for (int c = 0; c < k_reals<S>; ++c)
    made += abft::hash_term(abft::word_of(reals(&x)[c]), static_cast<std::uint64_t>(k_reals<S> * place + c));
  return made;
}

// This rank's part of a matrix in a layout.
template <class View>
struct part {
  part(const cyclic_layout& of, int rank, const View& v) : layout(of), rows(of.rows_of(rank)), columns(of.columns_of(rank)), view(v) {}
  const cyclic_layout& layout;
  const std::vector<index> rows, columns;
  const View view;
  // Calls use(element, place in the whole matrix, rank that has it in `other`), column by column.
  template <class Use>
  void each(const cyclic_layout& other, const Use& use) const {
    for (std::size_t j = 0; j < columns.size(); ++j)
      for (std::size_t i = 0; i < rows.size(); ++i)
        use(view(static_cast<index>(i), static_cast<index>(j)), rows[i] + columns[j] * layout.rows.size,
            at(other.rank_of(rows[i], columns[j])));
  }
};

// Sends every element of `from` to its rank in the layout of `to`. Returns a finding: a block whose stored words have another sum than its
// source had.
template <class S>
abft::finding redistribute(group_operation<S>& call, const part<matrix_view<const S>>& from, const part<matrix_view<S>>& to) {
  const std::size_t ranks = call.over().size();
  std::vector<std::vector<S>> blocks(ranks);
  std::vector<std::uint64_t> sums(ranks, 0), found(ranks, 0);
  from.each(to.layout, [&](const S& x, index, std::size_t rank) { blocks[rank].push_back(x); });
  from.each(to.layout, [&](const S& x, index place, std::size_t rank) { sums[rank] += hash_of(x, place); });
  std::vector<std::vector<std::byte>> messages(ranks);
  for (std::size_t p = 0; p < ranks; ++p) {
    if (blocks[p].empty()) continue;
    std::vector<std::byte> made(sizeof sums[p] + blocks[p].size() * sizeof(S));
    std::memcpy(made.data(), &sums[p], sizeof sums[p]);
    if (!blocks[p].empty()) std::memcpy(made.data() + sizeof sums[p], blocks[p].data(), blocks[p].size() * sizeof(S));
    messages[p] = std::move(made);
  }
  std::vector<bool> awaited(ranks, false);
  to.each(from.layout, [&](const S&, index, std::size_t rank) { awaited[rank] = true; });
  const std::vector<wire::bytes> came = call.over().some_to_some({messages.begin(), messages.end()}, awaited);
  std::vector<std::size_t> next(ranks, sizeof sums[0]);
  for (std::size_t p = 0; p < ranks; ++p) {
    sums[p] = 0;
    if (!awaited[p]) continue;
    if (came[p].size() < sizeof sums[p]) throw error("qr: a block of a matrix has another size than expected");
    std::memcpy(&sums[p], came[p].data(), sizeof sums[p]);
  }
  to.each(from.layout, [&](S& x, index, std::size_t rank) {
    if (next[rank] + sizeof(S) > came[rank].size()) throw error("qr: a block of a matrix has another size than expected");
    std::memcpy(&x, came[rank].data() + next[rank], sizeof(S));
    next[rank] += sizeof(S);
  });
  abft::finding judged;
  if (call.protection() == protection::off) return judged;
  to.each(from.layout, [&](const S& x, index place, std::size_t rank) { found[rank] += hash_of(x, place); });
  call.checked(ranks);
  for (std::size_t p = 0; p < ranks; ++p) {
    if (found[p] == sums[p]) continue;
    judged.word = abft::k_fail;
    judged.residual = std::numeric_limits<double>::quiet_NaN();
    judged.index = static_cast<index>(p);
  }
  return judged;
}

cyclic_layout layout_of(const block_columns& of, index rows) {
  return {{rows, std::max<index>(rows, 1), 1, 0}, {of.columns, of.block, of.ranks, 0}, {1, of.ranks, false}};
}

// One call in either direction: check(the layout of desc, block columns) throws where operands do not fit; work(call, both, the layout of
// the block columns, the rank).
template <class S, class Check, class Work>
report redistribution(std::span<const int> desc, const process_grid& grid, std::int64_t block, const execution& where, const call& now,
                      const Check& check, const Work& work) {
  if (!where.group) throw invalid_argument_error("qr: group: expected one whose ranks have the matrix, got none");
  const std::string token = desc.size() == 9 ? to_token(problem_of<S>(desc[2], desc[3])) : "qr";
  group_operation<S> call(where, now, token, group_call::redistribute, block);
  return call.run([&] {
    const int rank = static_cast<int>(call.over().place());
    cyclic_layout given;
    block_columns own;
    const auto check_all = [&] {
      given = layout_of(desc, grid, call.over().size());
      if (block < 1) throw invalid_argument_error(fmt::format("{}: block: expected 1 column or more, got {}", token, block));
      own = {given.columns.size, block, static_cast<int>(call.over().size()), rank};
      check(given, own);
      return alike_in(desc, grid);
    };
    call.check_together(check_all, unlike_layouts(token));
    report head;
    head.backend = run::host_backend();
    call.add(head);
    work(call, given, own, layout_of(own, given.rows.size), rank);
  });
}

template <class S>
computed<S> import_of(std::span<const S> local, std::span<const int> desc, const process_grid& grid, std::int64_t block,
                      const execution& where, const call& now) {
  computed<S> made;
  made.report = redistribution<S>(
      desc, grid, block, where, now,
      [&](const cyclic_layout& given, const block_columns& own) { (void)local_view(local, desc, given, own.rank); },
      [&](group_operation<S>& call, const cyclic_layout& given, const block_columns& own, const cyclic_layout& columns, int rank) {
        made.values = matrix<S>(given.rows.size, own.count(), order::column_major);
        const part<matrix_view<const S>> from(given, rank, local_view(local, desc, given, rank));
        const part<matrix_view<S>> to(columns, rank, made.values.view());
        call.attempt("qr.layout", [&](int) { return std::optional(redistribute<S>(call, from, to)); });
      });
  return made;
}

template <class S>
report export_of(matrix_view<const S> columns, std::int64_t block, std::span<S> local, std::span<const int> desc, const process_grid& grid,
                 const execution& where, const call& now) {
  return redistribution<S>(
      desc, grid, block, where, now,
      [&](const cyclic_layout& given, const block_columns& own) {
        if (columns.rows != given.rows.size || columns.columns != own.count())
          throw invalid_argument_error(fmt::format("qr: columns: expected {} × {} on rank {}, got {} × {}", given.rows.size, own.count(),
                                                   own.rank, columns.rows, columns.columns));
        (void)local_view(local, desc, given, own.rank);
      },
      [&](group_operation<S>& call, const cyclic_layout& given, const block_columns&, const cyclic_layout& divided, int rank) {
        const part<matrix_view<const S>> from(divided, rank, columns);
        const part<matrix_view<S>> to(given, rank, local_view(local, desc, given, rank));
        call.attempt("qr.layout", [&](int) { return std::optional(redistribute<S>(call, from, to)); });
      });
}

}  // namespace

inline namespace abi_1 {

layout_part part_of_layout(std::span<const int> desc, const process_grid& grid, int rank) {
  if (grid.rows < 1 || grid.columns < 1)
    throw invalid_argument_error(
        fmt::format("qr: grid: expected 1 row or more and 1 column or more, got {} × {}", grid.rows, grid.columns));
  const std::int64_t ranks = static_cast<std::int64_t>(grid.rows) * grid.columns;
  if (rank < 0 || rank >= ranks) throw invalid_argument_error(fmt::format("qr: rank: expected 0 to {}, got {}", ranks - 1, rank));
  const cyclic_layout of = layout_of(desc, grid, static_cast<std::size_t>(ranks));
  const auto part = [](const cyclic_axis& axis, int process) {
    return block_columns{axis.size, axis.block, axis.processes, (process - axis.source + axis.processes) % axis.processes};
  };
  return {part(of.rows, of.row_of(rank)), part(of.columns, of.column_of(rank))};
}

#define BALLAST_DEFINE(S)                                                                                                         \
  computed<S> to_block_columns(std::span<const S> local, std::span<const int> desc, const process_grid& grid, std::int64_t block, \
                               const execution& where, const call& now) {                                                         \
    return prepare_call(where.group, [&] { return import_of<S>(local, desc, grid, block, where, now); });                         \
  }                                                                                                                               \
  report from_block_columns(matrix_view<const S> columns, std::int64_t block, std::span<S> local, std::span<const int> desc,      \
                            const process_grid& grid, const execution& where, const call& now) {                                  \
    return prepare_call(where.group, [&] { return export_of<S>(columns, block, local, desc, grid, where, now); });                \
  }
BALLAST_DEFINE(float)
BALLAST_DEFINE(double)
BALLAST_DEFINE(std::complex<float>)
BALLAST_DEFINE(std::complex<double>)
#undef BALLAST_DEFINE

}  // namespace abi_1
}  // namespace ballast::qr
