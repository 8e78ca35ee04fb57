// The stage `kinds` of K-Means: points in float16 and bfloat16, and directions (spherical). Points and results lie in device memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "each_case.hpp"
#include "kinds.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/layout/serve_args.hpp"
#include "kmeans_stages.hpp"
#include "support/half_precision.hpp"

namespace ballast::gpu_check::clusters {
namespace {

namespace gpu = bench::gpu;
using index = std::int64_t;

constexpr int k_one_iteration = 1, k_iterations = 20;  // iterations of the timed fits
constexpr index k_numbers = 4'194'301;                 // numbers repeat after so many
constexpr index k_labels_compared = 1024;              // points whose labels are compared with exact ones

bool half(const kmeans::problem& what) { return what.storage == kmeans::storage::f16 || what.storage == kmeans::storage::bf16; }

struct fitted {
  std::vector<std::int32_t> labels;
  std::vector<float> centroids;
  double inertia = 0;
};

// The points of a problem, in its storage and in float, and memory for results.
class half_operands {
 public:
  explicit half_operands(const kmeans::problem& what)
      : what_(what), first_(what.clusters * what.features * 4), centroids_(first_.bytes()), labels_(what.points * 4) {
    const index all = what.points * what.features, count = std::min(all, k_numbers);
    values_ = points_of<float>({.points = count, .features = 1, .clusters = 1}, 0, 11);
    std::vector<std::uint16_t> bits;
    if (half(what)) {
      for (float& each : values_) {
        const test::cut_number kept = test::cut_to_half(each, what.storage == kmeans::storage::bf16);
        each = kept.value;
        bits.push_back(kept.bits);
      }
      halves_ = repeat(bits, all);
    } else {
      floats_ = repeat(values_, all);
    }
    for (index e = 0; e < what.clusters * what.features; ++e) start_.push_back(value(e));
    gpu::copy(first_.data(), start_.data(), first_.bytes());
    gpu::synchronize();
  }

  float value(index e) const { return values_[static_cast<std::size_t>(e % static_cast<index>(values_.size()))]; }
  const std::vector<float>& start() const { return start_; }
  const kmeans::problem& what() const { return what_; }

  kmeans::plan<float> plan(const kmeans::problem& what, int iterations, protection level) const {
    return kmeans::plan<float>(what, {.init = kmeans::init::given, .max_iter = iterations, .tol = 0},
                               {.backend = tested, .protection = level});
  }
  // A fit, or labels alone.
  double run(const kmeans::plan<float>& plan, bool fits) const {
    kmeans::data<float> from{.centroids = row_major(static_cast<const float*>(first_.data()), what_.clusters, what_.features)};
    const void* const points = (plan.problem().storage == kmeans::storage::dense ? floats_ : halves_).data();
    if (plan.problem().storage == kmeans::storage::f16)
      from.half = row_major(static_cast<const float16*>(points), what_.points, what_.features);
    else if (plan.problem().storage == kmeans::storage::bf16)
      from.half = row_major(static_cast<const bfloat16*>(points), what_.points, what_.features);
    else
      from.points = row_major(static_cast<const float*>(points), what_.points, what_.features);
    const std::span<std::int32_t> labels(static_cast<std::int32_t*>(labels_.data()), static_cast<std::size_t>(what_.points));
    const call now{.stream = gpu::stream()};
    double inertia = 0;
    const report seen = fits ? plan.fit(from,
                                        {.centroids = row_major(static_cast<float*>(centroids_.data()), what_.clusters, what_.features),
                                         .labels = labels,
                                         .inertia = &inertia},
                                        now)
                             : plan.predict(from, {.labels = labels, .inertia = &inertia}, now);
    if (seen.detected > 0) throw error("a false alarm: " + describe(seen));
    return inertia;
  }
  fitted results(double inertia) const {
    fitted made{std::vector<std::int32_t>(static_cast<std::size_t>(what_.points)),
                std::vector<float>(static_cast<std::size_t>(what_.clusters * what_.features)), inertia};
    gpu::copy(made.labels.data(), labels_.data(), labels_.bytes());
    gpu::copy(made.centroids.data(), centroids_.data(), centroids_.bytes());
    gpu::synchronize();
    return made;
  }
  // Makes the same numbers in float, for the fit that must have the same bits.
  void widen() { floats_ = repeat(values_, what_.points * what_.features); }

