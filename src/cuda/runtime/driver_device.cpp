// Implements device with the CUDA driver.
// Launches, copies, fills, stream-ordered allocations and waits for events do not synchronise and only use their stream, so they can be
// captured into a CUDA graph.
#include "cuda/runtime/runtime.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/device/blas.hpp"
#include "cuda/memory/idle_memory.hpp"

namespace ballast::cuda {

namespace {

using driver::in_context;

class driver_kernel final : public kernel {
 public:
  std::string expression;
  driver::function function = nullptr;
  unsigned threads = 0;
  unsigned shared = 0;
  unsigned cluster = 1;
  bool overlaps = false;
  std::size_t arguments = 1;
  std::vector<std::size_t> argument_bytes;  // the size of each argument in the compiled code; empty if the driver does not report it
};

class driver_event final : public stream_event {
 public:
  driver_event(const driver::api& functions, driver::context context, bool timed) : timed(timed), functions_(functions), context_(context) {
    const in_context scope(functions_, context_);
    driver::check(functions_, functions_.event_create(&handle, timed ? 0 : driver::k_untimed), "cuEventCreate");
  }
  ~driver_event() override {
    const in_context scope(functions_, context_, std::nothrow);
    if (scope.status() == driver::k_success) functions_.event_destroy(handle);
  }
  const bool timed;
  driver::event_handle handle = nullptr;

 private:
  const driver::api& functions_;
  driver::context context_;
};

const driver_event& ours(const stream_event& event) { return static_cast<const driver_event&>(event); }

// Returns the launch configuration for the driver, which may point to the storage `attributes`.
using launch_attributes = std::array<driver::launch_attribute, 3>;
driver::launch_config configure(const driver_kernel& which, std::int64_t blocks, stream on, launch_attributes& attributes) {
  driver::launch_config config{};
  config.grid[0] = static_cast<unsigned>(blocks);
  config.grid[1] = config.grid[2] = 1;
  config.block[0] = which.threads;
  config.block[1] = config.block[2] = 1;
  config.shared_bytes = which.shared;
  config.stream = on;
  config.attributes = attributes.data();
  if (which.cluster > 1) {
    driver::launch_attribute& cluster = attributes[config.attribute_count++];
    cluster.id = driver::k_cluster_dimension;
    cluster.value.cluster[0] = which.cluster;
    cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
    // With the default policy, spread, some multiprocessors of a GPC stay idle if the cluster size does not divide their number.
    driver::launch_attribute& policy = attributes[config.attribute_count++];
    policy.id = driver::k_cluster_policy;
    policy.value.flag = driver::k_cluster_balances;
  }
  if (which.overlaps) {
    driver::launch_attribute& overlap = attributes[config.attribute_count++];
    overlap.id = driver::k_programmatic_serialization;
    overlap.value.flag = 1;
  }
  if (config.attribute_count == 0) config.attributes = nullptr;
  return config;
}

driver::address as_address(const void* memory) { return reinterpret_cast<driver::address>(memory); }

// Returns the seconds that a call waits for work on a device before it throws device_error: $BALLAST_DEVICE_PATIENCE; 0, wait for ever, if
// that is not set. Throws invalid_argument_error unless it is a number that is not negative.
double patience() {
  const char* const given = std::getenv("BALLAST_DEVICE_PATIENCE");
  if (given == nullptr || *given == '\0') return 0;
  char* end = nullptr;
  const double seconds = std::strtod(given, &end);
  if (*end != '\0' || !(seconds >= 0) || !std::isfinite(seconds))
    throw invalid_argument_error(fmt::format("BALLAST_DEVICE_PATIENCE: expected a number of seconds, at least 0, got \"{}\"", given));
  return seconds;
}

class driver_device final : public device {
 public:
  driver_device(const driver::api& functions, int driver_version, driver::context context, driver::device_id id, kernel_cache& kernels)
      : functions_(functions),
        driver_version_(driver_version),
        context_(context),
        id_(id),
        kernels_(kernels),
        about_(read_capabilities(functions, id)) {
    check(functions_.default_pool(&pool_, id_), "cuDeviceGetDefaultMemPool");
    // Without a release threshold every synchronisation returns the pool's memory to the system, and the next call must allocate it again.
    // A threshold that the application has set is not changed.
    std::uint64_t kept = 0;
    check(functions_.pool_get(pool_, driver::k_release_threshold, &kept), "cuMemPoolGetAttribute");
    if (kept == 0) {
      kept = std::numeric_limits<std::uint64_t>::max();
      check(functions_.pool_set(pool_, driver::k_release_threshold, &kept), "cuMemPoolSetAttribute");
    }
    check(functions_.device_attribute(&has_clusters_, driver::k_has_clusters, id_), "cuDeviceGetAttribute");
  }

