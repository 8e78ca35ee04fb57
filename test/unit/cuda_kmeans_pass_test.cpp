// The pass over the points and the update on the emulated device, against brute force in long double: exact labels also for near ties,
// exact sums, iterations without the host, and faults.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "abft/threshold.hpp"
#include "cuda/call/device_call.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "kmeans/cuda/assign/assign_mainloop.cuh"
#include "kmeans/cuda/engine/lloyd.hpp"
#include "kmeans/cuda/layout/fixed.cuh"
#include "kmeans/cuda/layout/operand.cuh"
#include "support/devices.hpp"
#include "unit/cuda_kmeans_problems.hpp"

namespace ballast::kmeans::cuda {
namespace {

using device_pointer = std::shared_ptr<ballast::cuda::device>;

template <class Value>
ballast::cuda::device_buffer upload(const device_pointer& on, const std::vector<Value>& values) {
  ballast::cuda::device_buffer made(on, static_cast<std::int64_t>(std::max<std::size_t>(1, values.size()) * sizeof(Value)));
  on->copy(made.data(), values.data(), static_cast<std::int64_t>(values.size() * sizeof(Value)), nullptr);
  return made;
}
template <class Value>
std::vector<Value> download(const device_pointer& on, const void* from, std::int64_t count) {
  std::vector<Value> made(static_cast<std::size_t>(count));
  on->copy(made.data(), from, count * static_cast<std::int64_t>(sizeof(Value)), nullptr);
  return made;
}

// Points as prepare.cuh leaves them, made on the host.
template <class T>
struct points_on_device {
  std::int64_t m;
  int n;
  std::vector<T> values, weights;  // m × n, m
  std::vector<ballast::cuda::device_buffer> memory;
  lloyd_problem<T> problem;

  points_on_device(const device_pointer& on, std::int64_t m_, int n_, std::int64_t k, std::vector<T> given, std::vector<T> by, int words,
                   bool check, int repeats)
      : m(m_), n(n_), values(std::move(given)), weights(std::move(by)) {
    const bool weighted = !weights.empty();
    placed_points<T>& p = problem.points;
    p.m = m;
    p.n = n;
    p.stride = static_cast<int>(padded_features<T>(n));
    p.columns = n + (weighted ? 1 : 0);
    p.words = words;
    const auto size = [](auto value) { return static_cast<std::size_t>(value); };
    const auto rows = padded_rows(m);
    std::vector<T> x(size(rows * p.stride)), norm(size(rows)), rounding(size(rows)), projection(size(rows)), unit(size(p.stride + 1), T(1)),
        direction(size(p.stride));
    std::vector<std::uint64_t> signature(size(rows));
    std::vector<unsigned long long> expected(size(p.columns * words));
    std::mt19937_64 random(1);
    for (int f = 0; f < n; ++f)
      direction[size(f)] = static_cast<T>((random() % 2 == 0 ? 1 : -1) * (1 + static_cast<double>(random() % 256) / 256));
    const auto product = [&](std::int64_t i, int f) {
      const T w = weighted ? weights[size(i)] : T(1);
      return f == n ? w : w * values[size(i * n + f)];
    };
    for (int f = 0; f < p.columns; ++f) {
      T largest = 0;
      for (std::int64_t i = 0; i < m; ++i) largest = std::max(largest, std::abs(product(i, f)));
      unit[size(f)] = largest > 0 ? std::ldexp(T(1), k_word_bits - 1 - std::ilogb(largest)) : T(1);
    }
    double spread = 0;
    for (std::int64_t i = 0; i < m; ++i) {
      double square = 0, along = 0, off = 0;
      for (int f = 0; f < p.columns; ++f) {
        const T w = weighted ? weights[size(i)] : T(1);
        std::int32_t parts[2] = {};
        const T value = product(i, f);
        const T rest = weighted && f < n ? product_rest(w, values[size(i * n + f)], value) : T(0);
        if (words == 1) {
          std::int32_t one[1];
          if (weighted)
            split<1>(value, rest, unit[size(f)], one);
          else
            split<1>(value, unit[size(f)], one);
          parts[0] = one[0];
        } else if (weighted) {
          split<2>(value, rest, unit[size(f)], parts);
        } else {
          split<2>(value, unit[size(f)], parts);
        }
        if (weighted && !(w > 0)) continue;
        for (int v = 0; v < words; ++v) {
          const auto word = static_cast<unsigned long long>(std::int64_t{parts[v]});
          signature[size(i)] += signature_weight(f, v) * word;
          expected[size(v * p.columns + f)] += word;
        }
      }
      for (int f = 0; f < n; ++f) {
        const T value = values[size(i * n + f)];
        x[size(i * p.stride + f)] = value;
        square += static_cast<double>(value) * static_cast<double>(value);
        along += static_cast<double>(multiplied(value)) * static_cast<double>(direction[size(f)]);
        off += std::pow(static_cast<double>(value) - static_cast<double>(multiplied(value)), 2);
      }
      norm[size(i)] = static_cast<T>(square);
      rounding[size(i)] = static_cast<T>(std::sqrt(off) * (1 + 0x1p-20));
      projection[size(i)] = static_cast<T>(along);
      spread += square;
      problem.members += !weighted || weights[size(i)] > 0 ? 1 : 0;
    }
    const auto keep = [&]<class Value>(const std::vector<Value>& each) {
      memory.push_back(upload(on, each));
      return static_cast<const Value*>(memory.back().data());
    };
    p.x = keep(x);
    if constexpr (sizeof(T) == 4) {
      std::vector<std::uint16_t> operand(size(rows * p.stride));
      for (std::int64_t i = 0; i < m; ++i)
        for (int f = 0; f < p.stride; ++f) operand[size(operand_place(i, f, p.stride))] = as_operand(x[size(i * p.stride + f)]);
      p.operand = keep(operand);
    }
    std::vector<T> padded = weights;
    padded.resize(size(rows));
    p.weight = weighted ? keep(padded) : nullptr;
    p.norm = keep(norm);
    p.rounding = keep(rounding);
    p.projection = keep(projection);
    p.signature = keep(signature);
    p.unit = keep(unit);
    p.direction = keep(direction);
    problem.k = k;
    problem.expected = keep(expected);
    problem.spread = std::sqrt(spread / static_cast<double>(m));
    problem.check = check;
    problem.repeats = repeats;
  }

