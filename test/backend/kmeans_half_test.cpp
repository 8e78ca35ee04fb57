// K-Means of points in float16 and bfloat16 on every backend: the bits of the fit of the same numbers in float; under faults; and what is
// refused. On cuda also points in device memory and points that pass in pieces.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "inject/sites.hpp"
#include "kmeans/half_points.hpp"
#include "kmeans/sites.hpp"
#include "support/effort.hpp"
#include "support/typed_suite.hpp"
#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
#include "backend/kmeans_streamed.hpp"
#endif

namespace ballast::kmeans {
namespace {

// The number by its definition (IEEE 754, 3.4): sign, exponent and fraction.
double by_definition(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const std::uint32_t fraction = bits & ((1U << fraction_bits) - 1), exponent = bits >> fraction_bits & ((1U << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> (exponent_bits + fraction_bits) != 0 ? -1 : 1;
  if (exponent == (1U << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1U << fraction_bits), static_cast<int>(exponent) - bias - fraction_bits);
}
double by_definition(float16 value) { return by_definition(value.bits, 5, 10); }
double by_definition(bfloat16 value) { return by_definition(value.bits, 8, 7); }

#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
constexpr std::array k_backends = {backend::cuda};
constexpr bool k_on_cuda = true;
#else
constexpr std::array k_backends = {backend::reference, backend::cpu};
constexpr bool k_on_cuda = false;
#endif

template <class Half>
class half_numbers : public testing::Test {
 protected:
  half_numbers() {
    if (k_on_cuda) guard_.emplace(std::make_shared<simt::emulated_device>());
  }

 private:
  std::optional<test::current_device_guard> guard_;
};
using halves = testing::Types<float16, bfloat16>;
struct half_names {
  template <class Half>
  static constexpr const char* GetName(int) {
    return std::is_same_v<Half, float16> ? "f16" : "bf16";
  }
};
TYPED_SUITE(half_numbers, halves, half_names);

TYPED_TEST(half_numbers, are_widened_exactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const TypeParam value{static_cast<std::uint16_t>(bits)};
    const double expected = by_definition(value);
    const float found = widened(value);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(found), expected) << bits;
      EXPECT_EQ(std::signbit(found), std::signbit(expected)) << bits;
    }
  }
}

// Points in half precision and the same numbers in float: clouds whose numbers are cut to the upper bits that the type has.
template <class Half>
struct half_set {
  std::vector<Half> halves;
  data_set<float> wide;
  matrix_view<const Half> view() const { return row_major(halves.data(), wide.m, wide.n); }
};

template <class Half>
half_set<Half> cut(data_set<float> from) {
  half_set<Half> made{{}, std::move(from)};
  for (float& each : made.wide.values) {
    const auto bits = std::bit_cast<std::uint32_t>(each);
    Half half;
    if (std::is_same_v<Half, bfloat16>) {
      half.bits = static_cast<std::uint16_t>(bits >> 16);
    } else {
      const int exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
      half.bits = static_cast<std::uint16_t>(bits >> 31 << 15 |
                                             (exponent <= 0 ? 0 : static_cast<std::uint32_t>(exponent) << 10 | (bits >> 13 & 1023)));
    }
    made.halves.push_back(half);
    each = static_cast<float>(by_definition(half));
  }
  return made;
}
template <class Half>
half_set<Half> half_clouds(std::int64_t m, std::int64_t n, std::int64_t clusters, unsigned seed) {
  return cut<Half>(clouds<float>(m, n, clusters, seed, 0.5));
}

// Points in two places far apart, closer together there than normalized coordinates can tell.
template <class Half>
half_set<Half> two_places(std::int64_t m, std::int64_t n) {
  auto made = clouds<float>(m, n, 3, 11, 0.01);
  for (std::int64_t e = 0; e < m * n; ++e) {
    float& x = made.values[static_cast<std::size_t>(e)];
    x = e / n % 2 == 0 ? x / 8 : x + 3000;
  }
  return cut<Half>(std::move(made));
}

run::settings how_on(backend which, protection level = protection::correct) {
  return {.backend = which, .threads = 2, .protection = level, .throw_on_uncorrectable = false};
}

template <class Half>
data<float> operands(const matrix_view<const Half>& points, const request<float>& wanted) {
  data<float> made;
  made.half = points;
  made.weights = wanted.weights;
  made.centroids = wanted.centroids;
  return made;
}

template <class Half>
model<float> fit_half(const matrix_view<const Half>& points, const request<float>& wanted, const run::settings& how) {
  return test_calls::with(
      how, [&](const auto& where, const auto& now) { return fit(operands(points, wanted), wanted.clusters, wanted.how(), where, now); });
}

std::vector<float> flat(const matrix<float>& of) { return {of.data(), of.data() + of.size()}; }

void expect_same(const model<float>& made, const model<float>& other) {
  EXPECT_EQ(made.report.detected, 0u);
  EXPECT_EQ(flat(made.centroids), flat(other.centroids));
  EXPECT_EQ(made.labels, other.labels);
  EXPECT_EQ(made.inertia, other.inertia);
  EXPECT_EQ(made.iterations, other.iterations);
}

TYPED_TEST(half_numbers, have_the_results_of_the_same_numbers_in_float) {
  const bool brain = std::is_same_v<TypeParam, bfloat16>;
  using shape = std::array<std::int64_t, 3>;
  const std::vector<shape> shapes = k_on_cuda ? std::vector<shape>{{500, 20, 3}, {90, 5, 6}}
                                              : std::vector<shape>{{1300, 16, 9}, {700, 33, 70}, {90, 7, 3}, {300, 600, 5}};
  for (const auto& [m, n, k] : shapes) {
    const auto points = k_on_cuda && n == 5 ? two_places<TypeParam>(m, n) : half_clouds<TypeParam>(m, n, k, static_cast<unsigned>(n));
    std::vector<float> weights(static_cast<std::size_t>(m));
    for (std::int64_t i = 0; i < m; ++i) weights[static_cast<std::size_t>(i)] = static_cast<float>(i % 4);
    for (const backend which : k_backends) {
      for (const protection level : {protection::off, protection::correct}) {
        for (const init first : {init::given, init::kmeans_plus_plus, init::kmeans_parallel}) {
          if (k_on_cuda && first == init::kmeans_plus_plus && n == 5) continue;  // no kernels with weights
          SCOPED_TRACE(std::to_string(m) + " " + std::string(to_string(which)) + " " + std::string(to_string(first)));
          request<float> wanted{.clusters = k, .init = first, .max_iter = 6, .seed = 5};
          if (first == init::given) wanted.centroids = points.wide.rows(k);
          if (first == init::kmeans_plus_plus) wanted.weights = weights;
          const auto made = fit_half(points.view(), wanted, how_on(which, level));
          expect_same(made, fit(points.wide.view(), wanted, how_on(which, level)));
          EXPECT_EQ(made.report.problem.view().substr(0, 10), brain ? "kmeans_bf1" : "kmeans_f16");
        }
        const request<float> given{.centroids = points.wide.rows(k)};
        const auto found = test_calls::predict_any(operands(points.view(), given), how_on(which, level));
        const auto same = predict(points.wide.view(), points.wide.rows(k), how_on(which, level));
        EXPECT_EQ(found.labels, same.labels);
        EXPECT_EQ(found.inertia, same.inertia);
        auto far = points.wide;  // one centroid is so far away that its distances come from a sum of its own
        for (std::int64_t f = 0; f < n; ++f) far.values[static_cast<std::size_t>(f)] += 0x1p30F;
        const request<float> moved{.centroids = far.rows(k)};
        const auto values = test_calls::transform_any(operands(points.view(), moved), how_on(which, level));
        EXPECT_EQ(flat(values.values), flat(transform(points.wide.view(), far.rows(k), how_on(which, level)).values));
      }
    }
  }
}

TYPED_TEST(half_numbers, may_have_any_strides) {
  const auto points = half_clouds<TypeParam>(200, 12, 4, 3);
  std::vector<TypeParam> columns(points.halves.size());
  for (std::int64_t i = 0; i < 200; ++i)
    for (std::int64_t f = 0; f < 12; ++f) columns[static_cast<std::size_t>(f * 200 + i)] = points.view()(i, f);
  const request<float> wanted{.clusters = 4, .init = init::given, .centroids = points.wide.rows(4)};
  const matrix_view<const TypeParam> by_columns = column_major(static_cast<const TypeParam*>(columns.data()), 200, 12);
  const run::settings how = how_on(k_backends.back());
  expect_same(fit_half(by_columns, wanted, how), fit(points.wide.view(), wanted, how));
}

TYPED_TEST(half_numbers, may_lie_in_device_memory) {
  const auto points = half_clouds<TypeParam>(200, 12, 4, 3);
  const request<float> wanted{.clusters = 4, .init = init::given, .centroids = points.wide.rows(4), .max_iter = 3};
  const auto device = std::make_shared<simt::emulated_device>();
  const test::current_device_guard current(device);
  const auto bytes = static_cast<std::int64_t>(2 * points.halves.size());
  const ballast::cuda::device_buffer there(device, bytes);
  device->copy(there.data(), points.halves.data(), bytes, nullptr);
  const auto view = row_major(static_cast<const TypeParam*>(there.data()), 200, 12);
  for (const backend which : k_backends) {
    expect_same(fit_half(view, wanted, how_on(which)), fit(points.wide.view(), wanted, how_on(which)));
    EXPECT_EQ(test_calls::predict_any(operands(view, wanted), how_on(which)).labels,
              predict(points.wide.view(), points.wide.rows(4), how_on(which)).labels);
  }
}

TYPED_TEST(half_numbers, faults_at_every_site_are_repaired) {
  constexpr int iterations = 3;
  const auto points = half_clouds<TypeParam>(k_on_cuda ? 400 : 1500, 10, 12, 73);
  const request<float> wanted{.clusters = 12, .init = init::given, .centroids = points.wide.rows(12), .max_iter = iterations, .tol = 0};
  for (const backend which : k_backends) {
    const auto clean = fit_half(points.view(), wanted, how_on(which));
    int matter = 0;
    for (const inject::site_row& row : inject::sites()) {
      if (row.operation() != "kmeans") continue;
      // On cuda only the kernels that read the points are others than those for float.
      if (k_on_cuda && row.site != kmeans::site::points && row.site != kmeans::site::inertia && row.site != kmeans::site::product) continue;
      int detected = 0;
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        inject::request fault = fault_at(row.site, inject::model::bit_flip, seed);
        // Points are widened several times in a pass, each time a visit.
        if (row.site == kmeans::site::points) fault.visit = static_cast<std::int64_t>(seed);
        const inject::plan faults({fault});
        run::settings how = how_on(which);
        how.faults = &faults;
        const auto found = fit_half(points.view(), wanted, how);
        detected += found.report.detected > 0;
        EXPECT_NE(found.report.verdict, verdict::uncorrectable) << row.name << " " << seed;
        EXPECT_EQ(found.labels, clean.labels) << row.name << " " << seed;
        EXPECT_NEAR(found.inertia, clean.inertia, 64 * k_u<float> * clean.inertia) << row.name << " " << seed;
        how.protection = protection::off;
        if (row.site == kmeans::site::points) matter += flat(fit_half(points.view(), wanted, how).centroids) != flat(clean.centroids);
      }
      EXPECT_GT(detected, 0) << row.name;
    }
    EXPECT_GT(matter, 0);
  }
}

