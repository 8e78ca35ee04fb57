// K-Means on ranks over NCCL, a device of the emulator each: the bits of one device, faults of messages and of sums, and what is refused.
// Layer: backend tests.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/kmeans.hpp>

#include "core/counter_rng.hpp"
#include "group/devices_shape.hpp"
#include "group/fake_nccl.hpp"

namespace ballast::kmeans {
namespace {

using test::k_clusters;
using test::k_features;
using test::nccl_fault;

struct nccl_outcome {
  std::vector<float> centroids;
  std::vector<std::int32_t> labels;
  double inertia = 0;
  int iterations = 0;
  report seen;
  bool operator==(const nccl_outcome& other) const {
    return centroids == other.centroids && labels == other.labels && iterations == other.iterations &&
           std::bit_cast<std::uint64_t>(inertia) == std::bit_cast<std::uint64_t>(other.inertia);
  }
};

class nccl_kmeans : public testing::Test {
 protected:
  static constexpr std::int64_t k_rows = 2700;  // three segments
  nccl_kmeans() {
    for (std::int64_t i = 0; i < k_rows * k_features; ++i)
      points_.push_back(static_cast<float>(3 * ((i / k_features * 7 + i % k_features * 3) % 5)) +
                        4 * static_cast<float>(core::random_uniform(1, 0, static_cast<std::uint64_t>(i))));
  }
  options wanted() const { return {.max_iter = 9, .seed = 3}; }
  // `shares`: the rows of each rank; empty: one device, without a group. `named`: each rank names its device.
  nccl_outcome fit_on(const std::vector<std::int64_t>& shares, protection level = protection::correct, double patience = 30,
                      bool named = false) {
    std::vector<nccl_outcome> made(std::max<std::size_t>(shares.size(), 1));
    const auto one = [&](std::size_t r, std::int64_t first, std::int64_t count, const execution& where) {
      const model<float> found = fit(data<float>{.points = row_major<const float>(points_.data() + first * k_features, count, k_features)},
                                     k_clusters, wanted(), where, {.throw_on_uncorrectable = false});
      made[r] = {{found.centroids.data(), found.centroids.data() + found.centroids.size()},
                 found.labels,
                 found.inertia,
                 found.iterations,
                 found.report};
    };
    if (shares.empty()) {
      one(0, 0, k_rows, {.backend = backend::cuda, .threads = 1, .protection = level});
      return made[0];
    }
    std::vector<std::int64_t> first(1, 0);
    for (const std::int64_t each : shares) first.push_back(first.back() + each);
    const auto ends =
        test::run_nccl_ranks(static_cast<int>(shares.size()), {.resend_after = 0.02, .patience = patience}, [&](int r, const group& own) {
          const auto at = static_cast<std::size_t>(r);
          one(at, first[at], shares[at], {.device = named ? r : -1, .threads = 1, .protection = level, .group = own});
        });
    for (const std::exception_ptr& each : ends)
      if (each) std::rethrow_exception(each);
    nccl_outcome all = made[0];
    for (std::size_t r = 1; r < made.size(); ++r) {
      EXPECT_EQ(made[r].centroids, all.centroids) << "rank " << r;
      all.labels.insert(all.labels.end(), made[r].labels.begin(), made[r].labels.end());
    }
    return all;
  }

