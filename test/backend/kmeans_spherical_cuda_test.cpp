// The unit vectors that the device makes for spherical K-Means: the same bits from every kind of memory, without a copy of the points to
// the host; under faults; and what is refused.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "kmeans/cuda/engine/point_stream.hpp"
#include "kmeans/sites.hpp"
#include "support/devices.hpp"
#include "support/half_precision.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

// Knows the largest copy to the host, and how often the kernel of unit vectors was loaded.
class watched_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::int64_t available = -1;  // as observed_device::available
  std::int64_t largest = 0;
  std::int64_t unit_kernels = 0;

  std::int64_t available_memory() override { return available < 0 ? forwarding_device::available_memory() : available; }
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override {
    forwarding_device::copy(to, from, bytes, on);
    if (accessible(from) && !accessible(to)) largest = std::max(largest, bytes);
  }
  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override {
    unit_kernels += wanted.expression.find("unit_rows_kernel") != std::string::npos ? 1 : 0;
    return forwarding_device::load(wanted);
  }
};

// Returns the least memory that has room for the points and the normalized ones.
template <class T>
std::int64_t memory_without_unit_rows(matrix_view<const T> points, std::int64_t k) {
  simt::emulated_device any;
  const cuda::kept_points_problem needs = cuda::needs_of(points, points.rows, false, k, any);
  std::int64_t low = 0, high = std::int64_t{1} << 40;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (cuda::fits_whole(needs, middle) ? high : low) = middle;
  }
  return high;
}

template <class T>
struct result {
  std::vector<T> centroids;
  std::vector<std::int32_t> labels, predicted;
  double inertia = 0;
  verdict worst = verdict::clean;  // the worse of both calls
  std::uint64_t detected = 0;      // the sum of both
  bool operator==(const result& other) const {
    return std::memcmp(centroids.data(), other.centroids.data(), centroids.size() * sizeof(T)) == 0 && labels == other.labels &&
           predicted == other.predicted && inertia == other.inertia;
  }
};

template <class T>
class spherical_on_device : public testing::Test {
 protected:
  const std::shared_ptr<watched_device> device_ = std::make_shared<watched_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard guard_{device_};

  // Points whose numbers are exact in float16, of lengths from 1 to 64.
  static data_set<T> points_of(std::int64_t m, std::int64_t n) {
    data_set<T> made = clouds<T>(m, n, 3, 9, 0.3);
    for (std::int64_t e = 0; e < m * n; ++e) {
      T& x = made.values[static_cast<std::size_t>(e)];
      x = static_cast<T>(test::cut_to_half(static_cast<float>(x), false).value) * std::ldexp(T(1), static_cast<int>(e / n % 7));
    }
    return made;
  }
  static problem size_of(const data_set<T>& points, std::int64_t k) {
    return {.precision = precision_of<T>, .points = points.m, .features = points.n, .clusters = k, .spherical = true};
  }
  static result<T> run(const problem& size, const data<T>& from, const run::settings& how) {
    result<T> made{std::vector<T>(static_cast<std::size_t>(size.clusters * size.features)),
                   std::vector<std::int32_t>(static_cast<std::size_t>(size.points)),
                   std::vector<std::int32_t>(static_cast<std::size_t>(size.points)), 0};
    test_calls::with(how, [&](const auto& where, const auto& now) {
      const plan<T> by(size, {.init = init::given, .max_iter = 2, .tol = 0}, where);
      const auto seen = {by.predict(from, {made.predicted}, now),
                         by.fit(from, {row_major(made.centroids.data(), size.clusters, size.features), made.labels, &made.inertia}, now)};
      for (const ballast::report& each : seen) {
        made.worst = std::max(made.worst, each.verdict);
        made.detected += each.detected;
      }
    });
    return made;
  }
  static run::settings how(protection level = protection::correct) {
    return {.backend = backend::cuda, .threads = 2, .protection = level, .throw_on_uncorrectable = false};
  }
  template <class Number>
  ballast::cuda::device_buffer on_device(const std::vector<Number>& numbers) const {
    ballast::cuda::device_buffer made(device_, static_cast<std::int64_t>(numbers.size() * sizeof(Number)));
    device_->copy(made.data(), numbers.data(), made.bytes(), nullptr);
    return made;
  }
};
TYPED_SUITE(spherical_on_device, reals, test::number_names);

