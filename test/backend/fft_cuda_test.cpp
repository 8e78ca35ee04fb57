// Tests of the cuda backend of the FFT alone, on the emulator: device memory, streams and one report for several runs, workspace, two
// passes in one launch, batches in chunks. fft_cuda_faults_test.cpp has its faults, fft_test.cpp what every backend has.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "backend/fft_cuda_target.hpp"
#include "backend/fft_emulator.hpp"
#include "fft/cuda/plan/fused_passes.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/sites.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

using test::same;
using test::subject;

TEST(fft_cases, of_the_host_are_run_where_they_need_no_other_kernels) {
  std::size_t special = 0, fallback = 0;
  for (const run_of_case& run : every_run()) (run.which.where == machine::fallback ? fallback : special) += 1;
  for (const fft_case& each : emulated_cases()) (each.where == machine::fallback ? fallback : special) -= 1;
  // With less effort the emulator has fewer kernels.
  EXPECT_GE(fallback, !test::sampled() ? 200u : 1u);
  EXPECT_GE(special, test::chosen_effort() >= test::effort::wide ? 10u : 1u);
}

// ---- Places ----

class fft_cuda_place_test : public emulated_test {
 protected:
  template <class T>
  static void run_on_device(const subject<T>& given, const plan& made, const std::vector<T>& staged) {
    const auto in = on_device(given.in), out = on_device(given.fresh());
    const report seen = given.run(made, in.data(), out.data());
    EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
    EXPECT_TRUE(same(out.read(), staged));
    EXPECT_TRUE(same(in.read(), given.in)) << "the input is not written";
  }

  // Operands shifted by one complex number, or by one real.
  template <class T>
  static void run_shifted(const subject<T>& given, const plan& made, const std::vector<T>& staged) {
    constexpr T untouched = subject<T>::k_untouched;
    const std::ptrdiff_t before = given.shape.output.real ? 0 : given.shape.input.real ? 1 : 2;
    const std::ptrdiff_t behind = given.shape.output.real ? 1 : 0;
    std::vector<T> shifted(static_cast<std::size_t>(before), untouched);
    shifted.insert(shifted.end(), given.in.begin(), given.in.end());
    std::vector<T> room(given.fresh().size() + static_cast<std::size_t>(behind), untouched);
    const auto in = on_device(shifted), out = on_device(room);
    EXPECT_EQ(given.run(made, in.data() + before, out.data() + behind).verdict, verdict::clean);
    std::vector<T> moved = out.read();
    moved.erase(moved.begin(), moved.begin() + behind);
    for (std::int64_t b = 0; b < given.signals(); ++b) {
      if (given.shape.kind == kind::c2c) {
        EXPECT_EQ(given.got(moved, b), given.got(staged, b)) << "signal " << b;
      } else {  // shifted reals are not taken in pairs: other sums
        EXPECT_LE(given.error(moved, b), given.allowed()) << "signal " << b;
      }
    }
  }
};

TEST_P(fft_cuda_place_test, is_the_same_on_device_memory_and_in_place_on_the_host) {
  const emulator device(which().where, 5);
  with_data([&]<class T>(const subject<T>& given) {
    const plan made = make(given.problem);
    std::vector<T> staged = given.fresh();
    ASSERT_EQ(given.run(made, staged).verdict, verdict::clean);
    run_on_device(given, made, staged);
    if ((which().uses & k_unaligned) != 0) run_shifted(given, made, staged);
    if (!given.can_be_in_place()) return;
    std::vector<T> host = given.in;
    EXPECT_EQ(given.run(made, host.data(), host.data()).verdict, verdict::clean);
    for (std::int64_t b = 0; b < given.signals(); ++b) EXPECT_EQ(given.got(host, b), given.got(staged, b)) << "signal " << b;
  });
}

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_place_test, testing::ValuesIn(emulated_cases_with(0)), emulated_name);

