// Plans of K-Means on every backend: the bits of the one-line functions for every call and thread; results in the caller's memory, with
// strides, on the host and on a device; errors of each class; no result of a call that throws.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "backend/kmeans_cases.hpp"
#include "core/at.hpp"
#include "inject/plan.hpp"
#include "kmeans/sites.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
using core::at;

namespace {

// Kernels of the emulator exist for 3 features and 9 clusters, and for 5 and 6.
constexpr std::int64_t k_points = 300, k_features = 3, k_clusters = 9;

// The memory of the results of a fit.
template <class T>
struct fit_memory {
  std::vector<T> centroids = std::vector<T>(at(k_clusters * k_features), T(-77));
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(at(k_points), -77);
  double inertia = -77;
  int iterations = -77;
  stop_reason stopped = stop_reason::max_iter;

  fit_results<T> places() { return {row_major(centroids.data(), k_clusters, k_features), labels, &inertia, &iterations, &stopped}; }
  bool operator==(const fit_memory&) const = default;
};

template <class T>
fit_memory<T> results_of(const model<T>& from) {
  return {{from.centroids.data(), from.centroids.data() + from.centroids.size()}, from.labels, from.inertia, from.iterations, from.stopped};
}

template <class Configuration>
class kmeans_plan : public kmeans_backend<Configuration> {
 protected:
  using T = typename Configuration::real;
  const data_set<T> points_ = clouds<T>(k_points, k_features, k_clusters, 5, 0.3);
  const problem size_{precision_of<T>, k_points, k_features, k_clusters};

  execution where(int threads = 2, protection level = protection::correct) const { return this->how(threads, level).where(); }
  static call quiet() {
    call made;
    made.throw_on_uncorrectable = false;
    return made;
  }
  data<T> operands(matrix_view<const T> centroids = {}) const { return {points_.view(), {}, centroids}; }
};
TYPED_SUITE(kmeans_plan, configurations, test::setting_names);

TYPED_TEST(kmeans_plan, gives_the_bits_of_the_one_line_functions_for_every_call) {
  using T = typename TestFixture::T;
  for (const init way : {init::kmeans_plus_plus, init::random, init::given, init::kmeans_parallel}) {
    SCOPED_TRACE(to_string(way));
    const options wanted{.init = way, .n_init = 3, .max_iter = 8, .seed = 4};
    const data<T> from = this->operands(this->points_.rows(k_clusters));
    const plan<T> made(this->size_, wanted, this->where());
    const fit_memory<T> expected = results_of(fit(from, k_clusters, wanted, this->where()));
    for (int i = 0; i < 2; ++i) {
      fit_memory<T> found;
      EXPECT_EQ(made.fit(from, found.places()).verdict, verdict::clean);
      EXPECT_EQ(found, expected) << i;
    }
  }
  const plan<T> made(this->size_, {}, this->where());
  const data<T> from = this->operands(this->points_.rows(k_clusters));
  const prediction labels = predict(from, this->where());
  const distances<T> far = transform(from, this->where());
  for (int i = 0; i < 2; ++i) {
    fit_memory<T> found;
    std::vector<T> values(at(k_points * k_clusters));
    EXPECT_EQ(made.predict(from, {found.labels, &found.inertia}).verdict, verdict::clean);
    EXPECT_EQ(found.labels, labels.labels);
    EXPECT_EQ(found.inertia, labels.inertia);
    EXPECT_EQ(made.transform(from, row_major(values.data(), k_points, k_clusters)).verdict, verdict::clean);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), far.values.data()));
  }
}