 private:
  template <class Number>
  static gpu::buffer repeat(const std::vector<Number>& numbers, index count) {
    constexpr auto size = static_cast<index>(sizeof(Number));
    gpu::buffer made(count * size);
    const auto all = static_cast<index>(numbers.size());
    for (index at = 0; at < count; at += all)
      gpu::copy(static_cast<char*>(made.data()) + at * size, numbers.data(), std::min(all, count - at) * size);
    gpu::synchronize();
    return made;
  }

  kmeans::problem what_;
  gpu::buffer halves_, floats_, first_, centroids_, labels_;
  std::vector<float> values_, start_;
};

// How much farther the given centroid of a point is than the nearest one, of the largest of some points; by the squared distance, or by the
// cosine. Bound: the rounding of these sums in double; by the cosine that of unit vectors in float.
measured_error error_of_labels(const half_operands& with, const std::vector<std::int32_t>& labels) {
  const kmeans::problem& what = with.what();
  double worst = 0;
  const index step = std::max<index>(1, what.points / k_labels_compared);
  for (index i = 0; i < what.points; i += step) {
    double least = std::numeric_limits<double>::infinity(), own = least, size = 0;
    const auto label = labels[static_cast<std::size_t>(i)];
    if (label < 0 || label >= what.clusters) return {least, 1};
    for (index c = 0; c < what.clusters; ++c) {
      double distance = 0, dot = 0, x_square = 0, c_square = 0;
      for (index f = 0; f < what.features; ++f) {
        const double x = with.value(i * what.features + f), y = with.start()[static_cast<std::size_t>(c * what.features + f)];
        distance += (x - y) * (x - y);
        dot += x * y;
        x_square += x * x;
        c_square += y * y;
      }
      size = what.spherical ? 1 : std::max(size, x_square + c_square);
      const double now = what.spherical ? 1 - dot / std::sqrt(x_square * c_square) : distance;
      least = std::min(least, now);
      if (c == label) own = now;
    }
    worst = std::max(worst, (own - least) / size);
  }
  const double rounding = what.spherical ? std::numeric_limits<float>::epsilon() / 2 : std::numeric_limits<double>::epsilon() / 2;
  return {worst, 8 * (what.spherical ? 1.0 : static_cast<double>(what.features)) * rounding};
}

// The difference of the inertia from Σ (1 − cos) of the labels and centroids, relative. Bound: each unit vector is rounded once.
measured_error error_of_inertia(const half_operands& with, const fitted& found) {
  const kmeans::problem& what = with.what();
  double sum = 0;
  for (index i = 0; i < what.points; ++i) {
    double dot = 0, x_square = 0, c_square = 0;
    for (index f = 0; f < what.features; ++f) {
      const double x = with.value(i * what.features + f);
      const double y = found.centroids[static_cast<std::size_t>(found.labels[static_cast<std::size_t>(i)] * what.features + f)];
      dot += x * y;
      x_square += x * x;
      c_square += y * y;
    }
    sum += 1 - dot / std::sqrt(x_square * c_square);
  }
  return {std::abs(found.inertia - sum) / sum, 8 * std::numeric_limits<float>::epsilon()};
}

void check_results(half_operands& with, const std::string& token, tally& seen) {
  const kmeans::problem& what = with.what();
  for (const protection level : {protection::off, protection::correct}) {
    const char* const manner = level == protection::off ? "off" : "correct";
    check_kind(seen, token, std::string("predict, ") + manner,
               [&] { return error_of_labels(with, with.results(with.run(with.plan(what, k_one_iteration, level), false)).labels); });
  }
  check_kind(seen, token, what.spherical ? "fit, inertia" : "fit, same bits as in f32", [&]() -> measured_error {
    const fitted found = with.results(with.run(with.plan(what, k_iterations, protection::correct), true));
    if (what.spherical) return error_of_inertia(with, found);
    with.widen();
    kmeans::problem wide = what;
    wide.storage = kmeans::storage::dense;
    const fitted same = with.results(with.run(with.plan(wide, k_iterations, protection::correct), true));
    double different = found.inertia != same.inertia;
    for (std::size_t i = 0; i < found.labels.size(); ++i) different += found.labels[i] != same.labels[i];
    for (std::size_t i = 0; i < found.centroids.size(); ++i) different += found.centroids[i] != same.centroids[i];
    return {different, 0.5};
  });
}

void time_kind(const std::string& token, double seconds, tally& seen) {
  half_operands with(kmeans::parse_token(token));
  struct kind_of_call {
    const char* name;
    int iterations;
    bool fits;
  };
  for (const kind_of_call& kind : {kind_of_call{"fit, 1 iteration", k_one_iteration, true},
                                   {"fit, 20 iterations", k_iterations, true},
                                   {"predict", k_one_iteration, false}}) {
    const kmeans::plan<float> plans[] = {with.plan(with.what(), kind.iterations, protection::off),
                                         with.plan(with.what(), kind.iterations, protection::correct)};
    std::vector<call_variant> variants;
    for (const int v : {0, 1}) variants.push_back({v == 0 ? "off" : "correct", {}, [&, v] { (void)with.run(plans[v], kind.fits); }});
    (void)time_call({token, kind.name, k_kind_row}, variants, 0.25 * seconds);
  }
  check_results(with, token, seen);
}

}  // namespace

std::vector<std::string> kinds_set(bool quick) {
  if (quick) return {"kmeans_bf16_m3000_n8_k8", "kmeans_f16_m2000_n16_k20", "kmeans_f32_m2000_n16_k20_spherical"};
  return {"kmeans_bf16_m1048576_n128_k128", "kmeans_f16_m1048576_n128_k128",          "kmeans_bf16_m262144_n256_k1024",
          "kmeans_f16_m262144_n256_k1024",  "kmeans_bf16_m65536_n1024_k256",          "kmeans_bf16_m1048576_n64_k1024",
          "kmeans_bf16_m1048576_n16_k64",   "kmeans_f32_m1048576_n128_k128_spherical"};
}

void check_kind_token(std::string_view token) {
  const kmeans::problem what = kmeans::parse_token(token);
  if (what.precision != precision::f32 || what.batch != 1 || (!half(what) && !what.spherical))
    throw invalid_argument_error(std::string(token) + ": expected points in f16 or bf16, or directions in f32, got others");
}

void record_kinds(test::recording_device& on, const settings& wanted) {
  for (const std::string& token : wanted.tokens.empty() ? kinds_set(wanted.quick) : wanted.tokens) {
    const kmeans::problem what = kmeans::parse_token(token);
    on.user = token;
    for (const bool check : {true, false}) {
      for (const bool sums : {true, false}) {
        for (const cuda::kernel_request& each :
             kmeans::cuda::kernels_of({false, what.features, what.clusters, 1, false, check, sums}, on.about(), false))
          (void)on.load(each);
      }
    }
    if (half(what)) {
      for (const cuda::kernel_request& each : kmeans::cuda::kernel_names<float>::all(1, false, true)) (void)on.load(each);
      if (kmeans::cuda::serves_labels(what.features, what.clusters))
        (void)on.load(kmeans::cuda::kernel_names<float>::serve(what.features, what.clusters, true, false));
    }
    if (what.spherical) (void)on.load(kmeans::cuda::kernel_names<float>::unit_rows(half(what), false));
  }
}

int kinds(const settings& wanted, const time_limit& limit) {
  tally seen;
  return each_kind(wanted.tokens.empty() ? kinds_set(wanted.quick) : wanted.tokens, limit, seen,
                   [&](const std::string& token, double seconds) { time_kind(token, seconds, seen); });
}

}  // namespace ballast::gpu_check::clusters
