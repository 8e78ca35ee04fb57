// The two precisions, for typed tests: TYPED_TEST_SUITE(suite, test::reals, test::real_names).
// Layer: test harness.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace ballast::test {

using reals = testing::Types<float, double>;
struct real_names {
  template <class T>
  static std::string GetName(int) {
    return sizeof(T) == 4 ? "f32" : "f64";
  }
};

}  // namespace ballast::test
