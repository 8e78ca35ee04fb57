// Launch parameters of QR's kernels: threads, thread blocks, tiles, and bytes of shared memory.
// Layer: backend "cuda" of QR, shared by host and kernels. Constants and functions of them.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "qr/arithmetic/number.hpp"
#include "qr/arithmetic/random.hpp"

namespace ballast::qr::cuda {

inline constexpr int k_inner = 32;       // columns that one launch of the panel kernel factors
inline constexpr int k_most_wide = 128;  // columns of the widest panel
inline constexpr int k_threads = 256;    // threads of a block of every kernel except the panel kernel
// For kernels in which several threads share a row, so that enough of its loads are in flight: rows of a block, and threads of a row.
inline constexpr int k_block_rows = 64;
inline constexpr int k_row_parts = k_threads / k_block_rows;
BALLAST_HD constexpr std::int64_t row_blocks(std::int64_t rows) { return (rows + k_block_rows - 1) / k_block_rows; }
// The rows that a block of products_kernel processes at a time; and the number of its blocks that have rows, at most `most`.
inline constexpr int k_products_rows = 128;
BALLAST_HD constexpr std::int64_t product_blocks(std::int64_t rows, std::int64_t most) {
  const std::int64_t wanted = (rows + k_products_rows - 1) / k_products_rows;
  return wanted < most ? wanted : most;
}
BALLAST_HD constexpr int product_resident(int most) { return most > 64 ? 1 : 2; }  // its thread blocks on a multiprocessor
BALLAST_HD constexpr int product_tiles(int most) { return most > 32 ? 1 : 2; }     // a warp loads eight times this many rows at once
// Thread blocks of a launch whose blocks process rows in turn: two for each multiprocessor of an H100.
inline constexpr std::int64_t k_pass_blocks = 264;
// Kernels in which each lane has its own rows, 16 bytes of each column (rows.cuh). k_rows_resident: thread blocks for each multiprocessor.
// For few rows all warps of a block share the columns of the same rows (sharing_warps). lane_block: rows that a block then processes at a
// time.
inline constexpr int k_rows_resident = 2;
template <class S>
inline constexpr int k_lane_rows = 16 / static_cast<int>(sizeof(S));
BALLAST_HD constexpr int sharing_warps(std::int64_t rows) { return rows > 65536 ? 1 : k_threads / 32; }
template <class S>
BALLAST_HD constexpr std::int64_t lane_block(int sharing) {
  return std::int64_t{k_threads} / sharing * k_lane_rows<S>;
}
// Thread blocks of transformed_kernel: at most as many as an H100 holds, which then process rows in turn.
template <class S>
BALLAST_HD constexpr std::int64_t transformed_blocks(std::int64_t rows) {
  const std::int64_t each = lane_block<S>(sharing_warps(rows)), wanted = (rows + each - 1) / each;
  return wanted < k_pass_blocks ? wanted : k_pass_blocks;
}
// For encode_kernel: the number of warps that share the columns of the same rows, chosen so that there are warps for two waves of an H100;
// and the number of its thread blocks for each block of columns.
template <class S>
constexpr int encode_sharing(std::int64_t rows, std::int64_t groups) {
  constexpr int warps = k_threads / 32;
  const std::int64_t alone = (rows + lane_block<S>(warps) - 1) / lane_block<S>(warps) * groups;
  int made = warps;
  while (made > 1 && alone * made > 2 * warps * k_pass_blocks) made /= 2;
  return made;
}
template <class S>
BALLAST_HD constexpr std::int64_t encode_blocks(std::int64_t rows, int sharing) {
  return (rows + lane_block<S>(sharing) - 1) / lane_block<S>(sharing);
}

// Bytes of shared memory before the slab of each block of a panel's cluster: panel_memory of panel.cuh, which asserts it.
template <class S>
BALLAST_HD constexpr std::int64_t panel_front(int blocks, int threads) {
  return 8 * (k_reals<S> * (std::int64_t{2} * blocks * k_inner + 5 * k_inner + k_inner * k_inner + 3) + threads / 32 + 2);
}

// --- Cholesky QR panels (cholesky_qr.cuh, small_factor.cuh).

inline constexpr int k_small_factor_threads = 512;  // threads of a block of the small-factor kernels (small_factor.cuh)
inline constexpr int k_small_t_blocks = 4;          // thread blocks of the kernel that computes T
inline constexpr int k_small_factor_tile = 8;       // rows and columns of a tile
// Stride of the rows, or columns, of tiles that lie side by side: free of bank conflicts.
inline constexpr int k_small_factor_stride = 12;
inline constexpr int k_small_factor_samples = 8;  // random columns that are eliminated along with a Gram matrix
// Shared memory of those kernels: a matrix, and either the samples and two inverses of a tile, or the inverses of a row's tiles and eight
// rows.
BALLAST_HD constexpr std::int64_t small_factor_bytes(int width) {
  const int samples = k_small_factor_samples * (width + 4) + 2 * k_small_factor_tile * k_small_factor_stride;
  const int rows = width / k_small_factor_tile * (k_small_factor_tile * (k_small_factor_tile + 1) / 2) + width * k_small_factor_stride;
  return std::int64_t{8} * (width * (width + 4) + (rows > samples ? rows : samples));
}

// Position of element (i, l), i ≤ l, of an upper triangular matrix packed by columns. packed(0, w) is the size of w columns.
BALLAST_HD constexpr int packed(int i, int l) { return l * (l + 1) / 2 + i; }

// For kernels of at most 32, 64 or 128 columns: threads of a block, thread blocks for each multiprocessor, rows of reals that a warp of
// gram_kernel processes at a time, and bytes of shared memory. Substitution counts columns of reals.
constexpr int most_columns(int width) { return width <= 32 ? 32 : width <= 64 ? 64 : k_most_wide; }
inline constexpr int k_gram_threads = 128, k_staged_gram_threads = 256;
BALLAST_HD constexpr int gram_resident(int most) { return most == 32 ? 3 : most == 64 ? 2 : 1; }
BALLAST_HD constexpr int gram_step(int most) { return most == 32 ? 16 : 8; }
BALLAST_HD constexpr int substitute_threads(int most) { return most == k_most_wide ? 256 : 128; }
BALLAST_HD constexpr int substitute_resident(int most) { return most == 32 ? 4 : most == 64 ? 3 : 1; }
BALLAST_HD constexpr std::int64_t substitute_bytes(int most) { return std::int64_t{8} * 64 * (most / 8 * (most / 8 + 3) / 2); }
// For staged_gram_kernel: rows that a block processes at a time; the number of such stages in shared memory, and the stride of their
// columns, which is free of bank conflicts.
inline constexpr int k_staged_rows = 32;
template <class S>
struct gram_stages {
  static constexpr int count = sizeof(real_of<S>) == 4 ? 4 : 3;
  static constexpr int stride = k_staged_rows + 8 / static_cast<int>(k_reals<S>);
  static constexpr std::int64_t bytes = std::int64_t{count} * (k_most_wide / k_reals<S>)*stride * static_cast<std::int64_t>(sizeof(S));
};
// Returns whether staged_gram_kernel multiplies so many columns.
template <class S>
constexpr bool is_staged_gram(int width) {
  return width > k_most_wide / 2 / k_reals<S>;
}
// Thread blocks of a launch: at most as many as an H100 holds, which then process rows in turn.
template <class S>
constexpr std::int64_t gram_blocks(int width, std::int64_t rows) {
  const int most = most_columns(width);
  const bool staged = is_staged_gram<S>(width);
  // Two warps share rows of complex numbers, which count as two rows of reals each.
  const std::int64_t each = staged ? k_staged_rows : k_gram_threads / 32 * gram_step(most) / (k_reals<S> * k_reals<S>);
  const std::int64_t wanted = (rows + each - 1) / each, resident = k_pass_blocks / 2 * (staged ? 1 : gram_resident(most));
  return wanted < resident ? wanted : resident;
}
constexpr std::int64_t substitute_blocks(int width, std::int64_t rows) {
  const std::int64_t wanted = (rows + 15) / 16, resident = k_pass_blocks / 2 * substitute_resident(most_columns(width));
  return wanted < resident ? wanted : resident;
}

// Index of tile (i, j) among the tiles on and above the diagonal.
BALLAST_HD constexpr int upper_tile(int strips, int i, int j) { return i * strips - i * (i - 1) / 2 + j - i; }

// --- Products with few columns (narrow.cuh).

inline constexpr int k_narrow_columns = 128;  // the most columns
inline constexpr int k_narrow_across = 32;    // columns for each thread block that computes VᵀC
inline constexpr int k_narrow_rows = 64;      // the fewest rows of a chunk
inline constexpr int k_narrow_chunks = 64;    // the most chunks
inline constexpr int k_subtract_across = 16;  // columns for each thread block that computes C − V W
inline constexpr int k_apply_t_few = 8;       // columns of a thread block if VᵀC comes in chunks
inline constexpr int k_apply_t_many = 32;     // and if VᵀC comes complete

// --- Products of floats on tensor cores (product.cuh).

inline constexpr int k_side = 128;                    // reflectors or rows of V that lie side by side in an image
inline constexpr int k_depth = 32;                    // elements of each of them in a chunk
inline constexpr int k_chunk = 2 * k_side * k_depth;  // floats of a chunk: the upper parts, then the lower parts
inline constexpr int k_ring_stages = 6;
inline constexpr std::int64_t k_ring_bytes = 4 * k_ring_stages * k_chunk + 16 * k_ring_stages;
inline constexpr std::int64_t k_subtract_bytes = 4 * (k_side / k_depth) * k_chunk + 8;

// The chunks of V's images. A chunk for W = VᵀC has k_depth rows of k_side reflectors; the chunks of the first k_side reflectors come
// first, from top to bottom. A chunk for C − V W has k_depth reflectors of k_side rows; the chunks of the first k_side rows come first,
// from left to right.
struct split_shape {
  // Strips of k_side rows; groups of k_depth reflectors.
  std::int64_t strips, across;
  std::int64_t chunks_down;  // groups of k_depth rows, for complete strips
  std::int64_t rows, width;
  BALLAST_HD constexpr split_shape(std::int64_t rows_, std::int64_t width_)
      : strips((rows_ + k_side - 1) / k_side),
        across((width_ + k_depth - 1) / k_depth),
        chunks_down(strips * (k_side / k_depth)),
        rows(rows_),
        width(width_) {}
  BALLAST_HD constexpr std::int64_t tiles() const { return (width + k_side - 1) / k_side; }
  BALLAST_HD constexpr std::int64_t chunks() const { return (rows + k_depth - 1) / k_depth; }
  // Floats of an image.
  constexpr std::int64_t by_rows() const { return tiles() * chunks_down * k_chunk; }
  constexpr std::int64_t by_columns() const { return strips * across * k_chunk; }
};

// --- Applications of Q (apply.cuh).

inline constexpr int k_wide_most = 512;  // reflectors of the widest block
// The same for complex numbers, of which a strip of half as many rows fits into static shared memory.
template <class S>
inline constexpr int wide_most = is_complex<S> ? k_wide_most / 2 : k_wide_most;
inline constexpr int k_wide_tile = 64;   // rows and columns of VᵀV that one thread block computes
inline constexpr int k_wide_strip = 16;  // columns of T that one thread block joins
BALLAST_HD constexpr int wide_tiles(int width) { return (width + k_wide_tile - 1) / k_wide_tile; }
// Pairs of halves that are joined; the second half may have fewer columns than the first.
BALLAST_HD constexpr int wide_pairs(int width, int half) { return (width + half - 1) / (2 * half); }
inline constexpr int k_dot_columns = 4;
inline constexpr int k_dot_rows = 1024;   // the least rows of a chunk of several
inline constexpr int k_chain_sums = 896;  // sums of a group of reflectors
// Bytes of shared memory of chain_kernel.
BALLAST_HD constexpr std::int64_t chain_bytes(int threads) { return 8 * ((3 + threads / 32) * k_chain_sums + k_inner * k_vectors); }
inline constexpr int k_complex_chain_threads = 512;
inline constexpr int k_tall_chain_threads = 128;
BALLAST_HD constexpr std::int64_t tall_chain_bytes() { return 8 * ((1 + k_tall_chain_threads / 32) * k_chain_sums + k_inner * k_vectors); }

}  // namespace ballast::qr::cuda
