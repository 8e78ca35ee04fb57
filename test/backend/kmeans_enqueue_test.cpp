// Fits of K-Means that are enqueued on a stream, on the emulator: the results of the same fits with a waiting host; several executions, as
// a graph has them; the caller's workspace; refusals; faults at every site of the kernel, which the device verifies and repairs.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "backend/kmeans_cases.hpp"
#include "core/at.hpp"
#include "inject/plan.hpp"
#include "kmeans/sites.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
using core::at;

namespace {

constexpr std::int64_t k_fits = 2, k_points = 30, k_features = 3, k_clusters = 4;

template <class T>
class kmeans_enqueue : public testing::Test {
 protected:
  // The results of all fits in device memory, the centroids with one number between rows, and those of the host.
  struct memory {
    ballast::cuda::device_buffer centroids, labels;
    std::vector<double> inertia = std::vector<double>(at(k_fits), -77);
    std::vector<int> iterations = std::vector<int>(at(k_fits), -77);
    std::vector<stop_reason> stopped = std::vector<stop_reason>(at(k_fits), stop_reason::max_iter);
    batch_results<T> places() {
      return {{static_cast<T*>(centroids.data()), k_fits * k_clusters, k_features, k_features + 1, 1},
              {static_cast<std::int32_t*>(labels.data()), at(k_fits * k_points)},
              inertia,
              iterations,
              stopped};
    }
  };
  // The same on the host, without gaps.
  struct values {
    std::vector<T> centroids;
    std::vector<std::int32_t> labels;
    std::vector<double> inertia;
    std::vector<int> iterations;
    std::vector<stop_reason> stopped;
    bool operator==(const values&) const = default;
  };

  kmeans_enqueue() {
    for (std::int64_t b = 0; b < k_fits; ++b) {
      const data_set<T> one = clouds<T>(k_points, k_features, 4, static_cast<unsigned>(30 + b), 0.3);
      points_.insert(points_.end(), one.values.begin(), one.values.end());
    }
    for (std::int64_t i = 0; i < k_fits * k_points; ++i) weights_.push_back(static_cast<T>(i % 6 == 0 ? 0 : 1 + i % 3));
    upload();
  }
  void upload() {
    there_ = copied(points_);
    weights_there_ = copied(weights_);
  }
  ballast::cuda::device_buffer copied(const std::vector<T>& from) const {
    ballast::cuda::device_buffer made(device_, static_cast<std::int64_t>(from.size() * sizeof(T)));
    device_->copy(made.data(), from.data(), made.bytes(), nullptr);
    return made;
  }
  // Given centroids are the first points of each set, which lie apart: rows of a view that leaves out the others.
  batch_data<T> operands(bool weighted = false) const {
    const auto all = row_major(static_cast<const T*>(there_.data()), k_points, k_features);
    const std::span<const T> weights(static_cast<const T*>(weights_there_.data()), weights_.size());
    return {batch_of(all, k_fits), weighted ? weights : std::span<const T>{}, {}};
  }
  static problem size() { return {precision_of<T>, k_points, k_features, k_clusters, k_fits}; }
  static execution where(protection level = protection::correct) { return {.backend = backend::cuda, .threads = 1, .protection = level}; }
  static call quiet() {
    call made;
    made.throw_on_uncorrectable = false;
    return made;
  }
  memory fresh() const {
    memory made{ballast::cuda::device_buffer(device_, k_fits * k_clusters * (k_features + 1) * static_cast<std::int64_t>(sizeof(T))),
                ballast::cuda::device_buffer(device_, 4 * k_fits * k_points)};
    device_->zero(made.centroids.data(), made.centroids.bytes(), nullptr);
    device_->zero(made.labels.data(), made.labels.bytes(), nullptr);
    return made;
  }
  values read(const memory& from) const {
    values made;
    std::vector<T> centroids(at(k_fits * k_clusters * (k_features + 1)));
    device_->copy(centroids.data(), from.centroids.data(), from.centroids.bytes(), nullptr);
    for (std::size_t e = 0; e < centroids.size(); ++e) {
      if (e % (k_features + 1) != k_features) {
        made.centroids.push_back(centroids[e]);
      } else {
        EXPECT_EQ(centroids[e], T(0)) << "a number between two rows";
      }
    }
    made.labels.resize(at(k_fits * k_points));
    device_->copy(made.labels.data(), from.labels.data(), from.labels.bytes(), nullptr);
    made.inertia = from.inertia;
    made.iterations = from.iterations;
    made.stopped = from.stopped;
    return made;
  }
  static values values_of(const batch_model<T>& from) { return {from.centroids, from.labels, from.inertia, from.iterations, from.stopped}; }