  const capabilities& about() const noexcept override { return about_; }

  // Memory of the device's own streams is kept for the next call (idle_memory): the pool takes about 14 µs for an allocation, and far
  // longer for a large one that it composes of other pieces than before.
  void* allocate(std::int64_t bytes, stream on) override {
    const bool kept = idle_.serves(on, bytes);
    const std::int64_t size = kept ? idle_memory::rounded(bytes) : std::max<std::int64_t>(bytes, 1);
    if (kept) {
      if (void* const idle = idle_.take(size, on); idle != nullptr) return idle;
    }
    const in_context scope(functions_, context_);
    driver::address memory = 0;
    driver::result got = functions_.allocate(&memory, static_cast<std::size_t>(size), pool_, on);
    if (got == driver::k_out_of_memory) {
      return_idle();
      got = functions_.allocate(&memory, static_cast<std::size_t>(size), pool_, on);
    }
    check(got, "cuMemAllocFromPoolAsync");
    void* const made = reinterpret_cast<void*>(memory);  // NOLINT(performance-no-int-to-ptr): the driver gives addresses as integers
    if (kept) idle_.note({made, size, on});
    return made;
  }

  void release(void* memory, stream on) noexcept override {
    const in_context scope(functions_, context_, std::nothrow);
    // Fails only if the driver has shut down or the context is lost; then the memory is already released.
    if (scope.status() != driver::k_success) return;
    if (!idle_.keep(memory, on, pool_release{functions_})) functions_.release(as_address(memory), on);
  }

  // Returns the free memory of the device plus the unused memory of the pool and of the device's own streams.
  std::int64_t available_memory() override {
    const in_context scope(functions_, context_);
    std::size_t free = 0, total = 0;
    std::uint64_t reserved = 0, used = 0;
    check(functions_.memory_info(&free, &total), "cuMemGetInfo");
    check(functions_.pool_get(pool_, driver::k_reserved_now, &reserved), "cuMemPoolGetAttribute");
    check(functions_.pool_get(pool_, driver::k_used_now, &used), "cuMemPoolGetAttribute");
    return static_cast<std::int64_t>(free) + static_cast<std::int64_t>(reserved - used) + idle_.idle_bytes();
  }

  bool accessible(const void* memory) const noexcept override {
    const in_context scope(functions_, context_, std::nothrow);
    if (scope.status() != driver::k_success) return false;
    constexpr std::array attributes{driver::k_memory_type, driver::k_is_managed, driver::k_device_ordinal};
    std::uint64_t type = 0, managed = 0, ordinal = 0;  // wide enough for any width that the driver writes
    std::array<void*, attributes.size()> values{&type, &managed, &ordinal};
    if (functions_.pointer_get(attributes.size(), attributes.data(), values.data(), as_address(memory)) != driver::k_success) return false;
    if (static_cast<std::uint8_t>(managed) != 0) return true;
    return static_cast<unsigned>(type) == driver::k_memory_on_device && static_cast<int>(ordinal) == id_;
  }

  // Memory of a pool has its own list of devices; cuCtxEnablePeerAccess does not matter to it.
  bool opens_to(const device& other) override {
    const auto* const peer = dynamic_cast<const driver_device*>(&other);
    if (peer == nullptr) return false;
    if (peer->id_ == id_) return true;
    const in_context scope(functions_, context_);
    int does = 0;
    check(functions_.can_reach(&does, peer->id_, id_), "cuDeviceCanAccessPeer");
    if (does == 0) return false;
    const driver::pool_access wanted{driver::k_place_device, peer->id_, driver::k_read_and_write};
    return functions_.pool_open(pool_, &wanted, 1) == driver::k_success;
  }

  void copy(void* to, const void* from, std::int64_t bytes, stream on) override {
    if (bytes == 0) return;
    const in_context scope(functions_, context_);
    check(functions_.copy(as_address(to), as_address(from), static_cast<std::size_t>(bytes), on), "cuMemcpyAsync");
  }

