// A CUDA device that is the emulator: so all host code of a CUDA backend runs, with its kernels, where there is no GPU.
// Layer: test emulator. Kernels are those that the program registers (simt_kernels in CMake); memory is the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/device/device.hpp"
#include "simt/launch.hpp"

namespace simt {

// Calls the kernel behind `erased` with copies of its arguments, in the running emulated thread.
struct registered_kernel {
  void (*erased)() = nullptr;
  void (*call)(void (*erased)(), const ballast::cuda::kernel_argument* arguments) = nullptr;
  std::vector<std::size_t> argument_bytes = {};
};

// Adds a kernel under its expression; what stands under this expression already is replaced. Returns true. Not thread-safe: generated code
// calls it before main.
bool register_kernel(std::string_view expression, const registered_kernel& kernel);

// Whether a kernel is registered under this expression.
bool is_registered(std::string_view expression);

template <class... Arguments>
bool register_kernel(std::string_view expression, void (*kernel)(Arguments...)) {
  const auto call = [](void (*erased)(), const ballast::cuda::kernel_argument* arguments) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      reinterpret_cast<void (*)(Arguments...)>(erased)(*static_cast<const Arguments*>(arguments[I].data)...);
    }
    (std::index_sequence_for<Arguments...>());
  };
  return register_kernel(expression, {reinterpret_cast<void (*)()>(kernel), call, {sizeof(Arguments)...}});
}

// Without the white space that has no meaning, so that expressions compare equal however they are written.
std::string normalized(std::string_view expression);

// What an H200 can do, with as many multiprocessors as a test wants; `major` 8: an A100 without clusters.
ballast::cuda::capabilities emulated_capabilities(int multiprocessors = 4, int major = 9);

// Calls are done when they return, so streams order nothing and an event has passed when it is recorded; its time is the processor's.
// Streams, events and pinned memory are counted, and using one that was released, or an event that was never recorded, is an error. BLAS is
// that of the processor, whatever the math. Allocated memory holds the pattern of launch.hpp until it is written, is exactly as large as
// asked for (AddressSanitizer sees accesses outside), and runs out at capabilities::memory.
class emulated_device final : public ballast::cuda::device {
 public:
  // The n-th launch has the seed `seed` + n.
  explicit emulated_device(ballast::cuda::capabilities about = emulated_capabilities(), std::uint64_t seed = 1);
  ~emulated_device() override;

  const ballast::cuda::capabilities& about() const noexcept override { return about_; }
  void* allocate(std::int64_t bytes, ballast::cuda::stream on) override;
  void release(void* memory, ballast::cuda::stream on) noexcept override;
  std::int64_t available_memory() override { return about_.memory - allocated(); }
  bool accessible(const void* memory) const noexcept override;
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override;
  void zero(void* memory, std::int64_t bytes, ballast::cuda::stream on) override;
  // Throws unsupported_error for an expression that is not registered, or a request that the capabilities do not allow.
  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override;
  // Throws simt::error for what the kernel does wrong.
  using device::launch;
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override;
  std::int64_t resident_blocks(const ballast::cuda::kernel& which) override;
  void synchronize(ballast::cuda::stream on) override;
  void* allocate_pinned(std::int64_t bytes) override;
  void release_pinned(void* memory) noexcept override;
  ballast::cuda::stream make_stream(bool urgent) override;
  void release_stream(ballast::cuda::stream made) noexcept override;
  std::unique_ptr<ballast::cuda::stream_event> make_event(bool timed) override;
  void record(ballast::cuda::stream_event& event, ballast::cuda::stream on) override;
  void wait(const ballast::cuda::stream_event& event, ballast::cuda::stream on) override;
  bool passed(const ballast::cuda::stream_event& event) override;
  double milliseconds(const ballast::cuda::stream_event& first, const ballast::cuda::stream_event& last) override;
  std::unique_ptr<ballast::cuda::blas> make_blas(ballast::cuda::blas_math math, ballast::cuda::stream on) override;

  // So many blocks of each launch (rounded up to a cluster, and as many as are resident at most) run side by side from its start. Without
  // it one cluster does, and three in every fourth launch.
  void run_together(std::int64_t blocks) { together_ = blocks; }

  std::int64_t allocated() const;  // bytes on the device
  std::int64_t pinned() const;     // bytes on the host
  std::int64_t streams() const;    // that were made and not released
  std::int64_t launches() const;

 private:
  struct loaded;
  struct moment;
  void check_stream(ballast::cuda::stream on) const;
  ballast::cuda::capabilities about_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  std::map<const unsigned char*, std::int64_t> memory_;  // start, bytes
  std::int64_t allocated_ = 0;
  std::map<void*, std::int64_t> pinned_;  // start, bytes
  std::set<ballast::cuda::stream> streams_;
  std::uintptr_t next_stream_ = 0;
  std::int64_t launches_ = 0;
  std::int64_t together_ = 0;
  std::map<std::tuple<std::string, int, std::int64_t, int>, std::unique_ptr<loaded>> kernels_;
};

}  // namespace simt
