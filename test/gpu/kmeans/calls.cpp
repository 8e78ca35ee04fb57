// Whole calls of K-Means: fits from given centroids and with seeding, predict, transform; points and results in device memory.
#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "calls.hpp"
#include "each_case.hpp"
#include "kmeans_stages.hpp"

namespace ballast::gpu_check::clusters {
namespace {

namespace gpu = bench::gpu;

enum class what_runs : std::uint8_t { fit, predict, transform };

struct kind_of_call {
  const char* name;
  what_runs runs = what_runs::fit;
  kmeans::init init = kmeans::init::given;
  int iterations = 300;  // the most of a fit
  double tol = 1e-4;
};

constexpr kind_of_call k_calls[] = {
    {"fit, 1 iteration", what_runs::fit, kmeans::init::given, 1, 0},
    {"fit, 20 iterations", what_runs::fit, kmeans::init::given, 20, 0},
    {"fit, 100 iterations", what_runs::fit, kmeans::init::given, 100, 0},
    {"predict", what_runs::predict},
    {"transform", what_runs::transform},
    {"fit, k-means++", what_runs::fit, kmeans::init::kmeans_plus_plus},
    {"fit, k-means‖", what_runs::fit, kmeans::init::kmeans_parallel},
};
constexpr std::size_t k_sampled_call = 1;  // the call that is also timed with execution::sampled
constexpr std::size_t k_seeded = 5;        // calls from here on begin with seeding
constexpr std::size_t k_of_rows = 4;       // the calls of points in compressed rows that compute on the device

// Points repeat after so many numbers: random ones for all would take the host longer than all calls.
constexpr std::int64_t k_different = std::int64_t{1} << 24;

// Points in compressed rows, of which one element in 200 is stored, at random places; and the first of them as centroids. Nothing where the
// points are a matrix.
template <class T>
struct random_rows {
  std::vector<std::int32_t> offsets = {0}, columns;
  std::vector<T> values, centroids;

  explicit random_rows(const kmeans::problem& what) {
    if (what.storage != kmeans::storage::csr) return;
    constexpr std::int64_t gap = 200;
    std::mt19937 random(1);
    std::uniform_real_distribution<T> uniform(T(0.05), T(1));
    centroids.resize(static_cast<std::size_t>(what.clusters * what.features));
    for (std::int64_t i = 0; i < what.points; ++i) {
      for (std::int64_t f = random() % (2 * gap); f < what.features; f += 1 + static_cast<std::int64_t>(random() % (2 * gap - 1))) {
        columns.push_back(static_cast<std::int32_t>(f));
        values.push_back(uniform(random));
        if (i < what.clusters) centroids[static_cast<std::size_t>(i * what.features + f)] = values.back();
      }
      offsets.push_back(static_cast<std::int32_t>(columns.size()));
    }
  }
};

template <class T>
class operands {
 public:
  explicit operands(const kmeans::problem& what) : operands(what, random_rows<T>(what)) {}
  operands(const kmeans::problem& what, const random_rows<T>& rows)
      : what_(what),
        stored_(static_cast<std::int64_t>(rows.values.size())),
        points_((sparse() ? stored_ : what.points * what.features) * size),
        columns_(std::max<std::int64_t>(stored_ * 4, 4)),
        offsets_((what.points + 1) * 4),
        first_(what.clusters * what.features * size),
        centroids_(first_.bytes()),
        distances_(what.points * what.clusters * size),
        labels_(what.points * 4) {
    if (sparse()) {
      gpu::copy(points_.data(), rows.values.data(), stored_ * size);
      gpu::copy(columns_.data(), rows.columns.data(), stored_ * 4);
      gpu::copy(offsets_.data(), rows.offsets.data(), offsets_.bytes());
      gpu::copy(first_.data(), rows.centroids.data(), first_.bytes());
      gpu::synchronize();
      return;
    }
    kmeans::problem part = what;
    part.points = std::min(what.points, std::max<std::int64_t>(k_different / what.features, what.clusters));
    const std::vector<T> values = points_of<T>(part, 0, 11);
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
    for (std::int64_t at = 0; at < points_.bytes(); at += bytes)
      gpu::copy(static_cast<char*>(points_.data()) + at, values.data(), std::min(bytes, points_.bytes() - at));
    gpu::copy(first_.data(), values.data(), first_.bytes());
    gpu::synchronize();
  }

  kmeans::plan<T> plan(const kind_of_call& kind, protection level, int sampled = 1) const {
    return kmeans::plan<T>(what_, {.init = kind.init, .max_iter = kind.iterations, .tol = kind.tol},
                           {.backend = tested, .protection = level, .sampled = sampled});
  }
  // Ten calls take seconds with the largest problems.
  bool small() const { return (sparse() ? stored_ : what_.points * what_.features) <= std::int64_t{1} << 28; }
  // Returns the iterations of a fit, or 0.
  int run(const kmeans::plan<T>& plan, const kind_of_call& kind) const {
    kmeans::data<T> from{.centroids = row_major(static_cast<const T*>(first_.data()), what_.clusters, what_.features)};
    const auto* const values = static_cast<const T*>(points_.data());
    if (sparse()) {
      const auto array = [](const auto* first, std::int64_t count) { return std::span(first, static_cast<std::size_t>(count)); };
      from.sparse = csr_view<const T, std::int32_t>{
          what_.points, what_.features, array(static_cast<const std::int32_t*>(offsets_.data()), what_.points + 1),
          array(static_cast<const std::int32_t*>(columns_.data()), stored_), array(values, stored_)};
    } else {
      from.points = row_major(values, what_.points, what_.features);
    }
    const std::span<std::int32_t> labels(static_cast<std::int32_t*>(labels_.data()), static_cast<std::size_t>(what_.points));
    const call now{.stream = gpu::stream()};
    double inertia = 0;
    int iterations = 0;
    report seen;
    if (kind.runs == what_runs::predict) {
      seen = plan.predict(from, {.labels = labels, .inertia = &inertia}, now);
    } else if (kind.runs == what_runs::transform) {
      seen = plan.transform(from, row_major(static_cast<T*>(distances_.data()), what_.points, what_.clusters), now);
    } else {
      seen = plan.fit(from,
                      {.centroids = row_major(static_cast<T*>(centroids_.data()), what_.clusters, what_.features),
                       .labels = labels,
                       .inertia = &inertia,
                       .iterations = &iterations},
                      now);
    }
    if (seen.detected > 0) throw error("a false alarm: " + describe(seen));
    return iterations;
  }

