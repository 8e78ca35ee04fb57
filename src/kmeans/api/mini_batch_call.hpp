// One call of mini-batch K-Means: random batches, starts, reassignment of centroids, the end of a fit.
// Layer: algorithm, over driver/driver.hpp, whose step moves the centroids. See include/ballast/mini_batch.hpp.
// Every random choice and decision is made twice, from two copies of what it rests on, and the bits are compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/mini_batch.hpp>

#include "abft/attempt.hpp"
#include "core/counter_rng.hpp"
#include "core/extent.hpp"
#include "core/format.hpp"
#include "cuda/call/capture.hpp"
#include "inject/injector.hpp"
#include "inject/plan.hpp"
#include "kmeans/api/plan.hpp"
#include "kmeans/driver/driver.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans {

// Streams of the random numbers: one for each start and each step, apart from those of first centroids.
inline constexpr std::uint64_t k_stream_sample = std::uint64_t{1} << 40;
inline constexpr std::uint64_t k_stream_start = std::uint64_t{1} << 41;
inline constexpr std::uint64_t k_stream_batch = std::uint64_t{1} << 42;
inline constexpr std::uint64_t k_stream_reassign = std::uint64_t{1} << 43;

inline abft::finding finding_of(bool good) {
  abft::finding found;
  if (good) return found;
  found.word = abft::k_fail;
  found.residual = std::numeric_limits<double>::quiet_NaN();
  return found;
}

// Draws rows of the points: all with the same probability, or in proportion to their weights.
template <class T>
class row_drawer {
 public:
  row_drawer(std::uint64_t seed, std::int64_t m, std::span<const T> weights) : seed_(seed), m_(m) {
    if (weights.empty()) return;
    const double largest = static_cast<double>(*std::ranges::max_element(weights));
    for (auto* const each : {&sums_, &twins_}) {
      double sum = 0;
      for (const T weight : weights) each->push_back(sum += static_cast<double>(weight) / largest);
    }
  }

  // The row of draw e of a stream. `twin`: from the second running sums.
  std::int64_t row(std::uint64_t stream, std::int64_t e, bool twin) const {
    const double share = core::random_uniform(seed_, stream, static_cast<std::uint64_t>(e));
    const core::vector<double>& sums = twin ? twins_ : sums_;
    if (sums.empty()) return std::min(m_ - 1, static_cast<std::int64_t>(share * static_cast<double>(m_)));
    const auto found = std::ranges::upper_bound(sums, share * sums.back());
    return found != sums.end() ? found - sums.begin() : std::ranges::lower_bound(sums, sums.back()) - sums.begin();
  }

 private:
  std::uint64_t seed_;
  std::int64_t m_;
  core::vector<double> sums_, twins_;  // running sums of the weights
};

// The numbers by which a fit ends.
enum progress_number : std::uint8_t { k_smoothed, k_least, k_without_improvement, k_reason, k_numbers };
inline constexpr double k_goes_on = -1;

// Points of a call, in host memory unless they are a batch of the caller.
template <class T>
struct weighted_points {
  matrix_view<const T> points;
  std::span<const T> weights;
};

// The faults of a call at the sites of mini-batches, or at all others.
class chosen_faults {
 public:
  chosen_faults(const inject::plan* all, bool own) {
    if (all == nullptr) return;
    std::vector<inject::request> made;
    for (const inject::request& each : all->requests())
      if ((inject::row_of(each.site).operation() == site::mini_batch::table().operation) == own) made.push_back(each);
    plan_.emplace(std::move(made));
  }
  const inject::plan* get() const { return plan_ ? &*plan_ : nullptr; }

 private:
  std::optional<inject::plan> plan_;
};

// One call of fit or partial_fit.
template <class T, class Object>
class mini_batch_call {
 public:
  mini_batch_call(Object& of, const shared_text& token, const run::settings& asked)
      : of_(of),
        asked_(asked),
        inner_(asked),
        faults_(asked_.faults, true),
        faults_of_drivers_(asked_.faults, false),
        injector_(faults_.get(), site::mini_batch::table()),
        recorder_(token, of.plans.front()->backend, of.plans.front()->row_checksum, asked_, injector_),
        state_(of.state),
        staging_(asked_.stream) {
    inner_.faults = faults_of_drivers_.get();
    inner_.on_event = {};
    inner_.on_progress = {};
    inner_.throw_on_uncorrectable = false;
  }

