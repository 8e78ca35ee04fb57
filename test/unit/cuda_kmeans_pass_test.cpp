// The pass over the points and the update on the emulated device, against brute force in long double: exact labels also for near ties,
// exact sums, iterations without the host, and faults.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "inject/plan.hpp"
#include "kmeans/cuda/assign/assign_mainloop.cuh"
#include "kmeans/cuda/engine/lloyd.hpp"
#include "support/effort.hpp"
#include "unit/cuda_kmeans_pass.hpp"
#include "unit/cuda_kmeans_problems.hpp"

namespace ballast::kmeans::cuda {
namespace {

TEST_F(kmeans_pass, labels_and_sums_are_right) {
  for (const auto& [each, major] : tested_passes()) {
    SCOPED_TRACE(testing::Message() << (each.f64 ? "f64" : "f32") << " n " << each.n << " k " << each.k << " words " << each.words
                                    << " check " << each.check << " on " << major << ".0");
    device_ = std::make_shared<simt::emulated_device>(simt::emulated_capabilities(4, major));
    const std::int64_t m = 300;
    const pass_problem what = each;
    const auto run = [&]<class T>(T) {
      std::vector<T> weights;
      if (what.weighted) {
        weights = normal_numbers<T>(m, 9);
        for (T& w : weights) w = std::min(T(1.9), std::abs(w));
        weights[3] = 0;
      }
      expect_right_pass<T>(what, m, normal_numbers<T>(m * what.n, 1), weights, normal_numbers<T>(what.k * what.n, 2));
    };
    if (what.f64)
      run(0.0);
    else
      run(0.0f);
  }
}

// General passes compute any problem: right labels and sums, and the bits of the problem's own pass.
TEST_F(kmeans_pass, general_passes_give_the_same_bits) {
  for (const pass_problem& what : tested_general_passes()) {
    SCOPED_TRACE(testing::Message() << (what.f64 ? "f64" : "f32") << " n " << what.n << " k " << what.k << " words " << what.words
                                    << " check " << what.check);
    const std::int64_t m = 300;
    const auto run = [&]<class T>(T) {
      std::vector<T> weights;
      if (what.weighted) {
        weights = normal_numbers<T>(m, 9);
        for (T& w : weights) w = std::min(T(1.9), std::abs(w));
      }
      const auto values = normal_numbers<T>(m * what.n, 1), centroids = normal_numbers<T>(what.k * what.n, 2);
      std::vector<unsigned long long> general, own;
      expect_right_pass<T>(what, m, values, weights, centroids, general_pass(what, device_->about()), &general);
      ASSERT_FALSE(general.empty());
      if (what.n == 16) return;  // the emulator has no pass of its own for this problem
      expect_right_pass<T>(what, m, values, weights, centroids, std::nullopt, &own);
      EXPECT_NE(general_pass(what, device_->about()), choose_pass(what, device_->about()));
      ASSERT_EQ(general.size(), own.size());
      for (std::size_t e = 0; e < own.size(); ++e) EXPECT_EQ(general[e], own[e]) << e << " of " << own.size();
    };
    if (what.f64)
      run(0.0);
    else
      run(0.0f);
  }
}

// Blocks with a loader draw their tiles: more of them than blocks, the last one not full, in the first pass and in one that changes its
// sums.
TEST_F(kmeans_pass, blocks_draw_tiles) {
  device_ = std::make_shared<simt::emulated_device>(simt::emulated_capabilities(2, 9));
  const pass_problem what{false, 256, 500, 1, false, true};
  const pass_policy chosen = choose_pass(what, device_->about());
  ASSERT_TRUE(has_loader(chosen));
  const std::int64_t m = 5 * pass_rows_of_block(chosen) + 70;
  expect_right_pass<float>(what, m, normal_numbers<float>(m * what.n, 1), {}, normal_numbers<float>(what.k * what.n, 2));
}

// Teams of one warp and of four draw the last of their turns: more than two are not drawn and more than one is; the last turn has one tile.
TEST_F(kmeans_pass, teams_draw_turns) {
  device_ = std::make_shared<simt::emulated_device>(simt::emulated_capabilities(1, 9));
  for (const auto& [n, warps] : {std::pair<std::int64_t, int>{20, 1}, {40, 4}}) {
    const pass_problem what{false, n, 37, 1, false, true};
    const pass_policy chosen = choose_pass(what, device_->about());
    ASSERT_EQ(team_warps(chosen), warps);
    const std::int64_t rows = pass_rows_of_tile(chosen), turn = queue_tiles(chosen) * rows,
                       round = chosen.blocks * pass_teams(chosen) * turn;
    const std::int64_t m = 6 * round + turn + rows - 5;
    expect_right_pass<float>(what, m, normal_numbers<float>(m * n, 1), {}, normal_numbers<float>(what.k * n, 2));
  }
}

// Centroids that differ from others by few units in the last place: only exact distances tell them apart. `like(j)`: the
// centroid before j that it is like; j: none.
template <class Like>
std::vector<float> near_centroids(const pass_problem& what, const Like& like) {
  auto made = normal_numbers<float>(what.k * what.n, 2);
  for (std::int64_t j = 1; j < what.k; ++j) {
    const std::int64_t of = like(j);
    if (of == j) continue;
    for (std::int64_t f = 0; f < what.n; ++f)
      made[static_cast<std::size_t>(j * what.n + f)] =
          std::nextafter(made[static_cast<std::size_t>(of * what.n + f)], (f + j) % 2 == 0 ? 10.0f : -10.0f);
  }
  return made;
}

TEST_F(kmeans_pass, near_ties_are_decided_exactly) {
  const auto looks = [&](const pass_problem& what, const auto& like) {
    return expect_right_pass<float>(what, 200, normal_numbers<float>(200 * what.n, 5), {}, near_centroids(what, like));
  };
  const auto pairs = [](std::int64_t j) { return j - j % 2; };
  for (const std::int64_t n : {20, 40})
    EXPECT_GE(looks({false, n, 37, 1, false, true}, pairs), 150u)
        << "of 200: of all but those that are nearest to the centroid without a twin";
  // Several groups of tiles. Pairs are in one lane of a group; those that are like one of 20, in several lanes of several groups; those
  // that are like one of 60, in few enough of them to be listed.
  EXPECT_EQ(looks({false, 150, 300, 1, false, true}, pairs), 200u);
  for (const std::int64_t different : {20, 60})
    EXPECT_EQ(looks({false, 150, 300, 1, false, true},
                    [&](std::int64_t j) { return (j * 7 + j / different) % different < j ? (j * 7 + j / different) % different : j; }),
              200u);
}

// Equal points in the middle of the normalized range: all scores of the centroid there are exactly 0.
TEST_F(kmeans_pass, points_at_a_centroid_at_the_origin) {
  const pass_problem what{false, 20, 37, 1, false, true};
  auto centroids = normal_numbers<float>(what.k * what.n, 2);
  std::fill_n(centroids.begin() + 5 * what.n, what.n, 0.0f);
  auto values = normal_numbers<float>(200 * what.n, 5);
  std::fill_n(values.begin(), 100 * what.n, 0.0f);
  expect_right_pass<float>(what, 200, values, {}, centroids);
}

// Codes of near columns: each names its column, and none that a flipped bit has changed names one. Up to three million columns.
TEST(kmeans_codes, a_flipped_bit_names_no_column) {
  constexpr int most = 390000;  // tiles
  for (int tile = 0; tile < most; tile += tile < 1000 ? 1 : 997) {
    for (int i : {0, 1, 7, k_most_group_tiles - 1}) {
      for (int v = 0; v < 2; ++v) {
        const std::uint32_t code = near_number(i, v) + 4 * k_factor * static_cast<std::uint32_t>(tile);
        for (int t = 0; t < 4; ++t) EXPECT_EQ(column_of_code(code, t), (tile + i) * k_tile_columns + v + 2 * t);
        for (int bit = 0; bit < 32; ++bit) {
          const int column = column_of_code(code ^ 1u << bit, 0);
          EXPECT_TRUE(column < 0 || column >= most * k_tile_columns) << tile << " " << i << " " << v << " bit " << bit;
        }
      }
    }
  }
  EXPECT_LT(column_of_code(0, 0), 0);
}

// A column that is counted by a number with a flipped bit in place of 1, in sums as a lane has them.
TEST(kmeans_codes, a_column_that_is_not_counted_once_names_no_other) {
  for (int i = 0; i < k_most_group_tiles; ++i) {
    for (int v = 0; v < 2; ++v) {
      for (int bit = 0; bit < 32; ++bit) {
        const float factor = std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.0f) ^ 1u << bit);
        const float sum = std::fma(factor, static_cast<float>(near_number(i, v)), 0x1p23f);
        const std::uint32_t code = std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0x1p23f);
        if (code == 0 || code >= 2 * near_number(0, 0)) continue;  // no column, or several
        const int column = column_of_code(code, 0);
        EXPECT_TRUE(column == i * k_tile_columns + v || column < 0 || column >= 1 << 20)
            << i << " " << v << " bit " << bit << " " << column;
      }
    }
  }
}