TYPED_TEST(kmeans_plan, serves_several_threads_at_once) {
  using T = typename TestFixture::T;
  if (this->on_cuda) GTEST_SKIP() << "the emulator runs one launch at a time";
  const plan<T> made(this->size_, {.init = init::random, .max_iter = 5, .seed = 1}, this->where(1));
  const data<T> from = this->operands();
  fit_memory<T> expected;
  (void)made.fit(from, expected.places());
  std::vector<fit_memory<T>> found(4);
  std::vector<std::thread> threads;
  for (fit_memory<T>& each : found) {
    threads.emplace_back([&made, &from, &each] {
      const plan<T> copy = made;
      for (int i = 0; i < 3; ++i) EXPECT_EQ(copy.fit(from, each.places()).verdict, verdict::clean);
    });
  }
  for (std::thread& each : threads) each.join();
  for (const fit_memory<T>& each : found) EXPECT_EQ(each, expected);
}

TYPED_TEST(kmeans_plan, a_batch_is_as_its_one_line_function) {
  using T = typename TestFixture::T;
  const std::int64_t count = 3, m = 40, k = 4;
  problem size{precision_of<T>, m, k_features, k, count};
  const options wanted{.max_iter = 6, .seed = 8};
  const plan<T> made(size, wanted, this->where());
  const batch_data<T> from{batch_of(this->points_.rows(m), count), {}, {}};
  const batch_model<T> expected = fit(from, k, wanted, this->where());
  std::vector<T> centroids(at(count * k * k_features));
  std::vector<std::int32_t> labels(at(count * m));
  std::vector<double> inertia(at(count));
  std::vector<int> iterations(at(count));
  std::vector<stop_reason> stopped(at(count));
  for (int i = 0; i < 2; ++i) {
    const report seen = made.fit(from, {row_major(centroids.data(), count * k, k_features), labels, inertia, iterations, stopped});
    EXPECT_EQ(seen.verdict, verdict::clean);
    EXPECT_EQ(seen.problem, to_token(size));
    EXPECT_EQ(centroids, expected.centroids);
    EXPECT_EQ(labels, expected.labels);
    EXPECT_EQ(inertia, expected.inertia);
    EXPECT_EQ(iterations, expected.iterations);
    EXPECT_EQ(stopped, expected.stopped);
  }
  // Only some of the results.
  std::vector<double> again(at(count));
  (void)made.fit(from, {.inertia = again});
  EXPECT_EQ(again, expected.inertia);
}

// Results between which other data lie, which stay.
TYPED_TEST(kmeans_plan, stores_results_with_strides) {
  using T = typename TestFixture::T;
  const T kept = T(5.5);
  const plan<T> made(this->size_, {.n_init = 2, .max_iter = 5, .seed = 3}, this->where());
  fit_memory<T> expected;
  (void)made.fit(this->operands(), expected.places());
  std::vector<T> values(at(k_points * k_clusters));
  const data<T> from = this->operands(this->points_.rows(k_clusters));
  (void)made.transform(from, row_major(values.data(), k_points, k_clusters));
  struct layout {
    std::int64_t row, column;
  };
  for (const auto& [row, column] : {layout{k_clusters + 2, 1}, {1, k_points + 3}, {2, 2 * k_points + 1}}) {
    SCOPED_TRACE(testing::Message() << row << " " << column);
    std::vector<T> memory(4096 * 3, kept), other(memory);
    fit_memory<T> found;
    fit_results<T> to = found.places();
    to.centroids = {memory.data() + 1, k_clusters, k_features, row, column};
    EXPECT_EQ(made.fit(this->operands(), to).verdict, verdict::clean);
    std::size_t written = 0;
    for (std::int64_t j = 0; j < k_clusters; ++j) {
      for (std::int64_t f = 0; f < k_features; ++f) {
        EXPECT_EQ(to.centroids(j, f), expected.centroids[at(j * k_features + f)]);
        written += to.centroids(j, f) != kept;
      }
    }
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(memory, kept)), memory.size() - written);
    const matrix_view<T> strided{other.data() + 1, k_points, k_clusters, row, column};
    EXPECT_EQ(made.transform(from, strided).verdict, verdict::clean);
    written = 0;
    for (std::int64_t i = 0; i < k_points; ++i) {
      for (std::int64_t j = 0; j < k_clusters; ++j) {
        ASSERT_EQ(strided(i, j), values[at(i * k_clusters + j)]);
        written += strided(i, j) != kept;
      }
    }
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(other, kept)), other.size() - written);
  }
}

