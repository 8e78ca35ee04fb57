// ScaLAPACK's block-cyclic layout for tests, by its definition.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <vector>

#include <ballast/qr_descriptor.hpp>
#include <ballast/view.hpp>

namespace ballast::qr::on_groups {

// The definition of the layout (ScaLAPACK Users' Guide, section 4.3.2): the process row of row i, and its number there.
inline int process_of(int i, int block, int source, int processes) { return (i / block + source) % processes; }
inline int place_of(int i, int block, int processes) { return i / (block * processes) * block + i % block; }
inline int count_of(int size, int block, int source, int processes, int process) {
  int made = 0;
  for (int i = 0; i < size; ++i) made += process_of(i, block, source, processes) == process ? 1 : 0;
  return made;
}

struct example {
  process_grid grid;
  int m, n, mb, nb, row_source, column_source, extra;
  int block;
};

template <class T>
struct local_part {
  std::vector<int> desc;
  std::vector<T> values;
};

// The rank's part of A; gaps hold −7.
template <class T>
local_part<T> part_of(const example& of, const matrix<T>& A, int rank) {
  const int r = of.grid.by_columns ? rank % of.grid.rows : rank / of.grid.columns;
  const int c = of.grid.by_columns ? rank / of.grid.rows : rank % of.grid.columns;
  const int rows = count_of(of.m, of.mb, of.row_source, of.grid.rows, r);
  const int columns = count_of(of.n, of.nb, of.column_source, of.grid.columns, c);
  const int leading = std::max(rows, 1) + of.extra;
  local_part<T> made{{1, 55, of.m, of.n, of.mb, of.nb, of.row_source, of.column_source, leading},
                     std::vector<T>(static_cast<std::size_t>(leading * columns), T(-7))};
  for (int j = 0; j < of.n; ++j)
    for (int i = 0; i < of.m; ++i)
      if (process_of(i, of.mb, of.row_source, of.grid.rows) == r && process_of(j, of.nb, of.column_source, of.grid.columns) == c)
        made.values[static_cast<std::size_t>(place_of(i, of.mb, of.grid.rows) + place_of(j, of.nb, of.grid.columns) * leading)] = A(i, j);
  return made;
}

// Stores the rank's part of a matrix in its places of the whole.
template <class T>
void gather_part(const example& of, const matrix<T>& part, int rank, matrix<T>& all) {
  const int r = of.grid.by_columns ? rank % of.grid.rows : rank / of.grid.columns;
  const int c = of.grid.by_columns ? rank / of.grid.rows : rank % of.grid.columns;
  for (int j = 0; j < static_cast<int>(all.columns()); ++j)
    for (int i = 0; i < static_cast<int>(all.rows()); ++i)
      if (process_of(i, of.mb, of.row_source, of.grid.rows) == r && process_of(j, of.nb, of.column_source, of.grid.columns) == c)
        all(i, j) = part(place_of(i, of.mb, of.grid.rows), place_of(j, of.nb, of.grid.columns));
}

}  // namespace ballast::qr::on_groups
