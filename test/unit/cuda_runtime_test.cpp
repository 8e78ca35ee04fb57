// The device over the driver, on a driver of the test's own that writes down what it is asked; and which device a call gets.
#include "cuda/runtime/runtime.hpp"

#include <unistd.h>
#include <algorithm>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "cuda/device/blas.hpp"
#include "run/dispatch.hpp"
#include "unit/cuda_fake_driver.hpp"

namespace ballast::cuda {
namespace {

using namespace fakes;
using testing::ElementsAre;
using testing::HasSubstr;

template <class Error, class Call>
std::string message(Call&& call) {
  try {
    call();
  } catch (const Error& seen) {
    return seen.what();
  }
  return "no exception";
}

TEST_F(cuda_runtime, knows_the_device) {
  const auto on = open();
  EXPECT_EQ(on->about().name, "Fake GPU");
  EXPECT_EQ(on->about().major, 9);
  EXPECT_EQ(on->about().multiprocessors, 132);
  EXPECT_EQ(on->about().shared_per_block, 227 * 1024);
  EXPECT_EQ(on->about().l2_cache, 1000 + driver::k_l2_cache);
  EXPECT_EQ(on->about().memory, std::int64_t{80} << 30);
}

TEST_F(cuda_runtime, keeps_the_pools_memory_unless_the_application_decided) {
  (void)open();
  EXPECT_EQ(fake.threshold, ~std::uint64_t{0});
  fake.threshold = 12345;
  (void)open();
  EXPECT_EQ(fake.threshold, 12345u);
}

// The pool of a device is opened to the device that reaches it, for reading and writing.
TEST_F(cuda_runtime, opens_its_pool_to_devices_that_have_a_road) {
  const auto on = open(), other = open_device(api, 13000, k_callers, 5, *kernels);
  fake.calls.clear();
  EXPECT_TRUE(on->opens_to(*on));
  EXPECT_TRUE(fake.opened.empty());
  EXPECT_TRUE(on->opens_to(*other));
  EXPECT_THAT(fake.calls, ElementsAre("can 5 reach 3"));
  ASSERT_EQ(fake.opened.size(), 1U);
  EXPECT_EQ(fake.opened[0].place_type, driver::k_place_device);
  EXPECT_EQ(fake.opened[0].place, 5);
  EXPECT_EQ(fake.opened[0].allowed, driver::k_read_and_write);
  EXPECT_TRUE(reach_each_other(std::vector{on, other}));
  fake.has_road = 0;
  fake.opened.clear();
  EXPECT_FALSE(on->opens_to(*other));
  EXPECT_FALSE(reach_each_other(std::vector{on, other}));
  EXPECT_TRUE(fake.opened.empty());
}

TEST_F(cuda_runtime, leaves_the_callers_context_as_it_was) {
  for (const std::vector<driver::context>& before : {std::vector<driver::context>{}, {k_callers}, {k_ours}}) {
    fake.contexts = before;
    const auto on = open();
    const kernel& loaded = on->load(k_plain);
    std::int64_t argument = 1;
    on->launch(loaded, 1, &argument, sizeof argument, k_stream);
    (void)on->resident_blocks(loaded);
    void* memory = on->allocate(16, k_stream);
    on->zero(memory, 16, k_stream);
    on->copy(memory, &argument, 8, k_stream);
    (void)on->accessible(memory);
    on->release(memory, k_stream);
    on->synchronize(k_stream);
    fake.launch_result = 700;
    EXPECT_THROW(on->launch(loaded, 1, &argument, sizeof argument, k_stream), error);
    fake.launch_result = 0;
    EXPECT_EQ(fake.contexts, before);
    EXPECT_EQ(fake.capture_mode, 0);
  }
}

// Another stream may be captured by a mode that forbids allocations to all threads, and an attempt would end that capture.
TEST_F(cuda_runtime, allocates_while_another_stream_is_captured) {
  const auto on = open();
  fake.capture_mode = 1;
  on->release(on->allocate(16, k_stream), k_stream);
  { const pinned_buffer one(on, 100); }
  (void)on->make_event(false);
  EXPECT_EQ(fake.forbidden, 0);
  EXPECT_EQ(fake.capture_mode, 1);
}

TEST_F(cuda_runtime, tells_device_memory_from_other) {
  const auto on = open();
  int objects[5];
  const auto address = [&](int i) { return reinterpret_cast<driver::address>(&objects[i]); };
  fake.types = {{address(0), 2}, {address(1), 2}, {address(2), 1}, {address(3), 1}};
  fake.ordinals = {{address(0), k_device}, {address(1), k_device + 1}, {address(2), k_device}, {address(3), k_device}};
  fake.managed = {address(3)};
  EXPECT_TRUE(on->accessible(&objects[0]));   // on this device
  EXPECT_FALSE(on->accessible(&objects[1]));  // on another
  EXPECT_FALSE(on->accessible(&objects[2]));  // registered host memory
  EXPECT_TRUE(on->accessible(&objects[3]));   // managed
  EXPECT_FALSE(on->accessible(&objects[4]));  // unknown to the driver
}

TEST_F(cuda_runtime, loads_once_and_allows_what_the_kernel_wants) {
  const auto on = open();
  const kernel& plain = on->load(k_plain);
  EXPECT_THAT(fake.calls, ElementsAre("load code of a::plain", "function mangled"));
  EXPECT_EQ(fake.function_values, (std::map<int, int>{{driver::k_max_dynamic_shared, 4096}}));
  EXPECT_EQ(&on->load(k_plain), &plain);
  EXPECT_EQ(fake.calls.size(), 2u);
  kernel_request more = k_plain;
  more.shared = 100000;
  EXPECT_NE(&on->load(more), &plain);
  EXPECT_EQ(fake.function_values.at(driver::k_max_dynamic_shared), 100000);
  fake.function_values.clear();
  (void)on->load(k_wide);
  EXPECT_EQ(fake.function_values, (std::map<int, int>{{driver::k_nonportable_cluster, 1}}));
}

// Memory that the kernel declares itself counts, and so does the memory that is reserved for each block.
TEST_F(cuda_runtime, leaves_shared_memory_for_the_blocks_that_are_to_run_side_by_side) {
  const auto on = open();
  kernel_request several = k_plain;
  several.blocks = 3;
  (void)on->load(several);
  EXPECT_EQ(fake.function_values.at(driver::k_shared_carveout), (100 * 3 * (4096 + 6144 + 1024) + 228 * 1024 - 1) / (228 * 1024));
}

TEST_F(cuda_runtime, loads_several_in_the_order_of_the_requests) {
  const auto on = open();
  const kernel& plain = on->load(k_plain);
  fake.calls.clear();
  const std::vector<kernel_request> wanted{k_wide, k_plain, k_wide};
  const std::vector<const kernel*> got = on->load_all(wanted);
  EXPECT_THAT(fake.calls, ElementsAre("load code of a::wide", "function mangled"));
  EXPECT_THAT(got, ElementsAre(&on->load(k_wide), &plain, got[0]));
  fake.calls.clear();
  EXPECT_EQ(on->load_all(wanted), got);
  EXPECT_TRUE(fake.calls.empty());
  kernel_request absent = k_plain;
  absent.expression = "a::absent";
  EXPECT_THROW((void)on->load_all(std::vector{k_plain, absent}), unsupported_error);
}

// A plan that is made again costs a look into the device's own list: neither the bundle nor the cache is asked.
TEST_F(cuda_runtime, loads_again_without_files) {
  const auto on = open();
  const kernel& plain = on->load(k_plain);
  fs::remove(folder / "kernels.bundle");
  EXPECT_EQ(&on->load(k_plain), &plain);
  kernel_request budget = k_plain;
  budget.registers = 40;
  EXPECT_EQ(&on->load(budget), &plain);
}

TEST_F(cuda_runtime, refuses_what_the_device_or_the_bundle_has_not) {
  const auto on = open();
  kernel_request absent = k_plain;
  absent.expression = "a::absent";
  EXPECT_THAT(message<unsupported_error>([&] { (void)on->load(absent); }), HasSubstr("a::absent"));
  kernel_request large = k_plain;
  large.shared = 300 * 1024;
  EXPECT_THAT(message<unsupported_error>([&] { (void)on->load(large); }), HasSubstr("got 307200"));
  EXPECT_THAT(message<unsupported_error>([&] { (void)open(12080)->load(k_plain); }), HasSubstr("not in the bundle"));
  fake.has_clusters = 0;
  EXPECT_THAT(message<unsupported_error>([&] { (void)open()->load(k_wide); }), HasSubstr("clusters"));
  EXPECT_THAT(open()->why_not_ready({&k_wide, 1}, true), HasSubstr("clusters"));
  EXPECT_THAT(on->why_not_ready({&large, 1}, true), HasSubstr("got 307200"));
  EXPECT_THAT(on->why_not_ready({&absent, 1}, true), HasSubstr("a::absent"));
  EXPECT_EQ(on->why_not_ready({&k_plain, 1}, true), "");
  fake.load_result = 200;
  EXPECT_THAT(message<unsupported_error>([&] { (void)on->load(k_plain); }),
              testing::AllOf(HasSubstr("code of CUDA 13.0"), HasSubstr("fake words"), HasSubstr("bad image")));
  fake.load_result = 0;
  EXPECT_NO_THROW((void)on->load(k_plain));
}

TEST_F(cuda_runtime, launches_as_requested) {
  const auto on = open();
  const kernel& plain = on->load(k_plain);
  const kernel& wide = on->load(k_wide);
  const std::int64_t argument = 77;
  on->launch(plain, 5, &argument, sizeof argument, k_stream);
  EXPECT_EQ(fake.launched.config.grid[0], 5u);
  EXPECT_EQ(fake.launched.config.grid[1] * fake.launched.config.grid[2], 1u);
  EXPECT_EQ(fake.launched.config.block[0], 256u);
  EXPECT_EQ(fake.launched.config.block[1] * fake.launched.config.block[2], 1u);
  EXPECT_EQ(fake.launched.config.shared_bytes, 4096u);
  EXPECT_EQ(fake.launched.config.stream, k_stream);
  EXPECT_EQ(fake.launched.cluster, 0u);
  EXPECT_EQ(fake.launched.argument, 77);
  on->launch(wide, 32, &argument, sizeof argument, k_stream);
  EXPECT_EQ(fake.launched.cluster, 16u);
  EXPECT_EQ(fake.launched.config.block[0], 512u);
  EXPECT_EQ(on->resident_blocks(plain), 4 * 132);
  EXPECT_EQ(on->resident_blocks(wide), 7 * 16);
}

TEST_F(cuda_runtime, refuses_launches_that_cannot_be_meant) {
  const auto on = open();
  const kernel& plain = on->load(k_plain);
  const std::int64_t argument = 0;
  fake.calls.clear();
  EXPECT_THAT(message<error>([&] { on->launch(plain, 0, &argument, 8, k_stream); }), HasSubstr("got 0"));
  EXPECT_THAT(message<error>([&] { on->launch(plain, std::int64_t{1} << 31, &argument, 8, k_stream); }), HasSubstr("2147483648"));
  EXPECT_THAT(message<error>([&] { on->launch(plain, 1, &argument, 4, k_stream); }), HasSubstr("argument of 8 bytes, got 4"));
  EXPECT_TRUE(fake.calls.empty());
  fake.launch_result = 700;
  EXPECT_EQ(message<error>([&] { on->launch(plain, 1, &argument, 8, k_stream); }),
            "CUDA: a::plain: expected success, got CUDA_ERROR_FAKE (fake words)");
}

TEST_F(cuda_runtime, launches_with_several_arguments) {
  fake.parameter_bytes = {8, 4};
  const auto on = open();
  kernel_request two = k_plain;
  two.arguments = 2;
  const kernel& plain = on->load(two);
  const std::int64_t first = 77;
  const std::int32_t second = 88;
  const kernel_argument both[] = {{&first, sizeof first}, {&second, sizeof second}};
  on->launch(plain, 1, both, k_stream);
  EXPECT_EQ(fake.launched.argument, 77);
  EXPECT_EQ(fake.launched.second_argument, 88);
  EXPECT_THAT(message<error>([&] { on->launch(plain, 1, &first, sizeof first, k_stream); }), HasSubstr("2 arguments, got 1"));
  const kernel_argument wrong[] = {{&first, sizeof first}, {&first, sizeof first}};
  EXPECT_THAT(message<error>([&] { on->launch(plain, 1, wrong, k_stream); }), HasSubstr("argument of 4 bytes, got 8"));
}

TEST_F(cuda_runtime, knows_a_stream_that_is_captured) {
  const auto device = open();
  EXPECT_FALSE(device->captured(k_stream));
  fake.capturing = 1;
  EXPECT_TRUE(device->captured(k_stream));
  EXPECT_FALSE(device->captured(nullptr)) << "and does not ask about the default stream, which cannot be";
}

TEST_F(cuda_runtime, events_time_and_order_streams) {
  const auto on = open();
  {
    const device_stream second(on, true);
    EXPECT_EQ(second.get(), k_second_stream);
    const auto first = on->make_event(true);
    const auto last = on->make_event(true);
    const auto order = on->make_event(false);
    EXPECT_THAT(fake.calls, ElementsAre("stream -5", "event", "event", "untimed event"));
    fake.calls.clear();
    on->record(*order, k_stream);
    on->wait(*order, second.get());
    EXPECT_THAT(fake.calls, ElementsAre("record", "wait second"));  // nothing that makes the host wait
    fake.calls.clear();
    EXPECT_EQ(on->milliseconds(*first, *last), 1.5);
    EXPECT_THAT(fake.calls, ElementsAre("synchronize event"));
    EXPECT_THAT(message<error>([&] { (void)on->milliseconds(*first, *order); }), HasSubstr("timed"));
    EXPECT_TRUE(on->passed(*first));
    fake.event_state = driver::k_not_ready;
    EXPECT_FALSE(on->passed(*first));
    fake.event_state = 700;
    EXPECT_THROW((void)on->passed(*first), error);
    EXPECT_EQ(fake.events, 3);
    EXPECT_EQ(fake.streams, 1);
  }
  EXPECT_EQ(fake.events, 0);
  EXPECT_EQ(fake.streams, 0);
  EXPECT_TRUE(fake.contexts.empty());
}

TEST_F(cuda_runtime, pinned_memory_has_an_owner) {
  const auto on = open();
  {
    pinned_buffer one(on, 100);
    pinned_buffer other;
    other = std::move(one);
    EXPECT_EQ(other.bytes(), 100);
    static_cast<char*>(other.data())[99] = 1;
    EXPECT_EQ(fake.pinned, 1);
  }
  EXPECT_EQ(fake.pinned, 0);
  fake.out_of_memory = true;
  EXPECT_THROW(pinned_buffer(on, 1), std::bad_alloc);
}

// A kernel that never ends does not keep the caller: the device is given up, and nothing waits for it again.
TEST_F(cuda_runtime, a_device_that_does_not_answer_is_given_up) {
  ASSERT_EQ(setenv("BALLAST_DEVICE_PATIENCE", "0.05", 1), 0);
  const auto on = open();
  const kernel& plain = on->load(k_plain);
  fake.queries_until_ready = 3;
  on->synchronize(k_stream);
  EXPECT_EQ(fake.queries, 4);
  void* const pinned = on->allocate_pinned(8);
  fake.queries_until_ready = std::numeric_limits<int>::max();
  fake.calls.clear();
  EXPECT_THAT(message<device_error>([&] { on->synchronize(k_stream); }),
              AllOf(HasSubstr("Fake GPU"), HasSubstr("0.05 seconds"), HasSubstr("BALLAST_DEVICE_PATIENCE")));
  const std::int64_t argument = 0;
  EXPECT_THROW(on->launch(plain, 1, &argument, sizeof argument, k_stream), device_error);
  fake.queries_until_ready = 0;
  EXPECT_THROW(on->synchronize(k_stream), device_error);
  on->release_pinned(pinned);
  EXPECT_EQ(fake.pinned, 1);
  EXPECT_THAT(fake.calls, testing::IsEmpty());
  std::free(pinned);
  for (const char* const wrong : {"-1", "soon", "1s", "inf", "nan"}) {
    ASSERT_EQ(setenv("BALLAST_DEVICE_PATIENCE", wrong, 1), 0);
    EXPECT_THAT(message<invalid_argument_error>([&] { (void)open(); }), HasSubstr(wrong));
  }
  ASSERT_EQ(unsetenv("BALLAST_DEVICE_PATIENCE"), 0);
  open()->synchronize(k_stream);
  EXPECT_THAT(fake.calls, ElementsAre("synchronize"));
}

// Work that may be captured into a graph: one call of the driver each, on the stream; no call waits.
TEST_F(cuda_runtime, stream_work_is_nothing_but_stream_work) {
  const auto on = open();
  const kernel& plain = on->load(k_plain);
  fake.calls.clear();
  const std::int64_t argument = 0;
  void* memory = on->allocate(64, k_stream);
  on->zero(memory, 64, k_stream);
  on->copy(memory, &argument, sizeof argument, k_stream);
  on->copy(memory, &argument, 0, k_stream);
  on->zero(memory, 0, k_stream);
  on->launch(plain, 1, &argument, sizeof argument, k_stream);
  on->release(memory, k_stream);
  EXPECT_THAT(fake.calls, ElementsAre("allocate", "fill", "copy", "launch", "release"));
}

TEST_F(cuda_runtime, a_device_of_the_tests_takes_the_place_of_the_real_one) {
  const std::string before = why_unavailable();
  EXPECT_EQ(before.empty(), driver::available().why.empty() && run::available_backends().front() == backend::cuda);
  const auto on = open();
  override_device(on);
  EXPECT_EQ(current_device(), on);
  EXPECT_EQ(why_unavailable(), "");
  EXPECT_EQ(run::available_backends().front(), backend::cuda);
  EXPECT_EQ(run::choose_backend({.backend = backend::cuda}, "t"), backend::cuda);
  EXPECT_EQ(run::choose_backend({}, "t"), backend::cuda);
  override_device(nullptr);
  EXPECT_EQ(why_unavailable(), before);
  if (before.empty()) {
    EXPECT_NE(current_device(), on);
  } else {
    EXPECT_EQ(message<unsupported_error>([] { (void)current_device(); }), before);
    EXPECT_THAT(message<unsupported_error>([] { (void)run::choose_backend({.backend = backend::cuda}, "t"); }), HasSubstr(before));
  }
}

}  // namespace
}  // namespace ballast::cuda
