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

namespace ballast::cuda {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// The launch that the driver below was asked for.
struct launch_seen {
  driver::launch_config config{};
  unsigned cluster = 0;
  int argument = 0;         // first 4 bytes of the argument
  int second_argument = 0;  // the same for the second argument, if the kernel has one
};

// The state of the driver below. It has many members because each is something that a test sets or reads. The driver's functions are plain
// pointers, so it is global; each test starts with a new one.
struct fake_state {
  std::vector<std::string> calls;             // in order, without the context's
  std::vector<driver::context> contexts;      // the stack of the (only) thread
  std::uint64_t threshold = 0;                // the pool's
  std::map<driver::address, unsigned> types;  // CUmemorytype by address; absent: the driver does not know it
  std::map<driver::address, int> ordinals;
  std::vector<driver::address> managed;
  std::map<int, int> function_values;  // function attributes that were set
  launch_seen launched;
  std::vector<std::size_t> parameter_bytes = {8};
  int events = 0;   // alive
  int pinned = 0;   // alive
  int streams = 0;  // alive
  driver::result event_state = 0;
  int has_clusters = 1;
  int capturing = 0;
  int capture_mode = 0;                      // the mode of the thread
  int forbidden = 0;                         // pinned allocations while the mode was not relaxed
  int queries = 0, queries_until_ready = 0;  // counts of queries of streams
  bool out_of_memory = false;
  int has_road = 1;                         // cuDeviceCanAccessPeer
  std::vector<driver::pool_access> opened;  // the devices that may use the pool
  driver::result launch_result = 0;
  driver::result load_result = 0;
};
fake_state fake;

driver::context const k_ours = reinterpret_cast<driver::context>(0x10);
driver::context const k_callers = reinterpret_cast<driver::context>(0x20);
driver::memory_pool const k_pool = reinterpret_cast<driver::memory_pool>(0x30);
driver::function const k_function = reinterpret_cast<driver::function>(0x40);
driver::module_handle const k_module = reinterpret_cast<driver::module_handle>(0x50);
stream const k_stream = reinterpret_cast<stream>(0x60);
stream const k_second_stream = reinterpret_cast<stream>(0x70);
driver::event_handle const k_event = reinterpret_cast<driver::event_handle>(0x80);
constexpr int k_device = 3;

using driver::k_success, driver::k_invalid_value;

void add_device(driver::api& made) {
  made.error_name = [](driver::result, const char** text) { return *text = "CUDA_ERROR_FAKE", k_success; };
  made.error_string = [](driver::result, const char** text) { return *text = "fake words", k_success; };
  made.device_name = [](char* text, int bytes, driver::device_id) {
    return std::strncpy(text, "Fake GPU", static_cast<std::size_t>(bytes)), k_success;
  };
  made.device_memory = [](std::size_t* bytes, driver::device_id) { return *bytes = std::size_t{80} << 30, k_success; };
  made.device_attribute = [](int* value, driver::device_attribute which, driver::device_id) {
    switch (which) {
      case driver::k_capability_major: *value = 9; break;
      case driver::k_capability_minor: *value = 0; break;
      case driver::k_multiprocessors: *value = 132; break;
      case driver::k_shared_per_block_opt_in: *value = 227 * 1024; break;
      case driver::k_has_clusters: *value = fake.has_clusters; break;
      case driver::k_shared_per_multiprocessor: *value = 228 * 1024; break;
      default: *value = 1000 + which;
    }
    return k_success;
  };
  made.default_pool = [](driver::memory_pool* pool, driver::device_id) { return *pool = k_pool, k_success; };
  made.can_reach = [](int* does, driver::device_id from, driver::device_id memory_of) {
    fake.calls.push_back("can " + std::to_string(from) + " reach " + std::to_string(memory_of));
    return *does = fake.has_road, k_success;
  };
  made.pool_open = [](driver::memory_pool pool, const driver::pool_access* wanted, std::size_t count) {
    if (pool != k_pool) return k_invalid_value;
    return fake.opened.insert(fake.opened.end(), wanted, wanted + count), k_success;
  };
  made.pool_get = [](driver::memory_pool, int, void* value) { return std::memcpy(value, &fake.threshold, 8), k_success; };
  made.pool_set = [](driver::memory_pool, int which, void* value) {
    if (which != driver::k_release_threshold) return k_invalid_value;
    return std::memcpy(&fake.threshold, value, 8), k_success;
  };
  made.context_current = [](driver::context* current) {
    *current = fake.contexts.empty() ? nullptr : fake.contexts.back();
    return k_success;
  };
  made.exchange_capture_mode = [](int* mode) { return std::swap(*mode, fake.capture_mode), k_success; };
  made.context_push = [](driver::context pushed) { return fake.contexts.push_back(pushed), k_success; };
  made.context_pop = [](driver::context* popped) { return *popped = fake.contexts.back(), fake.contexts.pop_back(), k_success; };
  made.context_priorities = [](int* least, int* greatest) { return *least = 0, *greatest = -5, k_success; };
}

void add_kernels(driver::api& made) {
  made.module_load = [](driver::module_handle* module, const void* image, unsigned options, const int* keys, void** values) {
    fake.calls.push_back(std::string("load ") + static_cast<const char*>(image));
    if (fake.load_result != k_success && options == 2 && keys[0] == driver::k_error_log)
      std::strncpy(static_cast<char*>(values[0]), "bad image", reinterpret_cast<std::size_t>(values[1]));
    return *module = k_module, fake.load_result;
  };
  made.module_unload = [](driver::module_handle) { return fake.calls.push_back("unload"), k_success; };
  made.module_function = [](driver::function* function, driver::module_handle, const char* name) {
    fake.calls.push_back(std::string("function ") + name);
    return *function = k_function, k_success;
  };
  made.function_set = [](driver::function, driver::function_attribute which, int value) {
    return fake.function_values[which] = value, k_success;
  };
  made.function_get = [](int* value, driver::function_attribute which, driver::function) {
    if (which != driver::k_static_shared) return k_invalid_value;
    return *value = 6144, k_success;
  };
  made.parameter = [](driver::function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
    if (index >= fake.parameter_bytes.size()) return k_invalid_value;
    return *offset = 0, *bytes = fake.parameter_bytes[index], k_success;
  };
  made.launch = [](const driver::launch_config* config, driver::function, void** arguments, void**) {
    fake.calls.push_back("launch");
    fake.launched.config = *config;
    const bool clusters = config->attribute_count == 2 && config->attributes[0].id == driver::k_cluster_dimension &&
                          config->attributes[1].id == driver::k_cluster_policy &&
                          config->attributes[1].value.flag == driver::k_cluster_balances;
    fake.launched.cluster = clusters ? config->attributes[0].value.cluster[0] : 0;
    std::memcpy(&fake.launched.argument, arguments[0], sizeof fake.launched.argument);
    if (fake.parameter_bytes.size() > 1) std::memcpy(&fake.launched.second_argument, arguments[1], sizeof fake.launched.second_argument);
    return fake.launch_result;
  };
  made.resident_blocks = [](int* blocks, driver::function, int threads, std::size_t shared) {
    return *blocks = threads == 256 && shared == 4096 ? 4 : -1, k_success;
  };
  made.resident_clusters = [](int* clusters, driver::function, const driver::launch_config* config) {
    return *clusters = config->attributes->value.cluster[0] == 16 ? 7 : -1, k_success;
  };
}

void add_memory(driver::api& made) {
  made.allocate = [](driver::address* memory, std::size_t bytes, driver::memory_pool pool, driver::stream_handle on) {
    fake.calls.push_back("allocate");
    if (fake.out_of_memory) return driver::k_out_of_memory;
    if (pool != k_pool || on != k_stream || bytes == 0) return k_invalid_value;
    return *memory = reinterpret_cast<driver::address>(std::malloc(bytes)), k_success;
  };
  made.release = [](driver::address memory, driver::stream_handle on) {
    fake.calls.push_back(on == k_stream ? "release" : "release elsewhere");
    return std::free(reinterpret_cast<void*>(memory)), k_success;
  };
  made.copy = [](driver::address to, driver::address from, std::size_t bytes, driver::stream_handle on) {
    fake.calls.push_back("copy");
    if (on != k_stream) return k_invalid_value;
    return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), k_success;
  };
  made.fill = [](driver::address to, unsigned char value, std::size_t bytes, driver::stream_handle on) {
    fake.calls.push_back("fill");
    if (on != k_stream) return k_invalid_value;
    return std::memset(reinterpret_cast<void*>(to), value, bytes), k_success;
  };
  made.pointer_get = [](unsigned count, const driver::pointer_attribute* attributes, void** values, driver::address memory) {
    for (unsigned i = 0; i < count; ++i) {
      const bool known = fake.types.contains(memory);
      if (attributes[i] == driver::k_memory_type) {
        const unsigned type = known ? fake.types.at(memory) : 0;
        std::memcpy(values[i], &type, sizeof type);
      } else if (attributes[i] == driver::k_is_managed) {
        const bool is = std::find(fake.managed.begin(), fake.managed.end(), memory) != fake.managed.end();
        std::memcpy(values[i], &is, sizeof is);
      } else if (attributes[i] == driver::k_device_ordinal) {
        const int ordinal = fake.ordinals.contains(memory) ? fake.ordinals.at(memory) : -2;
        std::memcpy(values[i], &ordinal, sizeof ordinal);
      }
    }
    return k_success;
  };
  made.host_allocate = [](void** memory, std::size_t bytes, unsigned) {
    if (fake.capture_mode != driver::k_capture_relaxed) ++fake.forbidden;
    if (fake.out_of_memory) return driver::k_out_of_memory;
    return ++fake.pinned, *memory = std::malloc(bytes), k_success;
  };
  made.host_release = [](void* memory) { return --fake.pinned, std::free(memory), k_success; };
}

