// Finds out whether memory is on the host or on a device, without starting the CUDA driver.
// Layer: foundation.
#pragma once

#include <cstdint>

namespace ballast::cuda {

// host: ordinary host memory, also in processes without a GPU. managed: host and devices can read it; the host must first wait for the
// stream that writes it. device: only devices can read it.
enum class residence : std::uint8_t { host, managed, device };

// Returns the residence of `memory`. A process with device memory has loaded and started the driver. If it has not, the result is host, at
// the cost of one search of the loaded libraries. Under override_devices, memory that is accessible to one of these devices is device
// memory.
residence residence_of(const void* memory) noexcept;

}  // namespace ballast::cuda
