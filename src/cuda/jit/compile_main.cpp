// ballast-compile FOLDER NVRTC ARCHITECTURE HEADER EXPRESSION [HEADER EXPRESSION]…: compiles kernels into the cache FOLDER, on all cores,
// with the library in the file NVRTC. It first detaches from the process that started it. To standard output it prints only the compiler's
// log, if a kernel does not compile. The library runs it in the background (jit.hpp); users do not need it.
// Layer: foundation.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include <unistd.h>

#include "cuda/jit/jit.hpp"
#include "cuda/system/library.hpp"

int main(int argc, char** argv) {
  if (argc < 6 || argc % 2 != 0) {
    std::fprintf(stderr, "usage: %s FOLDER NVRTC ARCHITECTURE HEADER EXPRESSION [HEADER EXPRESSION]...\n", argv[0]);
    return 2;
  }
  if (fork() > 0) _exit(0);  // the child is no child of the application, whose wait() must not see it
  // Closes the files that it inherited from the caller, so that they do not stay open during the compilation.
  for (int file = 3; file < std::clamp<long>(sysconf(_SC_OPEN_MAX), 256, 65536); ++file) close(file);
  try {
    using namespace ballast::cuda;
    const opened_library library = open_library(argv[2]);
    if (library.handle == nullptr) throw ballast::unsupported_error(library.why);
    const nvrtc::compiler compiler(library.handle, library.path);
    kernel_cache cache({.folder = argv[1], .compiler = [&](int) { return &compiler; }});
    std::vector<kernel_request> wanted;
    for (int i = 4; i + 1 < argc; i += 2) wanted.push_back({.header = argv[i], .expression = argv[i + 1]});
    cache.prepare(wanted, argv[3]);
  } catch (const ballast::cuda::nvrtc::refusal& refused) {
    std::fputs(refused.what(), stdout);
    return 1;
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
  }
  return 0;
}