void add_streams(driver::api& made) {
  made.stream_capturing = [](driver::stream_handle stream, int* status) {
    return *status = fake.capturing, stream == nullptr ? k_invalid_value : k_success;
  };
  made.stream_synchronize = [](driver::stream_handle) { return fake.calls.push_back("synchronize"), k_success; };
  made.stream_query = [](driver::stream_handle) { return ++fake.queries > fake.queries_until_ready ? k_success : driver::k_not_ready; };
  made.stream_create = [](driver::stream_handle* stream, unsigned flags, int priority) {
    fake.calls.push_back("stream " + std::to_string(priority));
    if (flags != driver::k_non_blocking) return k_invalid_value;
    return ++fake.streams, *stream = k_second_stream, k_success;
  };
  made.stream_destroy = [](driver::stream_handle stream) {
    return --fake.streams, stream == k_second_stream ? k_success : k_invalid_value;
  };
  made.stream_wait = [](driver::stream_handle stream, driver::event_handle event, unsigned) {
    fake.calls.push_back(std::string("wait") + (stream == k_second_stream ? " second" : ""));
    return event == k_event ? k_success : k_invalid_value;
  };
  made.event_create = [](driver::event_handle* event, unsigned flags) {
    fake.calls.push_back(flags == driver::k_untimed ? "untimed event" : "event");
    return ++fake.events, *event = k_event, k_success;
  };
  made.event_destroy = [](driver::event_handle) { return --fake.events, k_success; };
  made.event_record = [](driver::event_handle, driver::stream_handle stream) {
    fake.calls.push_back(stream == k_stream ? "record" : "record elsewhere");
    return k_success;
  };
  made.event_query = [](driver::event_handle) { return fake.event_state; };
  made.event_synchronize = [](driver::event_handle) { return fake.calls.push_back("synchronize event"), k_success; };
  made.event_elapsed = [](float* milliseconds, driver::event_handle, driver::event_handle) { return *milliseconds = 1.5F, k_success; };
}

