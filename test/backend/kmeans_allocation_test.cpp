// Allocations of K-Means on the host: the second call of a plan makes none, on every backend. And memory that runs out.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "backend/kmeans_cases.hpp"
#include "core/at.hpp"
#include "support/allocations.hpp"
#include "support/devices.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
using core::at;

namespace {

// The emulator's own allocations are not counted: a GPU does this work.
class quiet_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void* allocate(std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    return inner_->allocate(bytes, on);
  }
  void release(void* memory, ballast::cuda::stream on) noexcept override {
    const test::uncounted pause;
    inner_->release(memory, on);
  }
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->copy(to, from, bytes, on);
  }
  void zero(void* memory, std::int64_t bytes, ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->zero(memory, bytes, on);
  }
  using device::launch;
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const test::uncounted pause;
    inner_->launch(which, blocks, arguments, on);
  }
};

constexpr std::int64_t k_points = 300, k_features = 3, k_clusters = 9;

template <class Configuration>
class kmeans_allocation : public kmeans_backend<Configuration> {
 protected:
  using T = typename Configuration::real;
  const data_set<T> points_ = clouds<T>(k_points, k_features, k_clusters, 5, 0.3);
  const problem size_{precision_of<T>, k_points, k_features, k_clusters};
  std::vector<T> weights_, centroids_, values_;
  std::vector<std::int32_t> labels_;
  std::vector<double> inertia_;

  kmeans_allocation() : centroids_(at(k_clusters * k_features)), values_(at(k_points * k_clusters)), labels_(at(k_points)), inertia_(3) {
    for (std::int64_t i = 0; i < k_points; ++i) weights_.push_back(static_cast<T>(i % 5 == 0 ? 0 : 1 + i % 3));
    if (this->on_cuda) ballast::cuda::override_device(std::make_shared<quiet_device>(ballast::cuda::current_device()));
  }
  execution where(protection level) const { return this->how(3, level).where(); }
  fit_results<T> places() { return {row_major(centroids_.data(), k_clusters, k_features), labels_, &inertia_[0], nullptr, nullptr}; }

  // Counts the allocations of the second of two calls.
  template <class Call>
  static std::int64_t second_of(const Call& call) {
    call();
    return test::allocations_of(call);
  }
};
TYPED_SUITE(kmeans_allocation, configurations, test::setting_names);

TYPED_TEST(kmeans_allocation, a_second_fit_allocates_nothing) {
  using T = typename TestFixture::T;
  for (const auto level : {protection::correct, protection::off}) {
    for (const init way : {init::kmeans_plus_plus, init::random, init::given, init::kmeans_parallel}) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(std::string(to_string(level)) + ", " + std::string(to_string(way)) + (weighted ? ", weights" : ""));
        const plan<T> made(this->size_, {.init = way, .n_init = 2, .max_iter = 5, .seed = 4}, this->where(level));
        const data<T> from{this->points_.view(), weighted ? std::span<const T>(this->weights_) : std::span<const T>{},
                           this->points_.rows(k_clusters)};
        EXPECT_EQ(this->second_of([&] { EXPECT_EQ(made.fit(from, this->places()).verdict, verdict::clean); }), 0);
      }
    }
  }
}

// Clusters without points, and strides.
TYPED_TEST(kmeans_allocation, nor_does_one_that_relocates_clusters) {
  using T = typename TestFixture::T;
  const std::vector<T> first(at(k_clusters * k_features), T(0.1));
  std::vector<T> transposed(this->points_.values.size());
  for (std::int64_t i = 0; i < k_points; ++i)
    for (std::int64_t f = 0; f < k_features; ++f) transposed[at(f * k_points + i)] = this->points_.values[at(i * k_features + f)];
  const plan<T> made(this->size_, {.init = init::given, .max_iter = 4}, this->where(protection::correct));
  const data<T> from{column_major<const T>(transposed.data(), k_points, k_features), {}, row_major(first.data(), k_clusters, k_features)};
  EXPECT_EQ(this->second_of([&] { (void)made.fit(from, this->places()); }), 0);
}

