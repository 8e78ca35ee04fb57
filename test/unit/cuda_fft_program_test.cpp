// Plans of the same problem share their device state: the second one loads, allocates and copies nothing.
#include <atomic>
#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "cuda/device/device.hpp"
#include "cuda/jit/jit.hpp"
#include "cuda/memory/shared_state.hpp"
#include "support/devices.hpp"

namespace ballast::fft {
namespace {

// Counts requests. Computes nothing.
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
  // Returns the requests of constructing a plan and executing it once.
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

// The only allocation of an execution is its workspace. The only copy, in a checked execution, reads the counters of the event ring.
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

// A device whose compiler is simulated by the test.
class compiling_device final : public test::forwarding_device {
 public:
  explicit compiling_device(std::shared_ptr<ballast::cuda::device> inner) : forwarding_device(std::move(inner)) {}
  std::string why_not = "they are being compiled";  // answer for all kernels except the fallback ones
  bool fallback = true;                             // true if the fallback kernels are in the bundle
  bool capturing = false;
  std::function<void()> before_load = [] {};  // called before a kernel that is not fallback is loaded
  int asked = 0;                              // number of requests to compile
  int loaded = 0;                             // number of loaded kernels that are not fallback
  int loaded_fallback = 0;

  std::string why_not_ready(std::span<const ballast::cuda::kernel_request> wanted, bool compile) override {
    asked += compile ? 1 : 0;
    if (test::recording_device::why_not_fallback(wanted).empty()) return fallback ? "" : why_not;
    return why_not;
  }
  bool captured(ballast::cuda::stream) override { return capturing; }
  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override {
    const bool is_fallback = test::recording_device::why_not_fallback({&wanted, 1}).empty();
    if (!is_fallback) before_load();
    (is_fallback ? loaded_fallback : loaded) += 1;
    return inner_->load(wanted);
  }
};

class cuda_fft_first_call : public cuda_fft_program {
 protected:
  report run(const plan& made) const {
    return made.forward(std::span<const std::complex<float>>(data_), std::span<std::complex<float>>(data_));
  }
  report run_inverse(const plan& made) const {
    return made.inverse(std::span<const std::complex<float>>(data_), std::span<std::complex<float>>(data_));
  }
  static fft::problem of(std::int64_t n) { return {.shape = {n}, .batch = (1 << 17) / n}; }
  // A plan that fallback kernels may serve at first.
  static plan impatient(const fft::problem& problem, const execution& how = on_cuda()) {
    return plan(problem, how, {.kernels = kernels::fallback_at_first});
  }