driver::api make_api() {
  driver::api made{};
  add_device(made);
  add_kernels(made);
  add_memory(made);
  add_streams(made);
  return made;
}

const kernel_request k_plain{"a.cuh", "a::plain", 256, 4096};
const kernel_request k_wide{"a.cuh", "a::wide", 512, 0, 16};

class cuda_runtime : public testing::Test {
 protected:
  void SetUp() override {
    fake = {};
    std::string pattern = (fs::temp_directory_path() / "ballast-runtime-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    std::vector<image> images;
    for (const kernel_request& each : {k_plain, k_wide})
      images.push_back({request_text(each, "sm_90a"), 13000, "mangled", "code of " + each.expression, {}});
    write_bundle(folder / "kernels.bundle", images);
    kernels = std::make_unique<kernel_cache>(kernel_cache::settings{
        .folder = {}, .bundle = folder / "kernels.bundle", .compiler = [](int) -> const nvrtc::compiler* { return nullptr; }});
  }
  void TearDown() override { fs::remove_all(folder); }
  std::shared_ptr<device> open(int driver_version = 13000) { return open_device(api, driver_version, k_ours, k_device, *kernels); }

  const driver::api api = make_api();
  fs::path folder;
  std::unique_ptr<kernel_cache> kernels;
};

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

TEST_F(cuda_runtime, allocates_in_stream_order) {
  const auto on = open();
  {
    const device_buffer buffer(on, 1000, k_stream);
    on->zero(buffer.data(), 1000, k_stream);
    EXPECT_EQ(static_cast<char*>(buffer.data())[999], 0);
  }
  { const device_buffer nothing(on, 0, k_stream); }
  EXPECT_THAT(fake.calls, ElementsAre("allocate", "fill", "release", "allocate", "release"));
  fake.out_of_memory = true;
  EXPECT_THROW(on->allocate(1, k_stream), std::bad_alloc);
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