  // One step with the points of the caller.
  report partial_fit(const weighted_points<T>& batch, matrix_view<const T> given) {
    std::int64_t steps = of_.steps;
    if (!of_.begun) {
      start(batch, given);
      steps = 0;
    }
    if (!failed()) {
      abft::guarded_threshold inertia;
      state_ = step(batch, static_cast<std::uint64_t>(steps), inertia);
      if (asked_.on_progress && !failed()) asked_.on_progress({1, 1, "step", 0, inertia.value});
    }
    return finish(steps + 1);
  }

  report fit(const data<T>& from, const fit_results<T>& to) {
    const weighted_points<T> all{staging_.read(from.points), staging_.read(from.weights)};
    check_weights(all.weights);
    const std::int64_t m = all.points.rows, size = std::min(m, of_.options.batch_size);
    start(all, staging_.read(from.centroids));
    const auto most = static_cast<std::int64_t>(
        std::max(1.0, std::floor(static_cast<double>(of_.options.max_iter) * static_cast<double>(m) / static_cast<double>(size))));
    const row_drawer<T> by_weight(of_.options.seed, m, all.weights);
    abft::guarded_threshold tolerance;
    if (of_.options.tol > 0 && !failed())
      keep(with_driver({all.points, {}}, [&](driver<T>& by) { return by.measure_tolerance(of_.options.tol, tolerance); }));
    sealed<core::vector<double>> progress(
        {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 0, k_goes_on});
    std::int64_t steps = 0;
    while (steps < most && !failed() && progress.values()[k_reason] == k_goes_on) {
      mini_batch_state<T> next;
      abft::guarded_threshold inertia;
      with_sample(all, by_weight, k_stream_batch + static_cast<std::uint64_t>(steps), size, false,
                  [&](const weighted_points<T>& batch) { next = step(batch, static_cast<std::uint64_t>(steps), inertia); });
      if (failed()) break;
      progress = advance(progress, steps, inertia, tolerance, state_, next, static_cast<double>(size), static_cast<double>(m));
      state_ = std::move(next);
      ++steps;
      if (asked_.on_progress) asked_.on_progress({steps, most, "step", 0, inertia.value});
    }
    verify_state();
    double inertia = 0;
    if (!failed() && (!to.labels.empty() || to.inertia != nullptr)) {
      const auto centroids = row_major<const T>(state_.centroids.values().data(), of_.k, of_.n);
      keep(with_driver(
          {from.points, from.weights},
          [&](driver<T>& by) {
            return by.predict(centroids, {to.labels, &inertia});
          },
          to.labels.data()));
    }
    if (!failed() && to.centroids.data != nullptr) store_centroids(to.centroids);
    if (!failed()) {
      staging_.commit();
      if (to.inertia != nullptr) *to.inertia = inertia;
      if (to.iterations != nullptr) *to.iterations = static_cast<int>(steps);
      const double reason = progress.values()[k_reason];
      if (to.stopped != nullptr)
        *to.stopped = reason == k_goes_on                                     ? stop_reason::max_iter
                      : reason == static_cast<double>(stop_reason::tolerance) ? stop_reason::tolerance
                                                                              : stop_reason::no_improvement;
    }
    return finish(steps);
  }

 private:
  bool protects() const { return asked_.protection != protection::off; }
  bool failed() const { return recorder_.uncorrectable() || failed_; }

  // Takes what a driver has seen.
  void keep(const report& seen) {
    failed_ = failed_ || seen.verdict == verdict::uncorrectable;
    if (has_seen_) {
      seen_.merge(seen);
    } else {
      seen_ = seen;
    }
    has_seen_ = true;
  }

  report finish(std::int64_t steps) {
    report made = recorder_.collect();
    if (has_seen_) made.merge(seen_);
    if (made.verdict != verdict::uncorrectable) {
      of_.state = std::move(state_);
      of_.steps = steps;
      of_.begun = true;
    }
    return recorder_.deliver(std::move(made));
  }

  // Compares two computations by make(twin), which returns an array, and seals the first. check: names them.
  template <class Make>
  auto twice(const char* check, inject::site where, const Make& make) {
    using values = decltype(make(false));
    const auto first = [&] {
      values made = make(false);
      injector_.strike(where, {}, made.data(), static_cast<std::int64_t>(made.size()));
      return sealed<values>(std::move(made));
    };
    if (!protects()) return first();
    sealed<values> made;
    run::attempt(recorder_, asked_.protection, check, 0, [&](int) {
      made = first();
      recorder_.checked(made.values().size());
      return finding_of(!differ(made.values(), make(true)));
    });
    return made;
  }

