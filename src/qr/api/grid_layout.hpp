// ScaLAPACK's block-cyclic layout: which rank has an element, and where.
// Layer: algorithm, backend-free.
// Source: L. Blackford et al., ScaLAPACK Users' Guide, 1997, chapter 4.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_descriptor.hpp>

#include "core/format.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

// One axis of a block-cyclic layout: blocks of `block` indices, the first on process `source` of `processes`.
struct cyclic_axis {
  index size = 0, block = 1;
  int processes = 1, source = 0;
  int owner(index i) const { return static_cast<int>((i / block + source) % processes); }
  // The number of indices below `end` that a process has.
  index count_below(int process, index end) const {
    const index whole = end / block, first = (process - source + processes) % processes;
    const index blocks = whole > first ? (whole - first - 1) / processes + 1 : 0;
    return blocks * block + (whole % processes == first ? end % block : 0);
  }
  index count(int process) const { return count_below(process, size); }
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
    return rank_at(r, c);
  }
  int rank_at(int row, int column) const { return grid.by_columns ? column * grid.rows + row : row * grid.columns + column; }
  int row_of(int rank) const { return grid.by_columns ? rank % grid.rows : rank / grid.columns; }
  int column_of(int rank) const { return grid.by_columns ? rank / grid.rows : rank % grid.columns; }
  std::vector<index> rows_of(int rank) const { return rows.of(row_of(rank)); }
  std::vector<index> columns_of(int rank) const { return columns.of(column_of(rank)); }
};

inline cyclic_layout layout_of(std::span<const int> desc, const process_grid& grid, std::size_t ranks) {
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

// The numbers that all ranks must have alike of a descriptor that layout_of() takes, and of the grid.
inline std::vector<std::int64_t> alike_in(std::span<const int> desc, const process_grid& grid) {
  std::vector<std::int64_t> made(desc.begin() + 2, desc.begin() + 8);
  made.insert(made.end(), {grid.rows, grid.columns, grid.by_columns ? 1 : 0});
  return made;
}
inline std::string unlike_layouts(const std::string& token) {
  return token + ": desc and grid: expected the same on all ranks, but for LLD_";
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

// A rank's place in a layout.
struct grid_seat {
  cyclic_layout layout;
  int rank = 0;
  int row() const { return layout.row_of(rank); }
  int column() const { return layout.column_of(rank); }
  index rows() const { return layout.rows.count(row()); }
  index columns() const { return layout.columns.count(column()); }
  // The number of its rows, and columns, with numbers below `end` in the whole matrix.
  index rows_below(index end) const { return layout.rows.count_below(row(), end); }
  index columns_below(index end) const { return layout.columns.count_below(column(), end); }
};

}  // namespace ballast::qr
