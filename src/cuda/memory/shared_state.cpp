// Holds weak references to all states, and strong references to the most recently used ones.
#include "cuda/memory/shared_state.hpp"

#include <list>
#include <map>
#include <mutex>

namespace ballast::cuda {

namespace {

constexpr std::size_t k_kept = 64;
constexpr std::int64_t k_part_of_memory = 512;

struct kept_state {
  std::shared_ptr<device> on;
  std::shared_ptr<shared_state> state;
};

struct known_states {
  std::mutex mutex;
  // A state owns its device, so no other device has that address during its lifetime.
  std::map<std::pair<const device*, std::string>, std::weak_ptr<shared_state>> all;
  std::list<kept_state> kept;  // the most recently used first
};

// Never destroyed: at exit the driver may have shut down already, and the states could not release their memory.
known_states& states() {
  static auto* const made = new known_states;
  return *made;
}

// Removes the states beyond the limits from `kept`. Destroy the result without holding the lock.
std::list<kept_state> excess(known_states& all) {
  std::list<kept_state> dropped;
  std::map<const device*, std::int64_t> bytes;
  std::size_t count = 0;
  for (auto each = all.kept.begin(); each != all.kept.end();) {
    std::int64_t& held = bytes[each->on.get()];
    held += each->state->device_bytes();
    const auto next = std::next(each);
    if (++count > k_kept || held > each->on->about().memory / k_part_of_memory) dropped.splice(dropped.end(), all.kept, each);
    each = next;
  }
  return dropped;
}

void keep_within_bounds() {
  std::list<kept_state> dropped;
  const std::lock_guard lock(states().mutex);
  dropped = excess(states());
}

}  // namespace

std::shared_ptr<shared_state> find_or_make(const std::shared_ptr<device>& on, const std::string& name, const make_state& make) {
  known_states& known = states();
  const std::pair<const device*, std::string> key(on.get(), name);
  {
    const std::lock_guard lock(known.mutex);
    if (const auto found = known.all.find(key); found != known.all.end()) {
      if (std::shared_ptr<shared_state> state = found->second.lock()) return state;
    }
  }
  // Without the lock, because it may take long and request other states.
  std::shared_ptr<shared_state> made = make();
  std::shared_ptr<shared_state> other;
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [](const auto& each) { return each.second.expired(); });
  auto& slot = known.all[key];
  other = slot.lock();
  if (!other) slot = other = made;
  return other;
}

std::shared_ptr<shared_state> find_or_make_kept(const std::shared_ptr<device>& on, const std::string& name, const make_state& make) {
  std::shared_ptr<shared_state> state = find_or_make(on, name, make);
  {
    known_states& known = states();
    const std::lock_guard lock(known.mutex);
    known.kept.remove_if([&](const kept_state& each) { return each.state == state; });
    known.kept.push_front({on, state});
  }
  keep_within_bounds();
  // The memory of a state grows during its use, so the limits are checked again when its user releases it.
  shared_state* const raw = state.get();
  return {raw, [owned = std::move(state)](shared_state*) mutable {
            owned.reset();
            keep_within_bounds();
          }};
}

void forget_idle_states() {
  std::list<kept_state> dropped;
  const std::lock_guard lock(states().mutex);
  dropped.swap(states().kept);
}

device_table::device_table(const std::shared_ptr<device>& on, const void* values, std::int64_t bytes) : memory_(on, bytes) {
  on->copy(memory_.data(), values, bytes, nullptr);
  on->synchronize(nullptr);
}

}  // namespace ballast::cuda
