// Measures the speed of one Lloyd iteration: the difference between runs with many and with few iterations on the same device points.
#include <algorithm>
#include <cmath>
#include <memory>

#include "../../../bench/gpu.hpp"
#include "each_case.hpp"
#include "inject/injector.hpp"
#include "kmeans/contract.hpp"
#include "kmeans/sites.hpp"
#include "kmeans_stages.hpp"
#include "samples.hpp"
#include "support/kmeans_calls.hpp"

namespace ballast::gpu_check::clusters {
namespace {

namespace gpu = bench::gpu;

constexpr int k_few = 4, k_many = 36, k_rounds = 5;

// An engine with its call.
template <class T>
struct runner {
  run::settings how;
  inject::active_injector injector;
  run::recorder seen;
  std::unique_ptr<kmeans::engine<T>> engine;
  kmeans::normalization<T> normalization;

  runner(matrix_view<const T> points, std::int64_t k, protection level)
      : how{.backend = backend::cuda, .protection = level, .stream = gpu::stream()},
        injector(nullptr, kmeans::site::table()),
        seen("bench", backend::cuda, "row_checksum", how, injector),
        engine(kmeans::cuda::make_engine(kmeans::engine_args<T>{points, {}, k, how, seen, injector})) {
    normalization.scale = T(0.25);
    normalization.shift.assign(static_cast<std::size_t>(points.columns), T(0));
  }
  // Returns the milliseconds until the points are ready for iterations.
  double prepare() {
    const time_limit clock(0);
    (void)engine->column_stats();
    engine->normalize(normalization);
    (void)engine->measure();
    gpu::synchronize();
    return -clock.left() * 1e3;
  }
  // Returns the milliseconds of up to `iterations` iterations, and their number.
  std::pair<double, int> run(const kmeans::sealed_centroids<T>& first, int iterations) {
    gpu::synchronize();
    const time_limit clock(0);
    const auto made = engine->run_lloyd(first, iterations, abft::guarded_threshold(0.0));
    return {-clock.left() * 1e3, made ? made->iterations : 0};
  }
};

template <class T>
int time(const std::string& token) {
  const kmeans::problem what = kmeans::parse_token(token);
  const std::vector<T> values = points_of<T>(what, 0, 11);
  const gpu::buffer there = gpu::buffer_of(values);
  const auto points = row_major(static_cast<const T*>(there.data()), what.points, what.features);
  core::vector<T> start(values.begin(), values.begin() + what.clusters * what.features);
  for (T& each : start) each *= T(0.25);
  const kmeans::sealed_centroids<T> first(std::move(start));
  int failed = 0;
  runner<T> off(points, what.clusters, protection::off), correct(points, what.clusters, protection::correct);
  std::vector<double> prepared[2], iterations[2];
  for (int round = -1; round < k_rounds; ++round) {
    for (const int which : {0, 1}) {
      runner<T>& now = which == 0 ? off : correct;
      const double preparation = now.prepare();
      const auto few = now.run(first, k_few), many = now.run(first, k_many);
      if (round < 0 || many.second <= few.second) continue;
      prepared[which].push_back(preparation);
      iterations[which].push_back((many.first - few.first) / (many.second - few.second));
    }
  }
  for (const int which : {0, 1}) {
    row line("iteration");
    line.add("token", token).add("variant", which == 0 ? "off" : "correct");
    if (iterations[which].empty()) {
      line.add("refused", "no difference between few and many iterations");
      ++failed;
    } else {
      add_milliseconds(line, iterations[which]).add("preparation", median(prepared[which]));
    }
    line.print();
  }
  if (correct.seen.finish().verdict != verdict::clean) {
    print_false_alarm(token, "");
    ++failed;
  }
  return failed;
}

// Times a batch as a whole: fits from given centroids, without protection, with it, and with it one fit after the other. Prints the
// milliseconds of one iteration of all fits, including preparation and labels.
template <class T>
int time_batch(const std::string& token) {
  const kmeans::problem what = kmeans::parse_token(token);
  const std::vector<T> values = points_of<T>(what, 0, 11);
  std::vector<T> start;
  for (std::int64_t e = 0; e < what.batch * what.clusters * what.features; ++e)
    start.push_back(values[static_cast<std::size_t>(e / (what.clusters * what.features) * what.points * what.features +
                                                    e % (what.clusters * what.features))]);
  const gpu::buffer there = gpu::buffer_of(values);
  const auto points = batch_of(row_major(static_cast<const T*>(there.data()), what.points, what.features), what.batch);
  kmeans::request<T> wanted{.clusters = what.clusters,
                            .init = kmeans::init::given,
                            .centroids = row_major(static_cast<const T*>(start.data()), what.batch * what.clusters, what.features),
                            .max_iter = k_many,
                            .tol = 0};
  struct variant {
    const char* name;
    protection level;
    const char* scheme;
    std::vector<double> times;
  };
  variant variants[] = {{"off", protection::off, "dmr", {}},
                        {"correct", protection::correct, "dmr", {}},
                        {"one by one", protection::correct, "row_checksum", {}}};
  int failed = 0;
  for (int round = -1; round < k_rounds; ++round) {
    for (variant& each : variants) {
      if (each.name == std::string_view("one by one") && what.batch > 300) continue;
      gpu::synchronize();
      const time_limit clock(0);
      const auto made =
          kmeans::fit(points, wanted, {.backend = backend::cuda, .protection = each.level, .scheme = each.scheme, .stream = gpu::stream()});
      const double milliseconds = -clock.left() * 1e3;
      if (round >= 0) each.times.push_back(milliseconds / std::ranges::max(made.iterations));
      if (made.report.verdict != verdict::clean) {
        print_false_alarm(token, each.name);
        ++failed;
      }
    }
  }
  for (variant& each : variants) {
    if (each.times.empty()) continue;
    row line("iteration");
    line.add("token", token).add("variant", each.name);
    add_milliseconds(line, each.times).print();
  }
  return failed;
}

}  // namespace

int bench(const settings& wanted, const time_limit& limit) {
  return time_each(wanted.tokens.empty() ? timed_set(wanted.quick) : wanted.tokens, kmeans::parse_token, limit, "iteration",
                   [](auto zero, const std::string& token) {
                     return kmeans::parse_token(token).batch > 1 ? time_batch<decltype(zero)>(token) : time<decltype(zero)>(token);
                   });
}

}  // namespace ballast::gpu_check::clusters
