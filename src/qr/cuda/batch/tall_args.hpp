// The arguments of the kernels for batches of matrices of any number of rows, and their policy.
// Layer: backend "cuda" of QR, shared by host and kernels. Plain structs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qr/cuda/batch/batch_args.hpp"

namespace ballast::qr::cuda {

// A thread block works on one matrix, or on some columns of one. The tile is in shared memory where it fits, else in a slab of the
// workspace, which each block has for itself.
struct tall_policy {
  int threads = 128;
  int resident = 4;  // thread blocks on a multiprocessor
};

inline constexpr int k_tall_columns = 256;        // most columns of a tile
inline constexpr int k_tall_slab_columns = 32;    // most columns of a tile to which Q is applied
inline constexpr int k_tall_columns_at_once = 2;  // columns to which a warp applies a reflector that it has loaded once

// The slabs of the tiles that do not fit into shared memory: one for each block of the launch.
struct tall_slabs {
  unsigned char* data = nullptr;  // null: tiles are in shared memory
  std::int64_t pitch = 0;
};

template <class S>
struct tall_factor_arguments {
  batch_factor_arguments<S> of = {};
  tall_slabs slabs = {};
};

// `width`: columns of X for each block, so that of.chunks blocks have a matrix.
template <class S>
struct tall_apply_arguments {
  batch_apply_arguments<S> of = {};
  tall_slabs slabs = {};
  int width = 1;
};

// The shared memory of a block, before the tile and its sums.
template <class S>
struct tall_memory {
  static constexpr int most_warps = 16;
  double weight[k_certificates][k_tall_columns];
  double factor[k_certificates][k_tall_columns];  // the weights, converted from the tile's units to those of the check
  double dot[k_tall_columns];                     // products of the current column's tail with the columns from it on
  double partial[4 * most_warps];
  double norm[4];     // ‖(w_qj 2^−e_j x_j)_j‖_F², ‖Σ_j w_qj 2^−e_j x_j‖², from the check's loads
  double rest[2];     // squares of the rests of the check's sums
  double reflectors;  // max |τ‖v‖² − 2|
  double tail[2];     // the largest element of the tail of the next column, by its parity
  std::uint64_t hash[2][most_warps];
  int exponent_of_tail[2];
  S tau[k_tall_columns];
  int shift[k_tall_columns];     // column j is computed as 2^shift_j · x
  int exponent[k_tall_columns];  // exponent of the largest element of each column, from the check's own loads
  int odd[most_warps];           // 1 if Inf or NaN was seen
  abft::attempts state;
  int how;  // an abft::outcome
};

// Bytes of the memory before the sums, and of the sums and the tile of m rows.
template <class S>
inline constexpr std::int64_t k_tall_front = (static_cast<std::int64_t>(sizeof(tall_memory<S>)) + 15) / 16 * 16;
template <class S>
constexpr std::int64_t tall_tile_bytes(std::int64_t m, std::int64_t columns) {
  return k_certificates * m * static_cast<std::int64_t>(sizeof(double)) + m * columns * static_cast<std::int64_t>(sizeof(S));
}

}  // namespace ballast::qr::cuda
