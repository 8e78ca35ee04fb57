// K-Means as a subject of strikes: three iterations of Lloyd's algorithm from given centroids, labels for given centroids (predict), and
// distances (transform), on random data without clusters, with points near every boundary; spherical k-means of their directions; a pass of
// mini-batches. Labels are judged by themselves (is there a nearer centroid?), everything else against the clean call.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>
#include <ballast/mini_batch.hpp>

#include "subject.hpp"
#include "support/half_precision.hpp"

namespace ballast::strike {
namespace {

constexpr int k_iterations = 3;
// docs/protection.md: a label passes if its squared distance is too large by at most this many u·(‖x‖ + ‖c‖)².
constexpr double k_label_floor = 100;
// docs/protection.md: the square of a distance of transform passes if it is off by at most this many (√n + 4 + n/8)·u·(‖x‖² + ‖c‖²), ‖c‖
// the largest. Its row check has one limit for the weighted sum of up to 64 distances: √3 · 2 (√n + 4 + n/8) u · 64 times the mean weight,
// and weights are in [1, 2) (thresholds::distance, cpu/distances-inl.hpp).
constexpr double k_distance_floor = 350;
// Sums are in double and verified. The remaining error is the rounding of a centroid, u·‖c‖, or of the inertia's terms, with a margin.
constexpr double k_sum_floor = 16;

template <class V>
bool same_bits(const V& a, const V& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

// It has that many members because a call has as many operands and results.
template <class T>
class kmeans_subject final : public subject {
 public:
  kmeans_subject(std::string_view operation, const kmeans::problem& wanted)
      : operation_(operation),
        size_(wanted),
        m_(wanted.points),
        n_(wanted.features),
        k_(wanted.clusters),
        fits_(wanted.batch),
        points_(normal<T>(m_ * n_ * fits_, 2)) {
    if (fits_ > 1 && operation_ != "kmeans") throw invalid_argument_error("expected a fit: predict and transform have no batches");
    if (size_.mini_batch != 0 && operation_ != "kmeans")
      throw invalid_argument_error("expected a fit: predict and transform have no mini-batches");
    if (sparse()) compress();
    if (half()) halve();
    // The first points of each data set.
    for (std::int64_t b = 0; b < fits_; ++b)
      given_.insert(given_.end(), points_.begin() + b * m_ * n_, points_.begin() + (b * m_ + k_) * n_);
    unscaled_ = points_;
    first_centroids_ = given_;
    if (size_.spherical) {
      divide_by_norms(points_);
      divide_by_norms(given_);
    }
    for (std::int64_t i = 0; i < m_ * fits_; ++i) norms_.push_back(norm(&points_[static_cast<std::size_t>(i * n_)]));
  }

  void prepare(const execution& where) override {
    if (size_.mini_batch != 0) {
      batches_.emplace(k_, n_, kmeans::mini_batch_options{.init = kmeans::init::given, .batch_size = size_.mini_batch, .max_iter = 1},
                       where);
    } else {
      plan_.emplace(size_, kmeans::options{.init = kmeans::init::given, .max_iter = k_iterations, .tol = 0}, where);
    }
    from_.set(sparse() ? stored_ : unscaled_);
    first_.set(first_centroids_);
  }
  void reset() override {
    if (operation_ == "transform") return values_.set_zero(m_ * k_);
    labels_.set_zero(m_ * fits_);
    if (operation_ == "kmeans") centroids_.set_zero(k_ * n_ * fits_);
    got_.inertia.assign(static_cast<std::size_t>(fits_), 0);
    got_.iterations.assign(static_cast<std::size_t>(fits_), 0);
    got_.stopped.assign(static_cast<std::size_t>(fits_), kmeans::stop_reason::max_iter);
  }
  report run(const call& now) override {
    const matrix_view<const T> points =
        sparse() || half() ? matrix_view<const T>{} : row_major(static_cast<const T*>(from_.data()), m_, n_);
    const matrix_view<const T> first = row_major(static_cast<const T*>(first_.data()), k_ * fits_, n_);
    kmeans::data<T> given{.points = points, .centroids = first};
    if (size_.storage == kmeans::storage::f16) given.half = row_major(std::as_const(halves16_).data(), m_, n_);
    if (size_.storage == kmeans::storage::bf16) given.half = row_major(std::as_const(brains16_).data(), m_, n_);
    if (sparse()) given.sparse = csr_view<const T, std::int32_t>{m_, n_, offsets_, columns_, {from_.data(), columns_.size()}};
    if (operation_ == "transform") return plan_->transform(given, row_major(values_.data(), m_, k_), now);
    if (operation_ == "predict") return plan_->predict(given, {.labels = labels_.all(), .inertia = got_.inertia.data()}, now);
    const matrix_view<T> centroids = row_major(centroids_.data(), k_ * fits_, n_);
    if (fits_ > 1)
      return plan_->fit(kmeans::batch_data<T>{.points = batch_of(points, fits_), .centroids = first},
                        kmeans::batch_results<T>{.centroids = centroids,
                                                 .labels = labels_.all(),
                                                 .inertia = got_.inertia,
                                                 .iterations = got_.iterations,
                                                 .stopped = got_.stopped},
                        now);
    const kmeans::fit_results<T> to{.centroids = centroids,
                                    .labels = labels_.all(),
                                    .inertia = got_.inertia.data(),
                                    .iterations = got_.iterations.data(),
                                    .stopped = got_.stopped.data()};
    if (!batches_) return plan_->fit(given, to, now);
    report made = batches_->fit(given, to, now);
    got_.weights = batches_->weights();
    return made;
  }
  void keep() override {
    read();
    // The rounding of a distance is measured on the clean results; at least one unit.
    effect own;
    if (operation_ == "transform") {
      judge_distances(own, true);
    } else {
      judge_labels(own);
    }
    rounding_ = std::max(own.roundings, 1.0);
    error_ = own.roundings * k_unit_roundoff<T>;
    kept_ = got_;
  }
  effect judge() override {
    read();
    effect seen;
    seen.same = same_bits(got_.centroids, kept_.centroids) && same_bits(got_.weights, kept_.weights) &&
                same_bits(got_.values, kept_.values) && got_.labels == kept_.labels && same_bits(got_.inertia, kept_.inertia) &&
                got_.iterations == kept_.iterations && got_.stopped == kept_.stopped;
    if (seen.same) return seen;
    if (operation_ == "transform") {
      judge_distances(seen, false);
      seen.roundings /= rounding_;
      return seen;
    }
    if (got_.iterations != kept_.iterations || got_.stopped != kept_.stopped || got_.weights != kept_.weights)
      seen.add(std::numeric_limits<double>::quiet_NaN(), 1, 1);
    effect labels;
    judge_labels(labels);
    labels.roundings /= rounding_;
    seen.add(labels.roundings > 1 ? labels.roundings : 0, 1, std::numeric_limits<double>::infinity());
    seen.add(labels.floors, std::numeric_limits<double>::infinity(), 1);
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(got_.centroids.size()) / n_; ++c) {
      double sum = 0;
      for (std::int64_t f = c * n_; f < (c + 1) * n_; ++f) {
        const double change = static_cast<double>(got_.centroids[static_cast<std::size_t>(f)]) -
                              static_cast<double>(kept_.centroids[static_cast<std::size_t>(f)]);
        sum += change * change;
      }
      const double unit = k_unit_roundoff<T> * norm(kept_.centroids.data() + c * n_);
      seen.add(std::sqrt(sum), unit, k_sum_floor * unit);
    }
    for (std::size_t b = 0; b < got_.inertia.size(); ++b) {
      const double unit = k_unit_roundoff<T> * kept_.inertia[b];
      seen.add(std::abs(got_.inertia[b] - kept_.inertia[b]), unit, k_sum_floor * unit);
    }
    return seen;
  }
  double clean_error() const override { return error_; }
  int number_bits() const override { return 8 * sizeof(T); }

 private:
  struct results {
    std::vector<T> centroids, values;
    std::vector<std::int32_t> labels;
    std::vector<double> inertia, weights;
    std::vector<int> iterations;
    std::vector<kmeans::stop_reason> stopped;
  };

  void read() {
    if (operation_ == "transform") {
      got_.values = values_.read();
      return;
    }
    got_.labels = labels_.read();
    if (operation_ == "kmeans") got_.centroids = centroids_.read();
  }

  bool sparse() const { return size_.storage == kmeans::storage::csr; }

  bool half() const { return size_.storage == kmeans::storage::f16 || size_.storage == kmeans::storage::bf16; }

  // Cuts the points to half precision.
  void halve() {
    const bool brain = size_.storage == kmeans::storage::bf16;
    for (T& each : points_) {
      const test::cut_number kept = test::cut_to_half(static_cast<float>(each), brain);
      each = static_cast<T>(kept.value);
      if (brain) brains16_.push_back({kept.bits});
      if (!brain) halves16_.push_back({kept.bits});
    }
  }

  // Keeps one element in eight of each point, and the elements of it in compressed rows.
  void compress() {
    for (std::int64_t i = 0; i < m_; ++i) {
      for (std::int64_t f = 0; f < n_; ++f) {
        T& x = points_[static_cast<std::size_t>(i * n_ + f)];
        if ((static_cast<std::uint64_t>(i * n_ + f) * 0x9e3779b97f4a7c15) >> 61 != 0) {
          x = 0;
          continue;
        }
        columns_.push_back(static_cast<std::int32_t>(f));
        stored_.push_back(x);
      }
      offsets_.push_back(static_cast<std::int32_t>(columns_.size()));
    }
  }

  // Makes rows unit vectors, as spherical k-means does.
  void divide_by_norms(std::vector<T>& rows) const {
    for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(n_)) {
      wide<T> sum = 0;
      for (std::size_t i = first; i < first + static_cast<std::size_t>(n_); ++i) sum += static_cast<wide<T>>(rows[i]) * rows[i];
      const wide<T> length = std::sqrt(sum);
      for (std::size_t i = first; i < first + static_cast<std::size_t>(n_); ++i) rows[i] = static_cast<T>(rows[i] / length);
    }
  }

