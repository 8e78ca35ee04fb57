// Processes that are forked while Ballast is used.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <complex>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/ballast.hpp>

namespace ballast {
namespace {

constexpr int k_refused = 42;

// Returns the status from waitpid of a child that runs `body` and exits with its result. SIGALRM ends a child that hangs.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

std::vector<float> some_points() {
  std::vector<float> points(20000);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] = static_cast<float>((i * 2654435761U) % 1000);
  return points;
}

// A transform, a clustering and a factorization on three threads: a number that depends on all of them.
double compute() {
  const execution how{.backend = backend::cpu, .threads = 3};
  std::vector<std::complex<double>> x(16 * 1024), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = {static_cast<double>(i % 97), static_cast<double>(i % 89)};
  (void)fft::plan({.precision = precision::f64, .shape = {1024}, .batch = 16}, how).forward(x, y);
  const std::vector<float> points = some_points();
  const auto model = kmeans::fit(row_major(points.data(), 5000, 4), 7, {.max_iter = 5}, how);
  matrix<double> A(200, 90, order::column_major);
  for (int j = 0; j < 90; ++j)
    for (int i = 0; i < 200; ++i) A(i, j) = (i * 31 + j * 17) % 101 + (i == j ? 200 : 0);
  const auto factors = qr::factor(std::as_const(A).view(), how);
  return std::accumulate(factors.tau.begin(), factors.tau.end(), std::abs(y[1234]) + model.inertia);
}

TEST(fork, a_child_of_an_idle_process_computes) {
  const double expected = compute();
  for (int round = 0; round < 5; ++round) EXPECT_EQ(in_child([&] { return compute() == expected ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] { return in_child([&] { return compute() == expected ? 0 : 1; }); }), 0) << "and so does its child";
  EXPECT_EQ(compute(), expected);
}

// The address sanitizer of GCC 12 holds locks of its own allocator over a fork.
#if !defined(__SANITIZE_ADDRESS__)
TEST(fork, a_child_of_a_process_that_computes_is_refused_and_never_hangs) {
  std::atomic<bool> ends{false};
  std::thread busy([&] {
    while (!ends) (void)compute();
  });
  const double expected = compute();
  int refused = 0;
  for (int round = 0; round < 40; ++round) {
    const int status = in_child([&] {
      try {
        return compute() == expected ? 0 : 1;
      } catch (const unsupported_error&) {
        return k_refused;
      }
    });
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == k_refused) << WEXITSTATUS(status);
    refused += WIFEXITED(status) && WEXITSTATUS(status) == k_refused;
  }
  ends = true;
  busy.join();
  EXPECT_GT(refused, 0);
  EXPECT_EQ(compute(), expected);
}
#endif

TEST(fork, a_callback_may_fork) {
  const std::vector<float> points = some_points();
  const auto run = [&](std::function<void(const progress&)> each) {
    return kmeans::fit(row_major(points.data(), 5000, 4), 7, {.max_iter = 5}, {.backend = backend::cpu, .threads = 3},
                       {.on_progress = std::move(each)});
  };
  const auto expected = run({});
  const int status = in_child([&] {
    bool first = true, child = false;
    int grandchild = -1;
    const auto model = run([&](const progress&) {
      if (!first) return;
      first = false;
      const pid_t made = fork();
      child = made == 0;
      if (made > 0) waitpid(made, &grandchild, 0);
    });
    const bool same = model.labels == expected.labels && model.inertia == expected.inertia;
    return child ? (same ? 0 : 1) : (same && grandchild == 0 ? 0 : 1);
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ballast
