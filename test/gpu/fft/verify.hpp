// Helpers of the parts of the stage `verify`.
// Layer: gpu-check.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft.hpp>

#include "one_case.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

inline std::string text(double value) {
  char made[32];
  std::snprintf(made, sizeof made, "%.3g", value);
  return made;
}

// Runs `body`; an exception fails the case. A scheme or problem that the plan refuses is marked, and is no failure if `may_refuse`.
template <class Body>
void guarded(one_case& now, bool may_refuse, const Body& body) {
  try {
    body();
  } catch (const unsupported_error& e) {
    now.line().add("refused", e.what());
    if (!may_refuse) now.fail(e.what());
  } catch (const std::exception& e) {
    now.fail(e.what());
  }
}

inline void expect_clean(one_case& now, const report& seen, protection guard) {
  now.expect(seen.backend == tested, "ran on " + std::string(to_string(seen.backend)));
  now.expect(seen.verdict == verdict::clean,
             "verdict " + std::string(to_string(seen.verdict)) + " (" + std::to_string(seen.detected) + " detected)");
  now.expect(guard == protection::off || seen.checks > 0, "nothing was checked");
}

// Returns the signals to compare with the host's reference: the first, the last (a tail), and one between.
inline std::vector<std::int64_t> samples(std::int64_t batch) {
  std::vector<std::int64_t> made = {0};
  if (batch > 2) made.push_back(batch / 2);
  if (batch > 1) made.push_back(batch - 1);
  return made;
}

// Calls body.template operator()<float or double>().
template <class Body>
void by_precision(precision type, const Body& body) {
  if (type == precision::f32) {
    body.template operator()<float>();
  } else {
    body.template operator()<double>();
  }
}

// Faults at every site, by every model, in one problem (verify_faults.cpp). Only with the instrumented library.
void verify_faults(tally& seen, const fft::token& token, const std::string& name, const std::string& scheme, const settings& wanted,
                   const time_limit& limit);
// Clean data of every kind, without a false alarm.
void verify_clean_data(tally& seen, const fft::token& token, const std::string& name, const std::string& scheme, const settings& wanted,
                       const time_limit& limit);

}  // namespace ballast::gpu_check
