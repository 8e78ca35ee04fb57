// What only the cuda backend of the FFT has, on the emulator: device memory, streams and one report for several runs, workspace, two passes
// in one launch, batches in chunks, signals that are not stored, faults while a result is confirmed. fft_test.cpp has what every backend
// has.
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
#include "support/devices.hpp"
#include "support/effort.hpp"

namespace ballast::fft {
namespace {

using test::k_floor;
using test::same;
using test::subject;

execution on_cuda(protection guard = protection::correct, const inject::plan* faults = nullptr) { return emulated().how(1, guard, faults); }

template <class T>
placed<T> on_device(const std::vector<T>& values) {
  return placed<T>(emulated(), values);
}

template <class T>
subject<T> subject_of(const fft_case& which, std::uint64_t seed) {
  return subject<T>(which.problem(), which.direction(), seed);
}

// body(subject<float or double>) of a case.
template <class Body>
void with_data(const fft_case& which, const Body& body, std::uint64_t seed = 11) {
  if (which.problem().precision == precision::f32) {
    body(subject_of<float>(which, seed));
  } else {
    body(subject_of<double>(which, seed));
  }
}

TEST(fft_cuda, results_are_the_same_on_device_memory_and_in_place_on_the_host) {
  for (const fft_case& each : emulated_cases()) {
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 5);
    with_data(each, [&]<class T>(const subject<T>& given) {
      constexpr T untouched = subject<T>::k_untouched;
      const plan made(given.problem, on_cuda());
      std::vector<T> staged = given.fresh();
      ASSERT_EQ(given.run(made, staged).verdict, verdict::clean);
      {
        const auto in = on_device(given.in), out = on_device(given.fresh());
        const report seen = given.run(made, in.data(), out.data());
        EXPECT_EQ(seen.verdict, verdict::clean) << to_json(seen);
        EXPECT_TRUE(same(out.read(), staged));
        EXPECT_TRUE(same(in.read(), given.in)) << "the input is not written";
      }
      if ((each.uses & k_unaligned) != 0) {
        // Shifted by one complex number, or by one real.
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
      if (given.can_be_in_place()) {
        std::vector<T> host = given.in;
        EXPECT_EQ(given.run(made, host.data(), host.data()).verdict, verdict::clean);
        for (std::int64_t b = 0; b < given.signals(); ++b) EXPECT_EQ(given.got(host, b), given.got(staged, b)) << "signal " << b;
      }
    });
  }
}

// A load that brings a wrong number, once: no other load brings it, so the checksums do not follow from it. Lines beyond the last one read,
// too, and are ignored.
TEST(fft_cuda, a_wrong_load_is_seen_and_repaired) {
  constexpr int strikes = 9;
  std::int64_t made_strikes = 0, detected = 0;
  for (const fft_case& each : emulated_cases()) {
    if (test::sampled() && (each.uses & k_bare) == 0) continue;
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 5);
    with_data(each, [&]<class T>(const subject<T>& given) {
      const plan made(given.problem, on_cuda());
      const auto in = on_device(given.in), clean = on_device(given.fresh());
      simt::loads = {};
      ASSERT_EQ(given.run(made, in.data(), clean.data()).verdict, verdict::clean);
      const std::int64_t loads = simt::loads.seen;  // 0 where bulk copies bring the elements
      const std::vector<T> wanted = clean.read();
      for (int i = 0; i < strikes && loads > 0; ++i) {
        const auto out = on_device(given.fresh());
        simt::loads = {0, (2 * i + 1) * loads / (2 * strikes), sizeof(T) - 1};
        const report seen = given.run(made, in.data(), out.data());
        simt::loads = {};
        EXPECT_TRUE(same(out.read(), wanted)) << "load " << (2 * i + 1) * loads / (2 * strikes) << " of " << loads << ": " << to_json(seen);
        EXPECT_NE(seen.verdict, verdict::uncorrectable) << to_json(seen);
        ++made_strikes;
        detected += seen.detected > 0 ? 1 : 0;
      }
    });
  }
  EXPECT_GT(detected, made_strikes / 2) << "of " << made_strikes;
}

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

TEST(fft_cuda, one_report_covers_every_run_of_what_was_enqueued) {
  for (const machine where : {machine::whole, machine::small, machine::paired}) {
    const fft_case& each = case_of(where == machine::whole   ? "fft_c2c_f32_n64_b43_fwd"
                                   : where == machine::small ? "fft_c2c_f32_n1024_b3_fwd"
                                                             : "fft_c2c_f32_n1024_b19_inv",
                                   where);
    const emulator emulated(where, 2);
    const auto device = std::make_shared<replaying_device>(*emulated);
    ballast::cuda::override_device(device);
    const subject<float> given = subject_of<float>(each, 3);
    inject::request persistent;
    persistent.site = inject::site::fft_stage;
    persistent.model = inject::model::stuck_at;
    const inject::plan faults({persistent});
    const auto in = on_device(given.in), out = on_device(given.fresh());
    std::vector<float> wanted = given.fresh();
    ASSERT_EQ(given.run(plan(given.problem, on_cuda()), wanted).verdict, verdict::clean);
    {
      const plan made(given.problem, on_cuda());
      pending_report first = made.enqueue(given.way, in.data(), out.data());
      pending_report second = made.enqueue(given.way, in.data(), out.data());
      EXPECT_EQ(second.get().verdict, verdict::clean);
      EXPECT_EQ(first.get().verdict, verdict::clean);
      EXPECT_TRUE(same(out.read(), wanted));
    }
    const auto again = std::make_shared<replaying_device>(*emulated);
    ballast::cuda::override_device(again);
    const plan struck(given.problem, on_cuda(protection::correct, &faults));
    pending_report pending = struck.enqueue(given.way, in.data(), out.data());
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
}

TEST(fft_cuda, enqueue_and_workspace_refuse_what_does_not_fit) {
  const fft_case& each = case_of("fft_c2c_f32_n1024_b3_fwd", machine::small);
  const emulator device(each.where);
  const subject<float> given = subject_of<float>(each, 3);
  execution how = on_cuda();
  const std::int64_t bytes = plan(given.problem, how).workspace_bytes();
  EXPECT_GE(bytes, static_cast<std::int64_t>(given.in.size() * sizeof(float))) << "the whole batch waits between the passes";
  const auto memory = on_device(std::vector<std::byte>(static_cast<std::size_t>(bytes)));
  const auto in = on_device(given.in), out = on_device(given.fresh());
  std::vector<float> wanted = given.fresh();
  ASSERT_EQ(given.run(plan(given.problem, how), wanted).verdict, verdict::clean);
  {
    how.workspace = {memory.data(), static_cast<std::size_t>(bytes)};
    const plan made(given.problem, how);
    EXPECT_EQ(given.run(made, in.data(), out.data()).verdict, verdict::clean);
    const std::int64_t before = device->allocated();
    for (int run = 0; run < 2; ++run) {
      pending_report pending = made.enqueue(given.way, in.data(), out.data());
      EXPECT_EQ(device->allocated(), before) << "with a workspace nothing is allocated";
      EXPECT_EQ(pending.get().verdict, verdict::clean);
    }
    EXPECT_TRUE(same(out.read(), wanted));
    EXPECT_THROW((void)made.enqueue(given.way, given.in.data(), out.data()), invalid_argument_error);
    EXPECT_THROW((void)made.enqueue(given.way, in.data(), wanted.data()), invalid_argument_error);
  }
  how.workspace = {memory.data(), static_cast<std::size_t>(bytes - 1)};
  EXPECT_THROW((void)given.run(plan(given.problem, how), in.data(), out.data()), invalid_argument_error);
  std::vector<std::byte> host(static_cast<std::size_t>(bytes));
  how.workspace = host;
  EXPECT_THROW((void)given.run(plan(given.problem, how), in.data(), out.data()), invalid_argument_error);
}

// Lets `change` edit the argument of a pair before each launch, which has `most_blocks` blocks at most.
class meddling_device final : public test::forwarding_device {
 public:
  meddling_device(std::shared_ptr<ballast::cuda::device> inner, std::function<void(cuda::pair_arguments&)> change,
                  std::int64_t most_blocks = 1000)
      : forwarding_device(std::move(inner)), change_(std::move(change)), most_blocks_(most_blocks) {}
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto [argument, size] = arguments.front();
    std::vector<unsigned char> given(static_cast<const unsigned char*>(argument), static_cast<const unsigned char*>(argument) + size);
    ASSERT_EQ(size, 2 * sizeof(cuda::line_arguments) + sizeof(cuda::pair_arguments));
    cuda::pair_arguments pair;
    std::memcpy(&pair, given.data() + size - sizeof(pair), sizeof(pair));
    change_(pair);
    std::memcpy(given.data() + size - sizeof(pair), &pair, sizeof(pair));
    launches_ += 1;
    inner_->launch(which, std::min(blocks, most_blocks_), given.data(), size, on);
  }
  int launches() const { return launches_; }

 private:
  std::function<void(cuda::pair_arguments&)> change_;
  std::int64_t most_blocks_;
  int launches_ = 0;
};

TEST(fft_cuda, two_passes_in_one_launch_keep_a_part_of_what_waits) {
  const fft_case& each = case_of("fft_c2c_f32_n128_b300_fwd", machine::paired);
  const subject<float> given = subject_of<float>(each, 3);
  const emulator emulated(each.where);
  const plan made(given.problem, on_cuda());
  cuda::override_pairing(cuda::pairing::never);
  EXPECT_LT(made.workspace_bytes(), plan(given.problem, on_cuda()).workspace_bytes());
  std::vector<float> out = given.fresh();
  const std::int64_t before = emulated->launches();
  EXPECT_EQ(given.run(made, out).verdict, verdict::clean);
  EXPECT_EQ(emulated->launches() - before, 1);
}

// The passes must wait for each other, and the emulator shows it: without waiting results are wrong; with too few slots there is a
// deadlock.
TEST(fft_cuda, two_passes_in_one_launch_wait_for_each_other) {
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
      const auto device = std::make_shared<meddling_device>(*emulated, [&](cuda::pair_arguments& p) {
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
  // Both blocks wait for tickets that nobody is left to draw. With a slot more than the first pass is ahead, one block suffices.
  for (const bool enough : {true, false}) {
    const emulator emulated(each.where);
    const auto squeeze = [&](cuda::pair_arguments& p) {
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

// Launches with other weights for the outputs.
class reweighing_device final : public test::forwarding_device {
 public:
  reweighing_device(std::shared_ptr<ballast::cuda::device> inner, const void* weights)
      : forwarding_device(std::move(inner)), weights_(weights) {}
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    const auto [argument, size] = arguments.front();
    ASSERT_EQ(size, sizeof(cuda::line_arguments));
    cuda::line_arguments given;
    std::memcpy(&given, argument, size);
    given.verify = weights_;
    inner_->launch(which, blocks, &given, size, on);
  }

 private:
  const void* weights_;
};

// Weights that are damaged, here to zeros, must make the check fail, not compare nothing with nothing. Lines of one butterfly, too.
TEST(fft_cuda, damaged_weights_hide_nothing) {
  for (const char* const token : {"fft_c2c_f32_n3_b41_fwd", "fft_c2c_f32_n64_b43_fwd"}) {
    SCOPED_TRACE(token);
    const fft_case& each = case_of(token, machine::whole);
    const subject<float> given = subject_of<float>(each, 3);
    const emulator emulated(each.where);
    const auto zeros = on_device(std::vector<float>(1024));
    ballast::cuda::override_device(std::make_shared<reweighing_device>(*emulated, zeros.data()));
    std::vector<float> out = given.fresh();
    EXPECT_EQ(given.run(plan(given.problem, on_cuda()), out).verdict, verdict::uncorrectable);
  }
}

TEST(fft_cuda, long_batches_run_in_chunks) {
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

// ---- Faults ----

// Calls body(request, row) for every site of the FFT, every model and so many seeds. A sample tries a third of the models at each site;
// which third depends on the case, so that the cases together try every model at every site.
template <class Body>
void for_every_fault(const fft_case& each, int seeds, const Body& body) {
  const auto number = static_cast<std::size_t>(&each - emulated_cases().data());
  for (const inject::site_row& row : inject::k_sites) {
    if (row.operation != "fft" && !row.operation.empty()) continue;
    for (std::size_t m = 0; m < inject::k_model_names.size(); ++m) {
      if (test::sampled() && (m + static_cast<std::size_t>(row.site) + number) % 3 != 0) continue;
      for (int seed = 0; seed < seeds; ++seed) {
        inject::request wanted;
        wanted.site = row.site;
        wanted.model = static_cast<inject::model>(m);
        wanted.seed = static_cast<std::uint64_t>(seed) * 1000 + m;
        wanted.bit = 62;
        SCOPED_TRACE(fmt::format("{} {} seed {}", row.name, inject::k_model_names[m], wanted.seed));
        body(wanted, row);
      }
    }
  }
}

TEST(fft_cuda, what_is_not_believed_is_not_stored) {
  for (const fft_case& each : emulated_cases()) {
    if ((each.uses & k_faults) == 0) continue;
    SCOPED_TRACE(name_of(each));
    const emulator device(each.where, 21);
    with_data(each, [&]<class T>(const subject<T>& given) {
      struck_case<T> under(emulated(), 1, given);
      const bool large = given.shape.points() * given.signals() > 20000;
      // Whether every signal is one line of the only pass.
      const bool one_pass = !divides(each.where) && each.where != machine::general && given.shape.points() != 67;
      const auto in = on_device(given.in);
      // The workspace starts as NaN: what an earlier run left between two passes must not stand in for what was not stored.
      execution how = on_cuda(protection::detect, &under.faults);
      const std::int64_t bytes = each.where == machine::general ? std::int64_t{16} << 20 : under.guarded.workspace_bytes();
      const std::vector<float> nothing(static_cast<std::size_t>(bytes) / sizeof(float), std::nanf(""));
      const auto workspace = on_device(nothing);
      how.workspace = {reinterpret_cast<std::byte*>(workspace.data()), nothing.size() * sizeof(float)};
      const plan watched(given.problem, how);
      int found = 0;
      const int seeds = large || test::sampled() || divides(each.where) ? 1 : 2;
      for_every_fault(each, seeds, [&](const inject::request& wanted, const inject::site_row& row) {
        if (row.role == inject::site_role::repair || (large && wanted.model != inject::model::nan)) return;
        under.faults = inject::plan({wanted});
        const auto memory = on_device(given.fresh());
        device->copy(workspace.data(), nothing.data(), static_cast<std::int64_t>(nothing.size() * sizeof(float)), nullptr);
        const report seen = given.run(watched, in.data(), memory.data());
        const auto out = memory.read();
        ASSERT_TRUE(seen.verdict == verdict::clean || seen.verdict == verdict::uncorrectable);
        std::set<std::int64_t> reported, unstored;
        for (const event& one : seen.events) {
          reported.insert(one.index);
          if (one.site == "fft.line") unstored.insert(one.index);
          EXPECT_EQ(one.action, action::uncorrectable);
          EXPECT_EQ(one.device, device->about().name);
          EXPECT_GE(one.multiprocessor, 0);
          EXPECT_FALSE(one.damaged);
        }
        found += reported.empty() ? 0 : 1;
        for (std::int64_t b = 0; b < given.signals(); ++b) {
          const auto y = given.got(out, b);
          const auto wanted_y = given.got(under.clean, b);
          std::vector<T> difference;
          for (std::size_t i = 0; i < y.size(); ++i) difference.push_back(y[i] - wanted_y[i]);
          const double missed = test::norm_of(difference) / (test::effect_unit(given.problem) * under.size);
          // A product that keeps failing is reported and its third evaluation stored; a line that keeps failing is not stored.
          ASSERT_TRUE(missed <= k_floor || reported.contains(b)) << "signal " << b << " differs by " << missed << " " << to_json(seen);
          ASSERT_TRUE(!(missed <= k_floor) || !unstored.contains(b)) << "signal " << b << " " << to_json(seen);
          if (!one_pass || !reported.contains(b)) continue;
          for (const T x : y) ASSERT_EQ(x, subject<T>::k_untouched) << "signal " << b;
        }
      });
      EXPECT_GT(found, 0);
    });
  }
}

// A line is computed a second time to confirm it before it is stored. A fault in that computation is one event, whether or not a check
// failed before.
TEST(fft_cuda, a_fault_in_the_confirming_computation_is_one_event) {
  const std::pair<const char*, machine> cases[] = {{"fft_c2c_f32_n64_b43_fwd", machine::whole},
                                                   {"fft_c2c_f32_n256_b77_fwd", machine::single},
                                                   {"fft_c2c_f64_n100_b9_fwd", machine::whole},
                                                   {"fft_c2c_f32_n512_b5_fwd", machine::clustered},
                                                   {"fft_c2c_f64_n512_b3_inv", machine::clustered}};
  for (const auto& [token, where] : cases) {
    const fft_case& each = case_of(token, where);
    SCOPED_TRACE(name_of(each));
    const emulator device(where);
    with_data(each, [&]<class T>(subject<T> given) {
      for (const bool judged : {true, false}) {
        SCOPED_TRACE(judged ? "after a fault" : "after a norm that the first check cannot judge");
        // The squares leave the range of T, the transform does not.
        if (!judged) std::ranges::transform(given.in, given.in.begin(), [](T x) { return x * T(sizeof(T) == 4 ? 1e20 : 1e160); });
        struck_case<T> under(emulated(), 1, given);
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
          inject::request wanted;
          wanted.site = inject::site::fft_output;
          wanted.seed = seed;
          wanted.bit = sizeof(T) == 4 ? 24 : 54;
          inject::request first = wanted;
          wanted.visit = 2;
          under.faults = judged ? inject::plan({first, wanted}) : inject::plan({wanted});
          std::vector<T> out = given.fresh();
          const report seen = given.run(under.guarded, out);
          EXPECT_EQ(seen.detected, 1u) << to_json(seen);
          EXPECT_EQ(seen.recomputed, 1u);
          EXPECT_EQ(seen.false_alarms, 0u);
          EXPECT_TRUE(same(out, under.clean));
        }
      }
    });
  }
}

}  // namespace
}  // namespace ballast::fft
