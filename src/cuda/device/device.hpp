// The interface of a device: memory, streams, events, generated kernels, BLAS. runtime/driver_device.cpp implements it with the CUDA
// driver, and test/simt with the emulator, so that tests run all host code of a CUDA backend without a GPU.
// Layer: foundation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ballast::cuda {

// The properties of a device that a policy may depend on. Sizes in bytes.
struct capabilities {
  std::string name = {};
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
  std::int64_t registers_per_multiprocessor = 0;
  std::int64_t shared_per_multiprocessor = 0;
  std::int64_t shared_per_block = 0;  // the maximum with the opt-in for dynamic shared memory
  std::int64_t l2_cache = 0;
  std::int64_t memory = 0;

  bool operator==(const capabilities&) const = default;
};

// The load instructions that machine code must have at least (cuda/jit/machine_code.hpp), for kernels that load numbers twice so that a
// check has registers of its own: the build-time check fails if the assembler has merged them. 0: any number.
struct least_loads {
  int global = 0;
  int streamed = 0;  // evicted from L1 first
  int shared = 0;

  bool operator==(const least_loads&) const = default;
};

// A kernel to generate: one instantiation of a template in a header of the embedded sources. Its parameters are plain structs by value, in
// most cases one.
struct kernel_request {
  std::string header = {};      // the path in an #include: "fft/cuda/kernel/line.cuh"
  std::string expression = {};  // the fully qualified name: "ballast::fft::cuda::line_kernel<…>"
  int threads = 0;              // threads per block: the launch bound
  std::int64_t shared = 0;      // bytes of dynamic shared memory per block
  int cluster = 1;              // blocks per cluster; 1: no clusters
  bool overlaps = false;  // true if it begins with arch::wait_for_previous_grid: it may start before the previous work of its stream ends
  int blocks = 0;         // intended resident blocks per multiprocessor; the rest of its shared memory becomes L1 cache. 0: any number
  int registers = 0;      // register budget of a thread; the build-time check fails above it. 0: the limit from the launch bound
  int spills = 0;         // bytes of register spills (stores and loads) that a thread may have
  int stack = 0;          // bytes of stack for calls of functions that are not inlined
  int arguments = 1;      // the number of kernel parameters; each launch must pass as many
  least_loads loads = {};

  bool operator==(const kernel_request&) const = default;
};

// A loaded kernel. Its device owns it and keeps it until the device ends.
class kernel {
 public:
  kernel() = default;
  kernel(const kernel&) = delete;
  kernel& operator=(const kernel&) = delete;
  virtual ~kernel() = default;
};

// A cudaStream_t or CUstream; null is the default stream. Asynchronous calls take it last.
using stream = void*;

// A point in the work of a stream. Owned by the caller; must not outlive its device.
class stream_event {
 public:
  stream_event() = default;
  stream_event(const stream_event&) = delete;
  stream_event& operator=(const stream_event&) = delete;
  virtual ~stream_event() = default;
};

// One argument of a kernel.
struct kernel_argument {
  const void* data;
  std::size_t bytes;
};

class blas;                                          // blas.hpp
enum class blas_math : std::uint8_t { full, tf32 };  // tf32: products of f32 may be rounded to 11 bits first, on tensor cores

// One device. Thread-safe. Failures of the driver throw ballast::error with the driver's message.
class device {
 public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  virtual ~device() = default;

  virtual const capabilities& about() const noexcept = 0;

  // Allocate and release device memory, ordered on the stream. Throws std::bad_alloc if memory is exhausted. Alignment: at least 256 bytes.
  virtual void* allocate(std::int64_t bytes, stream on) = 0;
  virtual void release(void* memory, stream on) noexcept = 0;

  // Returns the bytes that allocate() can probably provide now.
  virtual std::int64_t available_memory() { return about().memory; }

  // Returns whether kernels can read `memory` directly: allocated on this device or managed, by Ballast or by the application.
  virtual bool accessible(const void* memory) const noexcept = 0;

