// Rules for the kernels of a pass. See choose_policy.hpp.
#include "kmeans/cuda/policy/choose_policy.hpp"

#include <algorithm>
#include <limits>

#include "cuda/jit/expression.hpp"
#include "kmeans/cuda/layout/join.hpp"
#include "kmeans/cuda/policy/tuning.hpp"

namespace ballast::kmeans::cuda {

namespace {

constexpr std::int64_t k_most_column_bytes = 16 * 1024;  // limit for a copy of packed_centroids::columns in shared memory
constexpr int k_ring_bytes = 160 * 1024;                 // per multiprocessor
constexpr int k_row_ring_bytes = 192 * 1024;             // per multiprocessor, if rows pass through the ring, too
constexpr int k_least_slots = 4;                         // per ring
constexpr int k_ring_depth = 4;                          // k-slices per chunk
constexpr int k_spills = 320;                            // bytes that a pass may spill; f32 with two words per sum spills most
constexpr int k_most_operands = 19;                      // f64: k-slices of rows and tiles of scores, together, that 8 warps hold with few
                                                         // spills
constexpr int k_cached_row_bytes = 128 * 1024;           // rows of a block that stay in the L1 cache beside a small ring
constexpr int k_small_ring_bytes = 72 * 1024;
// f32 on Hopper: warps multiply individually if rows have at most k_few_slices k-slices and one group of at least k_few_tiles tiles holds
// all centroids.
constexpr int k_few_slices = 2, k_few_tiles = 4;
constexpr int k_stack = 512;  // bytes of stack for function calls in a pass, and in an update

std::int64_t stride_of(const pass_problem& what) { return what.f64 ? padded_features<double>(what.n) : padded_features<float>(what.n); }
int slice_of(const pass_problem& what) { return what.f64 ? k_slice<double> : k_slice<float>; }
int slices_of(const pass_problem& what) { return static_cast<int>(stride_of(what) / slice_of(what)); }

std::int64_t shared_bytes(const pass_problem& what, const pass_policy& chosen) {
  const packed_shape shape = shape_of(what, chosen);
  return what.f64 ? pass_shared_bytes<double>(chosen, shape, what.n) : pass_shared_bytes<float>(chosen, shape, what.n);
}

// Returns the largest of `most`, most / 2, … that divides `slices`.
int depth_of(int slices, int most) { return slices % most == 0 ? most : depth_of(slices, most / 2); }

std::string text_of(const pass_policy& p) {
  return ballast::cuda::policy_text(p, "ballast::kmeans::cuda::pass_policy")
      .add("unit", &pass_policy::unit, "ballast::kmeans::cuda::product_unit")
      .add("centroids", &pass_policy::centroids, "ballast::kmeans::cuda::centroid_memory")
      .add("slices", &pass_policy::slices)
      .add("tiles", &pass_policy::tiles)
      .add("depth", &pass_policy::depth)
      .add("slots", &pass_policy::slots)
      .add("rows", &pass_policy::rows)
      .add("single", &pass_policy::single)
      .add("columns", &pass_policy::columns)
      .add("warps", &pass_policy::warps)
      .add("blocks", &pass_policy::blocks)
      .add("words", &pass_policy::words)
      .add("sums", &pass_policy::sums, "ballast::kmeans::cuda::sum_memory")
      .add("weighted", &pass_policy::weighted)
      .add("check", &pass_policy::check)
      .text();
}

std::string text_of(const update_policy& p) {
  return ballast::cuda::policy_text(p, "ballast::kmeans::cuda::update_policy")
      .add("threads", &update_policy::threads)
      .add("check", &update_policy::check)
      .add("words", &update_policy::words)
      .add("weighted", &update_policy::weighted)
      .text();
}

struct section_plan {
  std::int64_t sections = 0;
  std::int64_t tiles = 0;  // per section, including its check tile: whole groups

