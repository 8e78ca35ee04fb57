// Calls of a plan on a group: the rows of its ranks, and what happens when one is lost.
// Layer: algorithm, over driver/driver.hpp and group/session.hpp.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "abft/seal.hpp"
#include "core/format.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "kmeans/api/plan.hpp"
#include "kmeans/api/validation.hpp"
#include "kmeans/driver/driver.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans {

namespace {

using words = std::vector<std::int64_t>;

// Rows of the points, and the rank that has them: the same list on all ranks.
struct row_owner {
  std::int64_t first = 0, count = 0;
  int rank = 0;
};

// The words that each rank sends at the beginning of an attempt.
enum hello : std::size_t { k_listed, k_rows, k_features, k_weighted, k_progress, k_run, k_iterations, k_stopped, k_hello_words };
enum weights : std::int64_t { k_without, k_with, k_no_rows };

std::uint64_t hash_of(const options& wanted, std::int64_t clusters, protection level) {
  abft::result_hash made;
  made.add(static_cast<std::int64_t>(level));
  made.add(clusters);
  made.add(static_cast<std::int64_t>(wanted.init));
  made.add(std::int64_t{wanted.n_init});
  made.add(std::int64_t{wanted.max_iter});
  made.add(wanted.tol);
  made.add(wanted.seed);
  return made.bits();
}

template <class T>
std::uint64_t hash_of(matrix_view<const T> centroids) {
  abft::result_hash made;
  for (std::int64_t j = 0; j < centroids.rows; ++j)
    for (std::int64_t f = 0; f < centroids.columns; ++f) made.add(centroids(j, f));
  return made.bits();
}

// The state of a fit as words.
template <class T>
words pack(const fit_state<T>& state) {
  words made = {state.run,
                state.iterations,
                state.stopped ? 1 : 0,
                static_cast<std::int64_t>(state.reason),
                state.has_best ? 1 : 0,
                std::bit_cast<std::int64_t>(state.best_inertia),
                state.best_iterations,
                static_cast<std::int64_t>(state.best_reason)};
  for (const sealed_centroids<T>* each : {&state.before, &state.current, &state.best}) {
    made.push_back(static_cast<std::int64_t>(each->values().size()));
    for (const T value : each->values()) made.push_back(static_cast<std::int64_t>(abft::word_of(value)));
  }
  return made;
}

template <class T>
fit_state<T> unpack(const words& from) {
  fit_state<T> made;
  made.run = from[0];
  made.iterations = from[1];
  made.stopped = from[2] != 0;
  made.reason = static_cast<stop_reason>(from[3]);
  made.has_best = from[4] != 0;
  made.best_inertia = std::bit_cast<double>(from[5]);
  made.best_iterations = from[6];
  made.best_reason = static_cast<stop_reason>(from[7]);
  std::size_t at_word = 8;
  for (sealed_centroids<T>* each : {&made.before, &made.current, &made.best}) {
    core::vector<T> values(at(from[at_word++]));
    for (T& value : values) value = std::bit_cast<T>(static_cast<decltype(abft::word_of(T()))>(from[at_word++]));
    *each = sealed_centroids<T>(std::move(values));
  }
  return made;
}

// One call on a group, in as many attempts as ranks are lost, and one more.
template <class T>
class group_call {
 public:
  group_call(const prepared& plan, const data<T>& from, const run::settings& how, bool fits)
      : plan_(plan),
        from_(from),
        on_progress_(how.on_progress),
        how_(how),
        fits_(fits),
        over_(wire::exchange_of(how.group, plan.one_token)),
        lost_before_(over_.lost()) {
    if (from.points.rows > 0) loaded_.push_back({0, from.points, from.weights});
  }

  // Runs work(driver) to its report.
  template <class Work>
  report run(const Work& work) {
    report before;  // the faults that this rank saw in attempts that a loss ended
    std::vector<int> known = lost_before_;
    for (;;) {
      try {
        const report agreed = agree(before, known);
        const shared_text token = to_token(problem{precision_of<T>, rows_.all, from_.points.columns, plan_.problem.clusters});
        std::optional<driver<T>> on;
        wire::prepare(over_, [&] {
          on.emplace(driver_args<T>{from_.points, from_.weights, plan_.problem.clusters, how_, token, plan_.backend, plan_.row_checksum,
                                    nullptr, false, &rows_, fits_ ? &state_ : nullptr});
        });
        try {
          report made = wire::in_group(over_, on->recorder(), token, [&] { return work(*on); });
          made.merge(agreed);
          return made;
        } catch (const wire::ranks_lost&) {
          before.merge(on->recorder().collect());
          throw;
        }
      } catch (const wire::ranks_lost&) {
        over_.regroup();
        if (!from_.reload) throw rank_lost_error(wire::lost_message(over_, plan_.one_token), over_.lost());
      }
    }
  }

