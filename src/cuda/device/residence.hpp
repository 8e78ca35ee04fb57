// Where memory lies, asked without starting the CUDA driver.
// Layer: foundation.
#pragma once

#include <cstdint>

namespace ballast::cuda {

// host: the host reads it, and so may know of no GPU. managed: host and devices read it, once the stream that writes it has been waited
// for. device: only devices read it.
enum class residence : std::uint8_t { host, managed, device };

// A process that has device memory has loaded and started the driver: where it has not, the answer is host, at the price of one look at the
// list of loaded libraries. Under override_device, memory that the overriding device calls accessible is its own.
residence residence_of(const void* memory) noexcept;

}  // namespace ballast::cuda