  // Runs use(driver) on points, and returns its report.
  template <class Use>
  report with_driver(const weighted_points<T>& on, const Use& use, const void* result = nullptr) {
    const std::shared_ptr<const prepared> plan = of_.plan_for(on.points.rows);
    const ballast::backend which = plan->backend_for(operation::predict, inner_, {on.points.data, result});
    if (which == ballast::backend::cuda) ballast::cuda::refuse_capture(inner_.stream, plan->token);
    run::host_staging staging(inner_.stream);
    const bool host = which != ballast::backend::cuda;
    driver<T> by({host ? staging.read(on.points) : on.points, host ? staging.read(on.weights) : on.weights, of_.k, inner_, plan->token,
                  which, plan->row_checksum, plan->state_for(which)});
    return use(by);
  }

  void check_weights(std::span<const T> weights) const {
    const auto good = [&] {
      T largest = weights.empty() ? T(1) : T(0);
      for (const T each : weights) largest = each >= 0 && largest >= 0 ? std::max(largest, each) : T(-1);
      return largest > 0 && std::isfinite(largest);
    };
    if (!good() && !good())
      throw invalid_argument_error(
          fmt::format("{}: weights: expected finite numbers ≥ 0, at least one above 0, got others", of_.plans.front()->token.view()));
  }

  // Copies random rows and calls use(copy) on them. After that, when all has been read from the copy, the rows are drawn once more, and the
  // copy is compared with them; if it was wrong, all is repeated. `weighted`: with their weights.
  template <class Use>
  void with_sample(const weighted_points<T>& from, const row_drawer<T>& drawer, std::uint64_t stream, std::int64_t count, bool weighted,
                   const Use& use) {
    const std::int64_t n = of_.n;
    weighted = weighted && !from.weights.empty();
    copy_.resize(at(core::checked_product(count, n)));
    weights_.resize(weighted ? at(count) : 0);
    const weighted_points<T> sample{row_major<const T>(copy_.data(), count, n), weights_};
    // Rows without gaps are copied and compared as a whole.
    const bool whole = from.points.column_stride == 1;
    const auto fill = [&] {
      for (std::int64_t e = 0; e < count; ++e) {
        const std::int64_t row = drawer.row(stream, e, false);
        T* const to = copy_.data() + e * n;
        if (whole) {
          std::copy_n(&from.points(row, 0), n, to);
        } else {
          for (std::int64_t f = 0; f < n; ++f) to[f] = from.points(row, f);
        }
        if (weighted) weights_[at(e)] = from.weights[at(row)];
      }
      injector_.strike(site::mini_batch::points, {}, copy_.data(), count * n);
    };
    const auto holds = [&] {
      bool all = true;
      for (std::int64_t e = count; e-- > 0;) {
        const std::int64_t row = drawer.row(stream, e, true);
        const T* const own = copy_.data() + e * n;
        if (whole) {
          all = all & (std::memcmp(own, &from.points(row, 0), at(n) * sizeof(T)) == 0);
        } else {
          for (std::int64_t f = 0; f < n; ++f) all = all & (abft::word_of(own[f]) == abft::word_of(from.points(row, f)));
        }
        if (weighted) all = all & (abft::word_of(weights_[at(e)]) == abft::word_of(from.weights[at(row)]));
      }
      return all;
    };
    if (!protects()) {
      fill();
      return use(sample);
    }
    run::attempt(recorder_, asked_.protection, "mini_batch.points", 0, [&](int) -> std::optional<abft::finding> {
      fill();
      std::exception_ptr refused;
      try {
        use(sample);
      } catch (const invalid_argument_error&) {  // the points, or their wrong copy
        refused = std::current_exception();
      }
      recorder_.checked(static_cast<std::uint64_t>(count));
      const bool same = holds();
      if (same && refused) std::rethrow_exception(refused);
      if (failed_) return std::nullopt;
      return finding_of(same);
    });
  }

