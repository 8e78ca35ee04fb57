// The two precisions, for typed tests: TYPED_SUITE(suite, test::reals, test::number_names).
// Layer: test harness.
#pragma once

#include <gtest/gtest.h>

namespace ballast::test {

using reals = testing::Types<float, double>;

}  // namespace ballast::test
