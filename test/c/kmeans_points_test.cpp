// K-Means of points in compressed rows and in half precision by the C interface.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/ballast.h>
#include <ballast/kmeans.hpp>

#include "c/support.hpp"

namespace ballast {
namespace {

class c_points : public test::c_interface {};

// Points in compressed rows with indices of both sizes, and in bfloat16: the calls of the C++ interface.
TEST_F(c_points, have_the_results_of_the_library) {
  std::vector<std::int32_t> offsets = {0, 2, 3, 3, 5, 6}, columns = {0, 2, 1, 0, 3, 2};
  std::vector<std::int64_t> wide_offsets(offsets.begin(), offsets.end()), wide_columns(columns.begin(), columns.end());
  std::vector<float> values = {1, 2, 3, 1, 4, 2}, first = {1, 0, 2, 0, 0, 3, 0, 0};
  const kmeans::data<float> from{.centroids = row_major<const float>(first.data(), 2, 4),
                                 .sparse = csr_view<const float, std::int32_t>{5, 4, offsets, columns, values}};
  const auto model = kmeans::fit(from, 2, {.init = kmeans::init::given}, {.backend = backend::cpu});
  test::options with;
  make("kmeans", with);
  ASSERT_EQ(ballast_options_set_problem(with, "kmeans_f32_m5_n4_k2_csr", nullptr, wrong), BALLAST_OK) << message();
  set(with, "init", "given");
  test::kmeans_plan plan;
  ASSERT_EQ(ballast_kmeans_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  std::vector<std::int32_t> labels(5);
  double inertia = 0;
  const test::tensor stored(values, {6}), given(first, {2, 4}), label(labels, {5}), offset(offsets, {6}), column(columns, {6}),
      wide_offset(wide_offsets, {6}), wide_column(wide_columns, {6});
  for (const auto& [o, c] : {std::pair<const DLTensor*, const DLTensor*>{offset, column}, {wide_offset, wide_column}}) {
    const ballast_kmeans_data data = {sizeof data, stored, nullptr, given, o, c};
    const ballast_kmeans_results results = {sizeof results, nullptr, label, &inertia, nullptr, nullptr};
    ASSERT_EQ(ballast_kmeans_fit(plan, &data, &results, nullptr, seen, wrong), BALLAST_OK) << message();
    EXPECT_EQ(labels, model.labels);
    EXPECT_EQ(inertia, model.inertia);
    ASSERT_EQ(ballast_kmeans_predict(plan, &data, label, &inertia, nullptr, nullptr, wrong), BALLAST_OK) << message();
  }
  const ballast_kmeans_data mixed = {sizeof mixed, stored, nullptr, given, offset, wide_column};
  EXPECT_EQ(ballast_kmeans_predict(plan, &mixed, label, &inertia, nullptr, nullptr, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("row_columns: expected elements of int32"), std::string::npos) << message();
  const ballast_kmeans_data none = {sizeof none, stored, nullptr, given, nullptr, nullptr};
  EXPECT_EQ(ballast_kmeans_predict(plan, &none, label, &inertia, nullptr, nullptr, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("row_offsets"), std::string::npos) << message();

  std::vector<bfloat16> halves = {{0x3f80}, {0x4000}, {0x4040}, {0x4080}, {0x40a0}, {0x40c0}};  // 1 … 6
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6}, start = {1, 2, 5, 6};
  test::options half_options;
  make("kmeans", half_options);
  ASSERT_EQ(ballast_options_set_problem(half_options, "kmeans_bf16_m3_n2_k2", nullptr, wrong), BALLAST_OK) << message();
  test::kmeans_plan half_plan;
  ASSERT_EQ(ballast_kmeans_plan_create(half_options, &half_plan, wrong), BALLAST_OK) << message();
  test::tensor points(numbers, {3, 2});
  points->data = halves.data();
  points->dtype = {BALLAST_DLPACK_BFLOAT, 16, 1};
  const test::tensor two(start, {2, 2});
  std::vector<std::int32_t> three(3);
  const test::tensor nearest(three, {3});
  const ballast_kmeans_data brain = {sizeof brain, points, nullptr, two, nullptr, nullptr};
  ASSERT_EQ(ballast_kmeans_predict(half_plan, &brain, nearest, &inertia, nullptr, nullptr, wrong), BALLAST_OK) << message();
  EXPECT_EQ(three, (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(inertia, 8);
}

}  // namespace
}  // namespace ballast