 private:
  static constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  bool sparse() const { return what_.storage == kmeans::storage::csr; }

  kmeans::problem what_;
  std::int64_t stored_;
  gpu::buffer points_, columns_, offsets_, first_, centroids_, distances_, labels_;
};

template <class T>
int time(const std::string& token, bool quick, double seconds) {
  const time_limit limit(seconds);
  const operands<T> with(kmeans::parse_token(token));
  const bool many = kmeans::parse_token(token).clusters * 100 > kmeans::parse_token(token).points;  // seeding is of interest
  std::vector<const kind_of_call*> kinds;
  const std::size_t end = kmeans::parse_token(token).storage == kmeans::storage::csr ? k_of_rows : std::size(k_calls);
  for (std::size_t i = many ? k_seeded : 0; i < end; ++i) {
    if (!quick || i % 2 == 0) kinds.push_back(&k_calls[i]);
  }
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const kind_of_call& kind = *kinds[i];
    const double share = limit.left() / static_cast<double>(kinds.size() - i);
    const whole_call what{token, kind.name};
    const kmeans::plan<T> plans[] = {with.plan(kind, protection::off), with.plan(kind, protection::correct),
                                     with.plan(kind, protection::final_only), with.plan(kind, protection::correct, k_sampled)};
    std::vector<call_variant> variants;
    int iterations = 0;
    const auto add = [&](const char* name, std::size_t v, int calls) {
      variants.push_back({name, {}, [&, v, calls] {
                            for (int c = 0; c < calls; ++c) iterations = with.run(plans[v], kind);
                          }});
      variants.back().calls = calls;
    };
    add("off", 0, 1);
    add("correct", 1, 1);
    if (kind.runs == what_runs::fit) add("final_only", 2, 1);
    if (&kind == &k_calls[k_sampled_call] && with.small()) add("sampled", 3, k_sampled);
    const double once = time_call(what, variants, 0.6 * share);
    if (iterations > 0) row("call detail").add("token", token).add("call", kind.name).add("iterations", iterations).print();
    if (tested != backend::cuda || 2 * once > limit.left()) continue;
    const profiling_scope scope;
    for (const protection level : {protection::off, protection::correct}) {
      const kmeans::plan<T> plan = with.plan(kind, level);
      profile_call(scope.device(), what, level == protection::off ? "off" : "correct", [&] { (void)with.run(plan, kind); });
    }
  }
  return 0;
}

}  // namespace

std::vector<std::string> called_set(bool quick) {
  if (quick) return {"kmeans_f32_m3000_n8_k8", "kmeans_f64_m2000_n16_k20"};
  return {"kmeans_f32_m131072_n8_k8",         "kmeans_f32_m131072_n64_k8",      "kmeans_f32_m131072_n128_k128",
          "kmeans_f32_m1048576_n16_k64",      "kmeans_f32_m1048576_n128_k128",  "kmeans_f32_m65536_n1024_k256",
          "kmeans_f32_m262144_n256_k1024",    "kmeans_f32_m1048576_n64_k1024",  "kmeans_f32_m10485760_n32_k64",
          "kmeans_f32_m1327_n33_k1327",       "kmeans_f32_m100000_n16_k2000",   "kmeans_f64_m1048576_n16_k64",
          "kmeans_f64_m1048576_n128_k128",    "kmeans_f32_m4194304_n128_k1000", "kmeans_f32_m100000_n10000_k100_csr",
          "kmeans_f32_m1000000_n2000_k20_csr"};
}

int calls(const settings& wanted, const time_limit& limit) {
  const std::vector<std::string> tokens = wanted.tokens.empty() ? called_set(wanted.quick) : wanted.tokens;
  std::size_t left = tokens.size();
  return time_each(tokens, kmeans::parse_token, limit, "call", [&](auto zero, const std::string& token) {
    return time<decltype(zero)>(token, wanted.quick, limit.left() / static_cast<double>(left--));
  });
}

// The first call of this process: the device, the plan, the kernels, the call.
int first_call(const settings& wanted, const time_limit& limit) {
  static_cast<void>(limit);
  if (wanted.tokens.size() != 1) throw invalid_argument_error("first_call: expected one TOKEN");
  const std::string& token = wanted.tokens[0];
  const kind_of_call& kind = k_calls[1];
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const operands<T> with(kmeans::parse_token(token));
    print_first_call({token, kind.name}, [&] { (void)with.run(with.plan(kind, protection::correct), kind); });
  };
  if (kmeans::parse_token(token).precision == precision::f32) {
    run(float());
  } else {
    run(double());
  }
  return 0;
}

}  // namespace ballast::gpu_check::clusters