  test::nccl_devices devices_{3};
  std::vector<float> points_;
};

TEST_F(nccl_kmeans, has_the_bits_of_one_device) {
  for (const protection level : {protection::correct, protection::off}) {
    const nccl_outcome alone = fit_on({}, level);
    for (const auto& shares : std::vector<std::vector<std::int64_t>>{{2700}, {1024, 1676}, {1024, 1024, 652}}) {
      test::begin_fake_nccl();
      const nccl_outcome made = fit_on(shares, level);
      EXPECT_TRUE(made == alone) << shares.size() << " ranks";
      EXPECT_EQ(made.seen.detected, 0U);
      EXPECT_EQ(made.seen.backend, backend::cuda);
    }
  }
}

// Arrays of a device name it in Python.
TEST_F(nccl_kmeans, a_rank_may_name_its_own_device_and_no_other) {
  const nccl_outcome alone = fit_on({});
  test::begin_fake_nccl();
  EXPECT_TRUE(fit_on({1024, 1676}, protection::correct, 30, true) == alone);
  const auto ends = test::run_nccl_ranks(2, {.patience = 30}, [&](int r, const group& own) {
    try {
      (void)fit(data<float>{.points = row_major<const float>(points_.data(), 1024, k_features)}, k_clusters, wanted(),
                {.device = 1 - r, .threads = 1, .group = own});
      ADD_FAILURE() << "no error";
    } catch (const invalid_argument_error& seen) {
      const std::string text = seen.what();
      EXPECT_NE(text.find("device: expected " + std::to_string(r) + ", that of this rank, or -1, got " + std::to_string(1 - r)), text.npos)
          << text;
    }
  });
  for (const std::exception_ptr& each : ends) EXPECT_EQ(each, nullptr);
}

TEST_F(nccl_kmeans, repairs_faults_of_messages_and_sums) {
  test::begin_fake_nccl();
  const nccl_outcome clean = fit_on({1024, 1676});
  std::uint64_t struck = 0, detected = 0;
  for (const nccl_fault each : {nccl_fault::bit, nccl_fault::stale, nccl_fault::late, nccl_fault::bit_of_sum, nccl_fault::left_out}) {
    for (std::uint64_t number = 0; number < 6; ++number) {
      const bool of_sum = each == nccl_fault::bit_of_sum || each == nccl_fault::left_out;
      test::begin_fake_nccl({{each, static_cast<int>(number % 2), of_sum ? number : 9 * number, 1, number}});
      const nccl_outcome made = fit_on({1024, 1676});
      EXPECT_TRUE(made == clean) << "fault " << static_cast<int>(each) << " at " << number;
      EXPECT_EQ(made.seen.uncorrectable, 0U);
      struck += test::struck_nccl();
      detected += made.seen.detected;
    }
  }
  EXPECT_GE(struck, 25U);
  EXPECT_GT(detected, 8U);
}

TEST_F(nccl_kmeans, without_protection_a_wrong_sum_reaches_the_result) {
  test::begin_fake_nccl();
  const nccl_outcome clean = fit_on({1024, 1676}, protection::off);
  test::begin_fake_nccl({{nccl_fault::left_out, 1, 0, 9}});
  EXPECT_FALSE(fit_on({1024, 1676}, protection::off) == clean);
  EXPECT_GT(test::struck_nccl(), 0U);
}

TEST_F(nccl_kmeans, refuses_rows_that_divide_a_segment) {
  test::begin_fake_nccl();
  try {
    (void)fit_on({1000, 1700});
    ADD_FAILURE() << "the rows were taken";
  } catch (const invalid_argument_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("multiple of 1024"), std::string::npos) << refused.what();
  }
}

TEST_F(nccl_kmeans, names_a_lost_rank) {
  test::begin_fake_nccl();
  test::end_fake_rank_at(1, 20);
  try {
    (void)fit_on({1024, 1676}, protection::correct, 3);
    ADD_FAILURE() << "a call ended without a rank";
  } catch (const rank_lost_error& lost) {
    EXPECT_EQ(lost.ranks(), std::vector<int>{1});
  }
}

// A callback of one rank throws in the middle of a fit: the others end at once, too, with an error that names it.
TEST_F(nccl_kmeans, an_exception_of_one_rank_ends_all) {
  for (const int at : {1, 3}) {
    test::begin_fake_nccl();
    std::atomic<int> named{0}, thrown{0};
    const auto start = std::chrono::steady_clock::now();
    (void)test::run_nccl_ranks(3, {.resend_after = 0.02, .patience = 30}, [&](int r, const group& own) {
      const std::int64_t first = 1024 * r, count = r == 2 ? 652 : 1024;
      call now;
      now.on_progress = [&](const progress& seen) {
        if (r == 1 && seen.done >= at) throw std::length_error("enough");
      };
      try {
        (void)fit(data<float>{.points = row_major<const float>(points_.data() + first * k_features, count, k_features)}, k_clusters,
                  wanted(), {.threads = 1, .group = own}, now);
        ADD_FAILURE() << "rank " << r << " ended without rank 1";
      } catch (const std::length_error&) {
        EXPECT_EQ(r, 1);
        ++thrown;
      } catch (const error& other) {
        EXPECT_NE(r, 1);
        EXPECT_NE(std::string(other.what()).find("rank 1 of the group left the call"), std::string::npos) << other.what();
        ++named;
      }
    });
    EXPECT_EQ(thrown, 1);
    EXPECT_EQ(named, 2);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  }
}

// A callback for progress on one rank only: all take the same path.
TEST_F(nccl_kmeans, tells_one_rank_of_progress) {
  test::begin_fake_nccl();
  const nccl_outcome clean = fit_on({1024, 1676});
  for (const int with : {0, 1}) {
    test::begin_fake_nccl();
    std::atomic<int> right{0}, told{0};
    const auto ends = test::run_nccl_ranks(2, {.resend_after = 0.02, .patience = 10}, [&](int r, const group& own) {
      const std::int64_t first = 1024 * r, count = r == 0 ? 1024 : 1676;
      call now;
      if (r == with) now.on_progress = [&](const progress&) { ++told; };
      const model<float> found = fit(data<float>{.points = row_major<const float>(points_.data() + first * k_features, count, k_features)},
                                     k_clusters, wanted(), {.threads = 1, .group = own}, now);
      right += std::bit_cast<std::uint64_t>(found.inertia) == std::bit_cast<std::uint64_t>(clean.inertia) &&
                       std::equal(clean.centroids.begin(), clean.centroids.end(), found.centroids.data())
                   ? 1
                   : 0;
    });
    for (const std::exception_ptr& each : ends)
      if (each) std::rethrow_exception(each);
    EXPECT_EQ(right, 2);
    EXPECT_EQ(told, clean.iterations);
  }
}

}  // namespace
}  // namespace ballast::kmeans
