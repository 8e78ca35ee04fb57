// What plans of the same problem share on a device: schedules, loaded kernels, tables. Made once, found by name, kept for a while after the
// last plan, so that making the same plan again costs a look-up.
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

// Something that several plans use at the same time. It owns its device.
class shared_state {
 public:
  shared_state() = default;
  shared_state(const shared_state&) = delete;
  shared_state& operator=(const shared_state&) = delete;
  virtual ~shared_state() = default;
  // Device memory that it holds, or that others hold for it. Thread-safe.
  virtual std::int64_t device_bytes() const = 0;
};

using make_state = std::function<std::shared_ptr<shared_state>()>;

// The state `name` of this device: one that somebody still uses, else what `make` returns. The name is a text that begins with the
// algorithm and says everything that the state depends on. Thread-safe; of two threads that make the same state at the same time, both get
// the same.
std::shared_ptr<shared_state> find_or_make(const std::shared_ptr<device>& on, const std::string& name, const make_state& make);

// The same, and the state stays for a while when nobody uses it any more: the 64 that were used last, as long as a device's together hold
// at most a 512th of its memory.
std::shared_ptr<shared_state> find_or_make_kept(const std::shared_ptr<device>& on, const std::string& name, const make_state& make);

// Gives up what is only kept.
void forget_idle_states();

// A table in device memory, which kernels read and nobody writes.
class device_table final : public shared_state {
 public:
  // Copies `bytes` bytes and waits until they are there.
  device_table(const std::shared_ptr<device>& on, const void* values, std::int64_t bytes);
  const void* data() const noexcept { return memory_.data(); }
  std::int64_t device_bytes() const override { return memory_.bytes(); }

 private:
  device_buffer memory_;
};

// The table `name`, with the values that `make` returns (a vector) if nobody has it. Another number for `copy` is a twin in other memory,
// for checks that look a value up twice.
template <class Make>
std::shared_ptr<const device_table> share_table(const std::shared_ptr<device>& on, const std::string& name, int copy, Make&& make) {
  return std::static_pointer_cast<const device_table>(find_or_make(on, "table " + std::to_string(copy) + " " + name, [&] {
    const auto& values = make();
    return std::make_shared<device_table>(on, values.data(), static_cast<std::int64_t>(values.size() * sizeof(values[0])));
  }));
}

}  // namespace ballast::cuda