  const std::shared_ptr<test::launch_recorder> device_ = std::make_shared<test::launch_recorder>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard guard_{device_};
  std::vector<T> points_, weights_;
  ballast::cuda::device_buffer there_, weights_there_;
};
TYPED_SUITE(kmeans_enqueue, reals, test::number_names);

TYPED_TEST(kmeans_enqueue, gives_the_results_of_a_waiting_host) {
  using T = TypeParam;
  for (const init way : {init::kmeans_plus_plus, init::random, init::given}) {
    for (const bool weighted : {false, true}) {
      for (const auto level : {protection::correct, protection::off}) {
        SCOPED_TRACE(std::string(to_string(way)) + (weighted ? ", weights, " : ", ") + std::string(to_string(level)));
        const options wanted{.init = way, .n_init = 2, .max_iter = 20, .seed = 6};
        batch_data<T> from = this->operands(weighted);
        // k · b rows of centroids with gaps: every second point of the first data sets.
        if (way == init::given) from.centroids = {from.points.data, k_fits * k_clusters, k_features, 2 * k_features, 1};
        const auto expected = this->values_of(fit(from, k_clusters, wanted, this->where(level)));
        const plan<T> made(this->size(), wanted, this->where(level));
        for (int i = 0; i < 3; ++i) {
          auto memory = this->fresh();
          const std::int64_t before = this->device_->all(), waits = this->device_->waits;
          pending_report pending = made.enqueue_fit(from, memory.places());
          EXPECT_EQ(this->device_->all(), before + (level == protection::correct ? 3 : 1));
          EXPECT_EQ(this->device_->waits, waits) << "the host does not wait";
          const report seen = pending.get();
          EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
          EXPECT_EQ(seen.scheme, "dmr");
          EXPECT_EQ(seen.backend, backend::cuda);
          EXPECT_EQ(seen.problem, to_token(this->size()));
          EXPECT_EQ(seen.checks > 0, level == protection::correct);
          EXPECT_EQ(this->read(memory), expected) << i;
        }
      }
    }
  }
}

TYPED_TEST(kmeans_enqueue, uses_the_workspace_of_the_caller) {
  using T = TypeParam;
  const plan<T> made(this->size(), {.seed = 2}, this->where());
  auto memory = this->fresh();
  (void)made.enqueue_fit(this->operands(), memory.places()).get();
  const auto expected = this->read(memory);
  const ballast::cuda::device_buffer own(this->device_, made.workspace_bytes() + 256);
  call now;
  now.workspace = {static_cast<std::byte*>(own.data()), at(made.workspace_bytes())};
  auto other = this->fresh();
  EXPECT_EQ(made.enqueue_fit(this->operands(), other.places(), now).get().verdict, verdict::clean);
  EXPECT_EQ(this->read(other), expected);
  // The same memory serves a fit with a waiting host.
  auto third = this->fresh();
  EXPECT_EQ(made.fit(this->operands(), third.places(), now).verdict, verdict::clean);
  EXPECT_EQ(this->read(third), expected);
  now.workspace = {static_cast<std::byte*>(own.data()), at(made.workspace_bytes() - 1)};
  EXPECT_THROW((void)made.enqueue_fit(this->operands(), other.places(), now), invalid_argument_error);
  now.workspace = {static_cast<std::byte*>(own.data()) + 8, at(made.workspace_bytes())};
  EXPECT_THROW((void)made.enqueue_fit(this->operands(), other.places(), now), invalid_argument_error);
}

TYPED_TEST(kmeans_enqueue, refuses_what_it_cannot_enqueue) {
  using T = TypeParam;
  auto memory = this->fresh();
  const plan<T> made(this->size(), {}, this->where());
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const error& refused) {
      return refused.what();
    }
    return "nothing was thrown";
  };
  batch_data<T> from = this->operands();
  from.points.data = this->points_.data();
  EXPECT_NE(message([&] { (void)made.enqueue_fit(from, memory.places()); }).find("got a host pointer"), std::string::npos);
  std::vector<std::int32_t> labels(at(k_fits * k_points));
  EXPECT_THROW((void)made.enqueue_fit(this->operands(), {.labels = labels}), invalid_argument_error);
  execution where = this->where();
  where.scheme = "row_checksum";
  const plan<T> host(this->size(), {}, where);
  EXPECT_NE(message([&] { (void)host.enqueue_fit(this->operands(), memory.places()); }).find("the host decides"), std::string::npos);
  EXPECT_THROW((void)host.enqueue_fit(this->operands(), memory.places()), unsupported_error);
  problem large = this->size();
  large.features = 1 << 12;
  large.clusters = 1 << 12;
  large.points = 1 << 12;
  const std::int64_t n = large.features;
  const plan<T> too_large(large, {}, this->where());
  EXPECT_THROW((void)too_large.enqueue_fit({{static_cast<const T*>(this->there_.data()), k_fits, n, n, 0, 0, 0}, {}, {}}, {}),
               unsupported_error);
  // Values that have no meaning are found on the device, and refused when the report is read.
  this->points_[at(k_points * k_features + 4)] = std::numeric_limits<T>::infinity();
  this->upload();
  pending_report pending = made.enqueue_fit(this->operands(), memory.places());
  const std::string refused = message([&] { (void)pending.get(); });
  EXPECT_NE(refused.find("fit 1: expected finite points"), std::string::npos) << refused;
}

