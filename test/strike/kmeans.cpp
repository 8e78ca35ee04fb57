// K-Means as a subject of strikes: three iterations of Lloyd's algorithm from given centroids, on random data without clusters, with points
// near every boundary. Labels are judged by themselves (is there a nearer centroid?), centroids and inertia against the clean call.
#include <algorithm>
#include <cstring>
#include <optional>

#include <ballast/kmeans.hpp>

#include "subject.hpp"

namespace ballast::strike {
namespace {

constexpr int k_iterations = 3;
// docs/protection.md: a label passes if its squared distance is too large by at most this many u·(‖x‖ + ‖c‖)².
constexpr double k_label_floor = 100;
// Sums are in double and verified. The remaining error is the rounding of a centroid, u·‖c‖, or of the inertia's terms, with a margin.
constexpr double k_sum_floor = 16;

template <class T>
class kmeans_subject final : public subject {
 public:
  explicit kmeans_subject(const kmeans::problem& wanted)
      : size_(wanted), m_(wanted.points), n_(wanted.features), k_(wanted.clusters), points_(normal<T>(m_ * n_, 2)) {
    for (std::int64_t i = 0; i < m_; ++i) norms_.push_back(norm(&points_[static_cast<std::size_t>(i * n_)]));
  }

  void prepare(const execution& where) override {
    plan_.emplace(size_, kmeans::options{.init = kmeans::init::given, .max_iter = k_iterations, .tol = 0}, where);
  }
  void reset() override {
    got_ = {};
    got_.centroids = matrix<T>(k_, n_);
    got_.labels.resize(static_cast<std::size_t>(m_));
  }
  report run(const call& now) override {
    const T* const points = points_.data();
    return plan_->fit({.points = row_major(points, m_, n_), .centroids = row_major(points, k_, n_)},
                      {.centroids = got_.centroids.view(),
                       .labels = got_.labels,
                       .inertia = &got_.inertia,
                       .iterations = &got_.iterations,
                       .stopped = &got_.stopped},
                      now);
  }
  void keep() override {
    kept_ = got_;
    effect own;
    judge_labels(own);
    // The rounding of a distance is measured on the clean labels; at least one unit.
    label_rounding_ = std::max(own.roundings, 1.0);
    error_ = own.roundings * k_unit_roundoff<T>;
  }
  effect judge() override {
    effect seen;
    if (got_.centroids.size() != kept_.centroids.size() || got_.labels.size() != kept_.labels.size()) {
      seen.same = false;
      seen.add(std::numeric_limits<double>::quiet_NaN(), 1, 1);
      return seen;
    }
    seen.same = std::memcmp(got_.centroids.data(), kept_.centroids.data(), kept_.centroids.size() * sizeof(T)) == 0 &&
                got_.labels == kept_.labels && std::memcmp(&got_.inertia, &kept_.inertia, sizeof got_.inertia) == 0 &&
                got_.iterations == kept_.iterations && got_.stopped == kept_.stopped;
    if (seen.same) return seen;
    if (got_.iterations != kept_.iterations || got_.stopped != kept_.stopped) seen.add(std::numeric_limits<double>::quiet_NaN(), 1, 1);
    effect labels;
    judge_labels(labels);
    labels.roundings /= label_rounding_;
    seen.roundings = labels.roundings > 1 ? labels.roundings : 0;
    seen.floors = labels.floors;
    for (std::int64_t c = 0; c < k_; ++c) {
      double sum = 0;
      for (std::int64_t f = 0; f < n_; ++f) {
        const double change = static_cast<double>(got_.centroids(c, f)) - static_cast<double>(kept_.centroids(c, f));
        sum += change * change;
      }
      const double unit = k_unit_roundoff<T> * norm(kept_.centroids.data() + c * n_);
      seen.add(std::sqrt(sum), unit, k_sum_floor * unit);
    }
    const double unit = k_unit_roundoff<T> * kept_.inertia;
    seen.add(std::abs(got_.inertia - kept_.inertia), unit, k_sum_floor * unit);
    return seen;
  }
  double clean_error() const override { return error_; }

 private:
  double norm(const T* x) const {
    double sum = 0;
    for (std::int64_t f = 0; f < n_; ++f) sum += static_cast<double>(x[f]) * static_cast<double>(x[f]);
    return std::sqrt(sum);
  }

  // Judges each label by the excess of its distance over the smallest distance, both to the centroids of the same call. Labels that equal
  // those of the clean call, with the same centroids, are skipped.
  void judge_labels(effect& seen) const {
    const bool centroids_same =
        kept_.centroids.size() != 0 && std::memcmp(got_.centroids.data(), kept_.centroids.data(), kept_.centroids.size() * sizeof(T)) == 0;
    using W = wide<T>;
    for (std::int64_t i = 0; i < m_; ++i) {
      const auto row = static_cast<std::size_t>(i);
      const std::int32_t label = got_.labels[row];
      if (centroids_same && label == kept_.labels[row]) continue;
      if (label < 0 || label >= k_) {
        seen.add(std::numeric_limits<double>::infinity(), 1, 1);
        continue;
      }
      const auto distance = [&](std::int64_t c) {
        W sum = 0;
        for (std::int64_t f = 0; f < n_; ++f) {
          const W difference = static_cast<W>(points_[static_cast<std::size_t>(i * n_ + f)]) - static_cast<W>(got_.centroids(c, f));
          sum += difference * difference;
        }
        return sum;
      };
      W least = distance(0);
      for (std::int64_t c = 1; c < k_; ++c) least = std::min(least, distance(c));
      const double size = norms_[row] + norm(got_.centroids.data() + label * n_);
      const double unit = k_unit_roundoff<T> * size * size;
      seen.add(static_cast<double>(distance(label) - least), unit, k_label_floor * unit);
    }
  }

  kmeans::problem size_;
  std::int64_t m_, n_, k_;
  std::vector<T> points_;
  std::optional<kmeans::plan<T>> plan_;
  std::vector<double> norms_;
  kmeans::model<T> got_, kept_;
  double label_rounding_ = 1, error_ = 0;
};

}  // namespace

std::unique_ptr<subject> make_kmeans(std::string_view token) {
  const kmeans::problem parsed = kmeans::parse_token(token);
  if (parsed.precision == precision::f32) return std::make_unique<kmeans_subject<float>>(parsed);
  return std::make_unique<kmeans_subject<double>>(parsed);
}

}  // namespace ballast::strike
