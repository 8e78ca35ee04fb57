// Several devices of the emulator in one process.
// Layer: test harness.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::test {

// Makes emulated devices with these numbers of multiprocessors those of the process; the destructor brings back the device
// that was there before.
class several_devices {
 public:
  // `peers`: whether they reach each other's memory.
  explicit several_devices(std::initializer_list<int> multiprocessors, bool peers = true) : before_(cuda::overriding_device()) {
    std::vector<std::shared_ptr<simt::emulated_device>> made;
    for (const int each : multiprocessors) made.push_back(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(each)));
    for (const auto& each : made) {
      std::vector<std::weak_ptr<simt::emulated_device>> others;
      for (const auto& other : made)
        if (other != each) others.push_back(other);
      each->stands_beside(std::move(others), peers);
    }
    all_.assign(made.begin(), made.end());
    cuda::override_devices(all_);
  }
  ~several_devices() {
    cuda::forget_idle_states();
    cuda::override_device(before_);
  }
  several_devices(const several_devices&) = delete;
  several_devices& operator=(const several_devices&) = delete;

  const std::shared_ptr<cuda::device>& operator[](std::size_t number) const { return all_[number]; }

 private:
  std::shared_ptr<cuda::device> before_;
  std::vector<std::shared_ptr<cuda::device>> all_;
};

}  // namespace ballast::test
