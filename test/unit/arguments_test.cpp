// Wrong uses of the objects of the public interface: sizes that overflow, null and misaligned operands, objects that were
// moved from or changed. Each is refused with a message; none is undefined behaviour.
#include <complex>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/ballast.hpp>

namespace ballast {
namespace {

// The message of the invalid_argument_error that `call` throws.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const invalid_argument_error& seen) {
    return seen.what();
  }
  return "no invalid_argument_error";
}

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" has no \"" << part << "\"";
}

TEST(matrix, refuses_sizes_that_no_memory_holds) {
  constexpr std::int64_t half = std::int64_t{1} << 32;
  EXPECT_THROW(matrix<float>(half, half), std::bad_alloc);
  EXPECT_THROW(matrix<double>(half / 2, half / 2), std::bad_alloc);
  EXPECT_TRUE(has(refusal([] { matrix<float>(-1, 3); }), "got -1 × 3"));
  EXPECT_TRUE(has(refusal([] { matrix<float>(-1, -1); }), "got -1 × -1"));
  EXPECT_EQ(matrix<float>(0, half).size(), 0u);
}

TEST(matrix, is_empty_after_it_was_moved_from) {
  matrix<double> one(2, 3, order::column_major);
  one(1, 2) = 5;
  matrix<double> two = std::move(one);
  EXPECT_EQ(two(1, 2), 5);
  EXPECT_EQ(one.rows(), 0);     // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_EQ(one.columns(), 0);  // NOLINT(bugprone-use-after-move)
  one = std::move(two);
  EXPECT_EQ(one(1, 2), 5);
  EXPECT_EQ(two.size(), 0u);  // NOLINT(bugprone-use-after-move)
  two = one;
  EXPECT_EQ(two.order(), order::column_major);
  EXPECT_EQ(two(1, 2), 5);
}

TEST(plan, refuses_every_use_after_it_was_moved_from) {
  fft::plan one({.shape = {8}});
  const fft::plan two = std::move(one);
  std::vector<std::complex<float>> x(8), y(8);
  EXPECT_EQ(two.forward(x, y).verdict, verdict::clean);
  // NOLINTBEGIN(bugprone-use-after-move): what is tested
  EXPECT_TRUE(has(refusal([&] { (void)one.forward(x, y); }), "moved from"));
  EXPECT_TRUE(has(refusal([&] { (void)one.inverse(x, y); }), "moved from"));
  EXPECT_TRUE(has(refusal([&] { (void)one.enqueue_forward(x, y); }), "moved from"));
  EXPECT_TRUE(has(refusal([&] { (void)one.enqueue_inverse(x, y); }), "moved from"));
  EXPECT_TRUE(has(refusal([&] { (void)one.backend(); }), "moved from"));
  EXPECT_TRUE(has(refusal([&] { (void)one.problem(); }), "moved from"));
  EXPECT_TRUE(has(refusal([&] { (void)one.workspace_bytes(); }), "moved from"));
  const fft::plan copy = one;
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(has(refusal([&] { (void)copy.problem(); }), "moved from"));
  one = two;
  EXPECT_EQ(one.problem().shape, std::vector<std::int64_t>{8});
}

TEST(qr, refuses_null_scalars) {
  matrix<double> A(3, 2, order::column_major), C(3, 1, order::column_major);
  A(0, 0) = A(1, 1) = 1;
  const std::span<double> null(static_cast<double*>(nullptr), 2);
  EXPECT_TRUE(has(refusal([&] { (void)qr::geqrf(A.view(), null); }), "tau: expected data, got a null pointer"));
  EXPECT_TRUE(has(refusal([&] { (void)qr::orgqr(A.view(), null); }), "tau: expected data, got a null pointer"));
  EXPECT_TRUE(has(refusal([&] { (void)qr::ormqr(qr::side::left, qr::transpose::no, std::as_const(A).view(), null, C.view()); }),
                  "tau: expected data, got a null pointer"));
}

TEST(qr, factors_refuse_members_that_do_not_belong_together) {
  matrix<double> A(3, 2, order::column_major), B(3, 1, order::column_major);
  A(0, 0) = A(1, 1) = A(2, 0) = B(0, 0) = 1;
  const auto good = qr::factor(std::as_const(A).view());
  const auto refuses = [&](const qr::factors<double>& changed, const char* part) {
    EXPECT_TRUE(has(refusal([&] { (void)changed.r(); }), part));
    EXPECT_TRUE(has(refusal([&] { (void)changed.q(); }), part));
    EXPECT_TRUE(has(refusal([&] { (void)changed.solve(std::as_const(B).view()); }), part));
  };
  auto changed = good;
  changed.tau.clear();
  refuses(changed, "tau: expected 2 elements, got 0");
  changed = good;
  changed.tau.push_back(0);
  refuses(changed, "tau: expected 2 elements, got 3");
  changed = good;
  changed.storage = matrix<double>(3, 1, order::column_major);
  refuses(changed, "tau: expected 1 elements, got 2");
  changed = good;
  const auto taken = std::move(changed);
  refuses(changed, "factors: storage");  // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_EQ(taken.q().values.rows(), 3);
  // The other order holds the same factors.
  changed = good;
  changed.storage = matrix<double>(3, 2, order::row_major);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j) changed.storage(i, j) = good.storage(i, j);
  EXPECT_EQ(changed.r()(0, 1), good.r()(0, 1));
  EXPECT_EQ(changed.q().values(2, 1), good.q().values(2, 1));
}

TEST(kmeans, refuses_null_weights) {
  const std::vector<float> points{0, 1, 5, 6};
  const kmeans::data<float> from{.points = row_major(points.data(), 4, 1), .weights = {static_cast<const float*>(nullptr), 4}};
  EXPECT_TRUE(has(refusal([&] { (void)kmeans::fit(from, 2); }), "weights: expected an address, got null"));
}

TEST(operands, are_aligned_to_their_elements) {
  std::vector<double> memory(64);
  auto* const bytes = reinterpret_cast<unsigned char*>(memory.data()) + 2;
  auto* const f32 = reinterpret_cast<float*>(bytes);
  const fft::plan plan({.shape = {8}});
  auto* const complex = reinterpret_cast<std::complex<float>*>(memory.data());
  auto* const shifted = reinterpret_cast<std::complex<float>*>(bytes) + 8;
  EXPECT_TRUE(has(refusal([&] { (void)plan.forward({complex, 8}, {shifted, 8}); }), "out: expected data at a multiple of 4 bytes"));
  EXPECT_TRUE(has(refusal([&] { (void)plan.forward({shifted, 8}, {complex, 8}); }), "in: expected data at a multiple of 4 bytes"));
  // On the host a complex number needs the alignment of its parts only.
  EXPECT_EQ(
      plan.forward({reinterpret_cast<std::complex<float>*>(reinterpret_cast<float*>(memory.data()) + 1), 8}, {complex + 16, 8}).verdict,
      verdict::clean);
  EXPECT_TRUE(has(refusal([&] { (void)kmeans::fit(row_major<const float>(f32, 4, 1), 2); }), "multiple of 4 bytes"));
  std::vector<float> tau(2);
  EXPECT_TRUE(has(refusal([&] { (void)qr::geqrf(column_major(f32, 3, 2), tau); }), "multiple of 4 bytes"));
}

}  // namespace
}  // namespace ballast
