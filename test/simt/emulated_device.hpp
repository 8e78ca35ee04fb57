// A CUDA device that is the emulator: so all host code of a CUDA backend runs, with its kernels, where there is no GPU.
// Layer: test emulator. Kernels are those that the program registers (simt_kernels in CMake); memory is the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "cuda/device.hpp"
#include "simt/launch.hpp"

namespace simt {

// Calls the kernel behind `erased` with a copy of its argument, in the running emulated thread.
struct registered_kernel {
  void (*erased)() = nullptr;
  void (*call)(void (*erased)(), const void* argument) = nullptr;
  std::size_t argument_bytes = 0;
};

// Adds a kernel under its expression; what stands under this expression already is replaced. Returns true. Not thread-safe: generated code
// calls it before main.
bool register_kernel(std::string_view expression, const registered_kernel& kernel);

template <class Argument>
bool register_kernel(std::string_view expression, void (*kernel)(Argument)) {
  const auto call = [](void (*erased)(), const void* argument) {
    reinterpret_cast<void (*)(Argument)>(erased)(*static_cast<const Argument*>(argument));
  };
  return register_kernel(expression, {reinterpret_cast<void (*)()>(kernel), call, sizeof(Argument)});
}

// Without the white space that has no meaning, so that expressions compare equal however they are written.
std::string normalized(std::string_view expression);

// What an H200 can do, with as many multiprocessors as a test wants; `major` 8: an A100 without clusters.
ballast::cuda::capabilities emulated_capabilities(int multiprocessors = 4, int major = 9);

// Calls are done when they return; streams are ignored. Allocated memory holds the pattern of launch.hpp until it is written, is exactly as
// large as asked for (AddressSanitizer sees accesses outside), and runs out at capabilities::memory.
class emulated_device final : public ballast::cuda::device {
 public:
  // The n-th launch has the seed `seed` + n.
  explicit emulated_device(ballast::cuda::capabilities about = emulated_capabilities(), std::uint64_t seed = 1);
  ~emulated_device() override;

  const ballast::cuda::capabilities& about() const noexcept override { return about_; }
  void* allocate(std::int64_t bytes, ballast::cuda::stream on) override;
  void release(void* memory, ballast::cuda::stream on) noexcept override;
  bool accessible(const void* memory) const noexcept override;
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override;
  void zero(void* memory, std::int64_t bytes, ballast::cuda::stream on) override;
  // Throws unsupported_error for an expression that is not registered, or a request that the capabilities do not allow.
  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override;
  // Throws simt::error for what the kernel does wrong.
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, const void* argument, std::size_t size,
              ballast::cuda::stream on) override;
  std::int64_t resident_blocks(const ballast::cuda::kernel& which) override;
  void synchronize(ballast::cuda::stream on) override;

  // So many blocks of each launch (rounded up to a cluster, and as many as are resident at most) run side by side from its start. Without it
  // one cluster does, and three in every fourth launch.
  void run_together(std::int64_t blocks) { together_ = blocks; }

  std::int64_t allocated() const;  // bytes
  std::int64_t launches() const;

 private:
  struct loaded;
  ballast::cuda::capabilities about_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  std::map<const unsigned char*, std::int64_t> memory_;  // start, bytes
  std::int64_t allocated_ = 0;
  std::int64_t launches_ = 0;
  std::int64_t together_ = 0;
  std::map<std::tuple<std::string, int, std::int64_t, int>, std::unique_ptr<loaded>> kernels_;
};

}  // namespace simt