  // Makes the first state: given centroids, or the best of n_init starts.
  void start(const weighted_points<T>& all, matrix_view<const T> given) {
    const mini_batch_options& wanted = of_.options;
    const std::int64_t m = all.points.rows;
    state_.weights = sealed<core::vector<double>>(core::vector<double>(at(of_.k + 1)));
    if (wanted.init == init::given) {
      state_.centroids = twice("mini_batch.start", site::mini_batch::points, [&](bool) {
        core::vector<T> made;
        for (std::int64_t j = 0; j < of_.k; ++j)
          for (std::int64_t f = 0; f < of_.n; ++f) made.push_back(given(j, f));
        return made;
      });
      return;
    }
    std::int64_t size = wanted.init_size == 0 ? 3 * std::min(m, wanted.batch_size) : wanted.init_size;
    if (size < of_.k) size = 3 * of_.k;
    size = std::min(size, m);
    const row_drawer<T> any(wanted.seed, m, {});
    double least = std::numeric_limits<double>::infinity();
    for (int run = 0; run < wanted.n_init && !failed(); ++run) {
      const auto number = static_cast<std::uint64_t>(run);
      sealed_centroids<T> made;
      const auto choose = [&](const weighted_points<T>& from) {
        const options how{.init = wanted.init, .seed = wanted.seed};
        keep(with_driver(from, [&](driver<T>& by) { return by.choose(how, {}, number, made); }));
      };
      if (size < m) {
        with_sample(all, any, k_stream_start + number, size, true, choose);
      } else {
        choose(all);
      }
      double inertia = 0;
      if (wanted.n_init > 1 && !failed()) {
        with_sample(all, any, k_stream_sample, size, true, [&](const weighted_points<T>& sample) {
          const auto centroids = row_major<const T>(made.values().data(), of_.k, of_.n);
          keep(with_driver(sample, [&](driver<T>& by) { return by.predict(centroids, {{}, &inertia}); }));
        });
      }
      if (run > 0 && !(inertia < least)) continue;
      least = inertia;
      state_.centroids = std::move(made);
    }
  }

  // Returns the state after a step with the batch, the `number`th. state_ stays, so that the step can be repeated.
  mini_batch_state<T> step(const weighted_points<T>& batch, std::uint64_t number, abft::guarded_threshold& inertia) {
    mini_batch_state<T> next = state_;
    const auto count = static_cast<double>(std::min(of_.options.batch_size, batch.points.rows));
    keep(with_driver(batch, [&](driver<T>& by) { return by.step(next, count, inertia); }));
    if (failed() || !(of_.options.reassignment_ratio > 0)) return next;
    const bool due = reassigns(state_.weights.values(), next.weights.values());
    const bool due_again = reassigns(state_.weights.twin(), next.weights.twin());
    return due || due_again ? reassigned(batch.points, state_.weights, next, number) : next;
  }

  // Returns whether centroids are reassigned after a step: a cluster had no weight before, or 10 k points have come since the last time.
  bool reassigns(const core::vector<double>& before, const core::vector<double>& after) const {
    return std::any_of(before.begin(), before.end() - 1, [](double each) { return each == 0; }) ||
           after.back() >= 10 * static_cast<double>(of_.k);
  }

  mini_batch_state<T> reassigned(const matrix_view<const T>& batch, const sealed<core::vector<double>>& before,
                                 const mini_batch_state<T>& old, std::uint64_t number) {
    const matrix_view<const T> points = staging_.read(batch);
    // The clusters that move, and the rows that they go to.
    const auto places = [&](const core::vector<double>& weights) {
      const std::int64_t k = of_.k, most = points.rows / 2;
      core::vector<std::int64_t> few;
      const double limit = of_.options.reassignment_ratio * *std::max_element(weights.begin(), weights.begin() + k);
      const auto heaviest = std::max_element(weights.begin(), weights.begin() + k) - weights.begin();
      for (std::int64_t j = 0; j < k; ++j)
        if (weights[at(j)] < limit && j != heaviest) few.push_back(j);
      std::ranges::stable_sort(few, [&](std::int64_t a, std::int64_t b) { return weights[at(a)] < weights[at(b)]; });
      if (static_cast<std::int64_t>(few.size()) > most) few.resize(at(most));
      core::vector<std::int64_t> rows;
      for (std::uint64_t e = 0; rows.size() < few.size(); ++e) {
        const double share = core::random_uniform(of_.options.seed, k_stream_reassign + number, e);
        const auto row = std::min(points.rows - 1, static_cast<std::int64_t>(share * static_cast<double>(points.rows)));
        if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
      }
      return std::pair(std::move(few), std::move(rows));
    };
    mini_batch_state<T> made;
    made.centroids = twice("mini_batch.reassignment", site::mini_batch::reassignment, [&](bool twin) {
      core::vector<T> values = twin ? old.centroids.twin() : old.centroids.values();
      const core::vector<double>& weights = twin ? old.weights.twin() : old.weights.values();
      if (!reassigns(twin ? before.twin() : before.values(), weights)) return values;
      const auto [few, rows] = places(weights);
      for (std::size_t e = 0; e < few.size(); ++e)
        for (std::int64_t f = 0; f < of_.n; ++f) values[at(few[e] * of_.n + f)] = points(rows[e], f);
      return values;
    });
    made.weights = twice("mini_batch.reassignment", site::mini_batch::reassignment, [&](bool twin) {
      core::vector<double> values = twin ? old.weights.twin() : old.weights.values();
      if (!reassigns(twin ? before.twin() : before.values(), values)) return values;
      const auto [few, rows] = places(values);
      values[at(of_.k)] = 0;
      double least = std::numeric_limits<double>::infinity();
      for (std::int64_t j = 0; j < of_.k; ++j)
        if (std::ranges::find(few, j) == few.end()) least = std::min(least, values[at(j)]);
      for (const std::int64_t each : few) values[at(each)] = least;
      return values;
    });
    return made;
  }

