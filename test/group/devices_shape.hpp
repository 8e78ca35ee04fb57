// The shape of the points of devices_test.cpp, for which devices_kernels.cpp names the kernels.
// Layer: backend tests.
#pragma once

namespace ballast::test {

inline constexpr int k_features = 5, k_clusters = 6;

}  // namespace ballast::test
