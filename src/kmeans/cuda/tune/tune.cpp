// Runs one search for each scheme and protection of a problem. See tune.hpp.
#include "kmeans/cuda/tune/tune.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/counter_rng.hpp"
#include "core/format.hpp"
#include "cuda/device/device.hpp"
#include "inject/injector.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

namespace {

using ballast::cuda::tuning_candidate;

constexpr int k_first = 4, k_timed = 32, k_rounds = 3;  // iterations before and while timing, and rounds; the fastest round counts

// A problem on the device, ready for passes: random points around 0, the first k of them as centroids.
template <class T>
class trial {
 public:
  trial(const problem& what, bool protect, std::string_view scheme)
      : how_{.backend = backend::cuda, .protection = protect ? protection::correct : protection::off},
        injector_(nullptr, site::table()),
        seen_("tune", backend::cuda, std::string(scheme), how_, injector_),
        points_(random(what)),
        device_(ballast::cuda::current_device()),
        engine_(engine_args<T>{row_major(static_cast<const T*>(points_.data()), what.points, what.features),
                               {},
                               what.clusters,
                               how_,
                               seen_,
                               injector_,
                               false,
                               scheme},
                device_),
        centroids_(points_.begin(), points_.begin() + what.clusters * what.features) {
    normalization<T> chosen;
    chosen.shift.assign(static_cast<std::size_t>(what.features), T(0));
    (void)engine_.column_stats();
    engine_.normalize(chosen);
    (void)engine_.measure();
  }

  // Returns the time of an iteration or of a label search; infinity if it cannot run. At most one of `policy` and `tile` is set; if neither
  // is, the tables of ordinary calls decide.
  double seconds(std::optional<pass_policy> policy, std::optional<tile_policy> tile) const {
    try {
      lloyd_problem<T> problem = engine_.problem();
      problem.policy = policy;
      problem.tile = tile;
      lloyd<T> runs(device_, engine_.launches(), problem);
      if (problem.scheme) {
        runs.set_centroids(centroids_, centroids_);
        return ballast::cuda::seconds_of(
            *device_, [&] { runs.pass(false); }, nullptr);
      }
      double least = std::numeric_limits<double>::infinity();
      for (int round = 0; round < k_rounds; ++round) least = std::min(least, iteration(runs));
      return least;
    } catch (const std::exception&) {  // the kernel, the memory or the policy is not available
      return std::numeric_limits<double>::infinity();
    }
  }
  const ballast::cuda::capabilities& about() const { return device_->about(); }
  ballast::cuda::device& device() const { return *device_; }