  void copy_columns(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch, std::int64_t bytes, std::int64_t columns,
                    stream on) override {
    if (bytes == 0 || columns == 0) return;
    const in_context scope(functions_, context_);
    const auto side = [](const void* memory, std::int64_t pitch) {
      return driver::copied_side{.type = driver::k_any_memory, .device = as_address(memory), .pitch = static_cast<std::size_t>(pitch)};
    };
    const driver::copied_rectangle wanted{side(from, from_pitch), side(to, to_pitch), static_cast<std::size_t>(bytes),
                                          static_cast<std::size_t>(columns)};
    check(functions_.copy_2d(&wanted, on), "cuMemcpy2DAsync");
  }

  void zero(void* memory, std::int64_t bytes, stream on) override {
    if (bytes == 0) return;
    const in_context scope(functions_, context_);
    check(functions_.fill(as_address(memory), 0, static_cast<std::size_t>(bytes), on), "cuMemsetD8Async");
  }

  const kernel& load(const kernel_request& wanted) override {
    if (const kernel* const known = loaded(wanted); known != nullptr) return *known;
    check_fits(wanted);
    // Without the lock, so that threads can compile different kernels at the same time.
    const auto made = kernels_.get(wanted, about_.major, about_.minor, driver_version_ / 1000).made;
    const std::scoped_lock lock(mutex_);
    auto at = loaded_.find(wanted);
    if (at == loaded_.end()) at = loaded_.emplace(wanted, load_module(wanted, *made)).first;
    return *at->second;
  }

  std::vector<const kernel*> load_all(std::span<const kernel_request> wanted) override {
    kernels_.prepare(not_loaded(wanted), about_.major, about_.minor, driver_version_ / 1000);
    return device::load_all(wanted);
  }

  std::string why_not_ready(std::span<const kernel_request> wanted, bool compile) override {
    try {
      return kernels_.why_not_ready(not_loaded(wanted), about_.major, about_.minor, driver_version_ / 1000, compile);
    } catch (const unsupported_error& unfit) {
      return unfit.what();
    }
  }

  bool captured(stream on) override {
    const in_context scope(functions_, context_);
    int status = 0;
    // The default stream, by either handle, is never captured, and a query about it during the capture of another stream is an error.
    const auto legacy = reinterpret_cast<stream>(std::uintptr_t{1});  // NOLINT(performance-no-int-to-ptr): CU_STREAM_LEGACY
    if (on != nullptr && on != legacy) check(functions_.stream_capturing(on, &status), "cuStreamIsCapturing");
    return status != 0;
  }

  void launch(const kernel& which, std::int64_t blocks, std::span<const kernel_argument> given, stream on) override {
    const auto& ours = static_cast<const driver_kernel&>(which);
    if (blocks < 1 || blocks > k_most_blocks)
      throw error(fmt::format("{}: expected 1 to {} blocks, got {}", ours.expression, k_most_blocks, blocks));
    if (given.size() > k_most_arguments)
      throw error(fmt::format("{}: expected at most {} arguments, got {}", ours.expression, k_most_arguments, given.size()));
    check_arguments(ours, given);
    check_answers();
    const in_context scope(functions_, context_);
    launch_attributes attributes{};
    const driver::launch_config config = configure(ours, blocks, on, attributes);
    std::array<void*, k_most_arguments> arguments{};  // the driver copies the arguments before the call returns
    for (std::size_t i = 0; i < given.size(); ++i) arguments[i] = const_cast<void*>(given[i].data);
    check(functions_.launch(&config, ours.function, arguments.data(), nullptr), ours.expression.c_str());
  }

  std::int64_t resident_blocks(const kernel& which) override {
    const auto& ours = static_cast<const driver_kernel&>(which);
    const in_context scope(functions_, context_);
    int count = 0;
    if (ours.cluster > 1) {
      launch_attributes attributes{};
      const driver::launch_config config = configure(ours, ours.cluster, nullptr, attributes);
      check(functions_.resident_clusters(&count, ours.function, &config), "cuOccupancyMaxActiveClusters");
      return std::int64_t{count} * ours.cluster;
    }
    check(functions_.resident_blocks(&count, ours.function, static_cast<int>(ours.threads), ours.shared),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    return std::int64_t{count} * about_.multiprocessors;
  }

  void synchronize(stream on) override {
    check_answers();
    const in_context scope(functions_, context_);
    if (patience_ > 0) await([&] { return functions_.stream_query(on); });
    check(functions_.stream_synchronize(on), "cuStreamSynchronize");
  }

  void* allocate_pinned(std::int64_t bytes) override {
    const in_context scope(functions_, context_);
    void* memory = nullptr;
    check(functions_.host_allocate(&memory, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)), 0), "cuMemHostAlloc");
    return memory;
  }