  long double distance(std::int64_t i, const T* c) const {
    long double sum = 0;
    for (int f = 0; f < n; ++f) {
      const long double d = static_cast<long double>(values[static_cast<std::size_t>(i * n + f)]) - static_cast<long double>(c[f]);
      sum += d * d;
    }
    return sum;
  }
  // Returns whether the label is right: its distance is the least, within a `slack` of it.
  bool is_nearest(std::int64_t i, int label, const std::vector<T>& centroids, long double slack) const {
    const auto k = static_cast<std::int64_t>(centroids.size()) / n;
    if (label < 0 || label >= k) return false;
    long double least = distance(i, centroids.data());
    for (std::int64_t j = 1; j < k; ++j) least = std::min(least, distance(i, centroids.data() + j * n));
    return distance(i, centroids.data() + label * static_cast<std::int64_t>(n)) <= least * (1 + slack);
  }
};

template <class T>
std::vector<T> normal_numbers(std::int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> made(static_cast<std::size_t>(count));
  for (T& each : made) each = static_cast<T>(normal(random));
  return made;
}

class kmeans_pass : public testing::Test {
 protected:
  std::shared_ptr<simt::emulated_device> device_ = std::make_shared<simt::emulated_device>();

  struct call_state {
    inject::active_injector injector;
    ballast::cuda::device_call call;
    call_state(const device_pointer& on, const inject::plan* faults)
        : injector(faults, "kmeans"),
          call(on, ballast::cuda::workspace_pool(on, ballast::cuda::k_ring_bytes).take({}, nullptr), injector, nullptr) {}
    ballast::cuda::event_log events() {
      return call.collect([](const ballast::cuda::device_event& e, ballast::cuda::event_log::entry& to) {
        to.index = e.index;
        to.site = "x";
        to.residual = check_number(e);
      });
    }
    static double check_number(const ballast::cuda::device_event& e) { return static_cast<double>(ballast::cuda::check_of(e.what)); }
  };

