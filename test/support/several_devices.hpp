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
  explicit several_devices(std::initializer_list<int> multiprocessors) : before_(cuda::overriding_device()) {
    for (const int each : multiprocessors) all_.push_back(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(each)));
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