  double norm(const T* x) const {
    double sum = 0;
    for (std::int64_t f = 0; f < n_; ++f) sum += static_cast<double>(x[f]) * static_cast<double>(x[f]);
    return std::sqrt(sum);
  }

  wide<T> square_distance(const T* x, const T* c) const {
    wide<T> sum = 0;
    for (std::int64_t f = 0; f < n_; ++f) {
      const wide<T> difference = static_cast<wide<T>>(x[f]) - static_cast<wide<T>>(c[f]);
      sum += difference * difference;
    }
    return sum;
  }

  // Judges each label by the excess of its distance over the smallest distance, both to the centroids of the same call. Labels that equal
  // those of the clean call, with the same centroids, are skipped.
  void judge_labels(effect& seen) const {
    const bool known = !kept_.labels.empty() && same_bits(got_.centroids, kept_.centroids);
    const std::vector<T>& all = operation_ == "predict" ? given_ : got_.centroids;
    for (std::int64_t i = 0; i < m_ * fits_; ++i) {
      const auto row = static_cast<std::size_t>(i);
      const std::int32_t label = got_.labels[row];
      if (known && label == kept_.labels[row]) continue;
      if (label < 0 || label >= k_) {
        seen.add(std::numeric_limits<double>::infinity(), 1, 1);
        continue;
      }
      const T* const own = all.data() + i / m_ * k_ * n_;
      const T* const x = &points_[static_cast<std::size_t>(i * n_)];
      wide<T> least = square_distance(x, own);
      for (std::int64_t c = 1; c < k_; ++c) least = std::min(least, square_distance(x, own + c * n_));
      const double size = norms_[row] + norm(own + label * n_);
      const double unit = k_unit_roundoff<T> * size * size;
      seen.add(static_cast<double>(square_distance(x, own + label * n_) - least), unit, k_label_floor * unit);
    }
  }