template <class T>
std::vector<double> lloyd_by_definition(const std::vector<T>& values, std::int64_t n, std::vector<double> c, int iterations) {
  const auto k = static_cast<std::int64_t>(c.size()) / n, m = static_cast<std::int64_t>(values.size()) / n;
  for (int it = 0; it < iterations; ++it) {
    std::vector<double> sums(c.size()), count(static_cast<std::size_t>(k));
    for (std::int64_t i = 0; i < m; ++i) {
      std::int64_t best = 0;
      double least = 1e300;
      for (std::int64_t j = 0; j < k; ++j) {
        double d = 0;
        for (std::int64_t f = 0; f < n; ++f)
          d += std::pow(static_cast<double>(values[static_cast<std::size_t>(i * n + f)]) - c[static_cast<std::size_t>(j * n + f)], 2);
        if (d < least) least = d, best = j;
      }
      ++count[static_cast<std::size_t>(best)];
      for (std::int64_t f = 0; f < n; ++f)
        sums[static_cast<std::size_t>(best * n + f)] += static_cast<double>(values[static_cast<std::size_t>(i * n + f)]);
    }
    for (std::size_t e = 0; e < c.size(); ++e) c[e] = static_cast<double>(static_cast<T>(sums[e] / count[e / static_cast<std::size_t>(n)]));
  }
  return c;
}