// All operands and results of every call in device memory. A backend of the host copies them.
TYPED_TEST(kmeans_plan, stores_results_in_device_memory) {
  using T = typename TestFixture::T;
  const plan<T> here(this->size_, {.n_init = 2, .max_iter = 5, .seed = 3}, this->where());
  fit_memory<T> expected;
  (void)here.fit(this->operands(), expected.places());
  const data<T> from = this->operands(this->points_.rows(k_clusters));
  const prediction right = predict(from, this->where());
  const distances<T> far = transform(from, this->where());

  const auto device = std::make_shared<simt::emulated_device>();
  const test::current_device_guard current(device);
  const auto buffer = [&](std::int64_t bytes) {
    ballast::cuda::device_buffer made(device, bytes);
    device->zero(made.data(), bytes, nullptr);
    return made;
  };
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const auto points = buffer(k_points * k_features * size), centroids = buffer(k_clusters * (k_features + 1) * size),
             labels = buffer(4 * k_points), values = buffer(k_points * (k_clusters + 2) * size);
  device->copy(points.data(), this->points_.values.data(), points.bytes(), nullptr);
  const auto x = row_major(static_cast<const T*>(points.data()), k_points, k_features);
  const data<T> there{x, {}, row_major(x.data, k_clusters, k_features)};
  const matrix_view<T> c{static_cast<T*>(centroids.data()), k_clusters, k_features, k_features + 1, 1};
  const std::span<std::int32_t> to_labels(static_cast<std::int32_t*>(labels.data()), at(k_points));
  const auto read = [&](auto type, const ballast::cuda::device_buffer& of) {
    std::vector<decltype(type)> made(at(of.bytes()) / sizeof type);
    device->copy(made.data(), of.data(), of.bytes(), nullptr);
    return made;
  };
  const plan<T> made(this->size_, {.n_init = 2, .max_iter = 5, .seed = 3}, this->where());
  double inertia = 0;
  EXPECT_EQ(made.fit(there, {.centroids = c, .labels = to_labels, .inertia = &inertia}).verdict, verdict::clean);
  EXPECT_EQ(inertia, expected.inertia);
  EXPECT_EQ(read(std::int32_t{}, labels), expected.labels);
  const std::vector<T> found = read(T{}, centroids);
  for (std::int64_t j = 0; j < k_clusters; ++j) {
    for (std::int64_t f = 0; f < k_features; ++f)
      EXPECT_EQ(found[at(j * (k_features + 1) + f)], expected.centroids[at(j * k_features + f)]);
    EXPECT_EQ(found[at(j * (k_features + 1) + k_features)], T(0));
  }
  EXPECT_EQ(made.predict(there, {to_labels, &inertia}).verdict, verdict::clean);
  EXPECT_EQ(read(std::int32_t{}, labels), right.labels);
  EXPECT_EQ(inertia, right.inertia);
  const std::int64_t row = k_clusters + 2;
  for (const bool transposed : {false, true}) {
    const matrix_view<T> v{static_cast<T*>(values.data()), k_points, k_clusters, transposed ? 1 : row, transposed ? k_points : 1};
    EXPECT_EQ(made.transform(there, v).verdict, verdict::clean);
    const std::vector<T> distance = read(T{}, values);
    for (std::int64_t i = 0; i < k_points; ++i)
      for (std::int64_t j = 0; j < k_clusters; ++j)
        ASSERT_EQ(distance[at(i * v.row_stride + j * v.column_stride)], far.values(i, j)) << i << " " << j;
  }
  // Rows on the device are stored by the kernel that computes them. Its faults: in squares, and in distances on their way to memory.
  const matrix_view<T> v{static_cast<T*>(values.data()), k_points, k_clusters, row, 1};
  const auto rows_fit = [&] {
    const std::vector<T> distance = read(T{}, values);
    bool fit = true;
    for (std::int64_t i = 0; i < k_points; ++i)
      for (std::int64_t j = 0; j < k_clusters; ++j) fit = fit && distance[at(i * row + j)] == far.values(i, j);
    return fit;
  };
  const plan<T> bare(this->size_, {}, this->where(2, protection::off));
  for (std::uint64_t seed = 0; seed < (test::sampled() ? 4u : 16u); ++seed) {
    const inject::plan faults({fault_at(kmeans::site::product, inject::model::bit_flip, seed)});
    const inject::scope armed(&faults);
    EXPECT_EQ(made.transform(there, v).verdict, verdict::recomputed) << seed;
    EXPECT_TRUE(rows_fit()) << seed;
    EXPECT_EQ(bare.transform(there, v).detected, 0u);
    EXPECT_FALSE(rows_fit()) << seed;
  }
  // A fault that stays: on cuda the distances become NaN, elsewhere they stay as they were, as the gaps between rows do.
  const std::vector<T> before = read(T{}, values);
  inject::request stuck = fault_at(kmeans::site::product, inject::model::stuck_at, 3);
  stuck.bit = sizeof(T) == 4 ? 29 : 61;
  const inject::plan faults({stuck});
  const inject::scope armed(&faults);
  EXPECT_THROW((void)made.transform(there, v), uncorrectable_error);
  const std::vector<T> after = read(T{}, values);
  for (std::int64_t i = 0; i < k_points; ++i)
    for (std::int64_t j = 0; j < row && i * row + j < static_cast<std::int64_t>(after.size()); ++j)
      ASSERT_TRUE(TestFixture::k_backend == backend::cuda && j < k_clusters
                      ? std::isnan(after[at(i * row + j)])
                      : std::memcmp(&after[at(i * row + j)], &before[at(i * row + j)], sizeof(T)) == 0)
          << i << " " << j;
}