  // The square of the distance that a value of transform stands for; spherical k-means gives half of it.
  wide<T> square_of(T value) const { return size_.spherical ? 2 * static_cast<wide<T>>(value) : static_cast<wide<T>>(value) * value; }

  // Judges each distance by the change of its square, against the exact one if `exactly`, or the clean one.
  void judge_distances(effect& seen, bool exactly) const {
    double largest = 0;  // norm of a centroid
    for (std::int64_t c = 0; c < k_; ++c) largest = std::max(largest, norm(&given_[static_cast<std::size_t>(c * n_)]));
    for (std::int64_t e = 0; e < m_ * k_; ++e) {
      const auto at = static_cast<std::size_t>(e);
      if (!exactly && std::memcmp(&got_.values[at], &kept_.values[at], sizeof(T)) == 0) continue;
      const T* const x = &points_[static_cast<std::size_t>(e / k_ * n_)];
      const T* const c = &given_[static_cast<std::size_t>(e % k_ * n_)];
      const wide<T> clean = exactly ? square_distance(x, c) : square_of(kept_.values[at]);
      const double own = norms_[static_cast<std::size_t>(e / k_)], n = static_cast<double>(n_);
      const double unit = k_unit_roundoff<T> * (own * own + largest * largest);
      seen.add(static_cast<double>(std::abs(square_of(got_.values[at]) - clean)), unit,
               k_distance_floor * (std::sqrt(n) + 4 + n / 8) * unit);
    }
  }

  std::string operation_;
  kmeans::problem size_;
  std::int64_t m_, n_, k_, fits_;
  std::vector<T> points_, given_;                      // unit vectors for spherical k-means
  std::vector<T> unscaled_, first_centroids_;          // the operands of a call
  std::vector<std::int32_t> offsets_ = {0}, columns_;  // compressed rows, with `stored_`
  std::vector<T> stored_;
  std::vector<float16> halves16_;  // the points in half precision
  std::vector<bfloat16> brains16_;
  operand<T> from_, first_, centroids_, values_;
  operand<std::int32_t> labels_;
  std::optional<kmeans::plan<T>> plan_;
  std::optional<kmeans::mini_batch<T>> batches_;
  std::vector<double> norms_;
  results got_, kept_;
  double rounding_ = 1, error_ = 0;
};

}  // namespace

std::unique_ptr<subject> make_kmeans(std::string_view operation, std::string_view token) {
  const kmeans::problem parsed = kmeans::parse_token(token);
  if (parsed.precision == precision::f32) return std::make_unique<kmeans_subject<float>>(operation, parsed);
  return std::make_unique<kmeans_subject<double>>(operation, parsed);
}

}  // namespace ballast::strike