// The memory of the sums of all passes but the first, and of the first.
constexpr std::pair<sum_memory, sum_memory> k_sum_memories[] = {
    {sum_memory::shared, sum_memory::shared}, {sum_memory::global, sum_memory::global}, {sum_memory::global, sum_memory::shared}};
void choose_sums(lloyd_problem<float>& what, const pass_policy& chosen, sum_memory later, sum_memory first) {
  what.policy = chosen;
  what.policy->sums = later;
  if (first == later) return;
  what.first_policy = chosen;
  what.first_policy->sums = first;
}

TEST_F(kmeans_pass, iterations_run_without_the_host) {
  const std::int64_t m = 600, n = 20, k = 37;
  const auto values = normal_numbers<float>(m * n, 1);
  const std::vector<float> first(values.begin(), values.begin() + k * n);
  const auto right = lloyd_by_definition(values, n, std::vector<double>(first.begin(), first.end()), 5);
  for (const bool check : {true, false}) {
    for (const auto& [memory, first_memory] : k_sum_memories) {
      SCOPED_TRACE(testing::Message() << "check " << check << " sums " << static_cast<int>(memory) << static_cast<int>(first_memory));
      call_state state(device_, nullptr);
      points_on_device<float> points(device_, m, static_cast<int>(n), k, values, {}, 1, check, 2);
      choose_sums(points.problem, choose_pass({false, n, k, 1, false, check}, device_->about()), memory, first_memory);
      lloyd<float> made(device_, state.call, points.problem);
      made.begin_run();
      made.set_centroids(first, first);
      const stretch ran = made.run(5, 0);
      EXPECT_EQ(ran.iterations, 5);
      EXPECT_EQ(ran.reason, device_stop::none);
      // Few of 600 normal points need a second look, and none at centroids that no score lists.
      EXPECT_LT(made.looks().first, 60u);
      EXPECT_EQ(made.looks().second, 0u);
      core::vector<float> centroids;
      EXPECT_TRUE(made.read_centroids(centroids));
      for (std::size_t e = 0; e < right.size(); ++e)
        EXPECT_NEAR(static_cast<double>(centroids[e]), right[e], 2e-7 * (1 + std::abs(right[e])));
      const stretch rest = made.run(100, 0);
      EXPECT_EQ(rest.reason, device_stop::labels_unchanged);
      EXPECT_LT(rest.iterations, 60);
      EXPECT_TRUE(state.events().events.empty());
    }
  }
}

