// A CUDA device that the emulator implements, so that all host code of a CUDA backend runs, with its kernels, without a GPU.
// Layer: test emulator. The program registers the kernels (simt_kernels in CMake); device memory is host memory.
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

// A kernel. call(erased, arguments) calls it with copies of its arguments, in the running emulated thread. `erased`: the kernel's address.
struct registered_kernel {
  void (*erased)() = nullptr;
  void (*call)(void (*erased)(), const ballast::cuda::kernel_argument* arguments) = nullptr;
  std::vector<std::size_t> argument_bytes = {};
};

// Registers a kernel under its expression, replacing an earlier one. Returns true. Not thread-safe: generated code calls it before main.
bool register_kernel(std::string_view expression, const registered_kernel& kernel);

// Returns whether a kernel is registered under this expression.
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

// Removes insignificant white space, so that expressions with different spacing compare equal.
std::string normalized(std::string_view expression);

// Returns the capabilities of an H200 with this number of multiprocessors; with `major` 8 those of an A100, which has no clusters.
ballast::cuda::capabilities emulated_capabilities(int multiprocessors = 4, int major = 9);

// The device executes all work before a call returns. So streams order nothing, and an event has passed when it is recorded; its time is
// that of the CPU's clock. The device counts streams, events and pinned memory. Using a released one, or an event that was never recorded,
// is an error. BLAS is the CPU's BLAS, for every blas_math. Allocated memory contains the pattern of launch.hpp until it is written, has
// exactly the requested size (so that AddressSanitizer detects accesses outside), and is limited to capabilities::memory.
class emulated_device final : public ballast::cuda::device {
 public:
  // Launch n uses the seed `seed` + n.
  explicit emulated_device(ballast::cuda::capabilities about = emulated_capabilities(), std::uint64_t seed = 1);
  ~emulated_device() override;

  const ballast::cuda::capabilities& about() const noexcept override { return about_; }
  void* allocate(std::int64_t bytes, ballast::cuda::stream on) override;
  void release(void* memory, ballast::cuda::stream on) noexcept override;
  std::int64_t available_memory() override { return about_.memory - allocated(); }
  bool accessible(const void* memory) const noexcept override;
  bool opens_to(const ballast::cuda::device& other) override;
  // Throws simt::error if one side is memory of another device and there is no road to it.
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override;
  void zero(void* memory, std::int64_t bytes, ballast::cuda::stream on) override;
  // Throws unsupported_error if the expression is not registered, or if the request exceeds the capabilities.
  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override;
  // Throws simt::error for mistakes of the kernel.
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
  std::string why_no_blas() override { return why_no_blas_; }
  std::unique_ptr<ballast::cuda::blas> make_blas(ballast::cuda::blas_math math, ballast::cuda::stream on) override;

  // From now on captured() is true for this stream; null: for none. Work on it is done nevertheless.
  void capture(ballast::cuda::stream on) { captured_ = on; }
  bool captured(ballast::cuda::stream on) override { return on != nullptr && on == captured_; }

  // The other devices of the machine, and whether they have roads to each other's memory.
  void stands_beside(std::vector<std::weak_ptr<emulated_device>> others, bool peers) {
    others_ = std::move(others);
    peers_ = peers;
  }

  // From now on make_blas() throws unsupported_error with this reason; empty: it works again.
  void lacks_blas(std::string why) { why_no_blas_ = std::move(why); }

  // Makes so many blocks of each launch interleave from its start (rounded up to whole clusters, and limited to the resident ones). By
  // default one cluster starts, and in every fourth launch three.
  void run_together(std::int64_t blocks) { together_ = blocks; }

  std::int64_t allocated() const;  // bytes of device memory
  std::int64_t pinned() const;     // bytes of pinned host memory
  std::int64_t streams() const;    // number of streams that are not released
  std::int64_t launches() const;

 private:
  struct loaded;
  struct moment;
  bool released(ballast::cuda::stream on) const;  // true if the stream was created here and is released; with the lock
  void check_stream(ballast::cuda::stream on) const;
  ballast::cuda::capabilities about_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  std::map<const unsigned char*, std::int64_t> memory_;  // start → bytes
  std::int64_t allocated_ = 0;
  std::map<void*, std::int64_t> pinned_;  // start → bytes
  std::set<ballast::cuda::stream> streams_;
  std::uintptr_t next_stream_ = 0;
  std::int64_t launches_ = 0;
  std::vector<std::weak_ptr<emulated_device>> others_;
  bool peers_ = true;
  std::string why_no_blas_;
  ballast::cuda::stream captured_ = nullptr;
  std::int64_t together_ = 0;
  std::map<std::tuple<std::string, int, std::int64_t, int>, std::unique_ptr<loaded>> kernels_;
};

}  // namespace simt
