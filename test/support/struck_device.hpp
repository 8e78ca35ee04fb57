// A device that changes data which launches of kernels have written: faults between two launches.
// Layer: test harness.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "support/devices.hpp"

namespace ballast::test {

// Changes data that launches of kernels have written.
class struck_device final : public forwarding_device {
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
  void flip(const std::int64_t* element, int bit) {
    std::int64_t value = 0;
    copy(&value, element, sizeof value, nullptr);
    set(element, static_cast<std::int64_t>(static_cast<std::uint64_t>(value) ^ std::uint64_t{1} << bit));
  }

 private:
  std::map<const ballast::cuda::kernel*, std::string> names_;
};

}  // namespace ballast::test
