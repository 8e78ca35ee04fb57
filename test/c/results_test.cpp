// The C interface computes what it says: against direct sums and residuals, and against the C++ interface in the same process.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <thread>

#include <ballast/ballast.hpp>

#include "c/support.hpp"

namespace ballast::test {
namespace {

using complex = std::complex<double>;

std::vector<complex> signal_of(std::size_t count) {
  std::vector<complex> made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = {std::sin(1.0 + 3.7 * static_cast<double>(i)), std::cos(2.0 * static_cast<double>(i * i))};
  return made;
}

// The transform of n numbers that are `step` apart, by its definition.
std::vector<complex> direct_sum(const complex* from, int n, int step) {
  std::vector<complex> made(static_cast<std::size_t>(n));
  for (int k = 0; k < n; ++k) {
    for (int j = 0; j < n; ++j) made[static_cast<std::size_t>(k)] += from[j * step] * std::polar(1.0, -2 * std::numbers::pi * j * k / n);
  }
  return made;
}

double distance(const complex* a, int step, const std::vector<complex>& b) {
  double most = 0;
  for (std::size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(a[static_cast<std::int64_t>(i) * step] - b[i]));
  return most;
}

class c_results : public c_interface {};

// An error of a direct sum of 24 numbers of size 1: 24 products and sums, and the rounding of each angle.
constexpr double k_close = 24 * 8 * 2.3e-16 * 24;

TEST_F(c_results, fft_along_the_first_axis) {
  std::vector<complex> in = signal_of(24), out(24);
  const tensor from(in, {8, 3}), to(out, {8, 3});
  options with;
  make("fft", with);
  set(with, "axes", std::vector<std::int64_t>{0});
  fft_plan plan;
  ASSERT_EQ(ballast_fft_plan_create_like(from, to, with, &plan, wrong), BALLAST_OK) << message();
  const char* token = nullptr;
  ASSERT_EQ(ballast_fft_plan_token(plan, BALLAST_INVERSE, &token, wrong), BALLAST_OK);
  EXPECT_STREQ(token, "fft_c2c_f64_n8_b3_inv");
  ASSERT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, from, to, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int column = 0; column < 3; ++column) EXPECT_LT(distance(out.data() + column, 3, direct_sum(in.data() + column, 8, 3)), k_close);
  const ballast_summary summary = this->summary();
  EXPECT_EQ(summary.verdict, BALLAST_CLEAN);
  EXPECT_EQ(summary.backend, BALLAST_BACKEND_CPU);
  EXPECT_EQ(summary.protection, BALLAST_PROTECTION_CORRECT);
  EXPECT_GT(summary.checks, 0U);
  EXPECT_STREQ(summary.problem, "fft_c2c_f64_n8_b3_fwd");
  EXPECT_STREQ(summary.scheme, "verify_before_store");
  EXPECT_STREQ(summary.fallback_kernels, "");
  // In place, and back.
  ASSERT_EQ(ballast_fft_run(plan, BALLAST_INVERSE, to, to, nullptr, nullptr, wrong), BALLAST_OK) << message();
  EXPECT_LT(distance(out.data(), 1, in), k_close);
}

TEST_F(c_results, every_third_call_is_protected) {
  std::vector<complex> in = signal_of(40), out(40);
  const tensor from(in, {40}), to(out, {40});
  options with;
  make("fft", with);
  set(with, "sampled", 3);
  fft_plan plan;
  ASSERT_EQ(ballast_fft_plan_create_like(from, to, with, &plan, wrong), BALLAST_OK) << message();
  for (int number = 0; number < 6; ++number) {
    ASSERT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, from, to, nullptr, seen, wrong), BALLAST_OK) << message();
    EXPECT_EQ(summary().sampled, 3);
    EXPECT_EQ(summary().protection, number % 3 == 0 ? BALLAST_PROTECTION_CORRECT : BALLAST_PROTECTION_OFF);
    EXPECT_EQ(summary().checks > 0, number % 3 == 0);
  }
  // A struct of an older header is written up to its last member.
  ballast_summary older{};
  older.size = offsetof(ballast_summary, sampled);
  older.sampled = -1;
  ASSERT_EQ(ballast_report_summary(seen, &older, wrong), BALLAST_OK);
  EXPECT_EQ(older.sampled, -1);
}

