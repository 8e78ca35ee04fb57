// What kernels run on: memory, streams, events, generated kernels, BLAS. One implementation is the CUDA driver (runtime.cpp); the tests
// have another, the emulator in test/simt, so that all host code of a CUDA backend runs where there is no GPU. Layer: foundation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ballast::cuda {

// What a policy may depend on. Sizes in bytes.
struct capabilities {
  std::string name = {};
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
  std::int64_t registers_per_multiprocessor = 0;
  std::int64_t shared_per_multiprocessor = 0;
  std::int64_t shared_per_block = 0;  // with the opt-in for dynamic shared memory
  std::int64_t l2_cache = 0;
  std::int64_t memory = 0;

  bool operator==(const capabilities&) const = default;
};

// A kernel to generate: one instantiation of a template in a header of the embedded sources. It takes plain structs by value, most often
// one.
struct kernel_request {
  std::string header = {};      // as kernels include it: "fft/cuda/kernel/line.cuh"
  std::string expression = {};  // fully qualified: "ballast::fft::cuda::line_kernel<…>"
  int threads = 0;              // of a block; the launch bound
  std::int64_t shared = 0;      // dynamic shared memory of a block
  int cluster = 1;              // blocks of a cluster; 1: none
  bool overlaps = false;  // begins with arch::wait_for_previous_grid, so that it may be started before the work in front of it has ended
  int blocks = 0;         // that are meant to run side by side on a multiprocessor: the rest of its shared memory becomes cache. 0: any
  int registers = 0;      // budget of a thread; more fails the build-time check. 0: what the launch bound leaves
  int spills = 0;         // and the bytes that a thread may store and load because it has too few
  int stack = 0;          // bytes of stack for calls of functions that are not inlined
  int arguments = 1;      // that the kernel takes; each launch must give as many

  bool operator==(const kernel_request&) const = default;
};

// A kernel that is loaded. Owned by its device, alive as long as that.
class kernel {
 public:
  kernel() = default;
  kernel(const kernel&) = delete;
  kernel& operator=(const kernel&) = delete;
  virtual ~kernel() = default;
};

// A cudaStream_t or CUstream; null is the default stream. Asynchronous calls take it last.
using stream = void*;

// A point in the work of a stream. Owned by the caller; not to outlive its device.
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

// Thread-safe. Failures of the driver are ballast::error with the driver's words.
class device {
 public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  virtual ~device() = default;

  virtual const capabilities& about() const noexcept = 0;

  // Stream-ordered; throws std::bad_alloc if the memory is not there. Alignment: at least 256 bytes.
  virtual void* allocate(std::int64_t bytes, stream on) = 0;
  virtual void release(void* memory, stream on) noexcept = 0;

  // Bytes that allocate() can be expected to give now.
  virtual std::int64_t available_memory() { return about().memory; }

  // Whether kernels can read `memory` as it is: allocated on this device (or managed), by whomever.
  virtual bool accessible(const void* memory) const noexcept = 0;

  // In any direction between host and device. From or to pageable host memory it returns when the host side is free again; from or to
  // pinned memory it is asynchronous, and runs beside kernels of other streams.
  virtual void copy(void* to, const void* from, std::int64_t bytes, stream on) = 0;
  // The same for `columns` pieces of `bytes` bytes whose starts are `to_pitch` and `from_pitch` bytes apart.
  virtual void copy_columns(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch, std::int64_t bytes,
                            std::int64_t columns, stream on) {
    for (std::int64_t j = 0; j < columns; ++j)
      copy(static_cast<char*>(to) + j * to_pitch, static_cast<const char*>(from) + j * from_pitch, bytes, on);
  }
  virtual void zero(void* memory, std::int64_t bytes, stream on) = 0;

  // Generates, or finds in the caches; the first call for a request may take as long as a compiler.
  // Throws unsupported_error if it can neither be generated nor found, with the reason.
  virtual const kernel& load(const kernel_request& wanted) = 0;
  // All of them, in this order; what must be compiled is compiled side by side.
  virtual std::vector<const kernel*> load_all(std::span<const kernel_request> wanted) {
    std::vector<const kernel*> made;
    for (const kernel_request& each : wanted) made.push_back(&load(each));
    return made;
  }

  // Why kernels are not there without a compiler, or do not fit this device; empty if all of them are. With `compile`, what is missing is
  // compiled behind the caller, who may ask again. Empty, too, if that is not possible or has failed but for the compiler's refusal: then
  // there is nothing better than load_all, which waits. Waits for no compiler. Throws std::bad_alloc.
  virtual std::string why_not_ready(std::span<const kernel_request> wanted, bool compile) {
    static_cast<void>(wanted), static_cast<void>(compile);
    return {};
  }

  // Whether what is enqueued on `on` goes into a graph: nothing may be loaded, allocated outside the stream or copied now.
  virtual bool captured(stream on) {
    static_cast<void>(on);
    return false;
  }

  // The arguments are copied before the call returns.
  virtual void launch(const kernel& which, std::int64_t blocks, std::span<const kernel_argument> arguments, stream on) = 0;
  // The same for a kernel of one argument.
  void launch(const kernel& which, std::int64_t blocks, const void* argument, std::size_t size, stream on) {
    const kernel_argument only{argument, size};
    launch(which, blocks, std::span(&only, 1), on);
  }

  // Blocks of this kernel that run at the same time on the whole device.
  virtual std::int64_t resident_blocks(const kernel& which) = 0;

  virtual void synchronize(stream on) = 0;

  // Host memory that the device copies without the help of the processor. Throws std::bad_alloc. Alignment: at least 256 bytes.
  virtual void* allocate_pinned(std::int64_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;

  // A stream that does not wait for the default stream, nor that for it. `urgent`: its blocks start before those of other streams.
  virtual stream make_stream(bool urgent) = 0;
  virtual void release_stream(stream made) noexcept = 0;  // what is enqueued still runs

  // An event can be recorded again; what waits for it waits for what was recorded last before the call. Not `timed`: cheaper, and
  // milliseconds() refuses it.
  virtual std::unique_ptr<stream_event> make_event(bool timed) = 0;
  virtual void record(stream_event& event, stream on) = 0;
  // What is enqueued on `on` from now on starts when the stream of `event` has passed it. The host does not wait. May be captured.
  virtual void wait(const stream_event& event, stream on) = 0;
  virtual bool passed(const stream_event& event) = 0;  // does not wait
  // Waits for `last`. Time on the device between two timed events, to about half a microsecond.
  virtual double milliseconds(const stream_event& first, const stream_event& last) = 0;

  // cuBLAS, its work ordered on one stream. Throws unsupported_error with why_no_cublas(). Takes milliseconds: make it once for a stream.
  virtual std::unique_ptr<blas> make_blas(blas_math math, stream on) = 0;
};

// Why no CUDA device can be used here, in one sentence; empty if one can: no driver, no device, a driver that is too old, or neither NVRTC
// nor a bundle of kernels for this architecture.
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

// Replaces what current_device returns and makes why_unavailable empty, until it is called with null. For tests.
void override_device(std::shared_ptr<device> emulated);
// What override_device has set; null: nothing.
std::shared_ptr<device> overriding_device();

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

// Owns pinned host memory. What copies it asynchronously must be done before it ends.
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