 private:
  void check_operands() const {
    const std::string_view token = plan_.one_token;
    const problem& size = plan_.problem;
    if (size.points > 0) {
      check_view(token, "points", from_.points, size.points, size.features);
    } else if (from_.points.rows != 0 || from_.points.columns != size.features) {
      throw invalid_argument_error(
          fmt::format("{}: points: expected 0 × {}, got {} × {}", token, size.features, from_.points.rows, from_.points.columns));
    }
    check_span(token, "weights", from_.weights, size.points);
    if (!fits_ || plan_.options.init == init::given) check_view(token, "centroids", from_.centroids, size.clusters, size.features);
  }

  // The ranks exchange what they have: the list of rows, the farthest state of the fit, and the events so far. Returns the report of that.
  report agree(report& before, std::vector<int>& known) {
    inject::active_injector quiet(nullptr, site::table());
    run::recorder seen(plan_.one_token, plan_.backend, plan_.row_checksum, how_, quiet);
    for (const int each : over_.lost()) {
      if (std::ranges::binary_search(known, each) || over_.place() != 0) continue;
      seen.detected("group.rank", each, std::numeric_limits<double>::quiet_NaN(), 0, action::recomputed, 0);
    }
    known = over_.lost();
    return wire::in_group(over_, seen, plan_.one_token, [&] {
      if (owners_.empty()) check_operands();
      over_.expect_alike(hash_of(plan_.options, plan_.problem.clusters, how_.asked()) ^ hash_of(from_.centroids) ^ (fits_ ? 1 : 0));
      words own(k_hello_words);
      own[k_listed] = owners_.empty() ? 0 : 1;
      own[k_rows] = from_.points.rows;
      own[k_features] = from_.points.columns;
      own[k_weighted] = from_.points.rows == 0 ? k_no_rows : from_.weights.empty() ? k_without : k_with;
      own[k_progress] = on_progress_ ? 1 : 0;
      own[k_run] = state_.run;
      own[k_iterations] = state_.iterations;
      own[k_stopped] = state_.stopped ? 1 : 0;
      const std::vector<words> all = over_.gather(std::span<const std::int64_t>(own));
      const bool any = std::ranges::any_of(all, [](const words& each) { return each[k_progress] != 0; });
      how_.on_progress = wire::progress_of_all(on_progress_, any);
      divide_rows(all);
      load_rows();
      share_state(all);
      report joined = wire::joined(over_, [&] {
        report made = seen.collect();
        made.merge(before);
        before = {};
        return made;
      }());
      return joined;
    });
  }

  void divide_rows(const std::vector<words>& all) {
    const bool listed = std::ranges::all_of(all, [](const words& each) { return each[k_listed] != 0; });
    if (!listed && (over_.lost() != lost_before_ || std::ranges::any_of(all, [](const words& each) { return each[k_listed] != 0; })))
      throw rank_lost_error(fmt::format("{}: a rank was lost before all ranks knew whose rows are whose", plan_.one_token.view()),
                            over_.lost());
    if (!listed) {
      std::int64_t first = 0;
      std::int64_t weighted = k_no_rows;
      for (std::size_t p = 0; p < all.size(); ++p) {
        const words& each = all[p];
        if (each[k_features] != from_.points.columns)
          throw invalid_argument_error(fmt::format("{}: points: expected as many columns on all ranks, got {} and {}",
                                                   plan_.one_token.view(), from_.points.columns, each[k_features]));
        if (each[k_weighted] != k_no_rows && weighted != k_no_rows && each[k_weighted] != weighted)
          throw invalid_argument_error(fmt::format("{}: weights: expected them on all ranks or on none", plan_.one_token.view()));
        if (each[k_weighted] != k_no_rows) weighted = each[k_weighted];
        owners_.push_back({first, each[k_rows], over_.members()[p]});
        if (over_.members()[p] == over_.rank() && !loaded_.empty()) loaded_[0].first = first;
        first += each[k_rows];
      }
      rows_.all = first;
      rows_.weighted = weighted == k_with;
      rows_.over = &over_;
      if (rows_.all < 1)
        throw invalid_argument_error(fmt::format("{}: points: expected at least one row on all ranks, got none", plan_.one_token.view()));
      if (fits_ && plan_.problem.clusters > rows_.all)
        throw invalid_argument_error(fmt::format("{}: clusters: expected at most the number of points, {}, got {}", plan_.one_token.view(),
                                                 rows_.all, plan_.problem.clusters));
      return;
    }
    // The rows of each lost rank go to the ranks that are left, as evenly as they can.
    std::vector<row_owner> next;
    const auto ranks = static_cast<std::int64_t>(over_.size());
    for (const row_owner& each : owners_) {
      if (!std::ranges::binary_search(over_.lost(), each.rank)) {
        next.push_back(each);
        continue;
      }
      for (std::int64_t p = 0; p < ranks; ++p) {
        const std::int64_t begin = p * each.count / ranks, end = (p + 1) * each.count / ranks;
        if (begin < end) next.push_back({each.first + begin, end - begin, over_.members()[at(p)]});
      }
    }
    owners_ = std::move(next);
  }

