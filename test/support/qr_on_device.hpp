// What the tests of QR on cuda share: a device for one test, factors from it.
// Layer: test harness.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "cuda/shared_state.hpp"
#include "inject/plan.hpp"
#include "support/qr_subject.hpp"

namespace ballast::qr::subjects {

// A device for one test; the one of all tests comes back behind it.
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

template <class T>
factored<T> factor_on(backend which, const matrix<T>& A, const inject::plan* faults = nullptr, std::string scheme = "") {
  return factor_in_place<T>(A.view(), {.backend = which, .threads = 1, .scheme = std::move(scheme), .faults = faults});
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
