// Points on the emulated device, and the fixture of the tests of the pass over them.
// Layer: test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/call/device_call.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "kmeans/cuda/engine/lloyd.hpp"
#include "kmeans/cuda/layout/fixed.cuh"
#include "kmeans/cuda/layout/operand.cuh"
#include "kmeans/sites.hpp"
#include "unit/cuda_kmeans_problems.hpp"

namespace ballast::kmeans::cuda {

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
    normalized_points<T>& p = problem.points;
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
        for (int f = 0; f < p.stride; ++f) operand[size(operand_index(i, f, p.stride))] = as_operand(x[size(i * p.stride + f)]);
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
        : injector(faults, kmeans::site::table()),
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
  // `policy`: nothing: choose_pass(). `words`: null, or gets those of the sums and the labels of the second pass.
  template <class T>
  std::uint64_t expect_right_pass(const pass_problem& what, std::int64_t m, std::vector<T> values, std::vector<T> weights,
                                  const std::vector<T>& centroids, const std::optional<pass_policy>& policy = {},
                                  std::vector<unsigned long long>* words = nullptr) {
    call_state state(device_, nullptr);
    points_on_device<T> points(device_, m, static_cast<int>(what.n), what.k, std::move(values), std::move(weights), what.words, what.check,
                               2);
    points.problem.policy = policy;
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
    const auto second = expect_right(device_, made, points, what, moved, first);
    if (words != nullptr) {
      const auto sums = made.read_words();
      // The sums, the members and the quantities; after these: how often rows got a second look, which depends on the tiles.
      const std::int64_t bits = what.k * (what.words * sum_pitch(points.problem.points.stride) + 1) + k_quantities;
      words->assign(sums.begin(), sums.begin() + bits);
      words->insert(words->end(), second.begin(), second.end());
    }
    const auto log = state.events();
    EXPECT_EQ(log.events.size(), 0u) << (log.events.empty() ? 0 : log.events[0].residual);
    return looks + scans;
  }
};

}  // namespace ballast::kmeans::cuda
