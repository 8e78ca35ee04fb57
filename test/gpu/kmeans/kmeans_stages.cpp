// K-Means as an algorithm of gpu-check: its problems and their kernels.
#include "kmeans_stages.hpp"

#include <algorithm>

#include <ballast/error.hpp>

#include "../../strike/subjects/subject.hpp"
#include "algorithm.hpp"
#include "core/counter_rng.hpp"
#include "distributed.hpp"
#include "each_case.hpp"
#include "inject/injector.hpp"
#include "kmeans/cuda/engine/kernels.hpp"

namespace ballast::gpu_check {
namespace clusters {

std::vector<std::string> verified_set(bool quick) {
  std::vector<std::string> made = kmeans::cuda::verified_problems();
  if (quick) made.resize(9);
  return made;
}

std::vector<std::string> sanitized_set() { return kmeans::cuda::sanitized_problems(); }

std::vector<std::string> timed_set(bool quick) {
  std::vector<std::string> made = kmeans::cuda::benchmark_problems();
  if (quick) made.resize(4);
  return made;
}

template <class T>
std::vector<T> points_of(const kmeans::problem& what, std::int64_t centres, std::uint64_t seed) {
  const std::int64_t rows = what.points * what.batch;
  std::vector<T> made(static_cast<std::size_t>(rows * what.features));
  work_in_threads(rows, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::uint64_t centre =
          centres > 0 ? core::random_bits(seed, 9, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(centres) : 0;
      for (std::int64_t f = 0; f < what.features; ++f) {
        const auto e = static_cast<std::uint64_t>(i * what.features + f);
        double x = nearly_normal(seed, 1, e);
        if (centres > 0)
          x = 0.4 * x + 2 * nearly_normal(seed, 2, centre * static_cast<std::uint64_t>(what.features) + static_cast<std::uint64_t>(f));
        made[e] = static_cast<T>(x);
      }
    }
  });
  return made;
}

template std::vector<float> points_of(const kmeans::problem&, std::int64_t, std::uint64_t);
template std::vector<double> points_of(const kmeans::problem&, std::int64_t, std::uint64_t);

namespace {

void record_sparse(test::recording_device& on, bool f64, bool instrumented) {
  for (const ballast::cuda::kernel_request& each :
       f64 ? kmeans::cuda::kernel_names<double>::sparse(instrumented) : kmeans::cuda::kernel_names<float>::sparse(instrumented))
    (void)on.load(each);
}

// Records each problem with and without protection.
int record(test::recording_device& on, const settings& wanted) {
  if (wanted.only_kinds()) {
    record_kinds(on, wanted);
    return 0;
  }
  const auto add = [&](const std::string& token, bool weighted, bool wide) {
    const kmeans::problem what = kmeans::parse_token(token);
    const bool f64 = what.precision == precision::f64;
    on.user = token;
    if (what.storage == kmeans::storage::csr) {
      record_sparse(on, f64, false);
      if (inject::active_injector::enabled) record_sparse(on, f64, true);
      return;
    }
    if (what.batch > 1) {
      for (const bool enqueued : {false, true}) {
        (void)on.load(kmeans::cuda::batch_request(what, on.about(), false, enqueued));
        if (inject::active_injector::enabled) (void)on.load(kmeans::cuda::batch_request(what, on.about(), true, enqueued));
      }
      return;
    }
    for (const bool check : {true, false}) {
      for (const ballast::cuda::kernel_request& each :
           kmeans::cuda::kernels_of({f64, what.features, what.clusters, f64 || wide ? 2 : 1, weighted, check, true}, on.about(),
                                    inject::active_injector::enabled))
        (void)on.load(each);
      if (inject::active_injector::enabled)
        for (const ballast::cuda::kernel_request& each :
             kmeans::cuda::kernels_of({f64, what.features, what.clusters, f64 || wide ? 2 : 1, weighted, check, true}, on.about(), false))
          (void)on.load(each);
    }
  };
  if (!wanted.tokens.empty()) {
    for (const std::string& token : wanted.tokens) add(token, false, false);
    return 0;
  }
  for (const std::string& token : verified_set(wanted.quick)) add(token, false, false);
  for (const std::string& token : sanitized_set()) {
    add(token, false, false);
    add(token, true, false);
    add(token, false, true);
  }
  if (!inject::active_injector::enabled) {
    for (const std::string& token : timed_set(wanted.quick)) add(token, false, false);
    for (const std::string& token : called_set(wanted.quick)) add(token, false, false);
  }
  for (const std::string& token : swept_set(true)) {
    on.user = token;
    std::vector<ballast::cuda::kernel_request> more;
    add_sweep_kernels(token, on.about(), more);
    for (const ballast::cuda::kernel_request& each : more) (void)on.load(each);
  }
  return 0;
}

// One pass of about a thousand points, so that a call takes about a millisecond, for each storage of packed centroids and sums that so
// few points choose; a batch; labels alone and distances.
std::vector<std::string> strike_set(bool quick) {
  return in_both_precisions(
      {"kmeans_%_m2000_n16_k20", "predict_%_m2000_n16_k20", "transform_%_m1000_n16_k20", "kmeans_%_m200_n8_k6_b24",
       "kmeans_%_m1500_n40_k150", "predict_%_m1500_n40_k150", "kmeans_%_m2000_n200_k20_csr", "predict_%_m1500_n100_k90_csr"},
      quick);
}

void record_subject(test::recording_device& on, const std::string& name) {
  const kmeans::problem what = kmeans::parse_token(strike::parse_subject(name).token);
  const bool f64 = what.precision == precision::f64;
  if (what.storage == kmeans::storage::csr) return record_sparse(on, f64, false);
  if (what.batch > 1) {
    (void)on.load(kmeans::cuda::batch_request(what, on.about(), false, false));
    return;
  }
  for (const bool check : {true, false}) {
    for (const ballast::cuda::kernel_request& each :
         kmeans::cuda::kernels_of({f64, what.features, what.clusters, f64 ? 2 : 1, false, check, true}, on.about(), false))
      (void)on.load(each);
  }
}

void check_token(std::string_view text, std::string_view stage) {
  if (stage == "kinds") return check_kind_token(text);
  const kmeans::problem what = kmeans::parse_token(text);
  const bool rows = stage == "calls" && what.storage == kmeans::storage::csr;
  if (stage != "strike" && !rows && (what.storage != kmeans::storage::dense || what.spherical))
    throw invalid_argument_error(std::string(text) + ": expected points in a matrix of f32 or f64, which this stage takes, got others");
}

void list(const settings& wanted) {
  print_problems("strike", strike_set(wanted.quick), [](const std::string& name) { return strike::parse_subject(name); });
  print_problems("accuracy", verified_set(wanted.quick), kmeans::parse_token);
  print_problems("sanitize", sanitized_set(), kmeans::parse_token);
  print_problems("bench", timed_set(wanted.quick), kmeans::parse_token);
  print_problems("calls", called_set(wanted.quick), kmeans::parse_token);
  print_problems("kinds", kinds_set(wanted.quick), kmeans::parse_token);
  print_problems("sweep", swept_set(wanted.quick), kmeans::parse_token);
}

}  // namespace
}  // namespace clusters

const algorithm& kmeans_algorithm() {
  static const algorithm made = {.name = "kmeans",
                                 .stages = {{"verify", clusters::verify},
                                            {"sanitize", clusters::sanitize},
                                            {"bench", clusters::bench},
                                            {"calls", clusters::calls},
                                            {"first_call", clusters::first_call},
                                            {"kinds", clusters::kinds},
                                            {"sweep", clusters::sweep},
                                            {"tune", clusters::tune}},
                                 .record = clusters::record,
                                 .list = clusters::list,
                                 .check_token = clusters::check_token,
                                 .strike_set = clusters::strike_set,
                                 .record_subject = clusters::record_subject};
  return made;
}

}  // namespace ballast::gpu_check
