// The sweeps of FT K-Means: milliseconds of the distance step, which finds labels, for the paper's schemes and ours. They run clean, and in
// the instrumented program also with one flipped bit in each block (the paper's schemes) or in each pass (ours), compared with the same
// kernels without a fault.
// Source: FT K-Means, 2024, Figures 7 to 11 and 15 to 18. Its M is our m, its N our n, its K our k; m = 131072.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../../../bench/gpu.hpp"
#include "cuda/tuning/tuner.hpp"
#include "each_case.hpp"
#include "inject/injector.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/sites.hpp"
#include "kmeans_stages.hpp"

namespace ballast::gpu_check::clusters {

std::vector<std::string> swept_set(bool quick) {
  if (quick) return kmeans::cuda::swept_problems();
  std::set<std::pair<int, int>> shapes;
  for (const int many : {8, 16, 32, 64, 128}) {
    for (const int fixed : {8, 128}) {
      shapes.insert({fixed, many});
      shapes.insert({many, fixed});
    }
  }
  std::vector<std::string> made;
  for (const char* type : {"f32", "f64"})
    for (const auto& [n, k] : shapes)
      made.push_back(std::string("kmeans_") + type + "_m131072_n" + std::to_string(n) + "_k" + std::to_string(k));
  return made;
}

namespace {

namespace gpu = bench::gpu;

constexpr int k_struck_passes = 32;
constexpr int k_no_pass = 1 << 30;  // beyond all timed passes

// The timed kernels: production kernels, or instrumented ones, without faults (to measure their own cost) and with them.
enum class injection { none, idle, struck };

const char* name_of(injection what) { return what == injection::none ? "none" : what == injection::idle ? "idle" : "struck"; }

// Points of a problem, prepared for one scheme and protection.
template <class T>
struct swept {
  run::settings how;
  inject::plan plan;
  inject::active_injector injector;
  run::recorder seen;
  std::shared_ptr<cuda::device> device;
  kmeans::cuda::cuda_engine<T> engine;
  std::vector<T> first;

