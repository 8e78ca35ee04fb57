// Plans of the same problem share what they need on a device: the second one loads, allocates and copies nothing.
#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "cuda/device.hpp"
#include "cuda/jit.hpp"
#include "cuda/shared_state.hpp"
#include "support/devices.hpp"

namespace ballast::fft {
namespace {

// Counts what it is asked for. Computes nothing.
class counting_device final : public test::forwarding_device {
 public:
  explicit counting_device(std::int64_t memory = std::int64_t{1} << 37)
      : forwarding_device(std::make_shared<test::recording_device>(about_an_h200(memory))) {}

  struct counts {
    int allocations = 0, copies = 0, loads = 0, launches = 0;
    bool operator==(const counts&) const = default;
  };
  counts seen;
  int alive = 0;  // allocations that were not released

  void* allocate(std::int64_t bytes, ballast::cuda::stream on) override {
    ++seen.allocations, ++alive;
    return inner_->allocate(bytes, on);
  }
  void release(void* memory, ballast::cuda::stream on) noexcept override {
    --alive;
    inner_->release(memory, on);
  }
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override {
    ++seen.copies;
    inner_->copy(to, from, bytes, on);
  }
  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override {
    ++seen.loads;
    return inner_->load(wanted);
  }
  void launch(const ballast::cuda::kernel&, std::int64_t, std::span<const ballast::cuda::kernel_argument>, ballast::cuda::stream) override {
    ++seen.launches;
  }

 private:
  static ballast::cuda::capabilities about_an_h200(std::int64_t memory) {
    ballast::cuda::capabilities about = ballast::cuda::typical_capabilities("sm_90a");
    about.memory = memory;
    return about;
  }
};

class cuda_fft_program : public testing::Test {
 protected:
  ~cuda_fft_program() override { ballast::cuda::forget_idle_states(); }

  static execution on_cuda(protection guard = protection::correct, const std::string& scheme = {}) {
    execution how;
    how.backend = backend::cuda;
    how.protection = guard;
    how.scheme = scheme;
    return how;
  }
  // What making a plan and executing it once asks of the device.
  counting_device::counts asked_by(const fft::problem& problem, const execution& how) const {
    const counting_device::counts before = device_->seen;
    {
      const plan made(problem, how);
      (void)made.forward(std::span<const std::complex<float>>(data_), std::span<std::complex<float>>(data_));
    }
    const counting_device::counts& after = device_->seen;
    return {after.allocations - before.allocations, after.copies - before.copies, after.loads - before.loads,
            after.launches - before.launches};
  }

  std::shared_ptr<counting_device> device_ = std::make_shared<counting_device>();
  test::current_device_guard current_{device_};
  mutable std::vector<std::complex<float>> data_ = std::vector<std::complex<float>>(1 << 17);
};

// The one allocation of an execution is its workspace; the one copy, of a checked one, reads the counters of the event ring.
TEST_F(cuda_fft_program, a_second_plan_of_the_same_problem_finds_everything_there) {
  for (const std::int64_t n : {60, 1024, 4099, 1 << 17}) {
    SCOPED_TRACE(n);
    const fft::problem problem{.shape = {n}, .batch = (1 << 17) / n};
    for (const protection guard : {protection::off, protection::correct}) {
      const auto first = asked_by(problem, on_cuda(guard));
      EXPECT_GT(first.allocations, 1);
      EXPECT_GE(first.copies, 1);
      EXPECT_GT(first.loads, 0);
      const counting_device::counts again{1, guard == protection::off ? 0 : 1, 0, first.launches};
      EXPECT_EQ(asked_by(problem, on_cuda(guard)), again) << "after the first plan is gone";
      const plan alive(problem, on_cuda(guard));
      EXPECT_EQ(asked_by(problem, on_cuda(guard)), again) << "beside another plan";
    }
  }
}

TEST_F(cuda_fft_program, plans_of_other_problems_share_the_tables_of_their_lines) {
  const auto first = asked_by({.shape = {1024}, .batch = 64}, on_cuda());
  const auto second = asked_by({.shape = {1024}, .batch = 128}, on_cuda());
  EXPECT_GT(first.copies, 2);
  EXPECT_EQ(second.copies, 1) << "the counters";
  EXPECT_EQ(second.allocations, 1) << "the workspace";
  const auto other = asked_by({.shape = {1000}, .batch = 64}, on_cuda());
  EXPECT_GT(other.copies, 2);
}

TEST_F(cuda_fft_program, other_checks_and_layouts_are_other_programs) {
  (void)asked_by({.shape = {1024}, .batch = 64}, on_cuda());
  EXPECT_GT(asked_by({.shape = {1024}, .batch = 64}, on_cuda(protection::off)).loads, 0);
  EXPECT_GT(asked_by({.shape = {1024}, .batch = 64}, on_cuda(protection::correct, "one_sided")).loads, 0);
  EXPECT_GT(asked_by({.shape = {1024}, .batch = 64, .input = {{2}, 2048}, .output = {{2}, 2048}}, on_cuda()).loads, 0);
}

TEST_F(cuda_fft_program, what_is_idle_can_be_given_back) {
  (void)asked_by({.shape = {4099}, .batch = 8}, on_cuda());
  EXPECT_GT(device_->alive, 0) << "tables";
  {
    const plan alive({.shape = {4099}, .batch = 8}, on_cuda());
    ballast::cuda::forget_idle_states();
    EXPECT_GT(device_->alive, 0) << "a plan uses them";
  }
  ballast::cuda::forget_idle_states();
  EXPECT_EQ(device_->alive, 0);
}

TEST_F(cuda_fft_program, tables_that_are_large_for_the_device_do_not_stay) {
  const auto little = std::make_shared<counting_device>(std::int64_t{1} << 25);
  const test::current_device_guard current(little);
  const counting_device::counts none;
  (void)asked_by({.shape = {4099}, .batch = 8}, on_cuda());
  EXPECT_NE(little->seen, none);
  EXPECT_EQ(little->alive, 0) << "more than a 512th of its memory";
}

}  // namespace
}  // namespace ballast::fft
