// First calls: every kernel that a call may ask for is in the bundle or has one there that serves instead; general passes serve until the
// problem's own kernels are ready, and no longer.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/call/device_call.hpp"
#include "cuda/jit/jit.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/engine/plan_state.hpp"
#include "kmeans/cuda/engine/serving_pass.hpp"
#include "kmeans/cuda/policy/tuning.hpp"
#include "kmeans/start.hpp"
#include "support/devices.hpp"

namespace ballast::kmeans::cuda {
namespace {

using ballast::cuda::kernel_request;

// Returns what the caches see of a request.
std::string key(const kernel_request& each) { return each.header + " " + each.expression; }

bool has(const std::vector<kernel_request>& list, const kernel_request& wanted) {
  return std::ranges::any_of(list, [&](const kernel_request& each) { return key(each) == key(wanted); });
}

// Those of an A100, an H100 and a B200; and of devices with the shared memory of a GeForce, which run the code of the first.
std::vector<ballast::cuda::capabilities> devices() {
  std::vector<ballast::cuda::capabilities> made;
  for (const char* each : {"sm_80", "sm_90a", "sm_100a"}) made.push_back(ballast::cuda::typical_capabilities(each));
  ballast::cuda::capabilities small = made.front();
  small.minor = 6;
  small.threads_per_multiprocessor = 1536;
  small.shared_per_multiprocessor = 100 << 10;
  small.shared_per_block = 99 << 10;
  made.push_back(small);
  return made;
}

TEST(cuda_kmeans_serving, every_problem_has_a_general_pass_in_the_bundle) {
  for (const ballast::cuda::capabilities& on : devices()) {
    const std::vector<kernel_request> bundle = common_kernels(on);
    std::vector<kernel_request> missing;
    int problems = 0;
    for (const bool f64 : {false, true})
      for (const std::int64_t n : {1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 48, 50, 64, 65, 100, 127, 128, 200, 300, 784, 1000, 4096})
        for (const std::int64_t k : {1, 2, 7, 8, 9, 16, 37, 57, 64, 100, 128, 500, 1000, 5000, 65536})
          for (int variant = 0; variant < 8; ++variant) {
            const bool check = variant % 2 == 0, weighted = variant / 2 % 2 == 1;
            const int words = f64 ? 2 : 1 + variant / 4;
            const pass_problem what{f64, n, k, words, weighted, check, true};
            const pass_policy chosen = general_pass(what, on);
            ++problems;
            for (const kernel_request& each : pass_kernel_requests(what, chosen, on, false)) {
              if (!has(bundle, each)) missing.push_back(each);
              EXPECT_LE(chosen.blocks * (each.shared + 1024), on.shared_per_multiprocessor) << key(each);
              EXPECT_LE(each.shared, on.shared_per_block) << key(each);
            }
          }
    EXPECT_TRUE(missing.empty()) << on.name << ": " << missing.size() << ", for example " << key(missing.front());
    EXPECT_EQ(problems, 2 * 22 * 15 * 8);
  }
}

TEST(cuda_kmeans_serving, all_other_kernels_are_in_the_bundle) {
  for (const ballast::cuda::capabilities& on : devices()) {
    const std::vector<kernel_request> bundle = common_kernels(on);
    std::vector<kernel_request> wanted = kernel_names<double>::all(2, false);
    const auto add = [&](std::vector<kernel_request> list) { wanted.insert(wanted.end(), list.begin(), list.end()); };
    for (const int words : {1, 2}) {
      for (const bool half : {false, true}) add(kernel_names<float>::all(words, false, half));
    }
    add(kernel_names<float>::candidates(false));
    add(kernel_names<double>::candidates(false));
    for (const bool half : {false, true}) add(kernel_names<float>::serving(false, half));
    for (const char* token : {"kmeans_f32_m1797_n64_k10_b12", "kmeans_f64_m500_n8_k20_b9"}) {
      for (const bool enqueued : {false, true}) add({batch_request(parse_token(token), on, false, enqueued)});
    }
    for (const kernel_request& each : wanted) EXPECT_TRUE(has(bundle, each)) << on.name << " " << key(each);
    // Passes of their own, for the problems of the benchmark.
    for (const std::string& token : benchmark_problems()) {
      const problem what = parse_token(token);
      if (what.batch > 1) continue;
      const bool f64 = what.precision == precision::f64;
      const pass_problem pass{f64, what.features, what.clusters, f64 ? 2 : 1, false, true, true};
      for (const kernel_request& each : pass_kernel_requests(pass, choose_pass(pass, on), on, false))
        EXPECT_TRUE(has(bundle, each)) << on.name << " " << key(each);
    }
  }
}

// Passes whose sums lie in global memory have another first pass where a block has room for the sums.
TEST(cuda_kmeans_serving, the_first_pass_adds_in_shared_memory_where_it_can) {
  int own = 0;
  for (const ballast::cuda::capabilities& on : devices()) {
    for (const auto& [n, k] : {std::pair<int, int>{8, 8}, {16, 64}, {32, 64}, {128, 128}, {64, 1024}, {256, 1024}, {1024, 256}}) {
      for (const bool check : {true, false}) {
        const pass_problem what{false, n, k, 1, false, check, true};
        const pass_policy chosen = choose_pass(what, on);
        const auto first = first_pass(what, chosen, on);
        EXPECT_FALSE(first_pass(what, general_pass(what, on), on));
        if (chosen.sums != sum_memory::global || n * k > 16384) {
          EXPECT_FALSE(first) << on.name << " " << n << " " << k;
        }
        if (!first) continue;
        ++own;
        EXPECT_EQ(first->sums, sum_memory::shared);
        const kernel_request made = pass_request(what, *first, false);
        EXPECT_LE(first->blocks * (made.shared + 1024), on.shared_per_multiprocessor);
        EXPECT_LE(made.shared, on.shared_per_block);
        pass_policy same = *first;
        same.sums = chosen.sums;
        EXPECT_EQ(same, chosen) << "both read the same packed centroids";
      }
    }
  }
  EXPECT_GE(own, 5) << "the entries of the table for sm_90";
}

// A device on which some kernels would have to be compiled.
class busy_device final : public test::forwarding_device {
 public:
  busy_device() : forwarding_device(std::make_shared<test::recording_device>(ballast::cuda::typical_capabilities("sm_90a"))) {}

