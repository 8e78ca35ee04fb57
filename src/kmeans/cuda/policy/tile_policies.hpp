// Chooses the tile for a problem, and enumerates the space of tiles that the tuner searches.
// Layer: backend "cuda" of K-Means, host.
// Source: FT K-Means, sections III B ("Kernel Parameters") and V A, Table I.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device.hpp"
#include "kmeans/cuda/schemes/schemes.hpp"

namespace ballast::kmeans::cuda {

class tile_tuning;

struct tile_problem {
  bool f64 = false;
  std::int64_t n = 0;
  std::int64_t k = 0;
  tile_scheme scheme;
};

// Returns the paper's choice by number of clusters (Table I) if its tile can run, or the entry of the tuning table, if there is one.
// `tuned` null: the table of the installation.
tile_policy choose_tile(const tile_problem& problem, const ballast::cuda::capabilities& on, const tile_tuning* tuned = nullptr);

// Returns all tiles that obey the rules (tile.hpp), that fit into a block of the device, and whose columns are at most twice the number of
// clusters.
std::vector<tile_policy> tile_space(const tile_problem& problem, const ballast::cuda::capabilities& on);

// Returns whether tiles differ in exactly one of these: the block's tile; the warp's tile; depth and stages; blocks.
bool neighbours(const tile_policy& a, const tile_policy& b);

ballast::cuda::kernel_request tile_request(const tile_problem& problem, const tile_policy& chosen, bool instrumented);

// The kernels that run before and after the tiles.
enum class tile_work { norms, naive, distances, minima };
ballast::cuda::kernel_request tile_work_request(tile_work step, bool f64, bool instrumented);
ballast::cuda::kernel_request tile_update_request(bool f64, int words, bool weighted, bool instrumented);

// Returns the threshold of a tile's checks, relative to the norms of the operands: tile_arguments::slack.
double tile_slack(const tile_problem& problem);

// Returns all kernels that a scheme loads, for passes with and without sums.
std::vector<ballast::cuda::kernel_request> tile_kernels(const tile_problem& what, const tile_policy& chosen, int words, bool weighted,
                                                        bool instrumented);

}  // namespace ballast::kmeans::cuda