// Each fault, where it strikes: repaired, and the results are those of a clean call, or it changed nothing.
TYPED_TEST(kmeans_enqueue, faults_at_every_site_are_repaired_on_the_device) {
  using T = TypeParam;
  const options wanted{.max_iter = 3, .seed = 5};
  const plan<T> made(this->size(), wanted, this->where()), detecting(this->size(), wanted, this->where(protection::detect)),
      bare(this->size(), wanted, this->where(protection::off));
  auto memory = this->fresh();
  (void)made.enqueue_fit(this->operands(), memory.places()).get();
  const auto clean = this->read(memory);
  const std::uint64_t seeds = test::sampled() ? 4 : 8;
  for (const inject::site where : {kmeans::site::normalization, kmeans::site::points, kmeans::site::tolerance, kmeans::site::product,
                                   kmeans::site::minimum, kmeans::site::index, kmeans::site::label, kmeans::site::sum, kmeans::site::count,
                                   kmeans::site::centroid, kmeans::site::shift, kmeans::site::inertia, kmeans::site::comparison}) {
    int repaired = 0, spoiled = 0;
    for (const auto model : {inject::model::bit_flip, inject::model::random_value, inject::model::nan}) {
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE(std::to_string(static_cast<int>(where)) + " " + std::to_string(static_cast<int>(model)) + " " + std::to_string(seed));
        const inject::plan faults({fault_at(where, model, seed)});
        const inject::scope armed(&faults);
        auto found = this->fresh();
        const report seen = made.enqueue_fit(this->operands(), found.places(), this->quiet()).get();
        EXPECT_TRUE(seen.verdict == verdict::clean || seen.verdict == verdict::recomputed) << to_json(seen);
        EXPECT_EQ(this->read(found), clean) << to_json(seen);
        if (seen.verdict == verdict::recomputed) {
          ++repaired;
          ASSERT_EQ(seen.events.size(), 1u);
          EXPECT_EQ(seen.events[0].site, "kmeans.fit");
          auto only = this->fresh();
          EXPECT_EQ(detecting.enqueue_fit(this->operands(), only.places(), this->quiet()).get().verdict, verdict::uncorrectable);
        }
        if (test::sampled()) continue;
        auto spoilt = this->fresh();
        EXPECT_EQ(bare.enqueue_fit(this->operands(), spoilt.places()).get().detected, 0u);
        spoiled += this->read(spoilt) == clean ? 0 : 1;
      }
    }
    EXPECT_GT(repaired, 0) << static_cast<int>(where);
    // A fault in a product or minimum that is not the nearest changes nothing: few seeds may meet no other.
    if (where != kmeans::site::comparison && !test::sampled()) {
      EXPECT_GT(spoiled, 0) << static_cast<int>(where);
    }
  }
}

// A fault that stays: its fit is not stored, the others are.
TYPED_TEST(kmeans_enqueue, a_persistent_fault_is_reported_and_not_stored) {
  using T = TypeParam;
  const plan<T> made(this->size(), {.seed = 1}, this->where());
  auto memory = this->fresh();
  (void)made.enqueue_fit(this->operands(), memory.places()).get();
  const auto clean = this->read(memory);
  int met = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    inject::request stuck = fault_at(kmeans::site::points, inject::model::stuck_at, seed);
    stuck.bit = sizeof(T) == 4 ? 30 : 62;
    const inject::plan faults({stuck});
    const inject::scope armed(&faults);
    auto found = this->fresh();
    const report seen = made.enqueue_fit(this->operands(), found.places(), this->quiet()).get();
    if (seen.verdict != verdict::uncorrectable) continue;
    ++met;
    ASSERT_EQ(seen.events.size(), 1u);
    const std::int64_t struck = seen.events[0].index;
    const auto got = this->read(found);
    for (std::int64_t b = 0; b < k_fits; ++b) {
      const auto labels = [&](const auto& of) {
        return std::vector(of.labels.begin() + b * k_points, of.labels.begin() + (b + 1) * k_points);
      };
      if (b == struck) {
        EXPECT_EQ(labels(got), std::vector<std::int32_t>(at(k_points), 0));
        EXPECT_EQ(got.inertia[at(b)], -77);
      } else {
        EXPECT_EQ(labels(got), labels(clean));
        EXPECT_EQ(got.inertia[at(b)], clean.inertia[at(b)]);
      }
    }
    EXPECT_THROW((void)made.enqueue_fit(this->operands(), found.places()).get(), uncorrectable_error);
  }
  EXPECT_GT(met, 0);
  auto after = this->fresh();
  EXPECT_EQ(made.enqueue_fit(this->operands(), after.places()).get().verdict, verdict::clean) << "the plan serves later calls";
  EXPECT_EQ(this->read(after), clean);
}

}  // namespace
}  // namespace ballast::kmeans