 private:
  // Returns the seconds of an iteration after the first ones, which add more rows than the others.
  double iteration(lloyd<T>& runs) const {
    runs.begin_run();
    runs.set_centroids(centroids_, centroids_);
    (void)runs.run(k_first, 0.0);
    const auto begin = device_->make_event(true), end = device_->make_event(true);
    device_->record(*begin, nullptr);
    const stretch made = runs.run(k_timed, 0.0);
    device_->record(*end, nullptr);
    if (made.iterations < k_timed / 2 || made.reason == device_stop::failure) return std::numeric_limits<double>::infinity();
    return 1e-3 * device_->milliseconds(*begin, *end) / made.iterations;
  }
  static std::vector<T> random(const problem& what) {
    std::vector<T> made(static_cast<std::size_t>(what.points * what.features));
    for (std::size_t e = 0; e < made.size(); ++e) made[e] = static_cast<T>(core::random_uniform(1, 0, e)) - T(0.5);
    return made;
  }
  run::settings how_;
  inject::active_injector injector_;
  run::recorder seen_;
  std::vector<T> points_;
  std::shared_ptr<ballast::cuda::device> device_;
  cuda_engine<T> engine_;
  core::vector<T> centroids_;
};

// One search: goes from `before` (the choice of the table or the rules) to the fastest of its neighbours and `rule`, and continues from
// there as long as that gains. Compiling a whole space would take ten minutes.
template <class Policy, class Table, class Seconds, class Request, class Entry>
void search(const std::string& name, std::span<const Policy> space, const Policy& rule, const Policy& before, Table& table,
            const typename Table::key& key, ballast::cuda::device& on, const Seconds& seconds, const Request& request, const Entry& entry,
            std::vector<ballast::cuda::tuning_result>& results, const std::function<void(const std::string&)>& progress) {
  const double by_rule = seconds(rule);
  double best = before == rule ? by_rule : seconds(before);
  Policy at = before;
  std::vector<Policy> left(space.begin(), space.end());
  for (bool gains = true; gains;) {
    const auto far =
        std::stable_partition(left.begin(), left.end(), [&](const Policy& each) { return each == rule || neighbours(at, each); });
    const std::vector<Policy> near(left.begin(), far);
    left.erase(left.begin(), far);
    std::vector<tuning_candidate> tried;
    for (const Policy& each : near) tried.push_back({request(each), {}, [&seconds, &each] { return seconds(each); }});
    const auto winner = ballast::cuda::fastest(on, tried, best);
    gains = winner.has_value();
    if (gains) at = near[winner->index], best = winner->seconds;
  }
  if (at != before) {
    const auto value = entry(at, ballast::cuda::noted_gain(by_rule, best));
    table.set(key, value);
    Table only;
    only.set(key, value);
    results.push_back({name, only.to_text(), best, by_rule});
  }
  if (progress)
    progress(fmt::format("{}: {} of {} candidates, {:.1f} us, by rule {:.1f} us", name, space.size() - left.size(), space.size(),
                         best * 1e6, by_rule * 1e6));
}

template <class T>
void tune_problem(const std::string& token, const problem& what, const tuned_schemes& wanted, tuning_tables& tables,
                  std::vector<ballast::cuda::tuning_result>& results, const std::function<void(const std::string&)>& progress) {
  constexpr bool f64 = sizeof(T) == 8;
  for (const bool protect : {false, true}) {
    if (!wanted.passes) break;
    const trial<T> timed(what, protect, {});
    const pass_problem problem{f64, what.features, what.clusters, f64 ? 2 : 1, false, protect, true};
    const std::vector<pass_policy> space = pass_space(problem, timed.about());
    search<pass_policy>(
        token + (protect ? ", checked" : ""), space, choose_pass(problem, timed.about(), &pass_tuning::rules()),
        choose_pass(problem, timed.about(), &tables.passes), tables.passes, pass_tuning::key_of(problem, timed.about().major),
        timed.device(), [&](const pass_policy& p) { return timed.seconds(p, std::nullopt); },
        [&](const pass_policy& p) { return pass_request(problem, p, false); },
        [](const pass_policy& p, double gain) {
          return pass_form::value{p.centroids, p.tiles, p.depth, p.slots, p.warps, p.blocks, p.sums, gain};
        },
        results, progress);
  }
  for (const std::string& scheme : wanted.tiles) {
    const tile_problem problem{f64, what.features, what.clusters, *scheme_named(scheme)};
    const trial<T> timed(what, problem.scheme.check != tile_check::none, scheme);
    const std::vector<tile_policy> space = tile_space(problem, timed.about());
    search<tile_policy>(
        fmt::format("{}, {}", token, scheme), space, choose_tile(problem, timed.about(), &tile_tuning::rules()),
        choose_tile(problem, timed.about(), &tables.tiles), tables.tiles, tile_tuning::key_of(problem, timed.about().major), timed.device(),
        [&](const tile_policy& p) { return timed.seconds(std::nullopt, p); },
        [&](const tile_policy& p) { return tile_request(problem, p, false); },
        [](const tile_policy& p, double gain) {
          return tile_form::value{p, gain};
        },
        results, progress);
  }
}

}  // namespace

tuned_schemes all_tuned_schemes() {
  tuned_schemes made;
  for (const std::string_view name : schemes()) {
    if (!scheme_named(name)->naive) made.tiles.emplace_back(name);
  }
  return made;
}

std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, const tuned_schemes& wanted, tuning_tables& tables,
                                               const std::function<void(const std::string&)>& progress) {
  std::vector<ballast::cuda::tuning_result> results;
  for (const std::string& token : tokens) {
    const problem what = parse_token(token);
    if (what.precision == precision::f32) {
      tune_problem<float>(token, what, wanted, tables, results, progress);
    } else {
      tune_problem<double>(token, what, wanted, tables, results, progress);
    }
  }
  return results;
}

}  // namespace ballast::kmeans::cuda
