// Asks the CUDA driver about a pointer, if the process has loaded the driver.
#include "cuda/device/residence.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cuda/device/device.hpp"
#include "cuda/device/driver.hpp"

namespace ballast::cuda {

namespace {

// cuPointerGetAttributes returns attributes of 0 for memory that the driver does not know. cuPointerGetAttribute, for a single attribute,
// would return an error, which debugging tools report.
using pointer_attributes = int (*)(unsigned count, int* attributes, void** values, std::uint64_t pointer);

// How many libraries the process has loaded and unloaded since it began.
struct loaded_libraries {
  unsigned long long added = 0;
  unsigned long long removed = 0;
  bool known = false;  // the C library counts them

  bool operator==(const loaded_libraries&) const = default;
};

loaded_libraries libraries_now() noexcept {
  loaded_libraries seen;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t size, void* to) {
        if (size >= offsetof(dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs))
          *static_cast<loaded_libraries*>(to) = {info->dlpi_adds, info->dlpi_subs, true};
        return 1;  // every library tells the same counts
      },
      &seen);
  return seen;
}

pointer_attributes search_driver() noexcept {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto found = reinterpret_cast<pointer_attributes>(dlsym(library, "cuPointerGetAttributes"));
  dlclose(library);  // undoes the reference that RTLD_NOLOAD added; the library stays loaded
  return found;
}

// Returns the function of the loaded driver; null if the process has not loaded it. The application may load the driver later, so that the
// search is repeated when the loaded libraries have changed. A search for a library that is not loaded reads folders, tens of microseconds.
pointer_attributes loaded_driver() noexcept {
  thread_local loaded_libraries searched;
  thread_local pointer_attributes found = nullptr;
  const loaded_libraries now = libraries_now();
  if (now.known && now == searched) return found;
  found = search_driver();
  searched = now;
  return found;
}

}  // namespace

residence residence_of(const void* memory) noexcept {
  if (const std::optional<bool> instead = overriding_memory(memory)) return *instead ? residence::device : residence::host;
  const pointer_attributes ask = loaded_driver();
  if (ask == nullptr) return residence::host;
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  std::uint64_t managed = 0, type = 0;  // wide enough for any width that the driver writes
  int wanted[] = {driver::k_is_managed, driver::k_memory_type};
  void* values[] = {&managed, &type};
  if (ask(2, wanted, values, address) != 0) return residence::host;  // before cuInit the driver knows no memory
  if (static_cast<std::uint8_t>(managed) != 0) return residence::managed;
  return static_cast<std::uint32_t>(type) == driver::k_memory_on_device ? residence::device : residence::host;
}

}  // namespace ballast::cuda
