// Rules for the kernels of a pass. See choose_policy.hpp.
#include "kmeans/cuda/choose_policy.hpp"

#include <algorithm>

#include "cuda/expression.hpp"

namespace ballast::kmeans::cuda {

namespace {

constexpr int k_most_in_registers = 4;  // slabs
constexpr int k_spills = 2560;          // bytes that a pass may spill
constexpr int k_stack = 512;            // bytes of stack for its calls, and for those of an update

std::int64_t stride_of(const pass_problem& what) { return what.f64 ? padded_features<double>(what.n) : padded_features<float>(what.n); }
int slab_of(const pass_problem& what) { return what.f64 ? k_slab<double> : k_slab<float>; }

std::int64_t shared_bytes(const pass_problem& what, const pass_policy& chosen) {
  return what.f64 ? pass_shared_bytes<double>(chosen, what.k, what.n) : pass_shared_bytes<float>(chosen, what.k, what.n);
}

std::string text_of(const pass_policy& p) {
  return ballast::cuda::policy_text(p, "ballast::kmeans::cuda::pass_policy")
      .add("slabs", &pass_policy::slabs)
      .add("tiles", &pass_policy::tiles)
      .add("fragments", &pass_policy::fragments)
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

// Data tiles of a section, before they are filled up to whole groups.
std::int64_t needed_tiles(const pass_problem& what, std::int64_t& sections) {
  const std::int64_t tiles = (what.k + k_tile_columns - 1) / k_tile_columns;
  constexpr std::int64_t usual = 32;
  sections = (tiles + usual - 1) / usual;
  return (tiles + sections - 1) / sections;
}

}  // namespace

pass_policy choose_pass(const pass_problem& what, const ballast::cuda::capabilities& on) {
  pass_policy made;
  made.words = what.words;
  made.weighted = what.weighted;
  made.check = what.check;
  const auto slabs = static_cast<int>(stride_of(what) / slab_of(what));
  made.slabs = slabs <= k_most_in_registers ? slabs : 0;
  made.fragments = made.slabs > 0 ? 1 : 2;
  made.blocks = made.slabs == 1 || made.slabs == 2 ? 3 : 2;
  std::int64_t sections = 0;
  const std::int64_t tiles = needed_tiles(what, sections) + (what.check ? 1 : 0);
  // The largest group that wastes least.
  const int most = 4;
  std::int64_t least = tiles * 2;
  for (int group = std::min<int>(most, static_cast<int>(tiles)); group >= 1; --group) {
    const std::int64_t filled = (tiles + group - 1) / group * group;
    if (filled * 16 < least * 15) {
      least = filled;
      made.tiles = group;
    }
  }
  made.sums = what.sums ? sum_memory::shared : sum_memory::none;
  if (made.sums == sum_memory::shared && 2 * (shared_bytes(what, made) + 1024) > on.shared_per_multiprocessor) {
    // One block, then: with as many warps as have room for their queues.
    made.blocks = 1;
    made.warps = 16;
    if (shared_bytes(what, made) > on.shared_per_block) made.warps = 8;
    if (shared_bytes(what, made) > on.shared_per_block) {
      made.sums = sum_memory::global;
      made.blocks = 2;
    }
  }
  return made;
}

panel_shape shape_of(const pass_problem& what, const pass_policy& chosen) {
  std::int64_t sections = 0;
  const std::int64_t checks = chosen.check ? 1 : 0;
  const std::int64_t tiles = needed_tiles(what, sections) + checks;
  panel_shape made;
  made.k = static_cast<int>(what.k);
  made.slabs = static_cast<int>(stride_of(what) / slab_of(what));
  made.section_tiles = static_cast<int>((tiles + chosen.tiles - 1) / chosen.tiles * chosen.tiles);
  made.data_tiles = made.section_tiles - static_cast<int>(checks);
  const std::int64_t columns = made.section_columns();
  made.sections = static_cast<int>((what.k + columns - 1) / columns);
  return made;
}

ballast::cuda::kernel_request pass_request(const pass_problem& what, const pass_policy& chosen, bool instrumented) {
  ballast::cuda::kernel_request made;
  made.header = "kmeans/cuda/pass.cuh";
  made.expression = ballast::cuda::kernel_expression("ballast::kmeans::cuda::pass_kernel", {what.f64 ? "double" : "float", text_of(chosen)},
                                                     instrumented);
  made.threads = 32 * chosen.warps;
  made.shared = shared_bytes(what, chosen);
  made.blocks = chosen.blocks;
  // Calls of the functions for rows that wait, and for what failed, cost registers around them; the loops over tiles spill little.
  made.spills = k_spills;
  made.stack = k_stack;
  return made;
}

ballast::cuda::kernel_request update_request(const pass_problem& what, bool instrumented) {
  const update_policy chosen{.threads = 256, .check = what.check, .words = what.words, .weighted = what.weighted};
  ballast::cuda::kernel_request made;
  made.header = "kmeans/cuda/update.cuh";
  made.expression = ballast::cuda::kernel_expression("ballast::kmeans::cuda::update_kernel",
                                                     {what.f64 ? "double" : "float", text_of(chosen)}, instrumented);
  made.threads = chosen.threads;
  made.spills = 64;
  made.stack = k_stack;
  return made;
}

}  // namespace ballast::kmeans::cuda