// ---- Streams, workspaces ----

// Can repeat all launches, as a captured graph does.
class replaying_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto* const bytes = static_cast<const unsigned char*>(arguments.front().data);
    launches_.push_back({&which, blocks, {bytes, bytes + arguments.front().bytes}});
    inner_->launch(which, blocks, arguments, on);
  }

  void replay() {
    for (const recorded& each : launches_) inner_->launch(*each.which, each.blocks, each.argument.data(), each.argument.size(), nullptr);
  }

 private:
  struct recorded {
    const ballast::cuda::kernel* which;
    std::int64_t blocks;
    std::vector<unsigned char> argument;
  };
  std::vector<recorded> launches_;
};

class fft_cuda_enqueue_test : public testing::TestWithParam<machine> {};

TEST_P(fft_cuda_enqueue_test, one_report_covers_every_run) {
  const machine where = GetParam();
  const fft_case& each = case_of(where == machine::whole   ? "fft_c2c_f32_n64_b43_fwd"
                                 : where == machine::small ? "fft_c2c_f32_n1024_b3_fwd"
                                                           : "fft_c2c_f32_n1024_b19_inv",
                                 where);
  const emulator emulated(where, 2);
  const auto device = std::make_shared<replaying_device>(*emulated);
  ballast::cuda::override_device(device);
  const subject<float> given = subject_of<float>(each, 3);
  inject::request persistent;
  persistent.site = fft::site::stage;
  persistent.model = inject::model::stuck_at;
  const inject::plan faults({persistent});
  const auto in = on_device(given.in), out = on_device(given.fresh());
  std::vector<float> wanted = given.fresh();
  const plan made(given.problem, on_cuda());
  ASSERT_EQ(given.run(made, wanted).verdict, verdict::clean);
  {
    pending_report first = given.enqueue(made, in.data(), out.data());
    pending_report second = given.enqueue(made, in.data(), out.data());
    EXPECT_EQ(second.get().verdict, verdict::clean);
    EXPECT_EQ(first.get().verdict, verdict::clean);
    EXPECT_TRUE(same(out.read(), wanted));
  }
  const auto again = std::make_shared<replaying_device>(*emulated);
  ballast::cuda::override_device(again);
  const inject::scope struck(&faults);
  const plan other(given.problem, on_cuda());
  pending_report pending = given.enqueue(other, in.data(), out.data());
  const report once = pending.get();
  EXPECT_EQ(once.verdict, verdict::uncorrectable) << to_json(once);
  ASSERT_GT(once.detected, 0u);
  EXPECT_EQ(once.events.size(), once.detected);
  EXPECT_EQ(pending.get().verdict, verdict::clean) << "nothing ran since";
  for (int run = 0; run < 3; ++run) again->replay();
  const report thrice = pending.get();
  EXPECT_EQ(thrice.uncorrectable, 3 * once.uncorrectable) << to_json(thrice);
  EXPECT_EQ(thrice.events.size(), thrice.detected);
}

INSTANTIATE_TEST_SUITE_P(fft, fft_cuda_enqueue_test, testing::Values(machine::whole, machine::small, machine::paired),
                         [](const auto& info) {
                           return std::string(info.param == machine::whole ? "whole" : info.param == machine::small ? "small" : "paired");
                         });

TEST(fft_cuda_enqueue, throws_what_its_call_asks_for) {
  const fft_case& each = case_of("fft_c2c_f32_n64_b43_fwd", machine::whole);
  const emulator device(each.where);
  const subject<float> given = subject_of<float>(each, 3);
  inject::request persistent;
  persistent.site = fft::site::stage;
  persistent.model = inject::model::stuck_at;
  const inject::plan faults({persistent});
  const plan made(given.problem, on_cuda());
  const auto in = on_device(given.in), out = on_device(given.fresh());
  const inject::scope struck(&faults);
  int events = 0;
  call now;
  now.on_event = [&](const event&) { ++events; };
  pending_report pending = given.enqueue(made, in.data(), out.data(), now);
  EXPECT_THROW((void)pending.get(), uncorrectable_error);
  EXPECT_GT(events, 0);
  const pending_report moved = std::move(pending);
  EXPECT_THROW((void)pending.get(), invalid_argument_error);  // NOLINT(bugprone-use-after-move): that is what is tested
}

