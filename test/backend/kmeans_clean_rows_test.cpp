// Clean rows of every kind must pass the row checks of cuda: those of scores in a pass, and those of distances in transform and in the
// choice of first centroids.
// Layer: backend tests, on the emulator.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "support/typed_suite.hpp"

namespace ballast::kmeans {
namespace {

constexpr int k_kinds = 9;
const char* const k_names[k_kinds] = {"normal",  "uniform",      "outliers", "duplicated", "integers",
                                      "offsets", "mixed scales", "sorted",   "spread"};

template <class T>
std::vector<T> rows_of(int kind, std::int64_t m, std::int64_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<T> made;
  std::vector<double> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < m; ++i) {
    const bool fresh = kind != 3 || i % 16 == 0;
    const double far = kind == 2 && random() % 50 == 0 ? 1e3 : 1, size = std::exp(4 * normal(random));
    for (std::int64_t f = 0; f < n; ++f) {
      double& x = row[static_cast<std::size_t>(f)];
      if (!fresh) continue;
      switch (kind) {
        case 1: x = uniform(random); break;
        case 4: x = static_cast<double>(random() % 16); break;
        case 5: x = 1e4 * static_cast<double>(random() % 3) + uniform(random); break;
        case 6: x = normal(random) * std::pow(10.0, static_cast<double>(f % 7) - 3); break;
        case 7: x = static_cast<double>(i) / static_cast<double>(m) + 1e-3 * uniform(random); break;
        case 8: x = size * normal(random); break;
        default: x = far * normal(random); break;
      }
    }
    for (const double x : row) made.push_back(static_cast<T>(x));
  }
  return made;
}

struct shape {
  std::int64_t m, n, k;
};

template <class T>
class kmeans_clean_rows : public testing::Test {
 protected:
  const test::current_device_guard guard_{std::make_shared<simt::emulated_device>()};
};
TYPED_SUITE(kmeans_clean_rows, reals, test::number_names);

// Each class of shapes has its kind of pass, and its number of centroids in a row check.
TYPED_TEST(kmeans_clean_rows, are_not_refused) {
  using T = TypeParam;
  for (const auto& [m, n, k] : {shape{500, 1, 500}, {1041, 7, 1041}, {700, 2, 128}, {300, 40, 300}}) {
    for (int kind = 0; kind < k_kinds; ++kind) {
      if (test::sampled() && kind % 3 != static_cast<int>(n % 3) && kind != 2) continue;
      for (unsigned seed = 0; seed < (test::sampled() ? 1u : 4u); ++seed) {
        SCOPED_TRACE(std::string(k_names[kind]) + " " + std::to_string(n) + " x " + std::to_string(k) + " seed " + std::to_string(seed));
        const auto x = rows_of<T>(kind, m, n, 100 * seed + static_cast<unsigned>(kind));
        const auto points = row_major(x.data(), m, n), centroids = row_major(x.data(), k, n);
        const run::settings how{.backend = backend::cuda, .threads = 1, .throw_on_uncorrectable = false};
        EXPECT_EQ(transform(points, centroids, how).report.verdict, verdict::clean);
        EXPECT_EQ(predict(points, centroids, how).report.verdict, verdict::clean);
        if (kind % 2 != 0 || k != 128) continue;
        EXPECT_EQ(fit(points, request<T>{.clusters = k, .init = init::kmeans_parallel, .max_iter = 2}, how).report.verdict, verdict::clean);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::kmeans
