// Shared code of the tests of QR on cuda: a device for one test, and factors from it.
// Layer: test harness.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "cuda/memory/shared_state.hpp"
#include "inject/plan.hpp"
#include "support/devices.hpp"
#include "support/qr_subject.hpp"
#include "support/struck_device.hpp"

namespace ballast::qr::subjects {

// Makes `device` the current one for one test; the destructor restores the device of all tests.
class device_for_a_test {
 public:
  explicit device_for_a_test(std::shared_ptr<ballast::cuda::device> device) : before_(ballast::cuda::overriding_device()) {
    ballast::cuda::override_device(std::move(device));
  }
  ~device_for_a_test() {
    ballast::cuda::forget_idle_states();
    ballast::cuda::override_device(before_);
  }
  device_for_a_test(const device_for_a_test&) = delete;
  device_for_a_test& operator=(const device_for_a_test&) = delete;

 private:
  std::shared_ptr<ballast::cuda::device> before_;
};

using test::struck_device;

template <class T>
factored<T> factor_on(backend which, const matrix<T>& A, const inject::plan* faults = nullptr, std::string_view scheme = "") {
  return factor_in_place<T>(A.view(), {.backend = which, .threads = 1, .scheme = scheme, .faults = faults});
}

template <class T>
double largest_change(const matrix<T>& a, const matrix<T>& b) {
  double most = 0;
  for (std::size_t e = 0; e < a.size(); ++e) {
    const double off = std::fabs(static_cast<double>(a.data()[e]) - static_cast<double>(b.data()[e]));
    if (!(off <= most)) most = off;
  }
  return most;
}

template <class T>
void expect_the_same(const factored<T>& a, const factored<T>& b) {
  EXPECT_EQ(a.tau, b.tau);
  EXPECT_EQ(std::memcmp(a.F.data(), b.F.data(), a.F.size() * sizeof(T)), 0);
  EXPECT_EQ(a.report.verdict, b.report.verdict);
  EXPECT_EQ(a.report.checks, b.report.checks);
  EXPECT_EQ(a.report.detected, b.report.detected);
}

}  // namespace ballast::qr::subjects
