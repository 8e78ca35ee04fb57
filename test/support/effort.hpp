// How much the slow tests try: every case of a long list, or a sample of it.
// Layer: test harness. A sample keeps every site, every model and every kind of case, and takes fewer lengths, seeds and rounds; of lists
// that run in both precisions on the emulator, single has all of them and double a part; the reference backends, which are slow, get fewer
// than the cpu ones. It is the same in every run.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace ballast::test {

// BALLAST_TEST_EFFORT=full or =sample decides. Without it, programs under AddressSanitizer sample, and all others do not.
inline bool sampled() {
  static const bool chosen = [] {
    if (const char* wanted = std::getenv("BALLAST_TEST_EFFORT")) return std::strcmp(wanted, "full") != 0;
#if defined(__SANITIZE_ADDRESS__)
    return true;
#else
    return false;
#endif
  }();
  return chosen;
}

// Whether case `number` of a list is taken: all are, but of a sample one in `every`.
inline bool taken(std::uint64_t number, std::uint64_t every) { return !sampled() || number % every == 0; }

}  // namespace ballast::test
