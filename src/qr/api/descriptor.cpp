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
#include "qr/api/group_operation.hpp"
#include "qr/api/plan.hpp"
#include "qr/arithmetic/scalar.hpp"
#include "run/dispatch.hpp"

namespace ballast::qr {

using core::at;

namespace {

// One axis of a block-cyclic layout: blocks of `block` indices, the first on process `source` of `processes`.
struct cyclic_axis {
  index size = 0, block = 1;
  int processes = 1, source = 0;
  int owner(index i) const { return static_cast<int>((i / block + source) % processes); }
  // The indices that a process has, ascending.
  std::vector<index> of(int process) const {
    std::vector<index> made;
    const index first = (process - source + processes) % processes;
    for (index b = first; b * block < size; b += processes)
      for (index i = b * block; i < std::min(size, (b + 1) * block); ++i) made.push_back(i);
    return made;
  }
};

struct cyclic_layout {
  cyclic_axis rows, columns;
  process_grid grid;
  int rank_of(index i, index j) const {
    const int r = rows.owner(i), c = columns.owner(j);
    return grid.by_columns ? c * grid.rows + r : r * grid.columns + c;
  }
  std::vector<index> rows_of(int rank) const { return rows.of(grid.by_columns ? rank % grid.rows : rank / grid.columns); }
  std::vector<index> columns_of(int rank) const { return columns.of(grid.by_columns ? rank / grid.rows : rank % grid.columns); }
};

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

cyclic_layout layout_of(std::span<const int> desc, const process_grid& grid, std::size_t ranks) {
  if (desc.size() != 9) throw invalid_argument_error(fmt::format("qr: desc: expected 9 numbers, got {}", desc.size()));
  if (desc[0] != 1) throw invalid_argument_error(fmt::format("qr: desc: expected DTYPE_ 1, a dense matrix, got {}", desc[0]));
  if (grid.rows < 1 || grid.columns < 1 || static_cast<std::size_t>(grid.rows) * static_cast<std::size_t>(grid.columns) != ranks)
    throw invalid_argument_error(
        fmt::format("qr: grid: expected rows × columns of the group's {} ranks, got {} × {}", ranks, grid.rows, grid.columns));
  if (desc[2] < 1 || desc[3] < 1)
    throw invalid_argument_error(fmt::format("qr: desc: expected M_ and N_ of 1 or more, got {} and {}", desc[2], desc[3]));
  if (desc[4] < 1 || desc[5] < 1)
    throw invalid_argument_error(fmt::format("qr: desc: expected MB_ and NB_ of 1 or more, got {} and {}", desc[4], desc[5]));
  if (desc[6] < 0 || desc[6] >= grid.rows || desc[7] < 0 || desc[7] >= grid.columns)
    throw invalid_argument_error(
        fmt::format("qr: desc: expected RSRC_ below {} and CSRC_ below {}, got {} and {}", grid.rows, grid.columns, desc[6], desc[7]));
  return {{desc[2], desc[4], grid.rows, desc[6]}, {desc[3], desc[5], grid.columns, desc[7]}, grid};
}

cyclic_layout layout_of(const block_columns& of, index rows) {
  return {{rows, std::max<index>(rows, 1), 1, 0}, {of.columns, of.block, of.ranks, 0}, {1, of.ranks, false}};
}

template <class S>
matrix_view<S> local_view(std::span<S> local, std::span<const int> desc, const cyclic_layout& of, int rank) {
  const index rows = static_cast<index>(of.rows_of(rank).size()), columns = static_cast<index>(of.columns_of(rank).size());
  const index leading = desc[8];
  if (leading < std::max<index>(rows, 1))
    throw invalid_argument_error(fmt::format("qr: desc: expected LLD_ of the rank's {} rows or more, got {}", rows, leading));
  const index needed = columns == 0 || rows == 0 ? 0 : (columns - 1) * leading + rows;
  if (static_cast<index>(local.size()) < needed)
    throw invalid_argument_error(
        fmt::format("qr: local: expected {} elements or more for {} × {}, got {}", needed, rows, columns, local.size()));
  return column_major(local.data(), rows, columns, leading);
}

// One call in either direction: work(call, the layout of desc, block columns, their layout, the rank).
template <class S, class Work>
report redistribution(std::span<const int> desc, const process_grid& grid, std::int64_t block, const execution& where, const call& now,
                      const Work& work) {
  if (!where.group) throw invalid_argument_error("qr: group: expected one whose ranks have the matrix, got none");
  const std::string token = desc.size() == 9 ? to_token(problem_of<S>(desc[2], desc[3])) : "qr";
  group_operation<S> call(where, now, token, group_call::redistribute, block);
  return call.run([&] {
    const cyclic_layout given = layout_of(desc, grid, call.over().size());
    if (block < 1) throw invalid_argument_error(fmt::format("{}: block: expected 1 column or more, got {}", token, block));
    const std::vector<int> same(desc.begin() + 2, desc.begin() + 8);
    for (const auto& each : call.over().gather(std::span<const int>(same)))
      if (each != same) throw invalid_argument_error(fmt::format("{}: desc: expected the same on all ranks, but for LLD_", token));
    const int rank = static_cast<int>(call.over().place());
    const block_columns own{given.columns.size, block, static_cast<int>(call.over().size()), rank};
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
      [&](group_operation<S>& call, const cyclic_layout& given, const block_columns& own, const cyclic_layout& divided, int rank) {
        if (columns.rows != given.rows.size || columns.columns != own.count())
          throw invalid_argument_error(fmt::format("qr: columns: expected {} × {} on rank {}, got {} × {}", given.rows.size, own.count(),
                                                   rank, columns.rows, columns.columns));
        const part<matrix_view<const S>> from(divided, rank, columns);
        const part<matrix_view<S>> to(given, rank, local_view(local, desc, given, rank));
        call.attempt("qr.layout", [&](int) { return std::optional(redistribute<S>(call, from, to)); });
      });
}

}  // namespace

inline namespace abi_1 {

#define BALLAST_DEFINE(S)                                                                                                         \
  computed<S> to_block_columns(std::span<const S> local, std::span<const int> desc, const process_grid& grid, std::int64_t block, \
                               const execution& where, const call& now) {                                                         \
    return import_of<S>(local, desc, grid, block, where, now);                                                                    \
  }                                                                                                                               \
  report from_block_columns(matrix_view<const S> columns, std::int64_t block, std::span<S> local, std::span<const int> desc,      \
                            const process_grid& grid, const execution& where, const call& now) {                                  \
    return export_of<S>(columns, block, local, desc, grid, where, now);                                                           \
  }
BALLAST_DEFINE(float)
BALLAST_DEFINE(double)
BALLAST_DEFINE(std::complex<float>)
BALLAST_DEFINE(std::complex<double>)
#undef BALLAST_DEFINE

}  // namespace abi_1
}  // namespace ballast::qr