// Returns whether these are the sums and the members of the clusters by their labels.
template <class T>
bool are_sums_by(const std::vector<std::int32_t>& labels, const std::vector<T>& values, std::int64_t k, const cluster_sums& sums) {
  const std::size_t n = values.size() / labels.size();
  bool right = true;
  for (std::int64_t j = 0; j < k; ++j) right = right && sums.members[j] == std::count(labels.begin(), labels.end(), j);
  std::vector<double> expected(static_cast<std::size_t>(k) * n);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t f = 0; f < n; ++f) expected[static_cast<std::size_t>(labels[i]) * n + f] += static_cast<double>(values[i * n + f]);
  }
  for (std::size_t e = 0; e < expected.size(); ++e) right = right && std::abs(sums.sums[static_cast<std::int64_t>(e)] - expected[e]) < 1e-8;
  return right;
}

// A label is struck in memory after its pass: the next pass takes the row from another cluster than the one that has it, and the sums do
// not fit. After that a run begins anew.
TEST_F(kmeans_pass, labels_that_change_in_memory_are_seen) {
  const pass_problem what{false, 20, 37, 1, false, true};
  const std::int64_t m = 600;
  const auto values = normal_numbers<float>(m * what.n, 1);
  const std::vector<float> first(values.begin(), values.begin() + what.k * what.n);
  const auto run = [&](std::int32_t other) {
    call_state state(device_, nullptr);
    points_on_device<float> points(device_, m, static_cast<int>(what.n), what.k, values, {}, 1, true, 2);
    lloyd<float> made(device_, state.call, points.problem);
    made.begin_run();
    made.set_centroids(first, first);
    EXPECT_EQ(made.run(2, 0).iterations, 2);
    device_->copy(made.labels() + 100, &other, 4, nullptr);
    const stretch seen = made.run(2, 0);
    EXPECT_EQ(seen.reason, device_stop::failure);
    EXPECT_EQ(seen.failed, check::totals);
    EXPECT_EQ(seen.iterations, 0);
    core::vector<float> centroids;
    EXPECT_TRUE(made.read_centroids(centroids));
    made.begin_run();
    made.set_centroids(centroids, centroids);
    EXPECT_EQ(made.run(2, 0).iterations, 2);
    EXPECT_TRUE(made.read_centroids(centroids));
    return centroids;
  };
  const auto right = lloyd_by_definition(values, what.n, std::vector<double>(first.begin(), first.end()), 4);
  for (const std::int32_t other : {-1, 36, 37, 0x7fffffff}) {
    const auto centroids = run(other);
    for (std::size_t e = 0; e < right.size(); ++e)
      EXPECT_NEAR(static_cast<double>(centroids[e]), right[e], 2e-7 * (1 + std::abs(right[e])));
  }
}

// Sums that a fault has made wrong are refused, and iterations stop at them.
TEST_F(kmeans_pass, faults_in_sums_are_seen) {
  const std::int64_t m = 300;
  const auto values = normal_numbers<float>(m * 20, 1);
  const auto centroids = normal_numbers<float>(37 * 20, 2);
  for (const auto& [memory, first_memory] : k_sum_memories)
    for (const char* site : {"kmeans.sum", "kmeans.count", "none"}) {
      int wrong[2] = {}, stopped[2] = {};
      for (const bool check : {true, false}) {
        for (int seed = 0; seed < 16; ++seed) {
          SCOPED_TRACE(testing::Message() << site << " check " << check << " seed " << seed);
          const bool strikes = std::string_view(site) != "none";
          const inject::plan faults = strikes ? inject::plan({inject::parse_request("site=" + std::string(site) +
                                                                                    ",model=bit_flip,bit=28,seed=" + std::to_string(seed))})
                                              : inject::plan();
          const pass_problem what{false, 20, 37, 1, false, check};
          const auto make = [&, memory = memory, first_memory = first_memory](call_state& state, points_on_device<float>& points) {
            choose_sums(points.problem, choose_pass(what, device_->about()), memory, first_memory);
            auto made = std::make_unique<lloyd<float>>(device_, state.call, points.problem);
            made->begin_run();
            made->set_centroids(centroids, centroids);
            return made;
          };
          {
            call_state state(device_, strikes ? &faults : nullptr);
            points_on_device<float> points(device_, m, 20, 37, values, {}, 1, check, 2);
            const auto made = make(state, points);
            made->pass(true);
            cluster_sums sums;
            sums.allocate(37, 20, false);
            const bool fit = made->read_sums(sums);
            const bool right = are_sums_by(download<std::int32_t>(device_, made->labels(), m), values, 37, sums);
            EXPECT_EQ(fit, right || !check);
            wrong[check] += right ? 0 : 1;
          }
          call_state state(device_, strikes ? &faults : nullptr);
          points_on_device<float> points(device_, m, 20, 37, values, {}, 1, check, 2);
          const stretch ran = make(state, points)->run(3, 0);
          stopped[check] += ran.reason == device_stop::failure ? 1 : 0;
        }
      }
      const bool strikes = std::string_view(site) != "none";
      EXPECT_GE(wrong[0], strikes ? 5 : 0) << site;
      EXPECT_LE(wrong[0], strikes ? 16 : 0) << site;
      EXPECT_EQ(wrong[1], wrong[0]) << site;
      EXPECT_EQ(stopped[1], wrong[1]) << site;
      EXPECT_EQ(stopped[0], 0) << site;
    }
}

