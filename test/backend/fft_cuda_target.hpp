// The cuda backend on the emulator, for fft_test.cpp, fft_faults_test.cpp and the tests of what only this backend has.
// Layer: backend tests.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "backend/fft_target.hpp"

namespace ballast::fft {

const target& emulated();

// The case of emulated_cases() without strides that has this token and device.
const fft_case& case_of(std::string_view token, machine where);

inline execution on_cuda(protection guard = protection::correct) { return emulated().how(1, guard); }

template <class T>
device_copy<T> on_device(const std::vector<T>& values) {
  return device_copy<T>(emulated(), values);
}

template <class T>
test::subject<T> subject_of(const fft_case& which, std::uint64_t seed) {
  return test::subject<T>(which.problem(), which.direction(), seed);
}

// A case of emulated_cases() as the parameter of a test.
struct emulated_case {
  std::size_t number = 0;  // its place in the list
  const fft_case& which() const { return emulated_cases()[number]; }
};
inline void PrintTo(const emulated_case& each, std::ostream* to) { *to << name_of(each.which()); }
inline std::string emulated_name(const testing::TestParamInfo<emulated_case>& info) { return name_of(info.param.which()); }

// Those that have one of these uses; with 0 all.
inline std::vector<emulated_case> emulated_cases_with(unsigned uses) {
  std::vector<emulated_case> made;
  for (std::size_t i = 0; i < emulated_cases().size(); ++i) {
    if (uses == 0 || (emulated_cases()[i].uses & uses) != 0) made.push_back({i});
  }
  return made;
}

class emulated_test : public testing::TestWithParam<emulated_case> {
 protected:
  static const fft_case& which() { return GetParam().which(); }
  static plan make(const problem& what, protection guard = protection::correct) { return plan(what, on_cuda(guard), which().options()); }
  template <class Body>
  static void with_data(const Body& body) {
    with_data_of(which(), body);
  }
};

}  // namespace ballast::fft
