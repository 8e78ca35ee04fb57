// Rules, space and names of the tile kernels. See tile_policies.hpp.
#include "kmeans/cuda/policy/tile_policies.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "abft/threshold.hpp"
#include "cuda/jit/expression.hpp"
#include "kmeans/cuda/policy/tuning.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::cuda {

namespace {

const char* type_of(bool f64) { return f64 ? "double" : "float"; }

std::string text_of(const tile_policy& p) {
  return ballast::cuda::policy_text(p, "ballast::kmeans::cuda::tile_policy")
      .add("unit", &tile_policy::unit, "ballast::kmeans::cuda::tile_unit")
      .add("finish", &tile_policy::finish, "ballast::kmeans::cuda::tile_finish")
      .add("check", &tile_policy::check, "ballast::kmeans::cuda::tile_check")
      .add("rows", &tile_policy::rows)
      .add("columns", &tile_policy::columns)
      .add("depth", &tile_policy::depth)
      .add("warp_rows", &tile_policy::warp_rows)
      .add("warp_columns", &tile_policy::warp_columns)
      .add("stages", &tile_policy::stages)
      .add("blocks", &tile_policy::blocks)
      .text();
}

std::int64_t shared_bytes(bool f64, const tile_policy& p) { return f64 ? tile_shared_bytes<double>(p) : tile_shared_bytes<float>(p); }
bool obeys(bool f64, const tile_policy& p) { return f64 ? obeys_rules<double>(p) : obeys_rules<float>(p); }

// Returns the part of a policy that the scheme determines.
tile_policy policy_of(const tile_problem& what) {
  tile_policy made;
  made.unit = what.scheme.unit;
  made.finish = what.scheme.finish;
  made.check = what.scheme.check;
  if (made.check == tile_check::threadblock) {
    made.stages = 2;
    made.depth = what.f64 ? k_slice<double> : k_slice<float>;
  }
  return made;
}

void set_tile(tile_policy& made, int rows, int columns, int warp_rows, int warp_columns) {
  made.rows = rows, made.columns = columns, made.warp_rows = warp_rows, made.warp_columns = warp_columns;
}

}  // namespace

tile_policy choose_tile(const tile_problem& what, const ballast::cuda::capabilities& on, const tile_tuning* tuned) {
  tile_policy made = policy_of(what);
  const bool checks = what.scheme.check != tile_check::none;
  if (what.scheme.unit == tile_unit::lanes) {
    set_tile(made, what.f64 && what.k > 32 ? 64 : 128, what.k <= 32 ? 32 : 64, 32, what.f64 ? 16 : 32);
  } else if (what.f64) {
    // Checks take registers, so a warp has half as many thread tiles as in the paper.
    const int across = checks ? 16 : 32;
    if (what.k <= 32) {
      set_tile(made, 128, 32, 32, across);  // no. 21 in the paper
    } else {
      set_tile(made, 64, 64, 32, across);  // no. 19
    }
  } else if (what.k <= 16) {
    set_tile(made, 256, 16, 64, 16);
  } else if (what.k <= 32) {
    set_tile(made, 256, 32, 64, 32);  // no. 88
  } else if (what.k <= 64) {
    set_tile(made, 128, 64, 32, 64);  // no. 69
  } else {
    set_tile(made, 64, 128, 64, 32);  // no. 83
  }
  const tile_tuning& table = tuned != nullptr ? *tuned : tile_tuning::active();
  if (const auto entry = table.find(tile_tuning::key_of(what, on.major))) {
    tile_policy chosen = entry->policy;
    chosen.unit = made.unit, chosen.finish = made.finish, chosen.check = made.check;
    if (obeys(what.f64, chosen) && shared_bytes(what.f64, chosen) <= on.shared_per_block) return chosen;
  }
  return made;
}