// The number of faults that a test tries; half of them with the effort sample.
int seeds(int all) { return ballast::test::chosen_effort() < ballast::test::effort::wide ? all / 2 : all; }

// A fault at each site, many places and models: labels and sums are right with protection, and for some of them wrong without. In f32 with
// 20 features each warp multiplies by itself, with 40 four do together.
TEST_F(kmeans_pass, faults_are_repaired) {
  const std::int64_t m = 300;
  for (const auto& [f64, n] : {std::pair<bool, int>{false, 20}, {false, 40}, {true, 20}}) {
    const auto run = [&, f64 = f64, n = n]<class T>(T) {
      const auto values = normal_numbers<T>(m * n, 1);
      const auto centroids = normal_numbers<T>(37 * n, 2);
      for (const char* site : {"kmeans.points", "kmeans.product", "kmeans.minimum", "kmeans.index", "kmeans.label", "kmeans.sum",
                               "kmeans.count", "kmeans.checksum", "kmeans.threshold", "kmeans.comparison", "kmeans.centroid"}) {
        int wrong[2] = {}, seen[2] = {}, given_up[2] = {};
        for (const bool check : {true, false}) {
          for (int seed = 0; seed < seeds(24); ++seed) {
            const std::string model = seed % 4 == 0   ? "bit_flip"
                                      : seed % 4 == 1 ? "random_value"
                                      : seed % 4 == 2 ? "infinity"
                                                      : "bit_flip,bit=" + std::to_string(f64 ? 58 : 28);
            const inject::plan faults(
                {inject::parse_request("site=" + std::string(site) + ",model=" + model + ",seed=" + std::to_string(seed))});
            const pass_problem what{f64, n, 37, f64 ? 2 : 1, false, check};
            call_state state(device_, &faults);
            points_on_device<T> points(device_, m, n, 37, values, {}, what.words, check, 2);
            lloyd<T> made(device_, state.call, points.problem);
            made.begin_run();
            made.set_centroids(centroids, centroids);
            made.pass(true);
            cluster_sums sums;
            sums.allocate(37, n, false);
            const bool fits = made.read_sums(sums);
            if (!fits) {  // the driver asks for another pass
              EXPECT_TRUE(check);
              made.begin_run();
              made.pass(true);
              EXPECT_TRUE(made.read_sums(sums)) << site << " " << model << " " << seed;
            }
            const auto labels = download<std::int32_t>(device_, made.labels(), m);
            bool right = true;
            for (std::int64_t i = 0; i < m; ++i)
              right = right && points.is_nearest(i, labels[static_cast<std::size_t>(i)], centroids, 1e-4L);
            right = right && are_sums_by(labels, values, 37, sums);
            const auto log = state.events();
            given_up[check] += log.uncorrectable > 0 ? 1 : 0;
            wrong[check] += right ? 0 : 1;
            seen[check] += !fits || log.recomputed > 0 ? 1 : 0;
          }
        }
        const bool reaches_labels = std::string_view(site) != "kmeans.checksum" && std::string_view(site) != "kmeans.threshold" &&
                                    std::string_view(site) != "kmeans.comparison" && std::string_view(site) != "kmeans.centroid";
        EXPECT_EQ(wrong[1], 0) << site << (f64 ? " f64" : " f32");
        EXPECT_EQ(given_up[1], 0) << site;
        EXPECT_GE(wrong[0], reaches_labels ? 1 : 0) << site << (f64 ? " f64" : " f32");
        EXPECT_GE(seen[1], std::string_view(site) != "kmeans.centroid" ? 1 : 0) << site << (f64 ? " f64" : " f32");
      }
    };
    if (f64)
      run(0.0);
    else
      run(0.0f);
  }
}