TYPED_TEST(spherical_on_device, the_same_bits_from_every_memory) {
  using T = TypeParam;
  struct shape {
    std::int64_t m, n, k;
  };
  for (const shape& each : {shape{150, 10, 8}, shape{90, 300, 3}}) {
    SCOPED_TRACE(each.n);
    const std::int64_t m = each.m, n = each.n;
    const data_set<T> points = this->points_of(m, n);
    problem size = this->size_of(points, each.k);
    data<T> from{.points = points.view(), .centroids = points.rows(each.k)};
    const result<T> expected = this->run(size, from, this->how());
    EXPECT_EQ(expected.detected, 0u);
    EXPECT_EQ(expected.worst, verdict::clean);
    if (n == 10) {
      EXPECT_TRUE(this->run(size, from, this->how(protection::off)) == expected);
    }
    // Device memory: by rows, by columns, with gaps. The host reads no points.
    const auto rows = this->on_device(points.values);
    std::vector<T> turned(static_cast<std::size_t>(m * n)), wide(static_cast<std::size_t>(m * (n + 3)), std::numeric_limits<T>::infinity());
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t f = 0; f < n; ++f) {
        turned[static_cast<std::size_t>(f * m + i)] = points.view()(i, f);
        wide[static_cast<std::size_t>(i * (n + 3) + f)] = points.view()(i, f);
      }
    }
    const auto columns = this->on_device(turned), gaps = this->on_device(wide);
    for (const auto& view : {matrix_view<const T>{static_cast<const T*>(rows.data()), m, n, n, 1},
                             matrix_view<const T>{static_cast<const T*>(columns.data()), m, n, 1, m},
                             matrix_view<const T>{static_cast<const T*>(gaps.data()), m, n, n + 3, 1}}) {
      SCOPED_TRACE(view.row_stride);
      from.points = view;
      this->device_->largest = 0;
      EXPECT_TRUE(this->run(size, from, this->how()) == expected);
      if (n == 300) {
        EXPECT_LT(this->device_->largest, m * n * static_cast<std::int64_t>(sizeof(T)) / 2);
      }
    }
    // The host makes the copies where the device has too little room; its sums have another order.
    if (n == 10) {
      for (const auto& view : {points.view(), matrix_view<const T>{static_cast<const T*>(rows.data()), m, n, n, 1}}) {
        SCOPED_TRACE(view.data == points.view().data ? "host" : "device");
        from.points = view;
        // Points on the device need as much for their unit vectors as points of the host without them.
        this->device_->available = memory_without_unit_rows(points.view(), each.k) - (view.data == points.view().data ? 0 : 1);
        this->device_->unit_kernels = 0;
        const result<T> by_host = this->run(size, from, this->how());
        EXPECT_EQ(by_host.labels, expected.labels);
        EXPECT_NEAR(by_host.inertia, expected.inertia, 64 * k_u<T> * static_cast<double>(m));
        EXPECT_EQ(this->device_->unit_kernels, 0);
        this->device_->available = -1;
        (void)this->run(size, from, this->how());
        EXPECT_GT(this->device_->unit_kernels, 0);
      }
    }
    if constexpr (sizeof(T) == 4) {
      std::vector<float16> halves;
      for (const T x : points.values) halves.push_back({test::cut_to_half(x, false).bits});
      const auto there = this->on_device(halves);
      size.storage = storage::f16;
      for (const float16* memory : {static_cast<const float16*>(halves.data()), static_cast<const float16*>(there.data())}) {
        data<T> half{.centroids = points.rows(each.k)};
        half.half = row_major(memory, m, n);
        EXPECT_TRUE(this->run(size, half, this->how()) == expected);
      }
    }
  }
}