  void release_pinned(void* memory) noexcept override {
    if (is_silent_) return;  // cuMemFreeHost would wait for the device
    const in_context scope(functions_, context_, std::nothrow);
    if (scope.status() == driver::k_success) functions_.host_release(memory);
  }

  stream make_stream(bool urgent) override {
    const in_context scope(functions_, context_);
    int least = 0, greatest = 0;  // the greatest priority is the smallest number
    check(functions_.context_priorities(&least, &greatest), "cuCtxGetStreamPriorityRange");
    stream made = nullptr;
    check(functions_.stream_create(&made, driver::k_non_blocking, urgent ? greatest : least), "cuStreamCreateWithPriority");
    idle_.serve(made);
    return made;
  }

  void release_stream(stream made) noexcept override {
    const in_context scope(functions_, context_, std::nothrow);
    if (scope.status() != driver::k_success) return;
    idle_.forget(made, pool_release{functions_});
    functions_.stream_destroy(made);
  }

  std::unique_ptr<stream_event> make_event(bool timed) override { return std::make_unique<driver_event>(functions_, context_, timed); }

  void record(stream_event& event, stream on) override {
    const in_context scope(functions_, context_);
    check(functions_.event_record(ours(event).handle, on), "cuEventRecord");
  }

  void wait(const stream_event& event, stream on) override {
    const in_context scope(functions_, context_);
    check(functions_.stream_wait(on, ours(event).handle, 0), "cuStreamWaitEvent");
  }

  bool passed(const stream_event& event) override {
    const in_context scope(functions_, context_);
    const driver::result got = functions_.event_query(ours(event).handle);
    if (got == driver::k_not_ready) return false;
    check(got, "cuEventQuery");
    return true;
  }

  double milliseconds(const stream_event& first, const stream_event& last) override {
    if (!ours(first).timed || !ours(last).timed) throw error("milliseconds: expected timed events, got one that is not");
    const in_context scope(functions_, context_);
    check(functions_.event_synchronize(ours(last).handle), "cuEventSynchronize");
    float elapsed = 0;
    check(functions_.event_elapsed(&elapsed, ours(first).handle, ours(last).handle), "cuEventElapsedTime");
    return elapsed;
  }

  std::string why_no_blas() override { return why_no_cublas(); }
  std::unique_ptr<blas> make_blas(blas_math math, stream on) override {
    return cublas::make(cublas::found(), functions_, context_, math, on);
  }

 private:
  static constexpr std::size_t k_most_arguments = 16;
  static constexpr std::int64_t k_idle_part = 16;  // idle memory is at most so much of the device's
  static constexpr std::int64_t k_most_blocks = std::numeric_limits<std::int32_t>::max();
  static constexpr int k_portable_cluster = 8;             // blocks; larger clusters must be allowed for each kernel
  static constexpr std::int64_t k_reserved_shared = 1024;  // bytes that a multiprocessor reserves for each block

  // Orders loaded kernels by code and launch parameters. Requests that differ only in their budgets share a kernel.
  struct by_what_is_loaded {
    bool operator()(const kernel_request& a, const kernel_request& b) const {
      const auto parts = [](const kernel_request& r) {
        return std::tie(r.threads, r.shared, r.cluster, r.blocks, r.overlaps, r.arguments, r.expression, r.header);
      };
      return parts(a) < parts(b);
    }
  };

  // Returns the kernel; null if it is not loaded. A plan that is constructed again needs only this call, which formats no text and reads no
  // file.
  const kernel* loaded(const kernel_request& wanted) {
    const std::scoped_lock lock(mutex_);
    const auto at = loaded_.find(wanted);
    return at == loaded_.end() ? nullptr : at->second.get();
  }

  // Returns the kernels that are not loaded. Throws unsupported_error if one does not fit this device.
  std::vector<kernel_request> not_loaded(std::span<const kernel_request> wanted) {
    std::vector<kernel_request> missing;
    for (const kernel_request& each : wanted) {
      if (loaded(each) != nullptr) continue;
      check_fits(each);
      missing.push_back(each);
    }
    return missing;
  }

