// Loaded before a program's libraries (LD_PRELOAD): OpenBLAS takes the kernels that KERNELS_TAKEN names: those of a Prescott, say, as an
// old OpenBLAS does on a processor that it does not know. It reads that name when it asks the environment for its own variable, unless that
// variable is really set; no other caller sees a difference.
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

extern "C" __attribute__((visibility("default"))) char* getenv(const char* name) noexcept {
  using function = char* (*)(const char*);
  static const auto real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "getenv"));
  char* const value = real(name);
  if (value != nullptr || std::strcmp(name, "OPENBLAS_CORETYPE") != 0) return value;
  Dl_info caller;
  if (dladdr(__builtin_return_address(0), &caller) == 0 || std::strstr(caller.dli_fname, "openblas") == nullptr) return nullptr;
  return real("KERNELS_TAKEN");
}