  // Labels and sums of a pass over `points` that has ended. Returns the labels.
  template <class T>
  static std::vector<std::int32_t> expect_right(const device_pointer& on, const lloyd<T>& made, const points_on_device<T>& points,
                                                const pass_problem& what, const std::vector<T>& centroids,
                                                const std::vector<std::int32_t>& before) {
    const std::int64_t m = points.m;
    auto labels = download<std::int32_t>(on, made.labels(), m);
    const long double slack = sizeof(T) == 4 ? 1e-15L : 1e-9L * static_cast<long double>(what.n);
    std::int64_t wrong = 0, changed = before.empty() ? m : 0;
    for (std::int64_t i = 0; i < m; ++i) wrong += points.is_nearest(i, labels[static_cast<std::size_t>(i)], centroids, slack) ? 0 : 1;
    EXPECT_EQ(wrong, 0);
    for (std::size_t i = 0; i < before.size(); ++i) changed += labels[i] != before[i] ? 1 : 0;
    cluster_sums sums;
    sums.allocate(what.k, what.n, what.weighted);
    EXPECT_TRUE(made.read_sums(sums));
    EXPECT_EQ(sums.changed, changed);
    std::vector<long double> right(static_cast<std::size_t>(what.k * what.n)), size(right.size());
    std::vector<std::int64_t> members(static_cast<std::size_t>(what.k));
    for (std::int64_t i = 0; i < m; ++i) {
      const auto j = static_cast<std::int64_t>(labels[static_cast<std::size_t>(i)]);
      const long double w = what.weighted ? static_cast<long double>(points.weights[static_cast<std::size_t>(i)]) : 1;
      members[static_cast<std::size_t>(j)] += w > 0 ? 1 : 0;
      for (std::int64_t f = 0; f < what.n; ++f)
        right[static_cast<std::size_t>(j * what.n + f)] +=
            w * static_cast<long double>(points.values[static_cast<std::size_t>(i * what.n + f)]);
    }
    for (std::int64_t j = 0; j < what.k; ++j) {
      EXPECT_EQ(sums.members[j], members[static_cast<std::size_t>(j)]);
      for (std::int64_t f = 0; f < what.n; ++f)
        EXPECT_NEAR(sums.sums[j * what.n + f], static_cast<double>(right[static_cast<std::size_t>(j * what.n + f)]),
                    1e-10 * static_cast<double>(m))
            << j << " " << f;
    }
    return labels;
  }

  // A first pass, and one that changes its sums for centroids that have moved. Returns how many rows of the first got a second look.
  template <class T>
  std::uint64_t expect_right_pass(const pass_problem& what, std::int64_t m, std::vector<T> values, std::vector<T> weights,
                                  const std::vector<T>& centroids) {
    call_state state(device_, nullptr);
    points_on_device<T> points(device_, m, static_cast<int>(what.n), what.k, std::move(values), std::move(weights), what.words, what.check,
                               2);
    lloyd<T> made(device_, state.call, points.problem);
    made.begin_run();
    made.set_centroids(centroids, centroids);
    made.pass(true);
    const auto first = expect_right(device_, made, points, what, centroids, {});
    const auto [looks, scans] = made.looks();
    auto moved = normal_numbers<T>(static_cast<std::int64_t>(centroids.size()), 3);
    for (std::size_t e = 0; e < moved.size(); ++e) moved[e] = centroids[e] + moved[e] / 8;
    made.set_centroids(moved, moved);
    made.pass(true);
    expect_right(device_, made, points, what, moved, first);
    const auto log = state.events();
    EXPECT_EQ(log.events.size(), 0u) << (log.events.empty() ? 0 : log.events[0].residual);
    return looks + scans;
  }
};

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

// Equal points in the middle of the frame: all scores of the centroid there are exactly 0.
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

TEST_F(kmeans_pass, iterations_run_without_the_host) {
  const std::int64_t m = 600, n = 20, k = 37;
  const auto values = normal_numbers<float>(m * n, 1);
  const std::vector<float> first(values.begin(), values.begin() + k * n);
  const auto right = lloyd_by_definition(values, n, std::vector<double>(first.begin(), first.end()), 5);
  for (const bool check : {true, false}) {
    for (const sum_memory memory : {sum_memory::shared, sum_memory::global}) {
      SCOPED_TRACE(testing::Message() << "check " << check << " sums " << static_cast<int>(memory));
      call_state state(device_, nullptr);
      points_on_device<float> points(device_, m, static_cast<int>(n), k, values, {}, 1, check, 2);
      points.problem.policy = choose_pass({false, n, k, 1, false, check}, device_->about());
      points.problem.policy->sums = memory;
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
  for (const sum_memory memory : {sum_memory::shared, sum_memory::global})
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
          const auto make = [&](call_state& state, points_on_device<float>& points) {
            points.problem.policy = choose_pass(what, device_->about());
            points.problem.policy->sums = memory;
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
          for (int seed = 0; seed < 24; ++seed) {
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
      for (int seed = 0; seed < 60; ++seed) {
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

}  // namespace
}  // namespace ballast::kmeans::cuda
