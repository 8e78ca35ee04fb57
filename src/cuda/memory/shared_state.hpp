// State that plans of the same problem share on a device: schedules, loaded kernels, tables. It is constructed once, found by name, and
// kept for a while after the last plan, so that constructing the same plan again costs one look-up.
// Layer: foundation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// State that several plans use at the same time. It owns its device.
class shared_state {
 public:
  shared_state() = default;
  shared_state(const shared_state&) = delete;
  shared_state& operator=(const shared_state&) = delete;
  virtual ~shared_state() = default;
  // Returns the bytes of device memory that it holds, or that others hold for it. Thread-safe.
  virtual std::int64_t device_bytes() const = 0;
};

using make_state = std::function<std::shared_ptr<shared_state>()>;

// Returns the state `name` of this device: an existing one, or else the result of `make`. The name begins with the algorithm and contains
// everything that the state depends on. Thread-safe: if two threads construct the same state at the same time, both get the same object.
std::shared_ptr<shared_state> find_or_make(const std::shared_ptr<device>& on, const std::string& name, const make_state& make);

// The same, but keeps the state after its last user: the 64 most recently used states are kept, as long as those of one device together
// hold at most 1/512 of its memory.
std::shared_ptr<shared_state> find_or_make_kept(const std::shared_ptr<device>& on, const std::string& name, const make_state& make);

// Releases all states that no plan uses.
void forget_idle_states();

// A table in device memory, which kernels only read.
class device_table final : public shared_state {
 public:
  // Copies `bytes` bytes to the device and waits for the copy.
  device_table(const std::shared_ptr<device>& on, const void* values, std::int64_t bytes);
  const void* data() const noexcept { return memory_.data(); }
  std::int64_t device_bytes() const override { return memory_.bytes(); }

 private:
  device_buffer memory_;
};

// Returns the table `name`. If it does not exist, it is filled with the vector that `make` returns. Another `copy` number is a duplicate in
// other memory, for checks that look up a value twice.
template <class Make>
std::shared_ptr<const device_table> share_table(const std::shared_ptr<device>& on, const std::string& name, int copy, Make&& make) {
  return std::static_pointer_cast<const device_table>(find_or_make(on, "table " + std::to_string(copy) + " " + name, [&] {
    const auto& values = make();
    return std::make_shared<device_table>(on, values.data(), static_cast<std::int64_t>(values.size() * sizeof(values[0])));
  }));
}

}  // namespace ballast::cuda
