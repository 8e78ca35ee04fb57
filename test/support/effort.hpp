// Selects the number of cases in slow tests.
// Layer: test harness. CONTRIBUTING.md says which effort runs when.
//   full    every case of every list
//   wide    every case; fewer lengths, seeds and rounds. If a list runs in both precisions on the emulator, single precision has all cases
//           and double precision a part. The slow reference backends have fewer cases than the cpu ones.
//   sample  fewer cases as well. They keep every site, every model and every kind of kernel.
//   smoke   a few cases of each kind
// The cases of each effort are the same in every run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace ballast::test {

enum class effort : std::uint8_t { smoke, sample, wide, full };

// The effort of this name; `otherwise` if it is none.
constexpr effort effort_of(std::string_view name, effort otherwise) {
  constexpr std::string_view names[] = {"smoke", "sample", "wide", "full"};
  for (int i = 0; i < 4; ++i) {
    if (name == names[i]) return static_cast<effort>(i);
  }
  return otherwise;
}

}  // namespace ballast::test

// In programs that run kernels on the emulator: the effort for which these were compiled (ballast_test in test/CMakeLists.txt).
extern "C" const char* ballast_built_effort() __attribute__((weak));

namespace ballast::test {

// Returns the effort that the environment variable BALLAST_TEST_EFFORT names. Without it: wide in programs with AddressSanitizer, full in
// others. At most the effort for which the kernels of an emulated program were compiled.
inline effort chosen_effort() {
  static const effort chosen = [] {
#if defined(__SANITIZE_ADDRESS__)
    constexpr effort usual = effort::wide;
#else
    constexpr effort usual = effort::full;
#endif
    const effort most = ballast_built_effort == nullptr ? effort::full : effort_of(ballast_built_effort(), effort::full);
    const char* const wanted = std::getenv("BALLAST_TEST_EFFORT");
    return std::min(wanted == nullptr ? usual : effort_of(wanted, usual), most);
  }();
  return chosen;
}

// Returns whether to use fewer lengths, seeds and rounds than a whole list has.
inline bool sampled() { return chosen_effort() < effort::full; }

// Returns whether to run case `number` of a list: always, or in a sample one case in `every`.
inline bool taken(std::uint64_t number, std::uint64_t every) { return !sampled() || number % every == 0; }

}  // namespace ballast::test
