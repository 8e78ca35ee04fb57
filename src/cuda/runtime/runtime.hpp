// The device that runs on the CUDA driver. Its parts are separate functions, so that tests can use a driver of their own.
// Layer: foundation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/device/device.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/jit/jit.hpp"

namespace ballast::cuda {

// Returns a device that runs on `context`, which must stay valid. Every call restores the calling thread's current context. `functions` and
// `kernels` must outlive the device. Modules stay loaded until the process ends, because the driver may already have shut down when static
// objects are destroyed.
std::shared_ptr<device> open_device(const driver::api& functions, int driver_version, driver::context context, driver::device_id id,
                                    kernel_cache& kernels);

capabilities read_capabilities(const driver::api& functions, driver::device_id id);

// Returns all devices that the driver reports, usable or not. Creates no context.
std::vector<capabilities> visible_devices();

}  // namespace ballast::cuda
