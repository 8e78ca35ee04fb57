// The device over the driver, its parts apart so that tests can put a driver of their own below it.
// Layer: foundation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/jit/jit.hpp"

namespace ballast::cuda {

// Runs on `context`, which must stay valid; every call leaves the calling thread's current context as it found it. `functions` and
// `kernels` outlive the device. Modules are loaded until the process ends: when static objects are destroyed, the driver may be gone
// already.
std::shared_ptr<device> open_device(const driver::api& functions, int driver_version, driver::context context, driver::device_id id,
                                    kernel_cache& kernels);

capabilities read_capabilities(const driver::api& functions, driver::device_id id);

// What the driver shows, usable or not. Makes no context.
std::vector<capabilities> visible_devices();

}  // namespace ballast::cuda