  void check(driver::result got, const char* call) const { driver::check(functions_, got, call); }

  // Returns the idle memory of the device's own streams to the pool, and waits until the pool can use it for other streams. Those streams
  // may be destroyed meanwhile, so it waits for events.
  void return_idle() {
    std::vector<driver::event_handle> behind;
    behind.reserve(idle_memory::k_most_blocks);
    idle_.drop_all([&](const idle_memory::block& each) {
      pool_release{functions_}(each);
      driver::event_handle made = nullptr;
      if (functions_.event_create(&made, driver::k_untimed) != driver::k_success) return;
      (void)functions_.event_record(made, each.order);
      behind.push_back(made);
    });
    const auto forget = [&] {
      for (const driver::event_handle each : behind) functions_.event_destroy(each);
    };
    try {
      for (const driver::event_handle each : behind) {
        if (patience_ > 0) await([&] { return functions_.event_query(each); });
        check(functions_.event_synchronize(each), "cuEventSynchronize");
      }
    } catch (...) {
      forget();
      throw;
    }
    forget();
  }
  // Releases memory to the pool. The context is current.
  struct pool_release {
    const driver::api& functions;
    void operator()(const idle_memory::block& each) const { functions.release(as_address(each.memory), each.order); }
  };

  // Waits until work has ended or failed, which query() says, at most patience_ seconds. Throws device_error after that: a kernel that
  // never ends cannot be ended by this process, so the device is not used again and its memory is not given back.
  template <class Query>
  void await(Query&& query) {
    using clock = std::chrono::steady_clock;
    const auto began = clock::now();
    while (query() == driver::k_not_ready) {
      const std::chrono::duration<double> waited = clock::now() - began;
      if (waited.count() > patience_) {
        is_silent_ = true;
        check_answers();
      }
      // Short work ends while the thread is awake.
      if (waited > std::chrono::microseconds(200)) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  void check_answers() const {
    if (is_silent_)
      throw device_error(
          fmt::format("{}: a stream's work did not end within {} seconds (BALLAST_DEVICE_PATIENCE); this process does not use the "
                      "device again",
                      about_.name, patience_));
  }

  static void check_arguments(const driver_kernel& which, std::span<const kernel_argument> given) {
    if (which.arguments != given.size())
      throw error(fmt::format("{}: expected {} arguments, got {}", which.expression, which.arguments, given.size()));
    for (std::size_t i = 0; i < which.argument_bytes.size(); ++i) {
      if (which.argument_bytes[i] != given[i].bytes)
        throw error(fmt::format("{}: expected an argument of {} bytes, got {}", which.expression, which.argument_bytes[i], given[i].bytes));
    }
  }

  void check_fits(const kernel_request& wanted) const {
    if (wanted.cluster > 1 && has_clusters_ == 0)
      throw unsupported_error(fmt::format("{}: expected a device with thread-block clusters, got {} ({}.{})", wanted.expression,
                                          about_.name, about_.major, about_.minor));
    if (wanted.shared > about_.shared_per_block)
      throw unsupported_error(fmt::format("{}: expected at most the {} bytes of shared memory that {} has for a block, got {}",
                                          wanted.expression, about_.shared_per_block, about_.name, wanted.shared));
  }

  std::unique_ptr<driver_kernel> load_module(const kernel_request& wanted, const image& code) {
    const in_context scope(functions_, context_);
    auto made = std::make_unique<driver_kernel>();
    made->expression = wanted.expression;
    made->threads = static_cast<unsigned>(wanted.threads);
    made->shared = static_cast<unsigned>(wanted.shared);
    made->cluster = static_cast<unsigned>(wanted.cluster);
    made->overlaps = wanted.overlaps && about_.major >= 9;
    made->arguments = static_cast<std::size_t>(wanted.arguments);

    std::array<char, 4096> log{};
    const std::array keys{static_cast<int>(driver::k_error_log), static_cast<int>(driver::k_error_log_bytes)};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes a size in the place of a pointer
    std::array<void*, keys.size()> values{log.data(), reinterpret_cast<void*>(log.size())};
    driver::module_handle module = nullptr;
    const driver::result loaded = functions_.module_load(&module, code.code.data(), keys.size(), keys.data(), values.data());
    if (loaded == driver::k_out_of_memory) throw std::bad_alloc();
    if (loaded != driver::k_success)
      throw unsupported_error(fmt::format("{}: code of CUDA {}.{} does not load with a driver for CUDA {}.{}: {}{}{}", wanted.expression,
                                          code.toolkit / 1000, code.toolkit % 1000 / 10, driver_version_ / 1000,
                                          driver_version_ % 1000 / 10, describe(functions_, loaded), log[0] == '\0' ? "" : "\n",
                                          log.data()));
    try {
      check(functions_.module_function(&made->function, module, code.name.c_str()), "cuModuleGetFunction");
      if (made->shared > 0)  // required for more than 48 KiB
        check(functions_.function_set(made->function, driver::k_max_dynamic_shared, static_cast<int>(made->shared)), "cuFuncSetAttribute");
      // Shared memory and L1 cache use the same memory. Reserve as much shared memory as the intended resident blocks need, and leave the
      // rest as cache for their tables.
      if (wanted.blocks > 0 && about_.shared_per_multiprocessor > 0) {
        int of_code = 0;  // bytes of static shared memory of the kernel
        check(functions_.function_get(&of_code, driver::k_static_shared, made->function), "cuFuncGetAttribute");
        const std::int64_t needed = 100 * wanted.blocks * (wanted.shared + of_code + k_reserved_shared);
        const std::int64_t percent = (needed + about_.shared_per_multiprocessor - 1) / about_.shared_per_multiprocessor;
        check(functions_.function_set(made->function, driver::k_shared_carveout, static_cast<int>(std::min<std::int64_t>(percent, 100))),
              "cuFuncSetAttribute");
      }
      if (wanted.cluster > k_portable_cluster)
        check(functions_.function_set(made->function, driver::k_nonportable_cluster, 1), "cuFuncSetAttribute");
      // Queries only existing parameters: for others the driver returns an error, which compute-sanitizer reports.
      for (std::size_t i = 0; functions_.parameter != nullptr && i < static_cast<std::size_t>(wanted.arguments); ++i) {
        std::size_t offset = 0, bytes = 0;
        check(functions_.parameter(made->function, i, &offset, &bytes), "cuFuncGetParamInfo");
        made->argument_bytes.push_back(bytes);
      }
    } catch (...) {
      functions_.module_unload(module);
      throw;
    }
    return made;
  }

  const driver::api& functions_;
  int driver_version_;
  driver::context context_;
  driver::device_id id_;
  kernel_cache& kernels_;
  capabilities about_;
  int has_clusters_ = 0;
  const double patience_ = patience();
  std::atomic<bool> is_silent_ = false;
  driver::memory_pool pool_ = nullptr;
  // Nothing releases its blocks when the device ends, since the driver may have ended before; they belong to the context.
  idle_memory idle_{about_.memory / k_idle_part};
  std::mutex mutex_;
  std::map<kernel_request, std::unique_ptr<driver_kernel>, by_what_is_loaded> loaded_;
};

}  // namespace

capabilities read_capabilities(const driver::api& functions, driver::device_id id) {
  const auto attribute = [&](driver::device_attribute which) {
    int value = 0;
    driver::check(functions, functions.device_attribute(&value, which, id), "cuDeviceGetAttribute");
    return value;
  };
  std::array<char, 256> name{};
  std::size_t memory = 0;
  driver::check(functions, functions.device_name(name.data(), static_cast<int>(name.size()), id), "cuDeviceGetName");
  driver::check(functions, functions.device_memory(&memory, id), "cuDeviceTotalMem");
  return {.name = name.data(),
          .major = attribute(driver::k_capability_major),
          .minor = attribute(driver::k_capability_minor),
          .multiprocessors = attribute(driver::k_multiprocessors),
          .threads_per_multiprocessor = attribute(driver::k_threads_per_multiprocessor),
          .registers_per_multiprocessor = attribute(driver::k_registers_per_multiprocessor),
          .shared_per_multiprocessor = attribute(driver::k_shared_per_multiprocessor),
          .shared_per_block = attribute(driver::k_shared_per_block_opt_in),
          .l2_cache = attribute(driver::k_l2_cache),
          .memory = static_cast<std::int64_t>(memory)};
}

std::shared_ptr<device> open_device(const driver::api& functions, int driver_version, driver::context context, driver::device_id id,
                                    kernel_cache& kernels) {
  return std::make_shared<driver_device>(functions, driver_version, context, id, kernels);
}

}  // namespace ballast::cuda
