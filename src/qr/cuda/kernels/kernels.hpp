// The kernels of QR by name.
// Layer: backend "cuda" of QR.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "qr/cuda/layout/kernel_args.hpp"

namespace ballast::qr::cuda {

// Shapes of the cluster that factors a panel: how many blocks, their threads, and the shared memory of each on such a device.
struct team {
  int blocks;
  int threads;
};
inline constexpr team k_teams[] = {{1, 128}, {4, 256}, {8, 512}, {16, 512}};
inline constexpr int k_team_count = 4;
inline constexpr team k_chain_teams[] = {{1, 128}, {4, 256}};
inline constexpr int k_chain_team_count = 2;

// Blocks of a launch that gives each thread a row of so many, or each block a tile of 32 rows and columns.
inline std::int64_t slabs(std::int64_t rows) { return (rows + k_threads - 1) / k_threads; }
inline std::int64_t tiles(std::int64_t rows, std::int64_t columns) { return (rows + 31) / 32 * ((columns + 31) / 32); }

enum class work {
  copy,
  scan,
  scan_double,
  exponents,
  diagonal,
  form_v,
  hold,
  random,
  products_128,  // over panels of at most so many columns
  products_64,
  products_32,
  fold,
  small,
  open,
  judge,
  transformed,
  encode,
  weigh,
  combine,
  norm,
  hash,
  fold_checkpoints,
  seals,
  changes,
  accept,
  taus,
  dots,
  wide_gram,
  wide_parts,
  wide_join,
  solve,
  solve_check,
  gram_128,  // of panels of at most so many columns
  gram_64,
  gram_32,
  substitute_128,
  substitute_64,
  substitute_32,
  square_factor,
  square_reflectors,
  square_t,
  narrow_product,
  turn_few,
  turn_many,
  narrow_subtract,
  // Only where kernel_names::multiplies says so:
  split,
  project,
  add_parts,
  subtract,
  subtract_deep,
  count
};

// Columns of the widest panel on such a device: the square matrices of a tall one fit into the shared memory of a block.
int widest_panel(const ballast::cuda::capabilities& on);

// For panels of at most `width` columns.
constexpr work gram_of(int width) { return width <= 32 ? work::gram_32 : width <= 64 ? work::gram_64 : work::gram_128; }
constexpr work substitute_of(int width) {
  return width <= 32 ? work::substitute_32 : width <= 64 ? work::substitute_64 : work::substitute_128;
}
constexpr work products_of(std::int64_t width) {
  return width <= 32 ? work::products_32 : width <= 64 ? work::products_64 : work::products_128;
}

// S: float or double.
template <class S>
struct kernel_names {
  using request = ballast::cuda::kernel_request;
  static request of(work what, const ballast::cuda::capabilities& on);
  static request panel(int which, const ballast::cuda::capabilities& on);  // of k_teams
  static request chain(int which);                                         // of k_chain_teams
  static request strike();
  // Whether products of floats are made by product.cuh on such a device.
  static bool multiplies(const ballast::cuda::capabilities& on);
  // Which of k_teams can run on such a device.
  static bool runs(int which, const ballast::cuda::capabilities& on);
  static bool runs_chain(int which, const ballast::cuda::capabilities& on);  // of k_chain_teams
  // All of them that can run there; the strikes of tests among them if `instrumented`.
  static std::vector<request> all(const ballast::cuda::capabilities& on, bool instrumented);
};

// Bytes of shared memory that the panel's slab and what stands in front of it may take.
std::int64_t panel_room(int which, const ballast::cuda::capabilities& on);

// The kernels of both precisions: in the bundle, and checked for registers and spills. Each once.
std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& on);

}  // namespace ballast::qr::cuda