  // Fills rows_.parts with the caller's rows and those that are loaded for lost ranks, which stay loaded.
  void load_rows() {
    rows_.parts.clear();
    rows_.own = -1;
    for (const row_owner& each : owners_) {
      if (each.rank != over_.rank() || each.count == 0) continue;
      auto found =
          std::ranges::find_if(loaded_, [&](const row_part<T>& one) { return one.first == each.first && one.points.rows == each.count; });
      if (found == loaded_.end()) {
        const data<T> made = from_.reload(each.first, each.count);
        check_view(plan_.one_token, "reload", made.points, each.count, from_.points.columns);
        if (static_cast<std::int64_t>(made.weights.size()) != (rows_.weighted ? each.count : 0))
          throw invalid_argument_error(fmt::format("{}: reload: expected {} weights, got {}", plan_.one_token.view(),
                                                   rows_.weighted ? each.count : 0, made.weights.size()));
        loaded_.push_back({each.first, made.points, made.weights});
        found = loaded_.end() - 1;
      }
      if (found == loaded_.begin() && from_.points.rows > 0) rows_.own = static_cast<int>(rows_.parts.size());
      rows_.parts.push_back(*found);
    }
  }

  // Takes the state of the rank that has come farthest, if they differ.
  void share_state(const std::vector<words>& all) {
    const auto state_of = [](const words& from) {
      fit_state<T> made;
      made.run = from[k_run];
      made.iterations = from[k_iterations];
      made.stopped = from[k_stopped] != 0;
      return made;
    };
    std::size_t farthest = 0;
    bool alike = true;
    for (std::size_t p = 1; p < all.size(); ++p) {
      const fit_state<T> one = state_of(all[p]), best = state_of(all[farthest]);
      alike = alike && !one.behind(best) && !best.behind(one);
      if (best.behind(one)) farthest = p;
    }
    if (alike) return;
    const words own = over_.place() == farthest ? pack(state_) : words();
    const std::vector<words> states = over_.gather(std::span<const std::int64_t>(own));
    state_ = unpack<T>(states[farthest]);
  }

  const prepared& plan_;
  const data<T>& from_;
  const std::function<void(const progress&)> on_progress_;  // this rank's
  run::settings how_;
  bool fits_;
  wire::exchange& over_;
  std::vector<int> lost_before_;  // ranks that earlier calls have lost
  std::vector<row_owner> owners_;
  std::vector<row_part<T>> loaded_;  // the caller's rows first, if there are any
  rank_rows<T> rows_;
  fit_state<T> state_;
};

}  // namespace

template <class T>
report fit_in_group(const prepared& plan, const data<T>& from, const fit_results<T>& to, const run::settings& how) {
  const matrix_view<const T> given = plan.options.init == init::given ? from.centroids : matrix_view<const T>{};
  return group_call<T>(plan, from, how, true).run([&](driver<T>& on) {
    check_results(plan.one_token, plan.problem, to);
    return on.fit(plan.options, given, to);
  });
}

template <class T>
report predict_in_group(const prepared& plan, const data<T>& from, const prediction_results& to, const run::settings& how) {
  return group_call<T>(plan, from, how, false).run([&](driver<T>& on) {
    check_span(plan.one_token, "labels", to.labels, plan.problem.points);
    return on.predict(from.centroids, to);
  });
}

template <class T>
report transform_in_group(const prepared& plan, const data<T>& from, const matrix_view<T>& values, const run::settings& how) {
  return group_call<T>(plan, from, how, false).run([&](driver<T>& on) {
    if (plan.problem.points > 0) check_result(plan.one_token, "values", values, plan.problem.points, plan.problem.clusters);
    return on.transform(from.centroids, values);
  });
}

template report fit_in_group(const prepared&, const data<float>&, const fit_results<float>&, const run::settings&);
template report fit_in_group(const prepared&, const data<double>&, const fit_results<double>&, const run::settings&);
template report predict_in_group(const prepared&, const data<float>&, const prediction_results&, const run::settings&);
template report predict_in_group(const prepared&, const data<double>&, const prediction_results&, const run::settings&);
template report transform_in_group(const prepared&, const data<float>&, const matrix_view<float>&, const run::settings&);
template report transform_in_group(const prepared&, const data<double>&, const matrix_view<double>&, const run::settings&);

}  // namespace ballast::kmeans