// Numbers whose squares are no numbers of their type change no direction.
TYPED_TEST(spherical_on_device, sizes_of_any_exponent) {
  using T = TypeParam;
  data_set<T> points = this->points_of(150, 10);
  const problem size = this->size_of(points, 8);
  data<T> from{.points = points.view(), .centroids = points.rows(8)};
  const std::vector<T> first(points.values.begin(), points.values.begin() + 80);
  from.centroids = row_major(first.data(), 8, 10);
  const result<T> expected = this->run(size, from, this->how());
  const int far = std::numeric_limits<T>::max_exponent - 20;
  for (std::int64_t i = 0; i < points.m; ++i)
    for (std::int64_t f = 0; f < points.n; ++f) {
      T& x = points.values[static_cast<std::size_t>(i * points.n + f)];
      x = std::ldexp(x, i % 2 == 0 ? far : 40 - far);
    }
  EXPECT_TRUE(this->run(size, from, this->how()) == expected);
}

TYPED_TEST(spherical_on_device, faults_in_unit_rows) {
  using T = TypeParam;
  const data_set<T> points = this->points_of(150, 10);
  const problem size = this->size_of(points, 8);
  const data<T> from{.points = points.view(), .centroids = points.rows(8)};
  const result<T> clean = this->run(size, from, this->how());
  int detected = 0, matter = 0, uncorrectable = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (const std::int64_t visit : {0, 1}) {  // the unit vectors, their check
      const inject::plan faults({fault_at(site::points, inject::model::bit_flip, seed, visit)});
      run::settings with = this->how();
      with.faults = &faults;
      const result<T> found = this->run(size, from, with);
      EXPECT_TRUE(found == clean) << seed << " " << visit;
      EXPECT_NE(found.worst, verdict::uncorrectable) << seed << " " << visit;
      detected += found.detected > 0;
      if (visit > 0) continue;
      with.protection = protection::off;
      matter += !(this->run(size, from, with) == clean);
      with.protection = protection::detect;
      const result<T> told = this->run(size, from, with);
      EXPECT_TRUE(told == clean || told.worst == verdict::uncorrectable) << seed;
    }
    const inject::plan faults({fault_at(site::points, inject::model::stuck_at, seed)});
    run::settings with = this->how();
    with.faults = &faults;
    const result<T> found = this->run(size, from, with);
    uncorrectable += found.worst == verdict::uncorrectable;
    EXPECT_TRUE(found == clean || found.worst == verdict::uncorrectable) << seed;
  }
  EXPECT_GT(detected, 0);
  EXPECT_GT(matter, 0);
  EXPECT_GT(uncorrectable, 0);
}

TYPED_TEST(spherical_on_device, zeros_and_invalid_numbers_are_refused) {
  using T = TypeParam;
  for (const protection level : {protection::off, protection::detect, protection::correct}) {
    data_set<T> points = this->points_of(150, 10);
    const problem size = this->size_of(points, 8);
    const data_set<T> whole = points;
    const data<T> from{.points = points.view(), .centroids = whole.rows(8)};
    const auto refusal = [&] {
      try {
        (void)this->run(size, from, this->how(level));
      } catch (const invalid_argument_error& refused) {
        return std::string(refused.what());
      }
      return std::string();
    };
    points.values[1234] = std::numeric_limits<T>::quiet_NaN();
    EXPECT_NE(refusal().find("row 123, column 4"), std::string::npos) << refusal();
    points.values[1234] = -std::numeric_limits<T>::infinity();
    EXPECT_NE(refusal().find("row 123, column 4"), std::string::npos) << refusal();
    for (const std::int64_t row : {140, 77}) std::fill_n(points.values.begin() + row * 10, 10, T(0));
    EXPECT_NE(refusal().find("_spherical: points: expected rows other than 0 for spherical K-Means, got zeros in row 77"),
              std::string::npos)
        << refusal();
  }
}

}  // namespace
}  // namespace ballast::kmeans