TYPED_TEST(kmeans_allocation, nor_do_the_other_calls) {
  using T = typename TestFixture::T;
  for (const auto level : {protection::correct, protection::off}) {
    SCOPED_TRACE(to_string(level));
    const plan<T> made(this->size_, {}, this->where(level));
    const data<T> from{this->points_.view(), {}, this->points_.rows(k_clusters)};
    EXPECT_EQ(this->second_of([&] { (void)made.predict(from, {this->labels_, &this->inertia_[0]}); }), 0) << "predict";
    EXPECT_EQ(this->second_of([&] { (void)made.transform(from, row_major(this->values_.data(), k_points, k_clusters)); }), 0)
        << "transform";
    // Three fits. Fits that run side by side take memory for as many as overlap, which differs from call to call: one thread.
    problem size = this->size_;
    size.points = k_points / 3;
    size.batch = 3;
    size.clusters = 3;
    for (const char* scheme : {"", "row_checksum"}) {
      execution where = this->where(level);
      where.scheme = scheme;
      where.threads = 1;
      const plan<T> batch(size, {.max_iter = 4, .seed = 2}, where);
      const batch_data<T> sets{batch_of(this->points_.rows(size.points), 3), {}, {}};
      const batch_results<T> to{row_major(this->centroids_.data(), k_clusters, k_features), this->labels_, this->inertia_, {}, {}};
      EXPECT_EQ(this->second_of([&] { (void)batch.fit(sets, to); }), 0) << "batch " << scheme;
    }
  }
}

#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
TYPED_TEST(kmeans_allocation, nor_does_an_enqueued_fit) {
  using T = typename TestFixture::T;
  const auto device = ballast::cuda::current_device();
  const ballast::cuda::device_buffer there(device, static_cast<std::int64_t>(this->points_.values.size() * sizeof(T)));
  device->copy(there.data(), this->points_.values.data(), there.bytes(), nullptr);
  problem size = this->size_;
  size.points = k_points / 3;
  size.batch = 3;
  const plan<T> made(size, {.max_iter = 3}, this->where(protection::correct));
  const batch_data<T> from{batch_of(row_major(static_cast<const T*>(there.data()), size.points, k_features), 3), {}, {}};
  const batch_results<T> to{{}, {}, this->inertia_, {}, {}};
  EXPECT_EQ(this->second_of([&] { EXPECT_EQ(made.enqueue_fit(from, to).get().verdict, verdict::clean); }), 0);
}
#endif

// Every allocation of making and running a plan, in turn, fails once.
TYPED_TEST(kmeans_allocation, memory_that_runs_out_is_an_error_of_its_class) {
  using T = typename TestFixture::T;
  if (this->on_cuda) GTEST_SKIP() << "an emulated device is not made for it";
  const data<T> from{this->points_.view(), {}, {}};
  const options wanted{.n_init = 2, .max_iter = 3, .seed = 4};
  execution where = this->where(protection::correct);
  where.threads = 1;
  (void)plan<T>(this->size_, wanted, where).fit(from, this->places());
  const std::vector<T> expected = this->centroids_;
  std::int64_t number = 0;
  for (bool failed = true; failed; number = 1 + number * 21 / 20) {
    SCOPED_TRACE(number);
    std::optional<plan<T>> made;
    std::ranges::fill(this->centroids_, T(-77));
    try {
      const test::failing_allocation fails(number);
      try {
        made.emplace(this->size_, wanted, where);
        (void)made->fit(from, this->places());
      } catch (...) {
        failed = fails.failed();
        throw;
      }
      failed = fails.failed();
    } catch (const out_of_memory_error& seen) {
      EXPECT_NE(std::string(seen.what()).find("kmeans"), std::string::npos) << seen.what();
      EXPECT_EQ(this->centroids_, std::vector<T>(expected.size(), T(-77))) << "nothing was stored";
    }
    if (!made) continue;
    (void)made->fit(from, this->places());
    EXPECT_EQ(this->centroids_, expected) << "the plan can be used afterwards";
  }
  EXPECT_GT(number, 10);
}

}  // namespace
}  // namespace ballast::kmeans
