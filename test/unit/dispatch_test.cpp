// The backend that a call gets when the operands lie on the host.
#include "run/dispatch.hpp"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>
#include <ballast/kmeans.hpp>
#include <ballast/qr.hpp>

#include "cuda/device/device.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"

namespace ballast::cuda {
namespace {

// The numbers from which the estimate was derived, and cases on both sides of it.
TEST(dispatch, operands_of_the_host_stay_where_copying_takes_longer) {
  const auto stays = [](double points, double log_length, int threads) {
    return run::copying_takes_longer({2 * 8 * points, 5 * points * log_length, precision::f32, threads});
  };
  EXPECT_TRUE(stays(1024.0 * 16384, 10, 2));
  EXPECT_TRUE(stays(64, 6, 1));
  EXPECT_FALSE(stays(0x1p27, 24, 1));
  EXPECT_TRUE(stays(0x1p27, 24, 16));
}

// The device has no kernels: a call that goes there is refused.
TEST(dispatch, a_plan_of_a_device_computes_short_work_of_the_host_where_it_lies) {
  const auto on = std::make_shared<simt::emulated_device>();
  override_device(on);
  const fft::problem problem{.shape = {64}, .batch = 4};
  const std::vector<std::complex<float>> in(256, 1.0F);
  std::vector<std::complex<float>> out(256);
  const fft::plan free_choice(problem);
  EXPECT_EQ(free_choice.forward(in, out).backend, backend::cpu);
  EXPECT_EQ(out[0], 64.0F);
  const fft::plan named(problem, {.backend = backend::cuda});
  EXPECT_THROW((void)named.forward(in, out), unsupported_error);
  {
    const device_buffer there(on, 2048);
    const std::span<std::complex<float>> data(static_cast<std::complex<float>*>(there.data()), 256);
    EXPECT_THROW((void)free_choice.forward(data, data), unsupported_error);
  }
  override_device(nullptr);
}

// A compiler that has to run first counts, but is asked only where it decides, and started only where the host answers because of it.
TEST(dispatch, compilation_counts_where_it_decides) {
  int asked = 0, started = 0;
  const auto stays = [&](double flops, double compilation) {
    asked = started = 0;
    return run::host_answers_first({1e6, flops, precision::f64, 1}, [&](bool begin) {
      ++(begin ? started : asked);
      return compilation;
    });
  };
  // 161 µs of copies and waits; 12 GFLOP/s.
  EXPECT_TRUE(stays(1e6, 5));
  EXPECT_EQ(asked + started, 0);
  EXPECT_FALSE(stays(1.2e9, 0));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(started, 0);
  EXPECT_TRUE(stays(1.2e9, 2)) << "ten calls win 1 s";
  EXPECT_EQ(started, 1);
  EXPECT_FALSE(stays(2.4e10, 15)) << "ten calls win 20 s";
  EXPECT_EQ(started, 0);
  EXPECT_FALSE(stays(1e15, 1e9));
  EXPECT_EQ(asked, 0);
}

// The emulator, whose kernels are ready or would have to be compiled.
class waiting_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  bool ready = false;
  std::vector<std::string> started;  // kernels that are compiled in the background
  std::string why_not_ready(std::span<const kernel_request> wanted, bool compile) override {
    if (ready) return "";
    if (compile)
      for (const kernel_request& each : wanted) started.push_back(each.expression);
    return "they are being compiled";
  }
};

struct dispatch_before_compilation : testing::Test {
  const std::shared_ptr<waiting_device> on = std::make_shared<waiting_device>(std::make_shared<simt::emulated_device>());
  const test::current_device_guard guard{on};
};

TEST_F(dispatch_before_compilation, a_batch_of_qr_does_not_wait_for_the_compiler) {
  constexpr std::int64_t m = 64, n = 64, count = 300;
  std::vector<double> A(m * n * count), tau(n * count);
  for (std::size_t i = 0; i < A.size(); ++i) A[i] = static_cast<double>((i * 7919) % 1000) / 500 - 1;
  const auto call = [&](backend which) {
    std::vector<double> own = A;
    const qr::plan<double> plan({.rows = m, .columns = n, .batch = count}, {.backend = which, .threads = 1});
    return plan.geqrf(matrix_batch_view<double>{own.data(), count, m, n, 1, m, m * n}, tau).backend;
  };
  EXPECT_EQ(call(backend::automatic), backend::cpu);
  ASSERT_EQ(on->started.size(), 1U);
  EXPECT_THAT(on->started[0], testing::HasSubstr("batch_factor_kernel<double"));
  // The emulator has no kernels: a call that goes there is refused.
  EXPECT_THROW((void)call(backend::cuda), unsupported_error);
  on->ready = true;
  EXPECT_THROW((void)call(backend::automatic), unsupported_error);
}

TEST_F(dispatch_before_compilation, a_transform_does_not_wait_for_the_compiler) {
  const fft::problem problem{.shape = {1 << 17}, .batch = 4};
  std::vector<std::complex<float>> in(4 << 17, 1.0F), out(4 << 17);
  const auto call = [&](backend which, fft::kernels kernels = fft::kernels::own) {
    return fft::plan(problem, {.backend = which, .threads = 1}, {.kernels = kernels}).forward(in, out).backend;
  };
  EXPECT_EQ(call(backend::automatic), backend::cpu);
  EXPECT_EQ(out[0], 131072.0F);
  EXPECT_TRUE(std::ranges::any_of(on->started, [](const std::string& each) { return each.find("line_kernel") != std::string::npos; }));
  EXPECT_THROW((void)call(backend::cuda), unsupported_error);
  EXPECT_THROW((void)call(backend::automatic, fft::kernels::fallback_at_first), unsupported_error);
  on->ready = true;
  EXPECT_THROW((void)call(backend::automatic), unsupported_error);
}

// The kernels that it asks for are those of the call.
TEST_F(dispatch_before_compilation, a_real_to_real_transform_does_not_wait_for_the_compiler) {
  const fft::problem problem{
      .kind = fft::kind::r2r, .shape = {512, 1000}, .batch = 2, .real_kinds = {fft::real_kind::dct2, fft::real_kind::dct4}};
  std::vector<float> in(512 * 1000 * 2, 1.0F), out(in.size());
  const auto call = [&](backend which) { return fft::plan(problem, {.backend = which, .threads = 1}).forward(in, out).backend; };
  EXPECT_EQ(call(backend::automatic), backend::cpu);
  const auto recorder = std::make_shared<test::recording_device>(on->about());
  const test::current_device_guard recorded(recorder);
  (void)call(backend::cuda);
  ASSERT_EQ(on->started.size(), 2U);
  ASSERT_EQ(recorder->requests.size(), 2U);
  for (const kernel_request& each : recorder->requests) EXPECT_THAT(on->started, testing::Contains(each.expression));
}

TEST_F(dispatch_before_compilation, a_fit_does_not_wait_for_the_compiler) {
  constexpr std::int64_t m = 4000, n = 40, k = 50;
  std::vector<float> points(m * n);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] = static_cast<float>((i * 7919) % 1000);
  const auto call = [&](backend which) {
    return kmeans::fit(row_major<const float>(points.data(), m, n), k, {.max_iter = 2}, {.backend = which, .threads = 1}).report.backend;
  };
  EXPECT_EQ(call(backend::automatic), backend::cpu);
  EXPECT_TRUE(std::ranges::any_of(on->started, [](const std::string& each) { return each.find("pass_kernel") != std::string::npos; }));
  EXPECT_THROW((void)call(backend::cuda), unsupported_error);
  on->ready = true;
  EXPECT_THROW((void)call(backend::automatic), unsupported_error);
}

}  // namespace
}  // namespace ballast::cuda