  // Lets kernels and copies of `other` read and write all memory that allocate() of this device returns, also what it returned before.
  // Returns false if `other` has no direct road to this memory. A device reaches its own.
  virtual bool opens_to(const device& other) { return &other == this; }

  // Copies in any direction between host and device. With pageable host memory it returns when the host memory may be reused. With pinned
  // memory it is asynchronous and overlaps with kernels of other streams.
  virtual void copy(void* to, const void* from, std::int64_t bytes, stream on) = 0;
  // The same for `columns` columns of `bytes` bytes, with pitches of `to_pitch` and `from_pitch` bytes.
  virtual void copy_columns(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch, std::int64_t bytes,
                            std::int64_t columns, stream on) {
    for (std::int64_t j = 0; j < columns; ++j)
      copy(static_cast<char*>(to) + j * to_pitch, static_cast<const char*>(from) + j * from_pitch, bytes, on);
  }
  virtual void zero(void* memory, std::int64_t bytes, stream on) = 0;

  // Returns the kernel: from the caches, or else compiled, so that the first call for a request may take as long as a compilation.
  // Throws unsupported_error, with the reason, if the kernel is in no cache and cannot be compiled.
  virtual const kernel& load(const kernel_request& wanted) = 0;
  // Loads all of them, and returns them in this order. Missing kernels are compiled in parallel.
  virtual std::vector<const kernel*> load_all(std::span<const kernel_request> wanted) {
    std::vector<const kernel*> made;
    for (const kernel_request& each : wanted) made.push_back(&load(each));
    return made;
  }

  // Returns the reason why load_all would have to compile, or why a kernel does not fit this device; empty if all kernels are ready. With
  // `compile`, missing kernels are compiled in the background, and the caller may ask again. Also returns empty if background compilation
  // is not possible, or has failed for a reason other than a compiler error: then call load_all, which waits. Never waits for a compiler.
  // Throws std::bad_alloc.
  virtual std::string why_not_ready(std::span<const kernel_request> wanted, bool compile) {
    static_cast<void>(wanted), static_cast<void>(compile);
    return {};
  }

  // Returns whether `on` is being captured into a graph. During capture no kernel may be loaded, no memory be allocated outside of the
  // stream, and nothing be copied.
  virtual bool captured(stream on) {
    static_cast<void>(on);
    return false;
  }

  // Enqueues a launch. The arguments are copied before the call returns.
  virtual void launch(const kernel& which, std::int64_t blocks, std::span<const kernel_argument> arguments, stream on) = 0;
  // The same for a kernel of one argument.
  void launch(const kernel& which, std::int64_t blocks, const void* argument, std::size_t size, stream on) {
    const kernel_argument only{argument, size};
    launch(which, blocks, std::span(&only, 1), on);
  }

  // Returns the number of blocks of this kernel that can run at the same time on the whole device.
  virtual std::int64_t resident_blocks(const kernel& which) = 0;

  virtual void synchronize(stream on) = 0;

  // Allocates page-locked host memory, which the device copies by DMA. Throws std::bad_alloc. Alignment: at least 256 bytes.
  virtual void* allocate_pinned(std::int64_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;

  // Creates a stream without implicit synchronisation with the default stream. `urgent`: its blocks start before those of other streams.
  virtual stream make_stream(bool urgent) = 0;
  virtual void release_stream(stream made) noexcept = 0;  // work that is already enqueued still runs

  // Creates an event. It can be recorded several times; wait() refers to the last recording before the call. An event that is not `timed`
  // is cheaper, and milliseconds() refuses it.
  virtual std::unique_ptr<stream_event> make_event(bool timed) = 0;
  virtual void record(stream_event& event, stream on) = 0;
  // Work that is enqueued on `on` after this call starts after the stream of `event` has passed it. The host does not wait. May be
  // captured.
  virtual void wait(const stream_event& event, stream on) = 0;
  virtual bool passed(const stream_event& event) = 0;  // does not wait
  // Waits for `last`, and returns the time on the device between two timed events, to about half a microsecond.
  virtual double milliseconds(const stream_event& first, const stream_event& last) = 0;

  // Returns the reason why make_blas() cannot work, in one sentence; empty if it can. The first call may take 0.3 s.
  virtual std::string why_no_blas() { return {}; }

  // Creates a cuBLAS handle with its work ordered on one stream. Throws unsupported_error with why_no_blas(). Takes milliseconds: create
  // one for each stream and reuse it.
  virtual std::unique_ptr<blas> make_blas(blas_math math, stream on) = 0;
};

// Returns the reason why no CUDA device can be used here, in one sentence; empty if one can. Reasons: no driver, no device, a driver that
// is too old, or neither NVRTC nor a bundle of kernels for this architecture.
std::string why_unavailable();

// Makes current_device() of this thread the device with this number until the scope ends; -1 changes nothing.
class device_scope {
 public:
  explicit device_scope(int number) noexcept;
  ~device_scope();
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

