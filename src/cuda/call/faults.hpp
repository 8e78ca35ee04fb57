// Faults of a call on the device, and launches of kernels with and without them.
// Layer: foundation. cuda/block/injector.cuh is what an instrumented kernel does with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/device/device.hpp"
#include "inject/active.hpp"

namespace ballast::cuda {

// A device's copy of the faults that a call is to be struck by.
class fault_list {
 public:
  fault_list() = default;

  // Uploads the faults of `injector` in the order of the stream. Nothing if it arms no site: the production library's never does.
  fault_list(const std::shared_ptr<device>& on, const inject::active_injector& injector, stream order);

  // Whether there are any: the kernels of the call must then be instrumented ones.
  bool armed() const noexcept { return faults_.list != nullptr; }
  const inject::device_faults& faults() const noexcept { return faults_; }

 private:
  device_buffer memory_;
  inject::device_faults faults_;
};

// The argument of an instrumented kernel: the faults stand behind what the kernel takes otherwise.
template <class Arguments>
struct with_faults {
  Arguments arguments;
  inject::device_faults faults;
};

// Launches a kernel whose one argument is `given`: with the faults behind it if there are any.
template <class Arguments>
void launch(device& on, const kernel& which, std::int64_t blocks, const Arguments& given, const fault_list& faults, stream order) {
  static_assert(offsetof(with_faults<Arguments>, faults) == sizeof(Arguments), "as kernels lay it out");
  if (faults.armed()) {
    const with_faults<Arguments> both{given, faults.faults()};
    on.launch(which, blocks, &both, sizeof(both), order);
  } else {
    on.launch(which, blocks, &given, sizeof(given), order);
  }
}

}  // namespace ballast::cuda