  // The default scheme gets one fault in each of the first passes.
  swept(const kmeans::problem& what, matrix_view<const T> points, const std::vector<T>& centroids, const std::string& scheme,
        protection level, injection with)
      : how{.backend = backend::cuda, .protection = level, .stream = gpu::stream()},
        plan(with == injection::none ? inject::plan() : plan_for(scheme, with)),
        injector(with == injection::none ? nullptr : &plan, kmeans::site::table()),
        seen("sweep", backend::cuda, scheme, how, injector),
        device(cuda::current_device()),
        engine(kmeans::engine_args<T>{points, {}, what.clusters, how, seen, injector, false, scheme}, device),
        first(centroids) {
    kmeans::normalization<T> normalization;
    normalization.scale = T(0.25);
    normalization.shift.assign(static_cast<std::size_t>(what.features), T(0));
    (void)engine.column_stats();
    engine.normalize(normalization);
    (void)engine.measure();
    for (T& each : first) each *= normalization.scale;
  }
  // The paper's schemes have their own faults (lloyd_problem::flips). An idle plan waits for passes that do not come.
  static inject::plan plan_for(const std::string& scheme, injection with) {
    inject::plan made;
    for (int i = 0; i < k_struck_passes; ++i) {
      inject::request one;
      one.site = scheme.empty() ? kmeans::site::product : kmeans::site::tolerance;
      one.model = inject::model::bit_flip;
      one.seed = static_cast<std::uint64_t>(i);
      one.visit = with == injection::idle ? k_no_pass + i : i;
      made.add(one);
    }
    return made;
  }
  std::unique_ptr<kmeans::cuda::lloyd<T>> runs(std::uint64_t flips) const {
    kmeans::cuda::lloyd_problem<T> problem = engine.problem();
    problem.flips = flips;
    auto made = std::make_unique<kmeans::cuda::lloyd<T>>(device, engine.launches(), problem);
    made->set_centroids(first, first);
    return made;
  }
  std::vector<std::int32_t> labels(const kmeans::cuda::lloyd<T>& of, std::int64_t m) const {
    std::vector<std::int32_t> made(static_cast<std::size_t>(m));
    device->copy(made.data(), of.labels(), m * 4, how.stream);
    device->synchronize(how.stream);
    return made;
  }
};

template <class T>
int sweep_one(const std::string& token) {
  const kmeans::problem what = kmeans::parse_token(token);
  const std::vector<T> values = points_of<T>(what, 0, 11);
  const gpu::buffer there = gpu::buffer_of(values);
  const auto points = row_major(static_cast<const T*>(there.data()), what.points, what.features);
  const std::vector<T> first(values.begin(), values.begin() + what.clusters * what.features);
  int failed = 0;
  std::vector<std::int32_t> right;
  const auto time = [&](const std::string& scheme, protection level, injection with) {
    const bool struck = with == injection::struck;
    row line("step");
    line.add("token", token)
        .add("scheme", scheme.empty() ? "row_checksum" : scheme)
        .add("protection", to_string(level))
        .add("faults", name_of(with));
    try {
      const swept<T> held(what, points, first, scheme, level, with);
      const auto runs = held.runs(struck && !scheme.empty() ? 1 : 0);
      double seconds = 0;
      if (with != injection::none && scheme.empty()) {
        const auto begin = held.device->make_event(true), end = held.device->make_event(true);
        held.device->record(*begin, held.how.stream);
        for (int i = 0; i < k_struck_passes; ++i) runs->pass(false);
        held.device->record(*end, held.how.stream);
        seconds = 1e-3 * held.device->milliseconds(*begin, *end) / k_struck_passes;
      } else {
        seconds = cuda::seconds_of(
            *held.device, [&] { runs->pass(false); }, held.how.stream);
      }
      const auto log = held.engine.launches().collect([](const auto&, auto&) {});
      const auto found = held.labels(*runs, what.points);
      if (right.empty()) right = found;
      std::int64_t different = 0;
      for (std::size_t i = 0; i < found.size(); ++i) different += found[i] != right[i] ? 1 : 0;
      // Labels of rounded operands may differ; otherwise only ties may.
      const auto does = kmeans::cuda::scheme_named(scheme);
      const bool coarse = sizeof(T) == 4 && does && !does->naive && does->unit == kmeans::cuda::tile_unit::tensor;
      const bool pass = static_cast<double>(different) <= (coarse ? 1e-2 : 1e-4) * static_cast<double>(what.points) &&
                        log.uncorrectable == 0 && (struck || log.corrected + log.recomputed == 0);
      line.add("milliseconds", 1e3 * seconds)
          .add("gflops", 2e-9 * static_cast<double>(what.points * what.features * what.clusters) / seconds);
      line.add("different_labels", different).add("corrected", static_cast<std::int64_t>(log.corrected));
      line.add("recomputed", static_cast<std::int64_t>(log.recomputed)).add("pass", pass);
      failed += pass ? 0 : 1;
    } catch (const std::exception& e) {
      line.add("refused", e.what());
      ++failed;
    }
    line.print();
  };
  const auto time_protected = [&](const std::string& scheme) {
    time(scheme, protection::correct, injection::none);
    if (!inject::active_injector::enabled) return;
    time(scheme, protection::correct, injection::idle);
    time(scheme, protection::correct, injection::struck);
  };
  time("", protection::off, injection::none);
  time_protected("");
  for (const std::string_view scheme : kmeans::cuda::schemes()) {
    if (kmeans::cuda::scheme_named(scheme)->check == kmeans::cuda::tile_check::none) {
      time(std::string(scheme), protection::off, injection::none);
    } else {
      time_protected(std::string(scheme));
    }
  }
  return failed;
}

}  // namespace

int sweep(const settings& wanted, const time_limit& limit) {
  const std::vector<std::string> tokens = wanted.tokens.empty() ? swept_set(wanted.quick) : wanted.tokens;
  const auto device = cuda::current_device();
  std::vector<cuda::kernel_request> kernels;
  for (const std::string& token : tokens) add_sweep_kernels(token, device->about(), kernels);
  cuda::load_all(*device, kernels);
  return time_each(tokens, kmeans::parse_token, limit, "step",
                   [](auto zero, const std::string& token) { return sweep_one<decltype(zero)>(token); });
}

void add_sweep_kernels(const std::string& token, const cuda::capabilities& on, std::vector<cuda::kernel_request>& made) {
  const kmeans::problem what = kmeans::parse_token(token);
  const bool f64 = what.precision == precision::f64;
  for (const bool struck : {false, true}) {
    if (struck && !inject::active_injector::enabled) continue;
    for (const bool check : {false, true}) {
      for (auto& each : kmeans::cuda::kernels_of({f64, what.features, what.clusters, f64 ? 2 : 1, false, check, true}, on, struck))
        made.push_back(std::move(each));
    }
  }
  for (const std::string_view scheme : kmeans::cuda::schemes()) {
    const kmeans::cuda::tile_problem problem{f64, what.features, what.clusters, *kmeans::cuda::scheme_named(scheme)};
    for (const bool struck : {false, true}) {
      if (struck && !inject::active_injector::enabled) continue;
      for (auto& each : kmeans::cuda::tile_kernels(problem, kmeans::cuda::choose_tile(problem, on), f64 ? 2 : 1, false, struck))
        made.push_back(std::move(each));
    }
  }
}

}  // namespace ballast::gpu_check::clusters