  enum class state { nothing, general_only, no_background, all };
  state now = state::general_only;
  int started = 0;  // compilations in the background

  std::string why_not_ready(std::span<const kernel_request> wanted, bool compile) override {
    const bool general = std::ranges::all_of(wanted, [&](const kernel_request& each) { return each.expression == general_of(each); });
    if (now == state::all || (general && now != state::nothing)) return "";
    if (compile && now == state::no_background) return "";
    if (compile) ++started;
    return "they are being compiled";
  }
  std::vector<std::string> general;  // expressions

 private:
  std::string general_of(const kernel_request& each) const {
    return std::ranges::find(general, each.expression) != general.end() ? each.expression : "";
  }
};

struct serving : testing::Test {
  const std::shared_ptr<busy_device> device = std::make_shared<busy_device>();
  const pass_problem what{false, 40, 37, 1, false, true, true};
  const pass_policy general = general_pass(what, device->about()), own = choose_pass(what, device->about());

  serving() {
    for (const kernel_request& each : pass_kernel_requests(what, general, device->about(), false))
      device->general.push_back(each.expression);
  }
};

TEST_F(serving, a_general_pass_serves_until_the_own_one_is_compiled) {
  ASSERT_NE(general, own);
  serving_pass made = serve_pass(*device, what, 100000, false);
  EXPECT_TRUE(made.general);
  EXPECT_EQ(made.policy, general);
  EXPECT_EQ(device->started, 1);
  device->now = busy_device::state::all;
  made = serve_pass(*device, what, 100000, false);
  EXPECT_FALSE(made.general);
  EXPECT_EQ(made.policy, own);
}

TEST_F(serving, a_plan_expects_no_compiler_where_a_general_pass_serves) {
  const test::current_device_guard guard(device);
  const kmeans::problem size{.points = 100000, .features = 40, .clusters = 37};
  const auto seconds = [&](const options& wanted) { return seconds_to_start(size, wanted, true, false, false); };
  const double missing = seconds({});  // all but the general pass
  EXPECT_GE(missing, 2);
  for (const kernel_request& each : kernel_names<float>::all(1, false)) device->general.push_back(each.expression);
  EXPECT_GE(seconds({}), 2);  // the kernels of predict
  for (const kernel_request& each : kernel_names<float>::serving(false)) device->general.push_back(each.expression);
  EXPECT_EQ(seconds({}), 0);
  EXPECT_GE(seconds({.init = init::kmeans_parallel}), 2);
  device->now = busy_device::state::nothing;
  EXPECT_GE(seconds({}), missing);
  device->now = busy_device::state::all;
  EXPECT_EQ(seconds({.init = init::kmeans_parallel}), 0);
}

TEST_F(serving, a_call_waits_where_a_general_pass_is_no_help) {
  // Without a bundle; where nothing compiles in the background; for faults; for calls that take longer than the compiler.
  device->now = busy_device::state::nothing;
  EXPECT_EQ(serve_pass(*device, what, 100000, false).policy, own);
  EXPECT_EQ(device->started, 0);
  device->now = busy_device::state::no_background;
  EXPECT_EQ(serve_pass(*device, what, 100000, false).policy, own);
  device->now = busy_device::state::general_only;
  EXPECT_EQ(serve_pass(*device, what, 100000, true).policy, own);
  const std::int64_t many = 3'000'000'000;
  ASSERT_TRUE(worth_waiting(what, many));
  EXPECT_EQ(serve_pass(*device, what, many, false).policy, own);
  EXPECT_EQ(device->started, 0);
}

// A plan keeps its own kernels, and asks again after a call that general ones have served.
TEST_F(serving, a_plan_keeps_no_general_pass) {
  device_state kept(device);
  int made = 0;
  const auto passes = [&] {
    return kept.passes(1, false, true, false, [&] {
      ++made;
      const serving_pass chosen = serve_pass(*device, what, 100000, false);
      pass_kernels kernels;
      kernels.policy = chosen.policy;
      kernels.general = chosen.general;
      return kernels;
    });
  };
  EXPECT_EQ(passes().policy, general);
  EXPECT_EQ(passes().policy, general);
  EXPECT_EQ(made, 2);
  device->now = busy_device::state::all;
  EXPECT_EQ(passes().policy, own);
  device->now = busy_device::state::nothing;
  EXPECT_EQ(passes().policy, own);
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace ballast::kmeans::cuda
