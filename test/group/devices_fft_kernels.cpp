// Prints the kernels that devices_fft_test.cpp needs: its transforms run on devices that load every kernel and launch none.
// Layer: backend tests.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "fft/sites.hpp"
#include "group/devices_fft_cases.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"

namespace {

using namespace ballast;

// Only what it has allocated is its memory, as on the emulator.
class own_memory final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  void* allocate(std::int64_t bytes, cuda::stream order) override {
    void* const made = forwarding_device::allocate(bytes, order);
    const std::lock_guard lock(mutex_);
    memory_[static_cast<const char*>(made)] = bytes;
    return made;
  }
  void release(void* memory, cuda::stream order) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      memory_.erase(static_cast<const char*>(memory));
    }
    forwarding_device::release(memory, order);
  }
  bool accessible(const void* memory) const noexcept override {
    const std::lock_guard lock(mutex_);
    const auto* const byte = static_cast<const char*>(memory);
    auto after = memory_.upper_bound(byte);
    return after != memory_.begin() && (--after, byte < after->first + std::max<std::int64_t>(after->second, 1));
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, std::int64_t> memory_;  // bytes
};

template <class T>
void run_all(const std::vector<std::shared_ptr<cuda::device>>& all) {
  const inject::plan faults({inject::request{.site = fft::site::output}});
  for (const fft::on_groups::scene& what : fft::on_groups::scenes_on_devices<T>()) {
    const auto x = fft::on_groups::random_numbers<T>(what);
    for (const std::vector<int>& list : fft::on_groups::lists_of_devices()) {
      for (const protection level : {protection::correct, protection::off}) {
        (void)fft::on_groups::transform_on_devices(list, what, x, level, {}, {.memory = all[1]});
        (void)fft::on_groups::transform_on_devices(list, what, x, level);
        (void)fft::on_groups::transform_on_devices(list, what, x, level, {}, {.piece_bytes = 0});
        (void)fft::on_groups::transform_on_devices(list, what, x, level, {}, {.divided = true, .parts_on = all});
        for (std::uint64_t seed = 0; seed < list.size(); ++seed) {
          const inject::plan each({inject::request{.site = fft::site::output, .seed = seed}});
          const inject::scope inside(&each);
          (void)fft::on_groups::transform_on_devices(list, what, x, level);
        }
      }
    }
  }
}

}  // namespace

int main() {
  try {
    std::vector<std::shared_ptr<test::recording_device>> recorded;
    std::vector<std::shared_ptr<cuda::device>> all;
    for (int number = 0; number < 3; ++number) {
      recorded.push_back(std::make_shared<test::recording_device>(simt::emulated_capabilities()));
      all.push_back(std::make_shared<own_memory>(recorded.back()));
    }
    cuda::override_devices(all);
    run_all<float>(all);
    run_all<double>(all);
    for (const auto& each : recorded) each->print();
    cuda::override_devices({});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
