// Which tile a problem gets, and the space of tiles that the tuner searches.
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

// The paper's choice by number of clusters (Table I) where its tiles fit; or the table's, if it has one. `tuned` null: the table of the
// installation.
tile_policy choose_tile(const tile_problem& what, const ballast::cuda::capabilities& on, const tile_tuning* tuned = nullptr);

// All tiles that obey the rules (tile.hpp) and that a block of the device can hold, and that do not have more than twice the columns that
// there are clusters.
std::vector<tile_policy> tile_space(const tile_problem& what, const ballast::cuda::capabilities& on);

// Whether tiles differ in one of these alone: the block's; the warp's; depth and stages; blocks.
bool neighbours(const tile_policy& a, const tile_policy& b);

ballast::cuda::kernel_request tile_request(const tile_problem& what, const tile_policy& chosen, bool instrumented);

// The kernels around the tiles.
enum class tile_work { norms, naive, distances, minima };
ballast::cuda::kernel_request tile_work_request(tile_work what, bool f64, bool instrumented);
ballast::cuda::kernel_request tile_update_request(bool f64, int words, bool weighted, bool instrumented);

// The limit of a tile's checks, in units of what the operands' norms allow: tile_arguments::slack.
double tile_slack(const tile_problem& what);

// All that a scheme loads, for passes with sums and without.
std::vector<ballast::cuda::kernel_request> tile_kernels(const tile_problem& what, const tile_policy& chosen, int words, bool weighted,
                                                        bool instrumented);

}  // namespace ballast::kmeans::cuda
