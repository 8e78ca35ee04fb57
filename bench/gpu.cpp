// Binds the few functions of libcuda.so.1 that it needs, and implements gpu.hpp with them.
#include "gpu.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#include <ballast/error.hpp>

#include "stopwatch.hpp"

#include "cuda/system/library.hpp"

namespace ballast::bench::gpu {
namespace {

using address = unsigned long long;
enum attribute : int { k_multiprocessors = 16, k_l2 = 38, k_major = 75, k_minor = 76 };
constexpr int k_out_of_memory = 2;
constexpr unsigned k_non_blocking = 1;
constexpr int k_capture_relaxed = 2;

// The functions of the CUDA driver. It has many members because each function that the benchmarks call is one.
struct driver {
  std::string missing;
  int (*init)(unsigned);
  int (*error_string)(int, const char**);
  int (*driver_version)(int*);
  int (*device_count)(int*);
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*device_attribute)(int*, int, int);
  int (*primary_retain)(void**, int);
  int (*set_current)(void*);
  int (*memory_info)(std::size_t*, std::size_t*);
  int (*allocate)(address*, std::size_t);
  int (*release)(address);
  int (*copy)(address, address, std::size_t, void*);
  int (*fill)(address, unsigned char, std::size_t, void*);
  int (*stream_create)(void**, unsigned);
  int (*stream_synchronize)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_record)(void*, void*);
  int (*event_synchronize)(void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*graph_instantiate)(void**, void*, unsigned long long);
  int (*graph_destroy)(void*);
  int (*graph_launch)(void*, void*);
  int (*graph_release)(void*);

  driver() {
    const cuda::opened_library library = cuda::open_library(cuda::k_driver_library);
    missing = library.why;
    if (library.handle == nullptr) return;
    const auto find = [&](auto& into, const char* name) {
      if (!cuda::find_function(library.handle, name, into) && missing.empty())
        missing = std::string("the CUDA driver has no function ") + name;
    };
    find(init, "cuInit");
    find(error_string, "cuGetErrorString");
    find(driver_version, "cuDriverGetVersion");
    find(device_count, "cuDeviceGetCount");
    find(device_get, "cuDeviceGet");
    find(device_name, "cuDeviceGetName");
    find(device_attribute, "cuDeviceGetAttribute");
    find(primary_retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    find(memory_info, "cuMemGetInfo_v2");
    find(allocate, "cuMemAlloc_v2");
    find(release, "cuMemFree_v2");
    find(copy, "cuMemcpyAsync");
    find(fill, "cuMemsetD8Async");
    find(stream_create, "cuStreamCreate");
    find(stream_synchronize, "cuStreamSynchronize");
    find(event_create, "cuEventCreate");
    find(event_record, "cuEventRecord");
    find(event_synchronize, "cuEventSynchronize");
    find(event_elapsed, "cuEventElapsedTime");
    find(begin_capture, "cuStreamBeginCapture_v2");
    find(end_capture, "cuStreamEndCapture");
    find(graph_instantiate, "cuGraphInstantiateWithFlags");
    find(graph_destroy, "cuGraphDestroy");
    find(graph_launch, "cuGraphLaunch");
    find(graph_release, "cuGraphExecDestroy");
    if (!missing.empty()) return;
    int count = 0;
    if (const int status = init(0); status != 0) {
      missing = "the CUDA driver does not start: " + words(status);
    } else if (device_count(&count) != 0 || count == 0) {
      missing = "the CUDA driver sees no device";
    }
  }

  std::string words(int status) const {
    const char* text = nullptr;
    if (error_string(status, &text) != 0 || text == nullptr) text = "unknown error";
    return std::string(text) + " (" + std::to_string(status) + ")";
  }
};

const driver& found() {
  static const driver& made = *new driver;
  return made;
}

const driver& bound() {
  const driver& made = found();
  if (!made.missing.empty()) throw unsupported_error(made.missing);
  return made;
}

void check(int status, const char* what) {
  if (status == 0) return;
  if (status == k_out_of_memory) throw std::bad_alloc();
  throw error(std::string("CUDA driver: ") + what + ": " + bound().words(status));
}

bool pretended = false;

address of(const void* memory) { return reinterpret_cast<address>(memory); }

void* make_event() {
  void* made = nullptr;
  check(bound().event_create(&made, 0), "cuEventCreate");
  return made;
}

}  // namespace

std::string why_none() { return pretended ? "" : found().missing; }

void pretend() { pretended = true; }

int devices() {
  if (pretended) return 1;
  int count = 0;
  check(bound().device_count(&count), "cuDeviceGetCount");
  return count;
}