// The largest score of a lane, or of a row as some or all of its lanes have it. If it is too high, no column is near it, or it is not that
// of the second chain; if it is too low, more columns are near. Few columns for each lane leave no other score between; with several groups
// of tiles what one leaves wrong would hide the columns of the next.
TEST_F(kmeans_pass, a_wrong_largest_score_reaches_no_label) {
  const std::int64_t m = 300;
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{8, 8}, {20, 900}}) {
    const auto centroids = normal_numbers<float>(k * n, 2);
    const auto values = normal_numbers<float>(m * n, 1);
    int wrong[2] = {}, seen = 0;
    for (const bool check : {true, false}) {
      if (!check && k == 900) continue;
      for (int seed = 0; seed < seeds(60); ++seed) {
        const char* const models[] = {"vector_mask", "zero", "random_value"};
        const inject::plan faults({inject::parse_request("site=kmeans.minimum,model=" + std::string(models[k == 900 ? 0 : seed % 3]) +
                                                         ",seed=" + std::to_string(seed))});
        call_state state(device_, &faults);
        points_on_device<float> points(device_, m, static_cast<int>(n), k, values, {}, 1, check, 2);
        lloyd<float> made(device_, state.call, points.problem);
        made.begin_run();
        made.set_centroids(centroids, centroids);
        made.pass(true);
        const auto labels = download<std::int32_t>(device_, made.labels(), m);
        bool right = true;
        for (std::int64_t i = 0; i < m; ++i) right = right && points.is_nearest(i, labels[static_cast<std::size_t>(i)], centroids, 1e-15L);
        wrong[check] += right ? 0 : 1;
        seen += check && state.events().recomputed > 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong[1], 0) << "k " << k;
    if (k != 900) {
      EXPECT_GT(wrong[0], 0) << "with protection off no fault reached a label";
    }
    EXPECT_GT(seen, 0);
  }
}

// The threshold above which the scores of a lane are near the largest. The points are nearly as far from one centroid as from another of
// the next lane: a lane that does not see its own would leave the other as the only one.
TEST_F(kmeans_pass, a_wrong_threshold_of_a_lane_reaches_no_label) {
  const std::int64_t m = 300;
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{8, 8}, {20, 900}, {288, 400}}) {
    const auto centroids = normal_numbers<float>(k * n, 2);
    const auto noise = normal_numbers<float>(m * n, 1);
    std::vector<float> values(static_cast<std::size_t>(m * n));
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t one = i % k / 4 * 4 + i % 2, other = one + 2;
      for (std::int64_t f = 0; f < n; ++f) {
        const auto at = static_cast<std::size_t>(i * n + f);
        values[at] =
            (centroids[static_cast<std::size_t>(one * n + f)] + centroids[static_cast<std::size_t>(other * n + f)]) / 2 + noise[at] * 1e-7f;
      }
    }
    int wrong[2] = {};
    for (const bool check : {true, false}) {
      if (!check && k != 8) continue;
      for (int seed = 0; seed < seeds(k == 8 ? 24 : 12); ++seed) {
        const char* const models[] = {"bit_flip,bit=31", "random_value", "bit_flip,bit=24", "bit_flip,bit=26"};
        const inject::plan faults({inject::parse_request("site=kmeans.threshold,model=" + std::string(models[seed % 4]) +
                                                         ",count=64,seed=" + std::to_string(seed))});
        call_state state(device_, &faults);
        points_on_device<float> points(device_, m, static_cast<int>(n), k, values, {}, 1, check, 2);
        lloyd<float> made(device_, state.call, points.problem);
        made.begin_run();
        made.set_centroids(centroids, centroids);
        made.pass(true);
        const auto labels = download<std::int32_t>(device_, made.labels(), m);
        bool right = true;
        for (std::int64_t i = 0; i < m; ++i) right = right && points.is_nearest(i, labels[static_cast<std::size_t>(i)], centroids, 1e-15L);
        wrong[check] += right ? 0 : 1;
      }
    }
    EXPECT_EQ(wrong[1], 0) << "n " << n << ", k " << k;
    if (k == 8) EXPECT_GT(wrong[0], 0) << "with protection off no fault reached a label: n " << n << ", k " << k;
  }
}

}  // namespace
}  // namespace ballast::kmeans::cuda
