// The emulated devices of fft_cases.hpp, for the program that finds out which kernels the cases need and for the tests that run them.
// Layer: backend tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "backend/fft_cases.hpp"
#include "cuda/device/device.hpp"
#include "fft/cuda/run/transform.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"

namespace ballast::fft {

// Returns whether even short lines take several passes.
inline bool divides(machine which) { return which == machine::small || which == machine::paired; }

inline ballast::cuda::capabilities capabilities_of(machine which) {
  ballast::cuda::capabilities about = simt::emulated_capabilities(which == machine::single ? 1 : 4);
  if (divides(which)) {
    about.shared_per_block = 8192 + 4 * 64;
    about.shared_per_multiprocessor = which == machine::small ? about.shared_per_block : 4 * about.shared_per_block;
    about.memory = std::int64_t{1} << 28;
    about.major = 8;
  }
  if (which == machine::clustered) {
    about.shared_per_block = 8192 + 4 * 256;
    about.shared_per_multiprocessor = 4 * (about.shared_per_block + 1024);
  }
  return about;
}

inline ballast::cuda::capabilities with_memory(ballast::cuda::capabilities about, std::int64_t memory) {
  if (memory != 0) about.memory = memory;
  return about;
}

inline void choose_pairing(machine which) {
  cuda::override_fusion(which == machine::paired ? cuda::fusion::wherever_possible : cuda::fusion::never);
}

// One whose compiler never ends: only fallback kernels can be had.
class fallback_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::string why_not_ready(std::span<const ballast::cuda::kernel_request> wanted, bool) override {
    return test::recording_device::why_not_fallback(wanted);
  }
};

// An emulated device, which is the current one while this lives. `seed` decides about the order of threads; `memory`: its bytes, 0: those
// of the machine.
class emulator {
 public:
  explicit emulator(machine which, std::uint64_t seed = 1, std::int64_t memory = 0)
      : device_(std::make_shared<simt::emulated_device>(with_memory(capabilities_of(which), memory), seed << 32)) {
    choose_pairing(which);
    if (which == machine::paired) device_->run_together(static_cast<std::int64_t>(2 + seed % 4));
    if (which == machine::fallback) {
      ballast::cuda::override_device(std::make_shared<fallback_device>(device_));
    } else {
      ballast::cuda::override_device(device_);
    }
  }
  ~emulator() {
    ballast::cuda::override_device(nullptr);
    cuda::override_fusion(cuda::fusion::where_it_pays);
  }
  emulator(const emulator&) = delete;
  emulator& operator=(const emulator&) = delete;
  const std::shared_ptr<simt::emulated_device>& operator*() const { return device_; }
  simt::emulated_device* operator->() const { return device_.get(); }

 private:
  std::shared_ptr<simt::emulated_device> device_;
};

// Runs before anything else in both programs: the tuning table beside this file instead of the user's own.
inline void use_own_tuning() { setenv("BALLAST_CACHE_DIR", BALLAST_TEST_DIR "/backend/fft_cuda_tuning", 1); }

}  // namespace ballast::fft