TEST(fft_cuda_workspace, is_used_and_refused_unless_it_suits) {
  const fft_case& each = case_of("fft_c2c_f32_n1024_b3_fwd", machine::small);
  const emulator device(each.where);
  const subject<float> given = subject_of<float>(each, 3);
  const plan made(given.problem, on_cuda());
  const std::int64_t bytes = made.workspace_bytes();
  EXPECT_GE(bytes, static_cast<std::int64_t>(given.in.size() * sizeof(float))) << "the whole batch waits between the passes";
  const auto memory = on_device(std::vector<std::byte>(static_cast<std::size_t>(bytes)));
  const auto in = on_device(given.in), out = on_device(given.fresh());
  std::vector<float> wanted = given.fresh();
  ASSERT_EQ(given.run(made, wanted).verdict, verdict::clean);
  call now = test::quiet_call();
  now.workspace = {memory.data(), static_cast<std::size_t>(bytes)};
  {
    const plan other(given.problem, on_cuda());
    EXPECT_EQ(given.run(other, in.data(), out.data(), now).verdict, verdict::clean);
    const std::int64_t before = device->allocated();
    for (int run = 0; run < 2; ++run) {
      pending_report pending = given.enqueue(other, in.data(), out.data(), now);
      EXPECT_EQ(device->allocated(), before) << "with a workspace nothing is allocated";
      EXPECT_EQ(pending.get().verdict, verdict::clean);
    }
    EXPECT_TRUE(same(out.read(), wanted));
    EXPECT_THROW((void)given.enqueue(other, given.in.data(), out.data(), now), invalid_argument_error);
    EXPECT_THROW((void)given.enqueue(other, in.data(), wanted.data(), now), invalid_argument_error);
  }
  now.workspace = {memory.data(), static_cast<std::size_t>(bytes - 1)};
  EXPECT_THROW((void)given.run(made, in.data(), out.data(), now), invalid_argument_error);
  std::vector<std::byte> host(static_cast<std::size_t>(bytes));
  now.workspace = host;
  EXPECT_THROW((void)given.run(made, in.data(), out.data(), now), invalid_argument_error);
}

// ---- Two passes in one launch, chunks ----

// Lets `change` edit the argument of a pair before each launch, which has `most_blocks` blocks at most.
class meddling_device final : public test::forwarding_device {
 public:
  meddling_device(std::shared_ptr<ballast::cuda::device> inner, std::function<void(cuda::fused_arguments&)> change,
                  std::int64_t most_blocks = 1000)
      : forwarding_device(std::move(inner)), change_(std::move(change)), most_blocks_(most_blocks) {}
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto [argument, size] = arguments.front();
    std::vector<unsigned char> given(static_cast<const unsigned char*>(argument), static_cast<const unsigned char*>(argument) + size);
    ASSERT_EQ(size, 2 * sizeof(cuda::line_arguments) + sizeof(cuda::fused_arguments));
    cuda::fused_arguments pair;
    std::memcpy(&pair, given.data() + size - sizeof(pair), sizeof(pair));
    change_(pair);
    std::memcpy(given.data() + size - sizeof(pair), &pair, sizeof(pair));
    launches_ += 1;
    inner_->launch(which, std::min(blocks, most_blocks_), given.data(), size, on);
  }
  int launches() const { return launches_; }

 private:
  std::function<void(cuda::fused_arguments&)> change_;
  std::int64_t most_blocks_;
  int launches_ = 0;
};