// A fault that stays: the call throws, and its results are as they were.
TYPED_TEST(kmeans_plan, stores_nothing_if_the_call_throws) {
  using T = typename TestFixture::T;
  const plan<T> made(this->size_, {.init = init::random, .max_iter = 3, .seed = 3}, this->where());
  const data<T> from = this->operands(this->points_.rows(k_clusters));
  int met = 0;
  constexpr inject::site sites[] = {kmeans::site::minimum, kmeans::site::label, kmeans::site::points};
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    inject::request stuck = fault_at(sites[seed % 3], inject::model::stuck_at, seed);
    stuck.bit = stuck.site == kmeans::site::label || sizeof(T) == 4 ? 29 : 61;
    const inject::plan faults({stuck});
    const inject::scope armed(&faults);
    fit_memory<T> found;
    try {
      (void)made.fit(from, found.places());
    } catch (const uncorrectable_error& thrown) {
      ++met;
      EXPECT_EQ(thrown.report().verdict, verdict::uncorrectable);
      EXPECT_EQ(found, fit_memory<T>());
    }
    fit_memory<T> labels;
    try {
      (void)made.predict(from, {labels.labels, &labels.inertia});
    } catch (const uncorrectable_error&) {
      EXPECT_EQ(labels, fit_memory<T>());
    }
    EXPECT_NO_THROW((void)made.fit(from, found.places(), this->quiet()));
  }
  EXPECT_GT(met, 0);
  fit_memory<T> clean;
  EXPECT_EQ(made.fit(from, clean.places()).verdict, verdict::clean) << "the plan serves later calls";
}

TYPED_TEST(kmeans_plan, says_what_it_is) {
  using T = typename TestFixture::T;
  problem other = this->size_;
  other.precision = sizeof(T) == 4 ? precision::f64 : precision::f32;  // ignored
  const plan<T> made(other, {}, this->where());
  EXPECT_EQ(to_token(made.problem()), to_token(this->size_));
  EXPECT_EQ(made.backend(), TestFixture::k_backend);
  if (this->on_cuda) {
    EXPECT_GT(made.workspace_bytes(), 0);
  } else {
    EXPECT_EQ(made.workspace_bytes(), 0);
  }
}

