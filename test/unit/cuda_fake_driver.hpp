// A driver of the tests' own that writes down what it is asked, and the fixture of tests of the device over it.
// Layer: unit tests.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/runtime/runtime.hpp"

namespace ballast::cuda::fakes {

namespace fs = std::filesystem;

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
  stream made_stream = reinterpret_cast<stream>(0x70);  // the stream that the driver creates
};
inline fake_state fake;

inline driver::context const k_ours = reinterpret_cast<driver::context>(0x10);
inline driver::context const k_callers = reinterpret_cast<driver::context>(0x20);
inline driver::memory_pool const k_pool = reinterpret_cast<driver::memory_pool>(0x30);
inline driver::function const k_function = reinterpret_cast<driver::function>(0x40);
inline driver::module_handle const k_module = reinterpret_cast<driver::module_handle>(0x50);
inline stream const k_stream = reinterpret_cast<stream>(0x60);
inline stream const k_second_stream = reinterpret_cast<stream>(0x70);
inline driver::event_handle const k_event = reinterpret_cast<driver::event_handle>(0x80);
inline constexpr int k_device = 3;

using driver::k_success, driver::k_invalid_value;

inline void add_device(driver::api& made) {
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

inline void add_kernels(driver::api& made) {
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

inline void add_memory(driver::api& made) {
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

inline void add_streams(driver::api& made) {
  made.stream_capturing = [](driver::stream_handle stream, int* status) {
    return *status = fake.capturing, stream == nullptr ? k_invalid_value : k_success;
  };
  made.stream_synchronize = [](driver::stream_handle) { return fake.calls.push_back("synchronize"), k_success; };
  made.stream_query = [](driver::stream_handle) { return ++fake.queries > fake.queries_until_ready ? k_success : driver::k_not_ready; };
  made.stream_create = [](driver::stream_handle* stream, unsigned flags, int priority) {
    fake.calls.push_back("stream " + std::to_string(priority));
    if (flags != driver::k_non_blocking) return k_invalid_value;
    return ++fake.streams, *stream = fake.made_stream, k_success;
  };
  made.stream_destroy = [](driver::stream_handle stream) {
    fake.calls.push_back("destroy stream");
    return --fake.streams, stream == fake.made_stream ? k_success : k_invalid_value;
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

inline driver::api make_api() {
  driver::api made{};
  add_device(made);
  add_kernels(made);
  add_memory(made);
  add_streams(made);
  return made;
}

inline const kernel_request k_plain{"a.cuh", "a::plain", 256, 4096};
inline const kernel_request k_wide{"a.cuh", "a::wide", 512, 0, 16};

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

}  // namespace ballast::cuda::fakes