#if defined(BALLAST_TEST_KMEANS_ON_CUDA)
// The schemes of FT K-Means read the normalized points alone.
TYPED_TEST(half_numbers, are_clustered_by_other_schemes) {
  const auto points = half_clouds<TypeParam>(300, 17, 7, 9);
  const request<float> wanted{.clusters = 7, .init = init::given, .centroids = points.wide.rows(7), .max_iter = 4};
  run::settings how = how_on(backend::cuda, protection::off);
  how.scheme = "tensor";
  const auto made = fit_half(points.view(), wanted, how);
  expect_same(made, fit(points.wide.view(), wanted, how));
  EXPECT_EQ(made.report.scheme.view(), "tensor");
}

// One element of one copy: of any piece, for any purpose.
TYPED_TEST(half_numbers, pass_in_pieces) {
  const std::int64_t m = 7000, n = 20, k = 3;
  const auto points = half_clouds<TypeParam>(m, n, k, 5);
  const request<float> wanted{.clusters = k, .init = init::given, .centroids = points.wide.rows(k), .max_iter = 2, .tol = 0};
  const half_points half(points.view());
  const auto run = [&](std::int64_t memory, std::int64_t struck, protection level, std::int64_t* copies) {
    const auto device = std::make_shared<observed_device>(std::make_shared<simt::emulated_device>(with_memory(memory)));
    const test::current_device_guard current(device);
    device->struck_copy = struck;
    device->struck_byte = (11 * n + 7) * 2 + 1;  // the upper half of an element of row 11
    auto made = fit_half(points.view(), wanted, how_on(backend::cuda, level));
    if (copies != nullptr) *copies = device->large_copies;
    return made;
  };
  std::int64_t whole = 0;
  const auto expected = fit(points.wide.view(), wanted, how_on(backend::cuda));
  const auto clean = run(std::int64_t{1} << 30, -1, protection::correct, &whole);
  expect_same(clean, expected);
  const auto same = [&](const model<float>& a) {
    return flat(a.centroids) == flat(clean.centroids) && a.labels == clean.labels && a.inertia == clean.inertia;
  };
  for (const auto kept : {cuda::kept_points::normalized, cuda::kept_points::none}) {
    const std::int64_t memory = memory_for<float>(kept, row_major<const float>(nullptr, m, n), false, k, half);
    std::int64_t copies = 0;
    expect_same(run(memory, -1, protection::correct, &copies), clean);
    EXPECT_GT(copies, whole + 2 * 3) << "the points should have come in pieces";
    int detected = 0, changed = 0;
    for (std::int64_t struck = 0; struck < copies; struck += test::sampled() ? 5 : 1) {
      const auto found = run(memory, struck, protection::correct, nullptr);
      detected += found.report.detected > 0;
      EXPECT_NE(found.report.verdict, verdict::uncorrectable) << to_json(found.report);
      EXPECT_TRUE(same(found)) << to_json(found.report);
      changed += !same(run(memory, struck, protection::off, nullptr));
    }
    EXPECT_GT(detected, 0);
    EXPECT_GT(changed, 0) << "with protection off no fault reached the output";
  }
}
#endif