TYPED_TEST(kmeans_plan, refuses_what_has_no_meaning) {
  using T = typename TestFixture::T;
  const auto refusal = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const invalid_argument_error& refused) {
      return refused.what();
    }
    return "nothing was thrown";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find("kmeans_") != std::string::npos && text.find(part) != std::string::npos;
  };
  const auto makes = [&](const problem& size, const options& wanted = {}) {
    return refusal([&] { (void)plan<T>(size, wanted, this->where()); });
  };
  problem size = this->size_;
  size.batch = 0;
  EXPECT_TRUE(has(makes(size), "batch: expected at least one data set, got 0"));
  size = this->size_;
  size.points = 0;
  EXPECT_TRUE(has(makes(size), "expected at least one row"));
  size.points = std::int64_t{1} << 62;
  EXPECT_TRUE(has(makes(size), "below 2^63 bytes"));
  EXPECT_TRUE(has(makes(this->size_, {.n_init = 0}), "n_init: expected at least 1, got 0"));
  EXPECT_TRUE(has(makes(this->size_, {.init = static_cast<init>(9)}), "init: expected"));
  EXPECT_THROW(plan<T>(this->size_, {}, {.threads = -1}), invalid_argument_error);

  const plan<T> made(this->size_, {}, this->where());
  fit_memory<T> memory;
  const auto fits = [&](const data<T>& from, const fit_results<T>& to) { return refusal([&] { (void)made.fit(from, to); }); };
  EXPECT_TRUE(has(fits({this->points_.rows(k_points - 1), {}, {}}, memory.places()), "points: expected 300 × 3, got 299 × 3"));
  fit_results<T> to = memory.places();
  to.labels = to.labels.subspan(1);
  EXPECT_TRUE(has(fits(this->operands(), to), "labels: expected 300, got 299"));
  to = memory.places();
  to.centroids.rows = 8;
  EXPECT_TRUE(has(fits(this->operands(), to), "centroids: expected 9 × 3, got 8 × 3"));
  to = memory.places();
  to.centroids.row_stride = 2;
  to.centroids.column_stride = 1;
  EXPECT_TRUE(has(fits(this->operands(), to), "keep the elements apart, got 2 and 1"));
  to.centroids.row_stride = 0;
  EXPECT_TRUE(has(fits(this->operands(), to), "keep the elements apart, got 0 and 1"));
  EXPECT_TRUE(has(refusal([&] {
                    (void)made.predict(this->operands(), {memory.labels, nullptr});
                  }),
                  "centroids: expected 9 × 3, got 0 × 0"));
  const data<T> both = this->operands(this->points_.rows(k_clusters));
  EXPECT_TRUE(has(refusal([&] { (void)made.transform(both, row_major(memory.centroids.data(), 9, 3)); }), "values: expected 300 × 9"));
  EXPECT_EQ(memory, fit_memory<T>()) << "nothing was stored";
  // More clusters than points: labels of few points, but no fit.
  const plan<T> few({precision_of<T>, 5, k_features, k_clusters}, {}, this->where());
  std::vector<std::int32_t> labels(5);
  EXPECT_EQ(few.predict({this->points_.rows(5), {}, this->points_.rows(k_clusters)}, {labels, nullptr}).verdict, verdict::clean);
  EXPECT_EQ(labels, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(has(refusal([&] {
                    (void)few.fit({this->points_.rows(5), {}, {}}, {});
                  }),
                  "clusters: expected at most the number of points, 5"));
  plan<T> gone = made;
  const plan<T> taken = std::move(gone);
  EXPECT_THROW((void)gone.fit(this->operands(), memory.places()), invalid_argument_error);
  EXPECT_THROW((void)gone.problem(), invalid_argument_error);
  EXPECT_EQ(taken.fit(this->operands(), memory.places()).verdict, verdict::clean);
}

