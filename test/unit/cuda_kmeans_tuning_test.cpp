// The tuning tables of K-Means: their text, what a line of them does, and the spaces that are searched.
#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "cuda/device/occupancy.hpp"
#include "cuda/jit/jit.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/policy/tuning.hpp"

namespace ballast::kmeans::cuda {
namespace {

using testing::HasSubstr;

ballast::cuda::capabilities hopper() { return ballast::cuda::typical_capabilities("sm_90a"); }

TEST(cuda_kmeans_tuning, comes_back_as_it_was_written) {
  const std::string passes =
      "kmeans sm_80 f64 16 64 unchecked global 4 2 0 8 2 global 1\n"
      "kmeans sm_90 f32 64 1000 checked ring 9 4 8 8 2 shared 1.08\n";
  const std::string tiles =
      "kmeans_tile sm_90 f32 128 128 tensor 64 128 16 64 32 3 2 1.2\n"
      "kmeans_tile sm_90 f64 8 32 threadblock_checksum 128 32 8 32 32 2 1 1.02\n";
  const auto text = "# both\nfft sm_90 x\n" + tiles + passes;
  EXPECT_EQ(pass_tuning::parse(text).to_text(), passes);
  EXPECT_EQ(tile_tuning::parse(text).to_text(), tiles);
  for (const char* wrong :
       {"kmeans sm_90 f16 64 64 checked shared 4 2 0 8 2 shared 1", "kmeans sm_90 f32 64 64 checked shared 4 2 0 7 2 shared 1",
        "kmeans sm_90 f32 64 64 checked nowhere 4 2 0 8 2 shared 1", "kmeans sm_90 f32 64 64 checked shared 4 2 0 8 2 none 1",
        "kmeans sm_90 f32 64 64 checked shared 4 2 0 8 2 shared", "kmeans x"})
    EXPECT_EQ(pass_tuning::parse(wrong).warnings().size(), 1u) << wrong;
  for (const char* wrong :
       {"kmeans_tile sm_90 f32 128 128 naive 64 128 16 64 32 3 2 1.2", "kmeans_tile sm_90 f32 128 128 tensor 64 96 16 64 32 3 2 1.2",
        "kmeans_tile sm_90 f32 128 128 tensor 64 128 16 64 64 3 2 1.2", "kmeans_tile sm_90 f32 128 128 tensor 64 128 16 64 32 3 2"}) {
    const auto table = tile_tuning::parse(wrong);
    EXPECT_EQ(table.warnings().size(), 1u) << wrong;
    EXPECT_EQ(table.to_text(), std::string(wrong) + "\n");
  }
  EXPECT_THAT(pass_tuning::parse("kmeans sm_90 f32 64 64 maybe").warnings()[0], HasSubstr("checked or unchecked"));
}

TEST(cuda_kmeans_tuning, an_entry_is_what_its_problem_gets) {
  pass_problem what{false, 64, 1000, 1, false, true, true};
  const pass_policy rule = choose_pass(what, hopper(), &pass_tuning::rules());
  const auto space = pass_space(what, hopper());
  ASSERT_GT(space.size(), 20u);
  const auto other = std::ranges::find_if(space, [&](const pass_policy& p) { return p != rule && p.centroids == centroid_memory::ring; });
  ASSERT_NE(other, space.end());
  pass_tuning table;
  table.set(pass_tuning::key_of(what, 9),
            {other->centroids, other->tiles, other->depth, other->slots, other->warps, other->blocks, other->sums, 1.1});
  EXPECT_EQ(choose_pass(what, hopper(), &table), *other);
  // Not another problem, nor another architecture, nor sums that have more words than it was measured with.
  what.k = 999;
  EXPECT_EQ(choose_pass(what, hopper(), &table), choose_pass(what, hopper(), &pass_tuning::rules()));
  what.k = 1000, what.words = 2;
  EXPECT_EQ(choose_pass(what, hopper(), &table), choose_pass(what, hopper(), &pass_tuning::rules()));
  what.words = 1;
  const auto ampere = ballast::cuda::typical_capabilities("sm_80");
  EXPECT_EQ(choose_pass(what, ampere, &table), choose_pass(what, ampere, &pass_tuning::rules()));
  // One that does not fit is passed over.
  table.set(pass_tuning::key_of(what, 9), {centroid_memory::ring, 12, 4, 16, 16, 1, sum_memory::shared, 1.1});
  EXPECT_EQ(choose_pass(what, hopper(), &table), rule);
}

TEST(cuda_kmeans_tuning, rows_of_f64_stay_in_registers_beside_few_tiles) {
  const pass_problem what{true, 128, 1000, 2, false, true, true};
  for (const auto& [tiles, slices] : {std::pair{3, 16}, std::pair{11, 0}}) {
    pass_tuning table;
    table.set(pass_tuning::key_of(what, 9), {centroid_memory::ring, tiles, 2, 6, 8, 1, sum_memory::global, 1.1});
    const pass_policy chosen = choose_pass(what, hopper(), &table);
    EXPECT_EQ(chosen.tiles, tiles);
    EXPECT_EQ(chosen.slices, slices);
    EXPECT_EQ(shape_of(what, chosen).tiles(), 132);
  }
}

TEST(cuda_kmeans_tuning, the_space_of_passes_has_the_rules) {
  for (const char* token : {"kmeans_f32_m131072_n8_k8", "kmeans_f32_m131072_n128_k128", "kmeans_f32_m1048576_n64_k1024",
                            "kmeans_f64_m1048576_n16_k64", "kmeans_f64_m4194304_n128_k1000", "kmeans_f32_m65536_n1024_k256"}) {
    const problem each = parse_token(token);
    const bool f64 = each.precision == precision::f64;
    const pass_problem what{f64, each.features, each.clusters, f64 ? 2 : 1, false, true, true};
    const auto space = pass_space(what, hopper());
    EXPECT_GT(space.size(), 4u) << token;
    const pass_policy rule = choose_pass(what, hopper(), &pass_tuning::rules());
    EXPECT_EQ(std::ranges::count(space, rule), 1) << token;
    EXPECT_FALSE(neighbours(rule, rule));
    const auto near = std::ranges::count_if(space, [&](const pass_policy& one) { return neighbours(rule, one); });
    EXPECT_GT(near, 1) << token;
    EXPECT_LT(near, 64) << token;
    for (const pass_policy& one : space) {
      const auto request = pass_request(what, one, false);
      EXPECT_LE(one.blocks * (request.shared + 1024), hopper().shared_per_multiprocessor);
      EXPECT_EQ(std::ranges::count(space, one), 1);
    }
  }
}

// For every problem the rules have a pass that the device runs, and so has the installed table.
TEST(cuda_kmeans_tuning, every_problem_gets_a_pass_that_fits) {
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const ballast::cuda::capabilities on = ballast::cuda::typical_capabilities(architecture);
    for (const bool f64 : {false, true})
      for (const std::int64_t n : {1, 8, 16, 24, 32, 40, 64, 96, 128, 192, 256, 500, 1024, 4000})
        for (const std::int64_t k : {1, 2, 8, 9, 16, 32, 40, 63, 64, 65, 71, 72, 80, 88, 96, 100, 120, 128, 256, 1000, 5000})
          for (const bool check : {false, true})
            for (const bool weighted : {false, true})
              for (const bool sums : {false, true}) {
                const pass_problem what{f64, n, k, f64 ? 2 : 1, weighted, check, sums};
                for (const pass_tuning* table : {&pass_tuning::rules(), static_cast<const pass_tuning*>(nullptr)}) {
                  const pass_policy chosen = choose_pass(what, on, table);
                  const auto request = pass_request(what, chosen, false);
                  const std::string says = std::string(architecture) + (f64 ? " f64 " : " f32 ") + std::to_string(n) + " × " +
                                           std::to_string(k) + (check ? " checked" : "") + (weighted ? " weighted" : "") +
                                           (sums ? "" : " labels");
                  EXPECT_LE(request.shared, on.shared_per_block) << says;
                  EXPECT_LE(chosen.blocks * (request.shared + 1024), on.shared_per_multiprocessor) << says;
                  pass_policy labels = chosen;  // a fit takes this one for the last labels
                  labels.sums = sum_memory::none;
                  EXPECT_LE(pass_request(what, labels, false).shared, request.shared) << says;
                }
              }
  }
}

// Threads that ask for more registers than their block has wait for ever.
TEST(cuda_kmeans_tuning, registers_of_a_loader_are_enough_for_the_others) {
  int loaders = 0;
  for (const char* token : {"kmeans_f32_m131072_n8_k8", "kmeans_f32_m1048576_n64_k1024", "kmeans_f32_m65536_n1024_k256"}) {
    const problem each = parse_token(token);
    for (const bool check : {false, true}) {
      for (const pass_policy& one : pass_space({false, each.features, each.clusters, 1, false, check, true}, hopper())) {
        if (!has_loader(one)) continue;
        ++loaders;
        const int launched = ballast::cuda::registers_of_thread(pass_threads(one), one.blocks, hopper());
        EXPECT_GE(pass_registers(one), launched);
        EXPECT_GE(launched, k_loader_registers);
        EXPECT_LE(32 * (one.warps * pass_registers(one) + k_loader_warps * k_loader_registers), launched * pass_threads(one))
            << one.warps << " warps, " << one.blocks << " blocks";
      }
    }
  }
  EXPECT_GT(loaders, 10);
}

TEST(cuda_kmeans_tuning, the_space_of_tiles_obeys_the_papers_rules) {
  for (const bool f64 : {false, true}) {
    for (const auto name : schemes()) {
      const tile_scheme scheme = *scheme_named(name);
      EXPECT_EQ(name_of(scheme), name);
      const tile_problem what{f64, 128, 128, scheme};
      const auto space = tile_space(what, hopper());
      if (scheme.naive) {
        EXPECT_TRUE(space.empty());
        continue;
      }
      EXPECT_GT(space.size(), scheme.check == tile_check::threadblock ? 20u : 200u) << name;
      for (const tile_policy& p : space) {
        const int thread_tiles = p.warp_rows * p.warp_columns / (f64 ? 64 : 128);
        EXPECT_TRUE(thread_tiles == 8 || thread_tiles == 16);
        EXPECT_EQ(p.warp_rows % 16, 0);
        EXPECT_EQ(p.rows & (p.rows - 1), 0);
        EXPECT_LE(tile_request(what, p, false).shared, hopper().shared_per_block);
      }
      // The paper's own choices are in it.
      if (scheme.unit == tile_unit::tensor && scheme.check == tile_check::none) {
        const auto has = [&](int rows, int columns, int warp_rows, int warp_columns) {
          return std::ranges::any_of(space, [&](const tile_policy& p) {
            return p.rows == rows && p.columns == columns && p.depth == 16 && p.warp_rows == warp_rows && p.warp_columns == warp_columns;
          });
        };
        if (f64) {
          EXPECT_TRUE(has(128, 32, 32, 32) && has(64, 64, 32, 32));
        } else {
          EXPECT_TRUE(has(256, 32, 64, 32) && has(128, 64, 32, 64) && has(64, 128, 64, 32) && has(32, 256, 32, 64));
        }
      }
      tile_tuning table;
      table.set(tile_tuning::key_of(what, 9), {space.back(), 1.1});
      EXPECT_EQ(choose_tile(what, hopper(), &table), space.back());
      EXPECT_EQ(choose_tile({f64, 127, 128, scheme}, hopper(), &table),
                choose_tile({f64, 127, 128, scheme}, hopper(), &tile_tuning::rules()));
    }
  }
}

}  // namespace
}  // namespace ballast::kmeans::cuda