  std::shared_ptr<compiling_device> compiler_ = std::make_shared<compiling_device>(device_);
  test::current_device_guard compiling_{compiler_};
};

TEST_F(cuda_fft_first_call, fallback_kernels_serve_until_the_best_are_compiled) {
  for (const protection guard : {protection::off, protection::correct}) {
    for (const std::int64_t n : {64, 100, 1000, 4096, 4099}) {
      SCOPED_TRACE(n);
      ballast::cuda::forget_idle_states();
      compiler_->why_not = "they are being compiled";
      compiler_->asked = compiler_->loaded = compiler_->loaded_fallback = 0;
      const plan made = impatient(of(n), on_cuda(guard));
      const std::int64_t workspace = made.workspace_bytes();
      for (int call = 0; call < 3; ++call) {
        const report seen = run(made);
        EXPECT_EQ(seen.fallback_kernels, "they are being compiled");
        EXPECT_NE(to_json(seen).find("\"fallback_kernels\":\"they are being compiled\""), std::string::npos);
        EXPECT_EQ(compiler_->loaded, 0);
        EXPECT_EQ(compiler_->asked, call + 1);
      }
      EXPECT_GT(compiler_->loaded_fallback, 0);
      const plan second = impatient(of(n), on_cuda(guard));
      EXPECT_FALSE(run(second).fallback_kernels.empty()) << "another plan of the same problem";
      compiler_->why_not.clear();
      for (const plan* each : {&made, &second}) {
        const report seen = run(*each);
        EXPECT_TRUE(seen.fallback_kernels.empty());
        EXPECT_EQ(to_json(seen).find("fallback_kernels"), std::string::npos);
      }
      EXPECT_GT(compiler_->loaded, 0);
      EXPECT_EQ(made.workspace_bytes(), workspace);
      const int asked = compiler_->asked;
      (void)run(made);
      EXPECT_EQ(compiler_->asked, asked) << "what is loaded is not asked for";
    }
  }
}

// Lines in one pass have no fallback form: until their kernel is compiled, maps and fallback kernels serve.
TEST_F(cuda_fft_first_call, real_lines_take_steps_until_their_pass_is_compiled) {
  std::vector<float> data(1001 * 8);
  for (const protection guard : {protection::off, protection::correct}) {
    for (const real_kind what : {real_kind::dct2, real_kind::dct1, real_kind::r2hc}) {
      ballast::cuda::forget_idle_states();
      compiler_->why_not = "they are being compiled";
      compiler_->asked = compiler_->loaded = compiler_->loaded_fallback = 0;
      const std::int64_t n = what == real_kind::dct1 ? 1001 : 1000;
      const fft::problem lines{.kind = kind::r2r, .shape = {n}, .batch = 8, .real_kinds = {what}};
      const std::span<float> in_place(data.data(), static_cast<std::size_t>(8 * n));
      const plan made = impatient(lines, on_cuda(guard));
      for (int call = 0; call < 3; ++call) {
        const int before = compiler_->asked;
        EXPECT_EQ(made.forward(in_place, in_place).fallback_kernels, "they are being compiled");
        EXPECT_EQ(compiler_->loaded, 0);
        EXPECT_GT(compiler_->asked, before);
      }
      EXPECT_GT(compiler_->loaded_fallback, 0);
      const int asked = compiler_->asked;
      compiler_->capturing = true;
      EXPECT_FALSE(made.forward(in_place, in_place).fallback_kernels.empty()) << "what is loaded serves a capture";
      EXPECT_EQ(compiler_->asked, asked) << "nothing is compiled for a capture";
      EXPECT_EQ(compiler_->loaded, 0);
      compiler_->capturing = false;
      // Without a bundle, and for a plan that waits, there are no steps.
      for (const bool bundled : {true, false}) {
        compiler_->fallback = bundled;
        const plan waits = bundled ? plan(lines, on_cuda(guard)) : impatient(lines, on_cuda(guard));
        const int steps = compiler_->loaded_fallback;
        EXPECT_TRUE(waits.forward(in_place, in_place).fallback_kernels.empty());
        EXPECT_EQ(compiler_->loaded_fallback, steps);
        EXPECT_GT(compiler_->loaded, 0);
      }
      compiler_->fallback = true;
      compiler_->why_not.clear();
      EXPECT_TRUE(made.forward(in_place, in_place).fallback_kernels.empty());
    }
  }
}

TEST_F(cuda_fft_first_call, a_plan_that_waits_loads_its_own_kernels) {
  EXPECT_TRUE(run(plan(of(1000), on_cuda())).fallback_kernels.empty());
  EXPECT_EQ(compiler_->loaded_fallback + compiler_->asked, 0);
  EXPECT_GT(compiler_->loaded, 0);
}

TEST_F(cuda_fft_first_call, what_has_no_fallback_form_waits) {
  (void)run(impatient(of(1024), on_cuda(protection::correct, "threadblock")));
  (void)run(impatient(of(1024), on_cuda(protection::off, "v1")));
  (void)run(impatient(of(1024), on_cuda(protection::correct, "one_sided")));
  EXPECT_EQ(compiler_->loaded_fallback + compiler_->asked, 0);
  compiler_->fallback = false;  // an installation without a bundle
  EXPECT_TRUE(run(impatient(of(1000))).fallback_kernels.empty());
  EXPECT_EQ(compiler_->loaded_fallback, 0);
  EXPECT_EQ(compiler_->asked, 0) << "the call compiles them itself: nobody else should";
}

TEST_F(cuda_fft_first_call, a_call_does_not_wait_for_one_that_does) {
  const plan waiting(of(1000), on_cuda()), other = impatient(of(1000));
  std::atomic<bool> in_load = false, done = false, too_late = false;
  const auto until = [](const std::atomic<bool>& it) {
    for (int i = 0; i < 500 && !it; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return it.load();
  };
  compiler_->before_load = [&] {
    in_load = true;
    if (!until(done)) too_late = true;
  };
  std::jthread first([&] { EXPECT_TRUE(run(waiting).fallback_kernels.empty()); });
  ASSERT_TRUE(until(in_load));
  EXPECT_EQ(run(other).fallback_kernels, "they are being compiled");
  done = true;
  first.join();
  EXPECT_FALSE(too_late);
}

TEST_F(cuda_fft_first_call, a_compiler_that_refuses_is_in_every_report) {
  const plan made = impatient(of(1000));
  compiler_->why_not = "the compiler said no";
  for (int call = 0; call < 2; ++call) EXPECT_EQ(run(made).fallback_kernels, "the compiler said no");
  EXPECT_EQ(compiler_->loaded, 0);
}

TEST_F(cuda_fft_first_call, a_captured_graph_gets_what_is_loaded) {
  const plan made = impatient(of(1000));
  (void)run(made);
  compiler_->capturing = true;
  const int fallback = compiler_->loaded_fallback, asked = compiler_->asked;
  for (const char* why : {"they are being compiled", ""}) {
    compiler_->why_not = why;
    EXPECT_FALSE(run(made).fallback_kernels.empty());
  }
  EXPECT_EQ(compiler_->loaded, 0);
  EXPECT_EQ(compiler_->loaded_fallback, fallback);
  EXPECT_EQ(compiler_->asked, asked);
  compiler_->capturing = false;
  EXPECT_TRUE(run(made).fallback_kernels.empty());
  compiler_->capturing = true;
  EXPECT_TRUE(run(made).fallback_kernels.empty());
}

// The fallback kernels stay loaded while one direction has computed with them but not with its own.
TEST_F(cuda_fft_first_call, a_captured_graph_gets_what_its_direction_has_run_on) {
  const plan made = impatient(of(1000));
  compiler_->why_not.clear();
  (void)run(made);
  compiler_->why_not = "they are being compiled";
  EXPECT_FALSE(run_inverse(made).fallback_kernels.empty());
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured);
    compiler_->capturing = captured;
    const int alive = device_->alive;
    EXPECT_TRUE(run(made).fallback_kernels.empty());
    EXPECT_EQ(device_->alive, alive) << "nothing is given back";
    compiler_->capturing = true;
    const int loaded = compiler_->loaded, loaded_fallback = compiler_->loaded_fallback;
    EXPECT_FALSE(run_inverse(made).fallback_kernels.empty());
    EXPECT_EQ(compiler_->loaded, loaded);
    EXPECT_EQ(compiler_->loaded_fallback, loaded_fallback);
  }
  compiler_->capturing = false;
  compiler_->why_not.clear();
  const int alive = device_->alive;
  EXPECT_TRUE(run_inverse(made).fallback_kernels.empty());
  ballast::cuda::forget_idle_states();
  EXPECT_LT(device_->alive, alive) << "nobody needs them any more";
}

// The device has little memory, and the fallback kernels need much.
TEST_F(cuda_fft_first_call, fallback_kernels_take_no_large_part_of_the_memory) {
  const auto little = std::make_shared<compiling_device>(std::make_shared<counting_device>(std::int64_t{1} << 21));
  const test::current_device_guard current(little);
  EXPECT_TRUE(run(impatient({.shape = {100000}})).fallback_kernels.empty());
  EXPECT_EQ(little->loaded_fallback, 0);
  EXPECT_FALSE(run(impatient({.shape = {1000}})).fallback_kernels.empty());
}

TEST_F(cuda_fft_first_call, the_fallback_kernels_memory_goes_with_them) {
  const plan made = impatient(of(4099));
  (void)run(made);
  compiler_->why_not.clear();
  (void)run(made);
  ballast::cuda::forget_idle_states();
  const int with = device_->alive;
  const plan alone = impatient(of(4099));
  EXPECT_EQ(device_->alive, with);
  {
    ballast::cuda::forget_idle_states();
    const plan direct = impatient(of(4099));
    (void)run(direct);
    EXPECT_EQ(device_->alive, with + 1) << "the second plan's workspace, and nothing else is held";
  }
}

}  // namespace
}  // namespace ballast::fft