 private:
  int before_;
};

// The device that a call uses: that of the innermost device_scope, else the current one of the calling thread's CUDA context, else the
// first. Throws unsupported_error.
std::shared_ptr<device> current_device();

// Opens the memory of each device to all others. Returns whether each reaches the memory of each.
bool reach_each_other(std::span<const std::shared_ptr<device>> all);

// Makes current_device return `emulated` and why_unavailable return empty, until it is called with null. For tests.
void override_device(std::shared_ptr<device> emulated);
// The same with several devices: a device_scope chooses among them by their place. A single one serves every number.
void override_devices(std::vector<std::shared_ptr<device>> emulated);
// Returns the device that override_device has set for this thread, or null.
std::shared_ptr<device> overriding_device();
// Returns whether `memory` is of one of the overriding devices; nothing if there are none.
std::optional<bool> overriding_memory(const void* memory) noexcept;

// Owns device memory. The release is ordered on the stream of the allocation.
class device_buffer {
 public:
  device_buffer() = default;
  device_buffer(std::shared_ptr<device> on, std::int64_t bytes, stream order = nullptr)
      : device_(std::move(on)), order_(order), memory_(device_->allocate(bytes, order)), bytes_(bytes) {}
  device_buffer(device_buffer&& other) noexcept { swap(other); }
  device_buffer& operator=(device_buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~device_buffer() {
    if (memory_ != nullptr) device_->release(memory_, order_);
  }

  void* data() const noexcept { return memory_; }
  std::int64_t bytes() const noexcept { return bytes_; }

  // Orders the release on another stream, for instance because the first one may not exist any more. No work may use the memory now.
  void release_on(stream order) noexcept { order_ = order; }

 private:
  void swap(device_buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(order_, other.order_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<device> device_;
  stream order_ = nullptr;
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Owns pinned host memory. Asynchronous copies of it must be complete before it is destroyed.
class pinned_buffer {
 public:
  pinned_buffer() = default;
  pinned_buffer(std::shared_ptr<device> on, std::int64_t bytes)
      : device_(std::move(on)), memory_(device_->allocate_pinned(bytes)), bytes_(bytes) {}
  pinned_buffer(pinned_buffer&& other) noexcept { swap(other); }
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~pinned_buffer() {
    if (memory_ != nullptr) device_->release_pinned(memory_);
  }

  void* data() const noexcept { return memory_; }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void swap(pinned_buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<device> device_;
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Owns a stream.
class device_stream {
 public:
  explicit device_stream(std::shared_ptr<device> on, bool urgent = false) : device_(std::move(on)), made_(device_->make_stream(urgent)) {}
  device_stream(device_stream&& other) noexcept : device_(std::move(other.device_)), made_(std::exchange(other.made_, nullptr)) {}
  device_stream& operator=(device_stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(made_, other.made_);
    return *this;
  }
  ~device_stream() {
    if (device_ != nullptr) device_->release_stream(made_);
  }
  stream get() const noexcept { return made_; }

 private:
  std::shared_ptr<device> device_;
  stream made_ = nullptr;
};

}  // namespace ballast::cuda
