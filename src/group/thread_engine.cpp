// Mailboxes of ranks that are threads. See thread_engine.hpp.
#include "group/thread_engine.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/counter_rng.hpp"

namespace ballast::wire {

switchboard::switchboard(int ranks, std::vector<wire_fault> faults, bool awake) : faults_(std::move(faults)) {
  if (awake && std::thread::hardware_concurrency() >= 2 * static_cast<unsigned>(ranks)) awake_ = std::chrono::microseconds(100);
  for (int r = 0; r < ranks; ++r) {
    boxes_.push_back(std::make_unique<box>());
    boxes_.back()->before.resize(faults_.empty() ? 0 : static_cast<std::size_t>(ranks));
  }
}

void switchboard::put(int from, int to, bytes message, std::chrono::milliseconds delay) {
  box& at = *boxes_[static_cast<std::size_t>(to)];
  {
    const std::lock_guard lock(at.mutex);
    at.letters.push_back({from, clock::now() + delay, std::move(message)});
  }
  at.filled.notify_one();
}

void switchboard::send(int from, int to, bytes message) {
  box& own = *boxes_[static_cast<std::size_t>(from)];
  if (own.ended) throw rank_ended();
  const std::uint64_t number = own.sent.fetch_add(1);
  const auto found = std::ranges::find_if(
      faults_, [&](const wire_fault& each) { return each.rank == from && number >= each.message && number - each.message < each.count; });
  bytes before;
  if (!own.before.empty()) before = std::exchange(own.before[static_cast<std::size_t>(to)], message);
  if (found == faults_.end()) return put(from, to, std::move(message), {});
  ++struck_;
  const std::uint64_t random = core::random_bits(found->seed, 0, number);
  bytes made = std::move(message);
  std::chrono::milliseconds delay{0};
  switch (found->what) {
    case fault::bit: made[random / 8 % made.size()] ^= std::byte{1} << static_cast<int>(random % 8); break;
    case fault::struck: {
      head value;
      if (!read_head(made, value) || value.length == 0) break;
      made[sizeof value + random / 8 % value.length] ^= std::byte{1} << static_cast<int>(random % 8);
      const bytes body(made.begin() + sizeof value, made.end());
      made = make_message(value, body);
      break;
    }
    case fault::swapped: std::rotate(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(made.size() / 2), made.end()); break;
    case fault::misrouted: {
      int other = static_cast<int>(random % boxes_.size());
      if (other == to) other = (other + 1) % ranks();
      to = other;
      break;
    }
    case fault::stale:
      if (before.empty()) return;  // nothing went there before
      made = std::move(before);
      break;
    case fault::dropped: return;
    case fault::repeated: put(from, to, made, {}); break;
    case fault::late: delay = std::chrono::milliseconds(1 + random % 40); break;
    case fault::lost_rank: end(from); throw rank_ended();
  }
  put(from, to, std::move(made), delay);
}

int switchboard::receive(int to, bytes& message, double seconds) {
  box& at = *boxes_[static_cast<std::size_t>(to)];
  if (at.ended) throw rank_ended();
  const auto until = clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  const auto sleep_from = clock::now() + awake_;
  std::unique_lock lock(at.mutex);
  for (;;) {
    const auto time = clock::now();
    auto next = until;
    for (auto each = at.letters.begin(); each != at.letters.end(); ++each) {
      if (each->due > time) {
        next = std::min(next, each->due);
        continue;
      }
      const int from = each->from;
      message = std::move(each->message);
      at.letters.erase(each);
      return from;
    }
    if (time >= until) return -1;
    if (time < sleep_from) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    at.filled.wait_until(lock, next);
  }
}

void switchboard::end(int rank) {
  boxes_[static_cast<std::size_t>(rank)]->ended = true;
  // Ranks that wait look for losses at once.
  for (const std::unique_ptr<box>& each : boxes_) each->filled.notify_one();
}

}  // namespace ballast::wire