TYPED_TEST(kmeans_plan, refuses_what_this_backend_cannot_run) {
  using T = typename TestFixture::T;
  execution where = this->where();
  where.scheme = "magic";
  EXPECT_THROW(plan<T>(this->size_, {}, where), unsupported_error);
  if (this->on_cuda) return;
  where.scheme = "dmr";
  EXPECT_THROW(plan<T>(this->size_, {}, where), unsupported_error);
  const plan<T> made(this->size_, {}, this->where());
  EXPECT_THROW((void)made.enqueue_fit({batch_of(this->points_.view(), 1), {}, {}}, {}), unsupported_error);
}

// An error of the device keeps its class.
class failing_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void copy(void*, const void*, std::int64_t, ballast::cuda::stream) override { throw device_error("the device has gone"); }
};

TYPED_TEST(kmeans_plan, an_error_of_the_device_is_one) {
  using T = typename TestFixture::T;
  const auto device = std::make_shared<failing_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard current(device);
  const ballast::cuda::device_buffer points(device, k_points * k_features * static_cast<std::int64_t>(sizeof(T)));
  const data<T> there{row_major(static_cast<const T*>(points.data()), k_points, k_features), {}, {}};
  const plan<T> made(this->size_, {}, this->where());
  fit_memory<T> memory;
  EXPECT_THROW((void)made.fit(there, memory.places()), device_error);
  EXPECT_EQ(memory, fit_memory<T>());
}

// A call that waits would end the capture of its stream with an error of the driver: it is refused before anything is enqueued.
TYPED_TEST(kmeans_plan, refuses_a_stream_that_is_being_captured) {
  using T = typename TestFixture::T;
  if (!this->on_cuda) return;
  const auto device = std::make_shared<simt::emulated_device>();
  const test::current_device_guard current(device);
  const ballast::cuda::stream stream = device->make_stream(false);
  const call now{.stream = stream};
  const plan<T> made(this->size_, {.seed = 1}, this->where());
  fit_memory<T> memory, expected;
  const data<T> points{this->points_.view(), {}, {}};
  EXPECT_EQ(made.fit(points, expected.places(), now).verdict, verdict::clean);
  device->capture(stream);
  const std::int64_t before = device->launches();
  std::vector<T> distances(at(k_points * k_clusters));
  const data<T> trained{this->points_.view(), {}, row_major(std::as_const(expected.centroids).data(), k_clusters, k_features)};
  EXPECT_THROW((void)made.fit(points, memory.places(), now), unsupported_error);
  EXPECT_THROW((void)made.predict(trained, {memory.labels}, now), unsupported_error);
  EXPECT_THROW((void)made.transform(trained, row_major(distances.data(), k_points, k_clusters), now), unsupported_error);
  EXPECT_EQ(device->launches(), before);
  EXPECT_EQ(memory, fit_memory<T>());
  device->capture(nullptr);
  EXPECT_EQ(made.fit(points, memory.places(), now).verdict, verdict::clean);
  EXPECT_EQ(memory, expected);
  // A refused call takes no turn of execution::sampled.
  execution every_second = this->where();
  every_second.sampled = 2;
  const plan<T> sampled(this->size_, {.max_iter = 2, .seed = 1}, every_second);
  const auto calls = [&](auto&& make) {
    std::vector<bool> guarded;
    for (int number = 0; number < 3; ++number) {
      device->capture(stream);
      EXPECT_THROW((void)make(), unsupported_error);
      device->capture(nullptr);
      guarded.push_back(make().protection != protection::off);
    }
    EXPECT_TRUE(guarded[0] != guarded[1] && guarded[0] == guarded[2]);
  };
  calls([&] { return sampled.fit(points, memory.places(), now); });
  calls([&] { return sampled.predict(trained, {memory.labels}, now); });
  calls([&] { return sampled.transform(trained, row_major(distances.data(), k_points, k_clusters), now); });
  device->release_stream(stream);
}

}  // namespace
}  // namespace ballast::kmeans