  // Returns the numbers by which the fit ends, after step `number`; `inertia`: of its batch before it.
  sealed<core::vector<double>> advance(const sealed<core::vector<double>>& before, std::int64_t number,
                                       const abft::guarded_threshold& inertia, const abft::guarded_threshold& tolerance,
                                       const mini_batch_state<T>& old, const mini_batch_state<T>& now, double size, double m) {
    return twice("mini_batch.progress", site::mini_batch::progress, [&](bool twin) {
      core::vector<double> made = twin ? before.twin() : before.values();
      if (number == 0) return made;  // the first inertia is that of the start
      const double mean = (twin ? inertia.twin : inertia.value) / size, share = std::min(1.0, 2 * size / (m + 1));
      double& smoothed = made[k_smoothed];
      smoothed = std::isnan(smoothed) ? mean : smoothed * (1 - share) + mean * share;
      const double least_shift = twin ? tolerance.twin : tolerance.value;
      if (least_shift > 0) {
        const core::vector<T>& from = twin ? old.centroids.twin() : old.centroids.values();
        const core::vector<T>& to = twin ? now.centroids.twin() : now.centroids.values();
        double shift = 0;
        for (std::size_t e = 0; e < from.size(); ++e) {
          const double moved = static_cast<double>(to[e]) - static_cast<double>(from[e]);
          shift += moved * moved;
        }
        if (shift <= least_shift) {
          made[k_reason] = static_cast<double>(stop_reason::tolerance);
          return made;
        }
      }
      if (smoothed < made[k_least]) {
        made[k_least] = smoothed;
        made[k_without_improvement] = 0;
      } else {
        made[k_without_improvement] += 1;
      }
      const std::optional<int>& most = of_.options.max_no_improvement;
      if (most && made[k_without_improvement] >= *most) made[k_reason] = static_cast<double>(stop_reason::no_improvement);
      return made;
    });
  }

  // Verifies the state before it is handed out.
  void verify_state() {
    if (!protects() || failed()) return;
    const auto verify = [&](auto& kept, const char* check) {
      recorder_.checked(1);
      const auto found = kept.verify();
      using state = std::remove_const_t<decltype(found)>;
      if (found == state::intact) return;
      const bool good = found == state::repaired && asked_.protection == protection::correct;
      recorder_.detected(check, -1, std::numeric_limits<double>::quiet_NaN(), 0, good ? action::corrected : action::uncorrectable, 0);
    };
    verify(state_.centroids, "kmeans.centroid");
    verify(state_.weights, "mini_batch.weight");
  }

  void store_centroids(const matrix_view<T>& to) {
    const matrix_view<T> here = staging_.overwrite(to);
    const core::vector<T>& values = state_.centroids.values();
    const auto copy = [&] {
      for (std::int64_t j = 0; j < of_.k; ++j)
        for (std::int64_t f = 0; f < of_.n; ++f) here(j, f) = values[at(j * of_.n + f)];
    };
    if (!protects()) return copy();
    run::attempt(recorder_, asked_.protection, "kmeans.centroid", 0, [&](int) {
      copy();
      recorder_.checked(1);
      core::vector<T> stored;
      for (std::int64_t j = 0; j < of_.k; ++j)
        for (std::int64_t f = 0; f < of_.n; ++f) stored.push_back(here(j, f));
      return finding_of(seal_of(stored) == state_.centroids.seal());
    });
  }

  Object& of_;
  run::settings asked_, inner_;  // inner_: of the drivers, without callbacks and exceptions
  chosen_faults faults_, faults_of_drivers_;
  inject::active_injector injector_;
  run::recorder recorder_;
  mini_batch_state<T> state_;
  run::host_staging staging_;
  report seen_;  // joined, of all drivers
  bool has_seen_ = false, failed_ = false;
  core::vector<T> copy_, weights_;  // the points and weights of with_sample
};

}  // namespace ballast::kmeans