TEST_F(c_results, threads_share_a_plan) {
  std::vector<complex> in = signal_of(64);
  const tensor from(in, {64});
  options with;
  make("fft", with);
  std::vector<complex> first(64);
  const tensor like(first, {64});
  fft_plan plan;
  ASSERT_EQ(ballast_fft_plan_create_like(from, like, with, &plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, from, like, now, seen, wrong), BALLAST_OK) << message();
  std::vector<std::vector<complex>> results(4, std::vector<complex>(64));
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      error mine;
      report own;
      EXPECT_EQ(ballast_error_create(&mine), BALLAST_OK);
      EXPECT_EQ(ballast_report_create(&own, mine), BALLAST_OK);
      const tensor to(result, {64});
      for (int i = 0; i < 100; ++i) EXPECT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, from, to, now, own, mine), BALLAST_OK);
    });
  }
  for (std::thread& each : threads) each.join();
  for (const auto& result : results) EXPECT_EQ(result, first);
}

TEST_F(c_results, fft_of_a_batch_in_strided_memory) {
  std::vector<complex> in = signal_of(60), out(60, complex(7));
  // Two by three signals of four numbers, each with a gap.
  const tensor from(in, {2, 3, 4}, {30, 10, 2}), to(out, {2, 3, 4}, {30, 10, 2});
  options with;
  make("fft", with);
  set(with, "precision", "f64");
  set(with, "shape", std::vector<std::int64_t>{4});
  set(with, "batch", 6);
  for (const char* const side : {"input", "output"}) {
    set(with, (std::string(side) + "_strides").c_str(), std::vector<std::int64_t>{2});
    set(with, (std::string(side) + "_distance").c_str(), 10);
  }
  fft_plan plan;
  ASSERT_EQ(ballast_fft_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, from, to, nullptr, nullptr, wrong), BALLAST_OK) << message();
  for (int b = 0; b < 6; ++b) EXPECT_LT(distance(out.data() + 10 * b, 2, direct_sum(in.data() + 10 * b, 4, 2)), k_close);
  EXPECT_EQ(out[1], complex(7));  // between the elements
}

