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

// Changes data that launches of kernels have written.
class struck_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  // After launch number `which` (from 0) of kernel `name`, change(its argument) is called.
  struct strike {
    std::string name;
    std::int64_t which = 0;
    std::function<void(const void*)> change;
    std::int64_t seen = 0;
    bool met() const { return seen > which; }
  };
  std::vector<strike> strikes;

  const ballast::cuda::kernel& load(const ballast::cuda::kernel_request& wanted) override {
    const ballast::cuda::kernel& made = inner_->load(wanted);
    const std::string full = wanted.expression.substr(0, wanted.expression.find('<'));
    names_[&made] = full.substr(full.rfind(':') + 1);
    return made;
  }
  using device::launch;
  void launch(const ballast::cuda::kernel& kernel, std::int64_t blocks, std::span<const ballast::cuda::kernel_argument> arguments,
              ballast::cuda::stream on) override {
    inner_->launch(kernel, blocks, arguments, on);
    for (strike& each : strikes) {
      if (names_.at(&kernel) == each.name && each.seen++ == each.which) each.change(arguments[0].data);
    }
  }
  template <class T>
  void set(const T* element, T value) {
    copy(const_cast<T*>(element), &value, sizeof value, nullptr);
  }
  template <class T>
  void alter(const T* element, double by) {
    T value;
    copy(&value, element, sizeof value, nullptr);
    set(element, static_cast<T>(static_cast<double>(value) + by));
  }

 private:
  std::map<const ballast::cuda::kernel*, std::string> names_;
};

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