  std::int64_t all() const { return sections * tiles; }
};
// Divides the centroids into sections. A section has up to 32 tiles before it is padded to whole groups; in f64, where every tile is
// expensive, up to 48 if that gives fewer tiles in all.
section_plan plan_sections(const pass_problem& what, bool check, int group_tiles) {
  const std::int64_t tiles = (what.k + k_tile_columns - 1) / k_tile_columns, checks = check ? 1 : 0;
  const auto parts = [](std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; };
  constexpr std::int64_t usual = 32, most = 48;
  section_plan made;
  for (std::int64_t sections = parts(tiles, usual); sections >= parts(tiles, what.f64 ? most : usual); --sections) {
    const section_plan plan{sections, parts(parts(tiles, sections) + checks, group_tiles) * group_tiles};
    if (made.sections == 0 || plan.all() < made.all()) made = plan;
  }
  return made;
}

// Returns whether packed_centroids::columns is small enough to be copied to shared memory.
bool columns_in_shared(const pass_problem& what, const pass_policy& chosen) {
  return std::int64_t{shape_of(what, chosen).tiles()} * 2 * k_tile_columns * (what.f64 ? 8 : 4) <= k_most_column_bytes;
}

bool fits(const pass_problem& what, const pass_policy& chosen, const ballast::cuda::capabilities& on) {
  return chosen.blocks * (shared_bytes(what, chosen) + 1024) <= on.shared_per_multiprocessor;
}

// Registers of a lane for one k-slice of its rows, and for the scores of one tile.
int operand_registers(const pass_problem& what) { return what.f64 ? 8 : 4; }

// Returns the k-slices of a row if they fit into registers beside the scores of `tiles` tiles; 0 if the row is read again for each group of
// tiles.
int held_slices(const pass_problem& what, bool group, int tiles) {
  const int slices = slices_of(what);
  const bool holds = what.f64 ? slices + tiles <= k_most_operands : slices <= (group ? 16 : 8);
  return holds ? slices : 0;
}

bool warpgroups(const pass_problem& what, const ballast::cuda::capabilities& on) { return on.major == 9 && !what.f64; }

// Sets the members that follow from the others. On Hopper four warps multiply f32 together. But if a tile has few products and one group
// holds all centroids, they would wait for each other longer than a warp takes to multiply by itself.
pass_policy completed(const pass_problem& what, pass_policy made, const ballast::cuda::capabilities& on) {
  const packed_shape shape = shape_of(what, made);
  made.single = shape.sections == 1 && shape.section_tiles == shape.group_tiles;
  const bool few = made.single && made.centroids == centroid_memory::shared && made.tiles >= k_few_tiles && slices_of(what) <= k_few_slices;
  made.unit = warpgroups(what, on) && !few ? product_unit::warpgroup : product_unit::warp;
  return made;
}

pass_policy by_rules(const pass_problem& what, const ballast::cuda::capabilities& on) {
  pass_policy made;
  made.words = what.words;
  made.weighted = what.weighted;
  made.check = what.check;
  const bool hopper = on.major == 9;
  const int slices = slices_of(what);
  const bool group = warpgroups(what, on);
  made.unit = group ? product_unit::warpgroup : product_unit::warp;
  const section_plan needed = plan_sections(what, what.check, 1);
  // f64: rows leave room for eight tiles, or for all.
  made.slices = held_slices(what, group, static_cast<int>(std::min<std::int64_t>(needed.tiles, 8)));
  const int most_depth = group ? 8 : 4;  // for rows that are read again
  // f32: with checks, the search state of a lane's rows takes registers, too.
  const int most = what.f64 ? std::min(hopper && !what.check ? 12 : 9, k_most_operands - made.slices)
                   : group  ? (what.check && made.slices > 8 ? 9 : 12)
                            : (made.slices > 0 ? 8 : 4);
  // Choose the largest group that wastes least. In f64, loads of packed centroids from global memory take registers.
  constexpr std::int64_t k_many = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t least = k_many;
  for (int each = std::min<int>(most, static_cast<int>(needed.tiles)); each >= 1; --each) {
    if (each == 1 && needed.tiles > 1) break;                                  // the overhead of a group exceeds the cost of a wasted tile
    if (group && made.slices > 8 && 2 * each < most && least < k_many) break;  // predicted: small groups have too much overhead, too
    const std::int64_t filled = plan_sections(what, what.check, each).all();
    if (filled * 16 < least * 15) {
      least = filled;
      made.tiles = each;
    }
  }
  made = completed(what, made, on);  // also affects shared memory
  // Registers of a lane for rows and scores; in f32 all registers, including those for the second word of a sum.
  const int operands =
      operand_registers(what) * made.tiles + (made.slices > 0 ? operand_registers(what) * made.slices : 16 * depth_of(slices, most_depth));
  const int registers = operands + (what.words == 2 ? 24 : 0) + 64;
  const auto warps_of = [](int each, int most_of_sixteen, int most_of_twelve) {
    return each <= most_of_sixteen ? 16 : each <= most_of_twelve ? 12 : 8;
  };
  // In order of preference: packed centroids and sums in shared memory, with two blocks or one; packed centroids through a ring; sums in
  // global memory.
  const auto fits_with = [&](centroid_memory centroids, sum_memory sums) {
    made.centroids = centroids;
    made.sums = sums;
    const bool ring = centroids == centroid_memory::ring;
    // Warps per multiprocessor. If 16 or 12 warps need a few spills, these cost less than the latency that the warps hide; rows that are
    // read again need registers for loads in flight more than they need warps.
    const int resident = what.f64 ? warps_of(operands, 32, centroids == centroid_memory::shared ? (what.check ? 80 : 88) : 56)
                                  : warps_of(registers, group ? 124 : 128, group && made.slices > 0 ? 176 : 168);
    // All warps of a multiprocessor share one ring, so that the packed centroids are read once for all of them; more than 12 warps would
    // wait for each other too often.
    for (const int blocks : {ring ? 1 : resident == 12 ? 3 : 2, 1}) {
      made.blocks = blocks;
      made.warps = std::min(resident, ring ? 12 : 16) / blocks;
      made.rows = can_pass_rows(made);
      made.depth = made.slices == 0 ? depth_of(slices, made.rows ? k_ring_depth : most_depth)
                   : ring           ? depth_of(slices, group && made.slices > 8 ? 8 : k_ring_depth)
                                    : made.slices;
      const bool cached = what.f64 && made.slices == 0 && pass_rows_of_block(made) * stride_of(what) * 8 <= k_cached_row_bytes;
      const auto slots = [&] {
        return (cached      ? k_small_ring_bytes
                : made.rows ? k_row_ring_bytes
                            : k_ring_bytes) /
               blocks / (what.f64 ? slot_bytes<double>(made) : slot_bytes<float>(made));
      };
      while (ring && made.depth > 1 && slots() < k_least_slots) made.depth /= 2;
      made.slots = ring ? std::clamp<int>(slots(), k_least_slots, k_most_slots) : 0;
      made.columns = columns_in_shared(what, made);
      if (fits(what, made, on)) return true;
      // Remove as few chunks as it takes to make room for the sums.
      while (ring && made.slots > k_least_slots) {
        --made.slots;
        if (fits(what, made, on)) return true;
      }
    }
    return false;
  };
  const sum_memory sums = what.sums ? sum_memory::shared : sum_memory::none;
  const centroid_memory passing = hopper ? centroid_memory::ring : centroid_memory::global;
  if (!fits_with(centroid_memory::shared, sums) && !fits_with(passing, sums) && !fits_with(centroid_memory::shared, sum_memory::global))
    fits_with(passing, sum_memory::global);
  return completed(what, made, on);
}

// Applies an entry of the tuning table to a policy; the rules decide the members that an entry does not contain.
pass_policy with_entry(const pass_problem& what, pass_policy made, const pass_form::value& entry, const ballast::cuda::capabilities& on) {
  made.centroids = entry.centroids;
  made.tiles = entry.tiles;
  made.depth = entry.depth;
  made.slots = entry.slots;
  made.warps = entry.warps;
  made.blocks = entry.blocks;
  made.sums = what.sums ? entry.sums : sum_memory::none;
  made.slices = what.f64 ? held_slices(what, false, made.tiles) : made.slices;
  made.unit = warpgroups(what, on) ? product_unit::warpgroup : product_unit::warp;
  made.rows = can_pass_rows(made);
  made.columns = columns_in_shared(what, made);
  return completed(what, made, on);
}

// Returns whether a kernel for the policy exists and a multiprocessor can hold its blocks.
bool can_run(const pass_problem& what, const pass_policy& p, const ballast::cuda::capabilities& on) {
  const bool group = p.unit == product_unit::warpgroup;
  if (p.centroids == centroid_memory::global && group) return false;
  if (p.centroids == centroid_memory::ring && (on.major < 9 || p.slots < 2 || p.slots > k_most_slots)) return false;
  if (p.centroids != centroid_memory::ring && p.slots != 0) return false;
  if (p.rows && p.slots < 3) return false;  // two chunks are multiplied together
  const bool whole = p.slices > 0 && p.centroids != centroid_memory::ring;
  if (whole ? p.depth != p.slices : slices_of(what) % p.depth != 0) return false;
  if (p.warps % team_warps(p) != 0 || p.warps > k_most_warps || pass_threads(p) > 1024 ||
      p.blocks * pass_threads(p) > on.threads_per_multiprocessor)
    return false;
  return p.tiles <= 12 && fits(what, p, on);
}

}  // namespace

pass_policy choose_pass(const pass_problem& what, const ballast::cuda::capabilities& on, const pass_tuning* tuned) {
  const pass_policy made = by_rules(what, on);
  const pass_tuning& table = tuned != nullptr ? *tuned : pass_tuning::active();
  // Tables cover the most common calls: no weights, and the default number of words of the precision.
  if (what.weighted || what.words != (what.f64 ? 2 : 1)) return made;
  const auto entry = table.find(pass_tuning::key_of(what, on.major));
  if (!entry) return made;
  const pass_policy chosen = with_entry(what, made, *entry, on);
  return can_run(what, chosen, on) ? chosen : made;
}

std::optional<pass_policy> first_pass(const pass_problem& what, const pass_policy& chosen, const ballast::cuda::capabilities& on) {
  // General passes read the centroids from global memory, and have only the forms that are in the bundle.
  if (chosen.sums != sum_memory::global || chosen.centroids != centroid_memory::shared) return std::nullopt;
  pass_policy made = chosen;
  made.sums = sum_memory::shared;
  return can_run(what, made, on) ? std::optional(made) : std::nullopt;
}

namespace {

int usual_words(bool f64) { return f64 ? 2 : 1; }

// General passes of the most common kind have more forms than the others.
bool is_common(const pass_problem& what) { return what.check && !what.weighted && what.words == usual_words(what.f64); }

}  // namespace

pass_policy general_pass(const pass_problem& what, const ballast::cuda::capabilities& on) {
  pass_policy made;
  made.words = what.words;
  made.weighted = what.weighted;
  made.check = what.check;
  const int slices = slices_of(what);
  const bool held = is_common(what) && (slices == 1 || slices == 2 || slices == 4 || slices == 8);
  const bool few = held && what.k <= k_tile_columns;  // one tile, and the check tile
  made.slices = held ? slices : 0;
  made.depth = held ? slices : 1;
  made.tiles = few ? 2 : held && slices <= (what.f64 ? 2 : 4) ? 8 : 4;  // more of them would spill
  made.warps = what.f64 ? 4 : 8;
  made.blocks = 2;
  made.sums = what.sums ? sum_memory::shared : sum_memory::none;
  // Only a common pass has a form with sums in shared memory.
  if (what.sums && !(is_common(what) && fits(what, made, on))) made.sums = sum_memory::global;
  return made;
}

std::vector<pass_problem> general_problems() {
  std::vector<pass_problem> made;
  for (const bool f64 : {false, true}) {
    const int slice = f64 ? k_slice<double> : k_slice<float>;
    for (const bool check : {true, false})
      for (const bool weighted : {false, true})
        for (int words = usual_words(f64); words <= 2; ++words) {
          const pass_problem one{f64, slice, 64, words, weighted, check, true};
          if (!is_common(one)) {
            made.push_back(one);
            continue;
          }
          for (const int slices : {1, 2, 3, 4, 8})
            for (const std::int64_t k : {8, 9, 1 << 20}) made.push_back({f64, slices * slice, k, words, weighted, check, true});
        }
  }
  return made;
}

bool worth_waiting(const pass_problem& what, std::int64_t m) {
  // A pass of its own runs at about this many products a second on an H100, a general one at less than half of it.
  const double speed = what.f64 ? 1e13 : 1e14, seconds = 3, passes = 100;
  return passes * static_cast<double>(m) * static_cast<double>(what.n) * static_cast<double>(what.k) > seconds * speed;
}

std::vector<pass_policy> pass_space(const pass_problem& what, const ballast::cuda::capabilities& on) {
  std::vector<pass_policy> made;
  const pass_policy rule = by_rules(what, on);
  const auto most = static_cast<int>(std::min<std::int64_t>(12, plan_sections(what, what.check, 1).tiles));
  for (const centroid_memory centroids : {centroid_memory::global, centroid_memory::shared, centroid_memory::ring})
    for (const sum_memory sums : {sum_memory::shared, sum_memory::global})
      for (int tiles = 1; tiles <= most; ++tiles)
        for (const int depth : {1, 2, 4, 8, slices_of(what)})
          for (const int slots : {0, 4, 8, 16, rule.slots})
            for (const int warps : {4, 8, 12, 16})
              for (const int blocks : {1, 2, 3, 4}) {
                if (warps * blocks > 16 || warps * blocks < 8) continue;
                const pass_policy one = with_entry(what, rule, {centroids, tiles, depth, slots, warps, blocks, sums}, on);
                if (depth > 8 && one.slices == 0) continue;
                if (can_run(what, one, on) && std::ranges::find(made, one) == made.end()) made.push_back(one);
              }
  return made;
}

bool neighbours(const pass_policy& a, const pass_policy& b) {
  const bool same[] = {a.tiles == b.tiles, a.centroids == b.centroids && a.depth == b.depth && a.slots == b.slots,
                       a.warps == b.warps && a.blocks == b.blocks, a.sums == b.sums};
  return std::ranges::count(same, false) == 1;
}

packed_shape shape_of(const pass_problem& what, const pass_policy& chosen) {
  const std::int64_t checks = chosen.check ? 1 : 0;
  packed_shape made;
  made.k = static_cast<int>(what.k);
  made.slices = slices_of(what);
  made.group_tiles = chosen.tiles;
  made.unit = chosen.unit;
  made.section_tiles = static_cast<int>(plan_sections(what, chosen.check, chosen.tiles).tiles);
  made.data_tiles = made.section_tiles - static_cast<int>(checks);
  const std::int64_t columns = made.section_columns();
  made.sections = static_cast<int>((what.k + columns - 1) / columns);
  return made;
}

ballast::cuda::kernel_request pass_request(const pass_problem& what, const pass_policy& chosen, bool instrumented) {
  ballast::cuda::kernel_request made;
  made.header = "kmeans/cuda/assign/pass.cuh";
  made.expression = ballast::cuda::kernel_expression("ballast::kmeans::cuda::pass_kernel", {what.f64 ? "double" : "float", text_of(chosen)},
                                                     instrumented);
  made.threads = pass_threads(chosen);
  made.shared = shared_bytes(what, chosen);
  made.blocks = chosen.blocks;
  made.overlaps = true;
  // Calls of the functions that decide queued rows and report failures cost registers around them; the loops over tiles spill little.
  made.spills = k_spills;
  made.stack = k_stack;
  return made;
}

ballast::cuda::kernel_request update_request(const pass_problem& what, bool instrumented) {
  const update_policy chosen{.check = what.check, .words = what.words, .weighted = what.weighted};
  ballast::cuda::kernel_request made;
  made.header = "kmeans/cuda/update/update.cuh";
  made.expression = ballast::cuda::kernel_expression("ballast::kmeans::cuda::update_kernel",
                                                     {what.f64 ? "double" : "float", text_of(chosen)}, instrumented);
  made.threads = chosen.threads;
  made.overlaps = true;
  made.spills = 128;
  made.stack = k_stack;
  return made;
}

namespace {
ballast::cuda::kernel_request join_request(const char* name, bool instrumented) {
  ballast::cuda::kernel_request made;
  made.header = "kmeans/cuda/update/join.cuh";
  made.expression = ballast::cuda::kernel_expression(name, {}, instrumented);
  made.threads = k_join_threads;
  made.shared = 2 * 8 * k_join_threads / 32;
  return made;
}
}  // namespace

ballast::cuda::kernel_request join_offer_request(bool instrumented) {
  return join_request("ballast::kmeans::cuda::join_offer_kernel", instrumented);
}
ballast::cuda::kernel_request join_add_request(bool instrumented) {
  return join_request("ballast::kmeans::cuda::join_add_kernel", instrumented);
}

void allow_strikes(std::vector<ballast::cuda::kernel_request>& kernels) {
  for (ballast::cuda::kernel_request& each : kernels) {
    if (each.expression.find("::device_injector") != std::string::npos) each.spills = each.stack = 4096;
  }
}

}  // namespace ballast::kmeans::cuda