TEST_F(c_results, fft_of_reals_in_place_and_back) {
  // Rows of 6 reals, padded to 4 complex numbers.
  std::vector<double> memory(16);
  for (int i = 0; i < 16; ++i) memory[static_cast<std::size_t>(i)] = std::sin(i * i + 0.5);
  const std::vector<double> before = memory;
  const tensor reals(memory, {2, 6}, {8, 1}), halves(reinterpret_cast<complex*>(memory.data()), {2, 4});
  options with;
  make("fft", with);
  set(with, "norm", "ortho");
  fft_plan forward, inverse;
  ASSERT_EQ(ballast_fft_plan_create_like(reals, halves, with, &forward, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_plan_create_like(halves, reals, with, &inverse, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_run(forward, BALLAST_FORWARD, reals, halves, nullptr, nullptr, wrong), BALLAST_OK) << message();
  std::vector<complex> row(before.begin(), before.begin() + 6);
  std::vector<complex> expected = direct_sum(row.data(), 6, 1);
  expected.resize(4);
  for (complex& each : expected) each /= std::sqrt(6.0);
  EXPECT_LT(distance(reinterpret_cast<const complex*>(memory.data()), 1, expected), k_close);
  EXPECT_EQ(ballast_fft_run(forward, BALLAST_INVERSE, halves, reals, nullptr, nullptr, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("direction: expected that of r2c, got inverse"), std::string::npos) << message();
  ASSERT_EQ(ballast_fft_run(inverse, BALLAST_INVERSE, halves, reals, nullptr, nullptr, wrong), BALLAST_OK) << message();
  for (std::size_t i : {0U, 5U, 8U, 13U}) EXPECT_NEAR(memory[i], before[i], k_close);
}

TEST_F(c_results, split_numbers_in_place_and_of_reals) {
  const std::vector<complex> z = signal_of(24);
  std::vector<double> re, im;
  for (const complex each : z) {
    re.push_back(each.real());
    im.push_back(each.imag());
  }
  const std::vector<double> reals = re;
  const tensor real(re, {3, 8}), imaginary(im, {3, 8});
  options with;
  make("fft", with);
  set(with, "shape", std::vector<std::int64_t>{8});
  set(with, "batch", 3);
  set(with, "precision", "f64");
  set(with, "split", 1);
  fft_plan plan, half;
  ASSERT_EQ(ballast_fft_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_run_split(plan, BALLAST_FORWARD, real, imaginary, real, imaginary, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(summary().verdict, BALLAST_CLEAN);
  for (int b = 0; b < 3; ++b) {
    const std::vector<complex> expected = direct_sum(z.data() + 8 * b, 8, 1);
    for (std::size_t k = 0; k < 8; ++k) EXPECT_LT(std::abs(complex(re[8 * b + k], im[8 * b + k]) - expected[k]), k_close);
  }
  EXPECT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, real, real, nullptr, seen, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("expected a plan without this option"), std::string::npos) << message();

  set(with, "kind", "r2c");
  ASSERT_EQ(ballast_fft_plan_create(with, &half, wrong), BALLAST_OK) << message();
  std::vector<double> in = reals, out_re(15), out_im(15);
  const tensor from(in, {3, 8}), to_re(out_re, {3, 5}), to_im(out_im, {3, 5});
  ASSERT_EQ(ballast_fft_run_split(half, BALLAST_FORWARD, from, nullptr, to_re, to_im, nullptr, seen, wrong), BALLAST_OK) << message();
  const std::vector<complex> row(reals.begin(), reals.begin() + 8);
  const std::vector<complex> expected = direct_sum(row.data(), 8, 1);
  for (std::size_t k = 0; k < 5; ++k) EXPECT_LT(std::abs(complex(out_re[k], out_im[k]) - expected[k]), k_close);
  EXPECT_EQ(ballast_fft_run_split(half, BALLAST_FORWARD, from, from, to_re, to_im, nullptr, seen, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("in_imaginary: expected null for a side of real numbers, got a tensor"), std::string::npos) << message();
}

TEST_F(c_results, convolution_of_complex_numbers) {
  std::vector<complex> x = signal_of(20), h = signal_of(6), y(25);
  const tensor first(x, {20}), second(h, {6}), out(y, {25});
  ASSERT_EQ(ballast_convolve(first, second, out, BALLAST_CONVOLVE_FULL, 0, nullptr, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_EQ(summary().verdict, BALLAST_CLEAN);
  EXPECT_STREQ(summary().problem, "convolve_complex_f64_n20_m6_full");
  for (std::size_t k = 0; k < 25; ++k) {
    complex sum = 0;
    for (std::size_t j = 0; j < 20; ++j) {
      if (k >= j && k - j < 6) sum += x[j] * h[k - j];
    }
    EXPECT_LT(std::abs(y[k] - sum), k_close);
  }
  EXPECT_EQ(ballast_convolve(first, second, out, BALLAST_CONVOLVE_VALID, 0, nullptr, nullptr, seen, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("out: expected 15, got 25"), std::string::npos) << message();
  EXPECT_EQ(ballast_convolve(first, second, out, 3, 0, nullptr, nullptr, seen, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("mode: expected 0 (full), 1 (same) or 2 (valid), got 3"), std::string::npos) << message();
}

TEST_F(c_results, cosine_transform_and_back) {
  std::vector<double> in(20), out(20), back(20);
  for (std::size_t i = 0; i < 20; ++i) in[i] = std::sin(static_cast<double>(i * i) + 0.5);
  const tensor from(in, {4, 5}), to(out, {4, 5}), again(back, {4, 5});
  options with;
  make("fft", with);
  fft_plan plan;
  EXPECT_EQ(ballast_fft_plan_create_like(from, to, with, &plan, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("or the option real_kinds, got real numbers in both and no kinds"), std::string::npos) << message();
  set(with, "real_kinds", std::vector<std::int64_t>{11});
  EXPECT_EQ(ballast_fft_plan_create_like(from, to, with, &plan, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("real_kinds: expected numbers from 0 (r2hc) to 10 (dst4), got 11"), std::string::npos) << message();
  set(with, "real_kinds", std::vector<std::int64_t>{BALLAST_DCT2});
  ASSERT_EQ(ballast_fft_plan_create_like(from, to, with, &plan, wrong), BALLAST_OK) << message();
  const char* token = nullptr;
  ASSERT_EQ(ballast_fft_plan_token(plan, BALLAST_FORWARD, &token, wrong), BALLAST_OK);
  EXPECT_STREQ(token, "fft_dct2_f64_n5_b4_fwd");
  ASSERT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, from, to, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int row = 0; row < 4; ++row) {
    for (int k = 0; k < 5; ++k) {
      double sum = 0;
      for (int j = 0; j < 5; ++j) sum += 2 * in[static_cast<std::size_t>(5 * row + j)] * std::cos(std::numbers::pi * (j + 0.5) * k / 5);
      EXPECT_NEAR(out[static_cast<std::size_t>(5 * row + k)], sum, k_close);
    }
  }
  ASSERT_EQ(ballast_fft_run(plan, BALLAST_INVERSE, to, again, nullptr, nullptr, wrong), BALLAST_OK) << message();
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(back[i], in[i], k_close);
  ballast_pending* pending = nullptr;
  EXPECT_EQ(ballast_fft_enqueue(plan, BALLAST_FORWARD, from, to, nullptr, &pending, wrong), BALLAST_UNSUPPORTED);
  // A token brings its kinds, one for each axis.
  ASSERT_EQ(ballast_options_set_problem(with, "fft_dht_f64_n5_b4_fwd", nullptr, wrong), BALLAST_OK) << message();
  fft_plan other;
  ASSERT_EQ(ballast_fft_plan_create(with, &other, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_plan_token(other, BALLAST_INVERSE, &token, wrong), BALLAST_OK);
  EXPECT_STREQ(token, "fft_dht_f64_n5_b4_inv");
}

TEST_F(c_results, fft_of_loops_that_no_single_distance_steps_through) {
  // Two by three signals of four numbers: the first loop has a gap, the second one runs backwards in the input; and of five axes.
  std::vector<complex> in = signal_of(64), out(24);
  tensor from(in, {2, 3, 4}, {32, -8, 2});
  from->data = in.data() + 16;
  const tensor to(out, {2, 3, 4});
  options with, of_plan;
  make("fft", with);
  fft_plan plan, again;
  ASSERT_EQ(ballast_fft_plan_create_like(from, to, with, &plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_plan_options(plan, &of_plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_plan_create(of_plan, &again, wrong), BALLAST_OK) << message();
  for (const ballast_fft_plan* each : {plan.value, again.value}) {
    std::ranges::fill(out, complex(0));
    ASSERT_EQ(ballast_fft_run(each, BALLAST_FORWARD, from, to, nullptr, nullptr, wrong), BALLAST_OK) << message();
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 3; ++b)
        EXPECT_LT(distance(out.data() + 12 * a + 4 * b, 1, direct_sum(in.data() + 16 + 32 * a - 8 * b, 4, 2)), k_close);
    }
  }
  const tensor other(in, {2, 3, 4}, {24, 8, 2});
  EXPECT_EQ(ballast_fft_run(plan, BALLAST_FORWARD, other, to, nullptr, nullptr, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("that give 2 at a distance of 32, 3 at a distance of -8, got 6 at a distance of 8"), std::string::npos)
      << message();
  set(with, "axes", std::vector<std::int64_t>{0, 1, 2, 3, 4});
  const tensor five(in, {2, 2, 2, 2, 2});
  std::vector<complex> spectrum(32);
  const tensor whole(spectrum, {2, 2, 2, 2, 2});
  fft_plan cube;
  ASSERT_EQ(ballast_fft_plan_create_like(five, whole, with, &cube, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_run(cube, BALLAST_FORWARD, five, whole, nullptr, nullptr, wrong), BALLAST_OK) << message();
  complex sum(0);
  for (int i = 0; i < 32; ++i) sum += in[static_cast<std::size_t>(i)];
  EXPECT_LT(std::abs(spectrum[0] - sum), k_close);
}

TEST_F(c_results, options_of_a_plan_make_the_same_plan) {
  options with, copy;
  make("fft", with);
  std::int32_t direction = -1;
  ASSERT_EQ(ballast_options_set_problem(with, "fft_c2r_f32_n4x6_b5_inv", &direction, wrong), BALLAST_OK) << message();
  EXPECT_EQ(direction, BALLAST_INVERSE);
  set(with, "threads", 3);
  fft_plan plan;
  ASSERT_EQ(ballast_fft_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_fft_plan_options(plan, &copy, wrong), BALLAST_OK);
  std::int64_t shape[3] = {0, 0, -1}, batch = 0, threads = 0;
  std::size_t count = 0;
  ASSERT_EQ(ballast_options_get_integers(copy, "shape", shape, 2, &count, wrong), BALLAST_OK);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(shape[0], 4);
  EXPECT_EQ(shape[1], 6);
  EXPECT_EQ(shape[2], -1);
  ASSERT_EQ(ballast_options_get_integer(copy, "batch", &batch, wrong), BALLAST_OK);
  ASSERT_EQ(ballast_options_get_integer(copy, "threads", &threads, wrong), BALLAST_OK);
  EXPECT_EQ(batch, 5);
  EXPECT_EQ(threads, 3);
  const char* kind = nullptr;
  ASSERT_EQ(ballast_options_get_text(copy, "kind", &kind, wrong), BALLAST_OK);
  EXPECT_STREQ(kind, "c2r");

  options clusters;
  make("kmeans", clusters);
  ASSERT_EQ(ballast_options_set_problem(clusters, "kmeans_f64_m100_n4_k3", nullptr, wrong), BALLAST_OK) << message();
  set(clusters, "seed", -1);
  ASSERT_EQ(ballast_options_set_number(clusters, "tol", 0.5, wrong), BALLAST_OK);
  double tol = 0;
  ASSERT_EQ(ballast_options_get_number(clusters, "tol", &tol, wrong), BALLAST_OK);
  EXPECT_EQ(tol, 0.5);
  std::int64_t seed = 0, points = 0;
  ASSERT_EQ(ballast_options_get_integer(clusters, "seed", &seed, wrong), BALLAST_OK);
  ASSERT_EQ(ballast_options_get_integer(clusters, "points", &points, wrong), BALLAST_OK);
  EXPECT_EQ(seed, -1);
  EXPECT_EQ(points, 100);
  // Every text of an enumeration is the name that the C++ interface has for it.
  for (const auto& [name, values] : {std::pair{"init", std::vector<const char*>{"k-means++", "random", "given", "k-means||"}},
                                     std::pair{"backend", std::vector<const char*>{"auto", "reference", "cpu", "cuda"}}}) {
    for (const char* const value : values) {
      ASSERT_EQ(ballast_options_set_text(clusters, name, value, wrong), BALLAST_OK) << message();
      const char* found = nullptr;
      ASSERT_EQ(ballast_options_get_text(clusters, name, &found, wrong), BALLAST_OK);
      EXPECT_STREQ(found, value);
    }
  }
  EXPECT_EQ(to_string(kmeans::init::kmeans_parallel), "k-means||");
}

// Points of four groups in the plane.
std::vector<float> points_of(int count, float shift) {
  std::vector<float> made;
  for (int i = 0; i < count; ++i) {
    made.push_back(static_cast<float>(i % 2) * 10 + 0.3F * std::sin(static_cast<float>(i)) + shift);
    made.push_back(static_cast<float>(i / 2 % 2) * 10 + 0.3F * std::cos(static_cast<float>(3 * i)) - shift);
  }
  return made;
}

TEST_F(c_results, kmeans) {
  constexpr int m = 200;
  std::vector<float> values = points_of(m, 0), weights(m, 2.0F), centroids(8), distances(4 * m);
  std::vector<std::int32_t> labels(m), again(m);
  const tensor points(values, {m, 2}), weight(weights, {m}), centroid(centroids, {4, 2}), label(labels, {m}), second(again, {m}),
      far(distances, {m, 4}, {1, m});
  options with;
  make("kmeans", with);
  set(with, "points", m);
  set(with, "features", 2);
  set(with, "clusters", 4);
  set(with, "n_init", 2);
  set(with, "seed", 5);
  kmeans_plan plan;
  ASSERT_EQ(ballast_kmeans_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  double inertia = -1, predicted = -1;
  std::int32_t iterations = -1, stopped = -1;
  const ballast_kmeans_data data = {sizeof data, points, weight, nullptr, nullptr, nullptr};
  const ballast_kmeans_results results = {sizeof results, centroid, label, &inertia, &iterations, &stopped};
  ASSERT_EQ(ballast_kmeans_fit(plan, &data, &results, nullptr, seen, wrong), BALLAST_OK) << message();
  EXPECT_STREQ(summary().problem, "kmeans_f32_m200_n2_k4");
  EXPECT_STREQ(ballast_stop_name(stopped), "labels unchanged");
  // The same as the C++ interface, bit by bit.
  const kmeans::data<float> from{.points = row_major<const float>(values.data(), m, 2), .weights = weights};
  const auto model = kmeans::fit(from, 4, {.n_init = 2, .seed = 5}, {.backend = backend::cpu});
  EXPECT_EQ(labels, model.labels);
  EXPECT_EQ(inertia, model.inertia);
  EXPECT_EQ(iterations, model.iterations);
  EXPECT_TRUE(std::equal(centroids.begin(), centroids.end(), model.centroids.data()));
  for (int i = 4; i < m; ++i) EXPECT_EQ(labels[static_cast<std::size_t>(i)], labels[static_cast<std::size_t>(i % 4)]);

  const ballast_kmeans_data known = {sizeof known, points, weight, centroid, nullptr, nullptr};
  ASSERT_EQ(ballast_kmeans_predict(plan, &known, second, &predicted, nullptr, nullptr, wrong), BALLAST_OK) << message();
  EXPECT_EQ(again, labels);
  EXPECT_NEAR(predicted, inertia, 1e-4 * inertia);
  ASSERT_EQ(ballast_kmeans_transform(plan, &known, far, nullptr, nullptr, wrong), BALLAST_OK) << message();
  for (int i = 0; i < m; ++i) {
    const auto at = static_cast<std::size_t>(i), c = static_cast<std::size_t>(labels[at]);
    const float expected = std::hypot(values[2 * at] - centroids[2 * c], values[2 * at + 1] - centroids[2 * c + 1]);
    EXPECT_NEAR(distances[at + m * c], expected, 1e-4);
  }
}

TEST_F(c_results, kmeans_of_a_batch_from_given_centroids) {
  constexpr int m = 40;
  std::vector<float> values = points_of(m, 0), more = points_of(m, 1), given, centroids(16);
  values.insert(values.end(), more.begin(), more.end());
  for (int b = 0; b < 2; ++b) given.insert(given.end(), {0, 0, 9, 0, 0, 9, 9, 9});
  std::vector<std::int32_t> labels(2 * m), iterations(2, -1), stopped(2, -1);
  std::vector<double> inertia(2, -1);
  const tensor points(values, {2, m, 2}), first(given, {2, 4, 2}), centroid(centroids, {2, 4, 2}), label(labels, {2, m});
  options with;
  make("kmeans", with);
  set(with, "points", m);
  set(with, "features", 2);
  set(with, "clusters", 4);
  set(with, "batch", 2);
  set(with, "init", "given");
  kmeans_plan plan;
  ASSERT_EQ(ballast_kmeans_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  const ballast_kmeans_data data = {sizeof data, points, nullptr, first, nullptr, nullptr};
  const ballast_kmeans_results results = {sizeof results, centroid, label, inertia.data(), iterations.data(), stopped.data()};
  ASSERT_EQ(ballast_kmeans_fit(plan, &data, &results, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int i = 0; i < 2 * m; ++i) EXPECT_EQ(labels[static_cast<std::size_t>(i)], i % 4) << i;
  EXPECT_EQ(stopped, (std::vector<std::int32_t>{BALLAST_STOP_LABELS_UNCHANGED, BALLAST_STOP_LABELS_UNCHANGED}));
  EXPECT_GT(iterations[1], 0);
  EXPECT_NEAR(centroids[8] - centroids[0], 1, 1e-4);
  EXPECT_NEAR(inertia[0], inertia[1], 1e-2);
  std::int64_t bytes = -1;
  ASSERT_EQ(ballast_kmeans_plan_workspace_bytes(plan, &bytes, wrong), BALLAST_OK);
  EXPECT_EQ(bytes, 0);
}

TEST_F(c_results, qr_of_a_batch) {
  constexpr int count = 5, m = 4, n = 2;
  std::vector<float> A(count * m * n), B(count * m), C, tau(count * n);
  for (std::size_t i = 0; i < A.size(); ++i) A[i] = std::sin(static_cast<float>(i * i) + 1);
  for (std::size_t i = 0; i < B.size(); ++i) B[i] = std::cos(static_cast<float>(i));
  const std::vector<float> before = A, right = B;
  C = A;
  const tensor matrices(A, {count, m, n}), rights(B, {count, m}), others(C, {count, m, n}), scalars(tau, {count, n});
  options with;
  make("qr", with);
  ASSERT_EQ(ballast_options_set_problem(with, "qr_f32_m4_n2_b5", nullptr, wrong), BALLAST_OK) << message();
  qr_plan plan;
  ASSERT_EQ(ballast_qr_plan_create(with, &plan, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_qr_gels(plan, matrices, rights, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int b = 0; b < count; ++b) {
    // The residual is orthogonal to the columns of A.
    for (int j = 0; j < n; ++j) {
      double dot = 0;
      for (int i = 0; i < m; ++i) {
        double r = right[static_cast<std::size_t>(b * m + i)];
        for (int k = 0; k < n; ++k)
          r -= static_cast<double>(before[static_cast<std::size_t>((b * m + i) * n + k)]) * B[static_cast<std::size_t>(b * m + k)];
        dot += r * before[static_cast<std::size_t>((b * m + i) * n + j)];
      }
      EXPECT_NEAR(dot, 0, 1e-5);
    }
  }
  ASSERT_EQ(ballast_qr_geqrf(plan, others, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  ASSERT_EQ(ballast_qr_orgqr(plan, others, scalars, nullptr, seen, wrong), BALLAST_OK) << message();
  for (int b = 0; b < count; ++b) {
    double dot = 0, norm = 0;
    for (int i = 0; i < m; ++i) {
      const float* const row = C.data() + (b * m + i) * n;
      dot += row[0] * row[1];
      norm += row[0] * row[0];
    }
    EXPECT_NEAR(dot, 0, 1e-6);
    EXPECT_NEAR(norm, 1, 1e-6);
  }
  const tensor fewer(tau, {1, count * n});
  EXPECT_EQ(ballast_qr_orgqr(plan, others, fewer, nullptr, seen, wrong), BALLAST_INVALID_ARGUMENT);
  EXPECT_NE(message().find("tau: expected 5 rows, one for each matrix, got 1"), std::string::npos) << message();
}

TEST_F(c_results, versions_and_information) {
  EXPECT_EQ(ballast_abi_version(), BALLAST_ABI_VERSION);
  EXPECT_EQ(ballast_version(), information().version);
  char* text = nullptr;
  ASSERT_EQ(ballast_info_json(&text, wrong), BALLAST_OK) << message();
  EXPECT_NE(std::strstr(text, "\"backends\":["), nullptr);
  EXPECT_NE(std::strstr(text, "\"fft.stage\""), nullptr);
  ballast_free(text);
  ASSERT_EQ(ballast_better_blas_kernels(&text, wrong), BALLAST_OK) << message();
  EXPECT_EQ(text, better_blas_kernels());
  ballast_free(text);
  EXPECT_STREQ(ballast_status_name(BALLAST_CANCELLED), "cancelled");
  EXPECT_STREQ(ballast_status_name(99), "unknown");
  EXPECT_STREQ(ballast_verdict_name(BALLAST_VERDICT_UNCORRECTABLE), "uncorrectable");
  EXPECT_STREQ(ballast_verdict_name(-1), "unknown");
  EXPECT_STREQ(ballast_action_name(BALLAST_ACTION_RECOMPUTED), "recomputed");
  EXPECT_STREQ(ballast_backend_name(BALLAST_BACKEND_CUDA), "cuda");
  EXPECT_STREQ(ballast_protection_name(BALLAST_PROTECTION_DETECT), "detect");
  EXPECT_STREQ(ballast_protection_name(BALLAST_PROTECTION_FINAL_ONLY), "final_only");
  EXPECT_STREQ(ballast_stop_name(BALLAST_STOP_MAX_ITER), "max_iter");
}

}  // namespace
}  // namespace ballast::test
