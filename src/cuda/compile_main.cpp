// ballast-compile FOLDER NEWEST ARCHITECTURE HEADER EXPRESSION [HEADER EXPRESSION]…: compiles kernels into the cache FOLDER, on all cores,
// with the newest NVRTC of at most major version NEWEST. Prints why one cannot be compiled. The library runs it behind its callers
// (jit.hpp); users have no need for it. Layer: foundation.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include <unistd.h>

#include "cuda/jit.hpp"

int main(int argc, char** argv) {
  // What the caller has open is not to stay open as long as this takes.
  for (int file = 3; file < std::clamp<long>(sysconf(_SC_OPEN_MAX), 256, 65536); ++file) close(file);
  if (argc < 6 || argc % 2 != 0) {
    std::fprintf(stderr, "usage: %s FOLDER NEWEST ARCHITECTURE HEADER EXPRESSION [HEADER EXPRESSION]...\n", argv[0]);
    return 2;
  }
  try {
    using namespace ballast::cuda;
    const int newest = std::atoi(argv[2]);
    kernel_cache cache({.folder = argv[1], .compiler = [newest](int) { return nvrtc::find(newest); }});
    std::vector<kernel_request> wanted;
    for (int i = 4; i + 1 < argc; i += 2) wanted.push_back({.header = argv[i], .expression = argv[i + 1]});
    cache.prepare(wanted, argv[3]);
  } catch (const std::exception& refused) {
    std::fputs(refused.what(), stdout);
    return 1;
  }
  return 0;
}
