// QR on a group in C: random matrices, the objects of a rank, the results of all ranks, and their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "c/support.hpp"
#include "core/counter_rng.hpp"

namespace ballast::test {

// Element (i, j) of a random matrix.
template <class T>
T element(std::uint64_t stream, std::int64_t i, std::int64_t j) {
  const auto draw = [&](std::uint64_t part) { return core::random_uniform(stream, part, static_cast<std::uint64_t>(1000 * i + j)) - 0.5; };
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(draw(0));
  else
    return {static_cast<typename T::value_type>(draw(0)), static_cast<typename T::value_type>(draw(1))};
}

template <class T>
T conjugate(const T& x) {
  if constexpr (std::is_floating_point_v<T>)
    return x;
  else
    return std::conj(x);
}

template <class T>
struct unit_roundoff : std::integral_constant<int, std::is_same_v<T, float> || std::is_same_v<T, std::complex<float>> ? 24 : 53> {};

// All ranks' results. Matrices are column-major.
template <class T>
struct outcome {
  std::vector<T> q, r, x, product, storage, tau;
  std::uint64_t detected = 0, uncorrectable = 0;
  int errors = 0, messages = 0;
  bool operator==(const outcome& other) const {
    return q == other.q && r == other.r && x == other.x && product == other.product && storage == other.storage && tau == other.tau;
  }
};

// The objects that the calls of one rank need.
struct rank_objects {
  rank_objects(const ballast_group* group, const char* protection) {
    EXPECT_EQ(ballast_error_create(&failed), BALLAST_OK);
    right(ballast_report_create(&seen, failed));
    right(ballast_options_create("qr", &with, failed));
    right(ballast_options_set_integer(with, "threads", 1, failed));
    right(ballast_options_set_text(with, "backend", "cpu", failed));
    right(ballast_options_set_text(with, "protection", protection, failed));
    right(ballast_options_set_group(with, group, failed));
  }
  void right(std::int32_t status) {
    EXPECT_EQ(status, BALLAST_OK) << ballast_error_message(failed);
    wrong = wrong || status != BALLAST_OK;
  }
  // A call has returned: counts what its report says.
  void called(std::int32_t status, std::uint64_t& detected, std::uint64_t& uncorrectable) {
    if (status != BALLAST_OK) {
      wrong = true;
      return;
    }
    ballast_summary made{};
    made.size = sizeof made;
    right(ballast_report_summary(seen, &made, failed));
    detected += made.detected;
    uncorrectable += made.uncorrectable;
  }
  error failed;
  report seen;
  options with;
  bool wrong = false;
};

// A tensor of columns that are contiguous.
template <class T>
tensor column_tensor(std::vector<T>& values, std::int64_t rows, std::int64_t columns) {
  return tensor(values, {rows, columns}, {1, rows});
}

// ‖A − Q R‖ and ‖Qᴴ Q − 1‖ against rounding, and Aᴴ (A x − b) = 0. Sums are in the type's own precision or better.
template <class T>
void expect_definitions(std::int64_t m, std::int64_t n, const outcome<T>& found) {
  using wide = std::conditional_t<std::is_floating_point_v<T>, double, std::complex<double>>;
  const std::int64_t k = std::min(m, n);
  const double u = std::ldexp(1.0, -unit_roundoff<T>()), allowed = 8 * static_cast<double>(m) * u;
  const auto at = [](const std::vector<T>& of, std::int64_t rows, std::int64_t i, std::int64_t j) {
    return static_cast<wide>(of[static_cast<std::size_t>(i + j * rows)]);
  };
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < m; ++i) {
      wide sum = -static_cast<wide>(element<T>(1, i, j));
      for (std::int64_t l = 0; l < k; ++l) sum += at(found.q, m, i, l) * at(found.r, k, l, j);
      EXPECT_LE(std::abs(sum), allowed) << i << ", " << j;
    }
    for (std::int64_t i = j + 1; i < k; ++i) EXPECT_EQ(at(found.r, k, i, j), wide(0));
  }
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < k; ++j) {
      wide sum = i == j ? -1 : 0;
      for (std::int64_t l = 0; l < m; ++l) sum += conjugate(at(found.q, m, l, i)) * at(found.q, m, l, j);
      EXPECT_LE(std::abs(sum), allowed);
    }
  for (std::int64_t c = 0; c < 2 && m >= n; ++c) {
    std::vector<wide> rest;
    for (std::int64_t i = 0; i < m; ++i) {
      wide sum = -static_cast<wide>(element<T>(2, i, c));
      for (std::int64_t j = 0; j < n; ++j) sum += static_cast<wide>(element<T>(1, i, j)) * at(found.x, n, j, c);
      rest.push_back(sum);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      wide sum = 0;
      for (std::int64_t i = 0; i < m; ++i) sum += conjugate(static_cast<wide>(element<T>(1, i, j))) * rest[static_cast<std::size_t>(i)];
      EXPECT_LE(std::abs(sum), 100 * allowed);
    }
  }
}

}  // namespace ballast::test