description open(int number) {
  if (pretended) {
    description host;
    host.name = "no GPU: the host's memory";
    host.l2_bytes = std::int64_t{1} << 20;
    return host;
  }
  const driver& d = bound();
  int device = 0;
  check(d.device_get(&device, number), "cuDeviceGet");
  void* context = nullptr;
  check(d.primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(d.set_current(context), "cuCtxSetCurrent");
  description made;
  char name[256] = {};
  check(d.device_name(name, sizeof name, device), "cuDeviceGetName");
  made.name = name;
  int version = 0;
  check(d.driver_version(&version), "cuDriverGetVersion");
  made.driver = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  const auto value = [&](attribute which) {
    int got = 0;
    check(d.device_attribute(&got, which, device), "cuDeviceGetAttribute");
    return got;
  };
  made.major = value(k_major);
  made.minor = value(k_minor);
  made.multiprocessors = value(k_multiprocessors);
  made.l2_bytes = value(k_l2);
  std::size_t free = 0, total = 0;
  check(d.memory_info(&free, &total), "cuMemGetInfo");
  made.memory_bytes = static_cast<std::int64_t>(total);
  return made;
}

std::int64_t free_bytes() {
  if (pretended) return 0;
  synchronize();
  std::size_t free = 0, total = 0;
  check(bound().memory_info(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

buffer::buffer(std::int64_t bytes) : bytes_(bytes) {
  if (pretended) {
    memory_ = std::aligned_alloc(256, static_cast<std::size_t>((bytes + 255) / 256 * 256));
    if (memory_ == nullptr) throw std::bad_alloc();
    return;
  }
  address made = 0;
  check(bound().allocate(&made, static_cast<std::size_t>(bytes)), "cuMemAlloc");
  memory_ = reinterpret_cast<void*>(made);
}

buffer::~buffer() {
  if (memory_ == nullptr) return;
  if (pretended) {
    std::free(memory_);
  } else {
    (void)bound().release(of(memory_));
  }
}

void* stream() {
  if (pretended) return nullptr;
  thread_local void* const made = [] {
    void* created = nullptr;
    check(bound().stream_create(&created, k_non_blocking), "cuStreamCreate");
    return created;
  }();
  return made;
}

void copy(void* to, const void* from, std::int64_t bytes) {
  if (pretended) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  check(bound().copy(of(to), of(from), static_cast<std::size_t>(bytes), stream()), "cuMemcpyAsync");
}

void fill(void* memory, unsigned char value, std::int64_t bytes) {
  if (pretended) {
    std::memset(memory, value, static_cast<std::size_t>(bytes));
    return;
  }
  check(bound().fill(of(memory), value, static_cast<std::size_t>(bytes), stream()), "cuMemsetD8Async");
}

void synchronize() {
  if (pretended) return;
  check(bound().stream_synchronize(stream()), "cuStreamSynchronize");
}

double seconds_of(const std::function<void()>& work) {
  if (pretended) {
    const stopwatch time;
    work();
    return time.seconds();
  }
  static void* const start = make_event();
  static void* const stop = make_event();
  const driver& d = bound();
  check(d.event_record(start, stream()), "cuEventRecord");
  work();
  check(d.event_record(stop, stream()), "cuEventRecord");
  check(d.event_synchronize(stop), "cuEventSynchronize");
  float milliseconds = 0;
  check(d.event_elapsed(&milliseconds, start, stop), "cuEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

graph::graph(const std::function<void()>& work) {
  if (pretended) {
    ready_ = new std::function<void()>(work);
    return;
  }
  const driver& d = bound();
  check(d.begin_capture(stream(), k_capture_relaxed), "cuStreamBeginCapture");
  void* captured = nullptr;
  try {
    work();
  } catch (...) {
    if (d.end_capture(stream(), &captured) == 0 && captured != nullptr) (void)d.graph_destroy(captured);
    throw;
  }
  check(d.end_capture(stream(), &captured), "cuStreamEndCapture");
  const int status = d.graph_instantiate(&ready_, captured, 0);
  (void)d.graph_destroy(captured);
  check(status, "cuGraphInstantiate");
}

graph::~graph() {
  if (ready_ == nullptr) return;
  if (pretended) {
    delete static_cast<std::function<void()>*>(ready_);
  } else {
    (void)bound().graph_release(ready_);
  }
}

void graph::launch() const {
  if (pretended) return (*static_cast<std::function<void()>*>(ready_))();
  check(bound().graph_launch(ready_, stream()), "cuGraphLaunch");
}

}  // namespace ballast::bench::gpu