TYPED_TEST(half_numbers, are_refused_where_they_are_no_points) {
  auto points = half_clouds<TypeParam>(40, 5, 3, 1);
  const storage kind = std::is_same_v<TypeParam, bfloat16> ? storage::bf16 : storage::f16;
  const problem size{.points = 40, .features = 5, .clusters = 3, .storage = kind};
  EXPECT_THROW(plan<double>(size, {}), invalid_argument_error);
  problem many = size;
  many.batch = 2;
  EXPECT_THROW(plan<float>(many, {}), unsupported_error);
  const std::string token = kind == storage::bf16 ? "kmeans_bf16_m40_n5_k3" : "kmeans_f16_m40_n5_k3";
  EXPECT_EQ(to_token(size), token);
  EXPECT_EQ(parse_token(token).storage, kind);
  EXPECT_EQ(to_token(parse_token(token)), token);
  points.halves[7].bits = 0x7fff;  // a NaN of both types
  EXPECT_THROW(fit_half(points.view(), request<float>{.clusters = 3}, how_on(k_backends.back())), invalid_argument_error);
  if (k_on_cuda) {
    EXPECT_THROW(plan<float>(size, {}, {.backend = backend::cuda, .scheme = "dmr"}), unsupported_error);
  }
  data<float> none;
  none.points = points.wide.view();
  EXPECT_THROW((void)plan<float>(size, {}).fit(none, {}), invalid_argument_error);
}

}  // namespace
}  // namespace ballast::kmeans
