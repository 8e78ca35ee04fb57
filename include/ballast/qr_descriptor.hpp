// Matrices in ScaLAPACK's layout, taken to the block columns of qr_columns.hpp and back.
// Layer: interface; implemented in src/qr/api/descriptor.cpp. docs/distributed.md shows its use.
// Source: L. Blackford et al., ScaLAPACK Users' Guide, 1997, chapter 4 (array descriptors and the block-cyclic layout).
#pragma once

#include <complex>
#include <cstdint>
#include <span>

#include <ballast/execution.hpp>
#include <ballast/qr.hpp>
#include <ballast/qr_columns.hpp>
#include <ballast/report.hpp>
#include <ballast/view.hpp>

namespace ballast::qr {
inline namespace abi_1 {

// A grid of processes, as BLACS makes it: rank p of the group has row p / columns and column p mod columns ("Row"), or with
// `by_columns` row p mod rows and column p / rows ("Col"). rows · columns is the number of ranks.
struct process_grid {
  int rows = 1;
  int columns = 1;
  bool by_columns = false;
};

// The rows and columns of a matrix on a grid that one rank has, each as block_columns divides columns: rows.count() × columns.count();
// rows.global(i) is the number of its row i in the whole matrix.
struct layout_part {
  block_columns rows, columns;
  // The part of the first m rows and n columns alone: that of R is leading(min(M_, N_), N_), that of Q leading(M_, min(M_, N_)).
  layout_part leading(std::int64_t m, std::int64_t n) const {
    return {{m, rows.block, rows.ranks, rows.rank}, {n, columns.block, columns.ranks, columns.rank}};
  }
};

// Returns the part of a rank of the grid, by the numbers of desc but CTXT_ and LLD_. Errors: invalid_argument_error (desc, grid, rank).
BALLAST_API layout_part part_of_layout(std::span<const int> desc, const process_grid& grid, int rank);

// The following are calls of all ranks of where.group. desc: the nine numbers DTYPE_ = 1, CTXT_ (not read), M_, N_, MB_, NB_, RSRC_, CSRC_,
// LLD_, all but LLD_ the same on all ranks. `local`: the rank's part, column by column, LLD_ apart. Every block that a rank sends has a sum
// over its words with their places in the whole matrix, read from the source by itself; the receiver compares it with the words that it has
// stored, and all ranks send again where one differs. Errors: invalid_argument_error (desc, sizes), rank_lost_error, uncorrectable_error.
// An element crosses the wire once; memory: twice the rank's parts.

// Returns this rank's block columns, M_ × block_columns::count(), as factor_columns takes them.
[[nodiscard]] BALLAST_API computed<float> to_block_columns(std::span<const float> local, std::span<const int> desc,
                                                           const process_grid& grid, std::int64_t block, const execution& where,
                                                           const call& now = {});
[[nodiscard]] BALLAST_API computed<double> to_block_columns(std::span<const double> local, std::span<const int> desc,
                                                            const process_grid& grid, std::int64_t block, const execution& where,
                                                            const call& now = {});
[[nodiscard]] BALLAST_API computed<std::complex<float>> to_block_columns(std::span<const std::complex<float>> local,
                                                                         std::span<const int> desc, const process_grid& grid,
                                                                         std::int64_t block, const execution& where, const call& now = {});
[[nodiscard]] BALLAST_API computed<std::complex<double>> to_block_columns(std::span<const std::complex<double>> local,
                                                                          std::span<const int> desc, const process_grid& grid,
                                                                          std::int64_t block, const execution& where, const call& now = {});

// Stores block columns in ScaLAPACK's layout, such as column_factors::storage, which pdormqr then takes with the rank's taus.
BALLAST_API report from_block_columns(matrix_view<const float> columns, std::int64_t block, std::span<float> local,
                                      std::span<const int> desc, const process_grid& grid, const execution& where, const call& now = {});
BALLAST_API report from_block_columns(matrix_view<const double> columns, std::int64_t block, std::span<double> local,
                                      std::span<const int> desc, const process_grid& grid, const execution& where, const call& now = {});
BALLAST_API report from_block_columns(matrix_view<const std::complex<float>> columns, std::int64_t block,
                                      std::span<std::complex<float>> local, std::span<const int> desc, const process_grid& grid,
                                      const execution& where, const call& now = {});
BALLAST_API report from_block_columns(matrix_view<const std::complex<double>> columns, std::int64_t block,
                                      std::span<std::complex<double>> local, std::span<const int> desc, const process_grid& grid,
                                      const execution& where, const call& now = {});

}  // namespace abi_1
}  // namespace ballast::qr