TEST(fft_cuda_pair, two_passes_in_one_launch_keep_a_part_of_what_waits) {
  const fft_case& each = case_of("fft_c2c_f32_n128_b300_fwd", machine::paired);
  const subject<float> given = subject_of<float>(each, 3);
  const emulator emulated(each.where);
  const plan made(given.problem, on_cuda());
  cuda::override_fusion(cuda::fusion::never);
  EXPECT_LT(made.workspace_bytes(), plan(given.problem, on_cuda()).workspace_bytes());
  std::vector<float> out = given.fresh();
  const std::int64_t before = emulated->launches();
  EXPECT_EQ(given.run(made, out).verdict, verdict::clean);
  EXPECT_EQ(emulated->launches() - before, 1);
}

// The passes must wait for each other, and the emulator shows it: without waiting results are wrong; with too few slots there is a
// deadlock.
TEST(fft_cuda_pair, two_passes_in_one_launch_wait_for_each_other) {
  const fft_case& each = case_of("fft_c2c_f32_n128_b300_fwd", machine::paired);
  const subject<float> given = subject_of<float>(each, 3);
  std::vector<float> wanted = given.fresh();
  {
    const emulator emulated(each.where);
    ASSERT_EQ(given.run(plan(given.problem, on_cuda()), wanted).verdict, verdict::clean);
  }
  // Which counters are full from the start: 0 those of the first pass, 1 those of the second, −1 none.
  for (const int full : {-1, 0, 1}) {
    int wrong = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const emulator emulated(each.where, seed);
      emulated->run_together(24);
      const auto device = std::make_shared<meddling_device>(*emulated, [&](cuda::fused_arguments& p) {
        if (full < 0) return;
        // Units follow at once, so that only the counters keep them apart.
        p.ahead = 1;
        p.slots = 2;
        for (std::uint32_t slot = 0; slot < p.slots; ++slot) p.counters[2 + 2 * slot + static_cast<std::uint32_t>(full)] = 1u << 30;
      });
      ballast::cuda::override_device(device);
      std::vector<float> out = given.fresh();
      (void)given.run(plan(given.problem, on_cuda()), out);
      EXPECT_EQ(device->launches(), 1);
      wrong += same(out, wanted) ? 0 : 1;
    }
    EXPECT_EQ(wrong > 0, full >= 0) << full;
  }
  // Both blocks wait for tickets that no block is left to draw. With a slot more than the first pass is ahead, one block suffices.
  for (const bool enough : {true, false}) {
    const emulator emulated(each.where);
    const auto squeeze = [&](cuda::fused_arguments& p) {
      p.ahead = 3;
      p.slots = enough ? 4 : 1;
    };
    ballast::cuda::override_device(std::make_shared<meddling_device>(*emulated, squeeze, enough ? 1 : 2));
    std::vector<float> out = given.fresh();
    const plan made(given.problem, on_cuda());
    if (enough) {
      EXPECT_EQ(given.run(made, out).verdict, verdict::clean);
      EXPECT_TRUE(same(out, wanted));
    } else {
      EXPECT_THROW((void)given.run(made, out), simt::error);
    }
  }
}

TEST(fft_cuda_chunks, long_batches_run_in_chunks) {
  const fft_case& each = case_of("fft_c2c_f32_n4096_b70_fwd", machine::small);
  const emulator device(each.where);
  const subject<float> given = subject_of<float>(each, 3);
  const plan made(given.problem, on_cuda());
  EXPECT_LT(made.workspace_bytes(), static_cast<std::int64_t>(given.in.size() * sizeof(float)));
  std::vector<float> out = given.fresh();
  const std::int64_t before = device->launches();
  EXPECT_EQ(given.run(made, out).verdict, verdict::clean);
  EXPECT_EQ(device->launches() - before, 6) << "three chunks of two passes";
}

}  // namespace
}  // namespace ballast::fft