std::vector<tile_policy> tile_space(const tile_problem& what, const ballast::cuda::capabilities& on) {
  std::vector<tile_policy> made;
  if (what.scheme.naive) return made;
  const auto most_columns = static_cast<int>(std::min<std::int64_t>(256, 2 * std::bit_ceil(static_cast<std::uint64_t>(what.k))));
  const bool rings = what.scheme.check != tile_check::threadblock;
  tile_policy p = policy_of(what);
  for (p.rows = 32; p.rows <= 256; p.rows *= 2)
    for (p.columns = 8; p.columns <= most_columns; p.columns *= 2)
      for (p.warp_rows = k_fragment_rows; p.warp_rows <= p.rows; p.warp_rows *= 2)
        for (p.warp_columns = 8; p.warp_columns <= p.columns; p.warp_columns *= 2)
          for (const int depth : {8, 16, 32})
            for (const int stages : {2, 3, 4})
              for (const int blocks : {1, 2}) {
                if (!rings && (depth != p.depth || stages != 2)) continue;
                tile_policy one = p;
                if (rings) one.depth = depth, one.stages = stages;
                one.blocks = blocks;
                const std::int64_t shared = shared_bytes(what.f64, one);
                if (!obeys(what.f64, one) || one.warps() < 2 || shared > on.shared_per_block) continue;
                if (blocks > 1 &&
                    (blocks * one.threads() > on.threads_per_multiprocessor || blocks * (shared + 1024) > on.shared_per_multiprocessor))
                  continue;
                made.push_back(one);
              }
  return made;
}

bool neighbours(const tile_policy& a, const tile_policy& b) {
  const bool same[] = {a.rows == b.rows && a.columns == b.columns, a.warp_rows == b.warp_rows && a.warp_columns == b.warp_columns,
                       a.depth == b.depth && a.stages == b.stages, a.blocks == b.blocks};
  return std::ranges::count(same, false) == 1;
}

ballast::cuda::kernel_request tile_request(const tile_problem& what, const tile_policy& chosen, bool instrumented) {
  return {.header = "kmeans/cuda/schemes/tile.cuh",
          .expression =
              ballast::cuda::kernel_expression("ballast::kmeans::cuda::tile_kernel", {type_of(what.f64), text_of(chosen)}, instrumented),
          .threads = chosen.threads(),
          .shared = shared_bytes(what.f64, chosen),
          .blocks = chosen.blocks};
}

ballast::cuda::kernel_request tile_work_request(tile_work what, bool f64, bool instrumented) {
  static constexpr const char* names[] = {"tile_norm_kernel", "tile_naive_kernel", "tile_distances_kernel", "tile_minima_kernel"};
  return {.header = "kmeans/cuda/schemes/paper_kernels.cuh",
          .expression = ballast::cuda::kernel_expression(std::string("ballast::kmeans::cuda::") + names[static_cast<int>(what)],
                                                         {type_of(f64)}, instrumented),
          .threads = k_tile_threads};
}

ballast::cuda::kernel_request tile_update_request(bool f64, int words, bool weighted, bool instrumented) {
  return {.header = "kmeans/cuda/schemes/paper_kernels.cuh",
          .expression = ballast::cuda::kernel_expression("ballast::kmeans::cuda::tile_update_kernel",
                                                         {type_of(f64), std::to_string(words), weighted ? "true" : "false"}, instrumented),
          .threads = k_tile_threads};
}

// The rounding of sums of products, as in other checks of K-Means; times two because tensor cores truncate instead of rounding, and times
// two for the two sides of a check.
double tile_slack(const tile_problem& what) {
  return 4 * thresholds::distance(what.f64 ? abft::unit_roundoff<double> : abft::unit_roundoff<float>, what.n);
}

std::vector<ballast::cuda::kernel_request> tile_kernels(const tile_problem& what, const tile_policy& chosen, int words, bool weighted,
                                                        bool instrumented) {
  std::vector<ballast::cuda::kernel_request> made;
  if (what.scheme.naive) {
    made.push_back(tile_work_request(tile_work::naive, what.f64, instrumented));
  } else {
    made.push_back(tile_work_request(tile_work::norms, what.f64, instrumented));
    made.push_back(tile_request(what, chosen, instrumented));
    if (what.scheme.finish == tile_finish::distances) made.push_back(tile_work_request(tile_work::distances, what.f64, instrumented));
    if (what.scheme.finish == tile_finish::minima) made.push_back(tile_work_request(tile_work::minima, what.f64, instrumented));
  }
  made.push_back(tile_update_request(what.f64, words, weighted, instrumented));
  if (instrumented) allow_strikes(made);
  return made;
}

}  // namespace ballast::kmeans::cuda
