// The backend that a call gets when the operands lie on the host.
#include "run/dispatch.hpp"

#include <complex>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "cuda/device/device.hpp"
#include "simt/emulated_device.hpp"

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

}  // namespace
}  // namespace ballast::cuda
