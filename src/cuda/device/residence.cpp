// The driver's word about a pointer, if the process has a driver at all.
#include "cuda/device/residence.hpp"

#include <dlfcn.h>

#include <cstdint>

#include "cuda/device/device.hpp"
#include "cuda/device/driver.hpp"

namespace ballast::cuda {

namespace {

// The call for several attributes answers 0 for memory that the driver does not know, where that for a single one is an error of the
// program, which tools report.
using pointer_attributes = int (*)(unsigned count, int* attributes, void** values, std::uint64_t pointer);

// Null where nobody has loaded the driver. Looked up anew each time until then, for the application may load it later.
pointer_attributes loaded_driver() noexcept {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto found = reinterpret_cast<pointer_attributes>(dlsym(library, "cuPointerGetAttributes"));
  dlclose(library);  // gives back what RTLD_NOLOAD has counted; whoever loaded it keeps it
  return found;
}

}  // namespace

residence residence_of(const void* memory) noexcept {
  if (const std::shared_ptr<device> instead = overriding_device(); instead != nullptr)
    return instead->accessible(memory) ? residence::device : residence::host;
  const pointer_attributes ask = loaded_driver();
  if (ask == nullptr) return residence::host;
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  std::uint64_t managed = 0, type = 0;  // wide enough for whatever width the driver writes
  int wanted[] = {driver::k_is_managed, driver::k_memory_type};
  void* values[] = {&managed, &type};
  if (ask(2, wanted, values, address) != 0) return residence::host;  // before cuInit all memory is unknown
  if (static_cast<std::uint8_t>(managed) != 0) return residence::managed;
  return static_cast<std::uint32_t>(type) == driver::k_memory_on_device ? residence::device : residence::host;
}

}  // namespace ballast::cuda
