// Selects the device of a call.
#include "cuda/runtime/runtime.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast::cuda {

namespace {

// Returns the reason why this device cannot be used; empty if it can.
std::string why_unusable(const driver::api& functions, int driver_version, driver::device_id id) {
  int pools = 0;
  if (functions.device_attribute(&pools, driver::k_has_memory_pools, id) != driver::k_success || pools == 0)
    return "the device has no stream-ordered allocation";
  const capabilities about = read_capabilities(functions, id);
  return kernels().why_not(about.major, about.minor, driver_version / 1000);
}

driver::device_id device_at(const driver::api& functions, int ordinal) {
  driver::device_id id = 0;
  driver::check(functions, functions.device_get(&id, ordinal), "cuDeviceGet");
  return id;
}

struct usable_device {
  driver::device_id id = -1;  // the first usable device
  std::string why;            // the reason if no device can be used; otherwise empty
};

const usable_device& first_usable() {
  static const usable_device found = [] {
    const driver::availability& there = driver::available();
    usable_device made;
    made.why = there.why;
    for (int ordinal = 0; ordinal < there.devices && made.id < 0; ++ordinal) {
      std::string why;
      try {
        const driver::device_id id = device_at(there.functions, ordinal);
        why = why_unusable(there.functions, there.version, id);
        if (why.empty()) made.id = id;
      } catch (const error& failed) {
        why = failed.what();
      }
      if (made.why.empty()) made.why = why;
    }
    if (made.id >= 0) made.why.clear();
    return made;
  }();
  return found;
}

// All devices of the process, by the identity of their context, which no later context shares.
struct known_devices {
  std::mutex mutex;
  std::vector<std::shared_ptr<device>> instead;
  std::map<driver::device_id, driver::context> primaries;  // retained for as long as the process lives
  std::map<unsigned long long, std::shared_ptr<device>> open;

  driver::context primary_of(const driver::api& functions, driver::device_id id) {
    driver::context& held = primaries[id];
    if (held == nullptr) driver::check(functions, functions.primary_retain(&held, id), "cuDevicePrimaryCtxRetain");
    return held;
  }
};

// The device with this number in the driver's order.
driver::device_id device_of_number(const driver::availability& there, int number) {
  if (number >= there.devices)
    throw invalid_argument_error(fmt::format("device: expected a number from 0 to {}, got {}", there.devices - 1, number));
  return device_at(there.functions, number);
}

known_devices& devices() {
  static known_devices own;
  return own;
}

}  // namespace

std::vector<capabilities> visible_devices() {
  const driver::availability& there = driver::available();
  std::vector<capabilities> list;
  for (int ordinal = 0; ordinal < there.devices; ++ordinal)
    list.push_back(read_capabilities(there.functions, device_at(there.functions, ordinal)));
  return list;
}

std::string why_unavailable() {
  {
    const std::scoped_lock lock(devices().mutex);
    if (!devices().instead.empty()) return "";
  }
  return first_usable().why;
}

namespace {
thread_local int chosen_device = -1;
}

device_scope::device_scope(int number) noexcept : before_(chosen_device) {
  if (number >= 0) chosen_device = number;
}
device_scope::~device_scope() { chosen_device = before_; }

namespace {
// The overriding device of this thread's number.
std::shared_ptr<device> instead_of(const known_devices& all) {
  const auto number = static_cast<std::size_t>(std::max(chosen_device, 0));
  if (all.instead.size() == 1) return all.instead[0];
  if (number >= all.instead.size())
    throw invalid_argument_error(fmt::format("device: expected a number from 0 to {}, got {}", all.instead.size() - 1, number));
  return all.instead[number];
}
}  // namespace

std::shared_ptr<device> current_device() {
  known_devices& all = devices();
  const std::scoped_lock lock(all.mutex);
  if (!all.instead.empty()) return instead_of(all);
  const driver::availability& there = driver::available();
  if (!there.why.empty()) throw unsupported_error(there.why);
  const driver::api& functions = there.functions;

  driver::context context = nullptr;
  driver::device_id id = -1;
  driver::check(functions, functions.context_current(&context), "cuCtxGetCurrent");
  if (chosen_device >= 0) {
    id = device_of_number(there, chosen_device);
    driver::device_id current = -1;
    if (context != nullptr) driver::check(functions, functions.context_device(&current), "cuCtxGetDevice");
    if (context == nullptr || current != id) context = all.primary_of(functions, id);
  } else if (context != nullptr) {
    driver::check(functions, functions.context_device(&id), "cuCtxGetDevice");
  } else {
    if (first_usable().id < 0) throw unsupported_error(first_usable().why);
    id = first_usable().id;
    context = all.primary_of(functions, id);
  }
  unsigned long long identity = 0;
  driver::check(functions, functions.context_id(context, &identity), "cuCtxGetId");
  auto& held = all.open[identity];
  if (held == nullptr) {
    if (const std::string why = why_unusable(functions, there.version, id); !why.empty()) throw unsupported_error(why);
    held = open_device(functions, there.version, context, id, kernels());
  }
  return held;
}

bool reach_each_other(std::span<const std::shared_ptr<device>> all) {
  bool made = true;
  for (const std::shared_ptr<device>& each : all)
    for (const std::shared_ptr<device>& other : all) made = each->opens_to(*other) && made;
  return made;
}

std::shared_ptr<device> overriding_device() {
  const std::scoped_lock lock(devices().mutex);
  return devices().instead.empty() ? nullptr : instead_of(devices());
}

std::optional<bool> overriding_memory(const void* memory) noexcept {
  const std::scoped_lock lock(devices().mutex);
  if (devices().instead.empty()) return std::nullopt;
  return std::ranges::any_of(devices().instead, [&](const std::shared_ptr<device>& each) { return each->accessible(memory); });
}

void override_device(std::shared_ptr<device> emulated) {
  std::vector<std::shared_ptr<device>> one;
  if (emulated != nullptr) one.push_back(std::move(emulated));
  override_devices(std::move(one));
}

void override_devices(std::vector<std::shared_ptr<device>> emulated) {
  const std::scoped_lock lock(devices().mutex);
  devices().instead = std::move(emulated);
}

}  // namespace ballast::cuda
