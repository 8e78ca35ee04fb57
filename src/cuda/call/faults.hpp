// The faults of a call on the device, and launches of kernels with and without them.
// Layer: foundation. cuda/block/injector.cuh is the device side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/device/device.hpp"
#include "inject/active.hpp"

namespace ballast::cuda {

// The device's copy of the faults of one call.
class fault_list {
 public:
  fault_list() = default;

  // Uploads the faults of `injector`, ordered on the stream. Does nothing if it arms no site; the injector of the production library never
  // arms one.
  fault_list(const std::shared_ptr<device>& on, const inject::active_injector& injector, stream order);

  // Returns whether there are faults. Then the kernels of the call must be instrumented ones.
  bool armed() const noexcept { return faults_.list != nullptr; }
  const inject::device_faults& faults() const noexcept { return faults_; }

 private:
  device_buffer memory_;
  inject::device_faults faults_;
};

// The argument of an instrumented kernel: the arguments of the production kernel, followed by the faults.
template <class Arguments>
struct with_faults {
  Arguments arguments;
  inject::device_faults faults;
};

// Launches a kernel whose only argument is `given`, followed by the faults if there are any.
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
