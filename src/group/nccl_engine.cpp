// Rounds of slots, and what moves between devices. See nccl_engine.hpp.
#include "group/nccl_engine.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include <ballast/error.hpp>

#include "abft/seal.hpp"
#include "core/format.hpp"
#include "group/elapsed.hpp"

namespace ballast::wire {

namespace {

// The head of a slot, and of each part of a message in it.
struct slot_head {
  std::uint64_t round = 0, from = 0, to = 0, parts = 0, more = 0, seal = 0;
};
struct part_head {
  std::uint64_t number = 0, first = 0, count = 0, all = 0;  // part of a message; bytes
};

std::uint64_t seal_of(const slot_head& value) {
  abft::result_hash made;
  for (const std::uint64_t each : {value.round, value.from, value.to, value.parts, value.more}) made.add(each);
  return made.bits();
}

std::int64_t padded(std::int64_t bytes) { return (bytes + 7) / 8 * 8; }

std::shared_ptr<cuda::device> device_with(int number) {
  const cuda::device_scope on(number);
  return cuda::current_device();
}

constexpr double k_last_messages = 1;  // seconds that a rank takes to send its last messages when its group ends
constexpr double k_quiet = 0.02;       // seconds that a rank waits for the device before it answers others
constexpr double k_late = 0.5;         // seconds that a round may begin after the wait for an operation of devices

void wait_a_little(int turns) {
  if (turns < 1000)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

nccl_engine::nccl_engine(const nccl::api& functions, nccl::handle parent, double patience, std::int64_t slot)
    : over_(functions, parent, patience),
      patience_(patience),
      slot_(slot),
      device_(device_with(over_.device())),
      on_(device_, true),
      beside_(device_, true),
      event_(device_->make_event(false)),
      peers_(static_cast<std::size_t>(over_.size())) {
  for (int part = 0; part < 2; ++part) {
    memory_[part] = cuda::device_buffer(device_, slot_ * size());
    host_[part] = cuda::pinned_buffer(device_, slot_ * size());
    std::memset(host_[part].data(), 0, static_cast<std::size_t>(slot_ * size()));
    device_->copy(memory_[part].data(), host_[part].data(), slot_ * size(), nullptr);
  }
  device_->synchronize(nullptr);
}

// Messages that others wait for still go: the end of a call to those that compute, too. A round that others never join ends with the
// communicator; its streams and memory are released after it.
nccl_engine::~nccl_engine() {
  const auto start = clock::now();
  try {
    for (int turns = 0; lost_.empty() && (urgent_.waits || urgent_.runs); ++turns) {
      if (seconds_since(start) > (ends_.waits || ends_.runs ? patience_ : std::min(patience_, k_last_messages))) break;
      serve();
      wait_a_little(turns);
    }
  } catch (...) {  // the others have ended
  }
  over_.abort();
  try {
    device_->synchronize(on_.get());
  } catch (...) {  // a device that fails here does no more work
  }
}

void nccl_engine::send(int to, std::span<const std::byte> message) {
  if (over_.aborted()) return;
  peers_[static_cast<std::size_t>(to)].waiting.emplace_back(message.begin(), message.end());
  head value;
  std::memcpy(&value, message.data(), std::min(sizeof value, message.size()));
  const bool end = value.what == static_cast<std::uint64_t>(kind::given_up);
  ends_.waits = ends_.waits || end;
  urgent_.waits = urgent_.waits || end || (value.what == static_cast<std::uint64_t>(kind::data) && value.copy == 0);
}

// The bytes that still have to go to a rank, with the heads of one part for each message.
std::int64_t nccl_engine::left(const stream_of_messages& to) const {
  std::int64_t made = -static_cast<std::int64_t>(to.sent);
  for (const bytes& each : to.waiting)
    made += static_cast<std::int64_t>(sizeof(part_head)) + padded(static_cast<std::int64_t>(each.size()));
  return std::max<std::int64_t>(made, 0);
}

// Puts the next messages for a rank into its slot, as far as they fit. Returns how many parts those are.
std::uint64_t nccl_engine::fill(std::byte* slot, int to) {
  stream_of_messages& queue = peers_[static_cast<std::size_t>(to)];
  std::int64_t at = sizeof(slot_head);
  std::uint64_t parts = 0;
  while (!queue.waiting.empty() && at + static_cast<std::int64_t>(sizeof(part_head)) < slot_) {
    const bytes& message = queue.waiting.front();
    const std::size_t room = static_cast<std::size_t>(slot_ - at) - sizeof(part_head);
    const part_head head = {queue.number, queue.sent, std::min(room, message.size() - queue.sent), message.size()};
    std::memcpy(slot + at, &head, sizeof head);
    if (head.count > 0) std::memcpy(slot + at + sizeof head, message.data() + head.first, head.count);
    at += static_cast<std::int64_t>(sizeof head) + padded(static_cast<std::int64_t>(head.count));
    ++parts;
    queue.sent += head.count;
    if (queue.sent < message.size()) break;
    queue.waiting.pop_front();
    queue.sent = 0;
    ++queue.number;
  }
  return parts;
}

// Takes the parts of messages out of a slot. Parts that do not fit together are left out: messages have seals.
void nccl_engine::read(const std::byte* slot, int from) {
  slot_head head;
  std::memcpy(&head, slot, sizeof head);
  stream_of_messages& queue = peers_[static_cast<std::size_t>(from)];
  const bool right = head.seal == seal_of(head) && head.round == round_ && head.from == static_cast<std::uint64_t>(from) &&
                     head.to == static_cast<std::uint64_t>(rank());
  queue.unread = !right;
  if (!right) {
    queue.whole_so_far = false;
    return;
  }
  queue.silent = 0;
  more_ = more_ || head.more != 0;
  std::int64_t at = sizeof head;
  for (std::uint64_t p = 0; p < head.parts && at + static_cast<std::int64_t>(sizeof(part_head)) <= slot_; ++p) {
    part_head part;
    std::memcpy(&part, slot + at, sizeof part);
    at += sizeof part;
    if (part.count > static_cast<std::uint64_t>(slot_ - at) || part.count > part.all || part.first > part.all - part.count) return;
    if (part.first == 0) {
      queue.coming.clear();
      queue.expected = part.number;
      queue.whole_so_far = true;
    }
    if (queue.whole_so_far && part.number == queue.expected && part.first == queue.coming.size()) {
      queue.coming.insert(queue.coming.end(), slot + at, slot + at + part.count);
      if (queue.coming.size() == part.all) {
        come_.emplace_back(from, std::exchange(queue.coming, {}));
        queue.whole_so_far = false;
      }
    } else {
      queue.whole_so_far = false;
    }
    at += padded(static_cast<std::int64_t>(part.count));
  }
}

void nccl_engine::begin_round() {
  ++round_;
  std::vector<std::uint64_t> parts(peers_.size());
  for (int p = 0; p < size(); ++p)
    if (p != rank()) parts[static_cast<std::size_t>(p)] = fill(host(0, p), p);
  const bool more = std::ranges::any_of(peers_, [&](const stream_of_messages& each) { return left(each) > 0; });
  for (int p = 0; p < size(); ++p) {
    slot_head head = {
        round_, static_cast<std::uint64_t>(rank()), static_cast<std::uint64_t>(p), parts[static_cast<std::size_t>(p)], more ? 1u : 0u, 0};
    head.seal = seal_of(head);
    std::memcpy(host(0, p), &head, sizeof head);
  }
  device_->copy(memory_[0].data(), host_[0].data(), slot_ * size(), on_.get());
  over_.together([&] {
    for (int p = 0; p < size(); ++p) {
      if (p == rank()) continue;
      over_.send(there(0, p), static_cast<std::size_t>(slot_), p, on_.get());
      over_.receive(there(1, p), static_cast<std::size_t>(slot_), p, on_.get());
    }
  });
  more_ = more;
  now_ = phase::enqueued;
  waited_ = 0;
  began_ = clock::now();
  urgent_.runs = std::exchange(urgent_.waits, false);  // `more` tells of what did not fit
  ends_.runs = std::exchange(ends_.waits, false) || ends_.runs;
}

bool nccl_engine::move_on() {
  if (now_ == phase::enqueued) {
    if (!over_.enqueued()) return false;
    device_->record(*event_, on_.get());
    now_ = phase::runs;
  }
  if (!device_->passed(*event_)) {
    (void)over_.enqueued();  // throws if a rank has ended
    return false;
  }
  now_ = phase::idle;
  urgent_.runs = more_;
  ends_.runs = ends_.runs && more_;
  device_->copy(host_[1].data(), memory_[1].data(), slot_ * size(), on_.get());
  device_->synchronize(on_.get());
  for (int p = 0; p < size(); ++p)
    if (p != rank()) read(host(1, p), p);
  return true;
}

int nccl_engine::receive(bytes& message, double seconds) {
  if (!lost_.empty()) give_up();
  const auto start = clock::now();
  auto last = start;
  for (int turns = 0;; ++turns) {
    // A rank that was suspended must not find all others silent: a turn counts for 50 ms at most.
    const auto time = clock::now();
    const double passed = std::min(std::chrono::duration<double>(time - last).count(), 0.05);
    last = time;
    waited_ += passed;
    count_silence(passed);
    try {
      // Who takes a message may not come back for long: what others wait for is in a round before.
      if (!come_.empty() && urgent_.waits && now_ == phase::idle) begin_round();
      if (!come_.empty() && !urgent_.waits && !more_) {
        const int from = come_.front().first;
        message = std::move(come_.front().second);
        come_.pop_front();
        return from;
      }
      if (size() == 1) return -1;
      if (now_ == phase::idle) begin_round();
      if (move_on()) continue;
    } catch (const device_error&) {
      if (now_ == phase::idle) throw;
      give_up();
    }
    if (waited_ > patience_) give_up();
    // This rank goes on when its blocks are in a round: no other rank can be past its exchange, so all join the round that runs. The end of
    // a call may follow blocks that fill several rounds.
    if (seconds_since(start) >= seconds && !urgent_.waits && !(ends_.runs && more_)) return -1;
    wait_a_little(turns);
  }
}

void nccl_engine::serve() {
  if (over_.aborted() || size() == 1) return;
  if (now_ == phase::idle && (urgent_.waits || more_)) begin_round();
  if (now_ != phase::idle) (void)move_on();
}

void nccl_engine::blame() {
  if (!lost_.empty() || (now_ != phase::idle && seconds_since(began_) > patience_ - k_late)) give_up();
  bytes ignored;
  const auto start = clock::now();
  // All that are left come here: who has waited for a lost rank waits no longer than this one.
  while (seconds_since(start) < 10 * patience_ + 10) (void)receive(ignored, 0.1);
  throw device_error("NCCL: expected an operation between the devices to end, got none, though all ranks answer");
}

void nccl_engine::count_silence(double seconds) {
  for (int p = 0; p < size(); ++p) {
    stream_of_messages& each = peers_[static_cast<std::size_t>(p)];
    if (!each.unread) continue;
    each.silent += seconds;
    if (each.silent > patience_) lost_.push_back(p);
  }
  if (!lost_.empty()) give_up();
}

// Names the ranks whose slot of this round has not come: the kernel of NCCL stores each as soon as it is there.
void nccl_engine::give_up() {
  if (lost_.empty()) {
    std::vector<std::byte> slots(static_cast<std::size_t>(slot_ * size()));
    device_->copy(slots.data(), memory_[1].data(), slot_ * size(), beside_.get());
    device_->synchronize(beside_.get());
    for (int p = 0; p < size(); ++p) {
      slot_head head;
      std::memcpy(&head, slots.data() + static_cast<std::int64_t>(p) * slot_, sizeof head);
      if (p != rank() && (head.seal != seal_of(head) || head.round != round_)) lost_.push_back(p);
    }
    if (lost_.empty()) {
      over_.abort();
      throw device_error("NCCL: expected a round of messages to end, got all of them but no end");
    }
  }
  over_.abort();
  std::string names;
  for (const int each : lost_) names += (names.empty() ? "" : ", ") + std::to_string(each);
  throw rank_lost_error(fmt::format("group: expected messages of all {} ranks over NCCL, lost {}", size(), names), lost_);
}

// ---------------------------------------------------------------- Between devices.

nccl_link::nccl_link(const nccl::api& functions, nccl::handle parent, std::shared_ptr<nccl_engine> engine)
    : engine_(std::move(engine)), over_(functions, parent, engine_->patience()), event_(device()->make_event(false)) {
  const auto ranks = static_cast<std::size_t>(over_.size());
  const cuda::device_buffer words(device(), static_cast<std::int64_t>(16 * ranks + 16));
  auto* const at = static_cast<char*>(words.data());
  device()->zero(at, words.bytes(), nullptr);
  std::vector<block> out, in;
  for (std::size_t p = 0; p < ranks; ++p) {
    out.push_back({at + 8 * p, 8});
    in.push_back({at + 8 * (ranks + p), 8});
  }
  exchange(out, in, nullptr);
  add(at + 16 * ranks, at + 16 * ranks + 8, 1, nullptr);
  finish(nullptr);
}

template <class Ready>
void nccl_link::wait_until(Ready&& ready) {
  const auto start = std::chrono::steady_clock::now();
  try {
    for (int turns = 0; !ready(); ++turns) {
      const double waited = seconds_since(start);
      if (waited > engine_->patience()) throw device_error("NCCL: no answer");
      if (turns % 32 == 31) {
        engine_->serve();
        if (waited > k_quiet && answer_) answer_();
      }
      wait_a_little(turns);
    }
  } catch (const device_error&) {
    over_.abort();  // also ends the kernels that wait on the device
    engine_->blame();
  } catch (...) {
    over_.abort();
    throw;
  }
}

void nccl_link::leave() {
  if (!begun_ || over_.aborted()) return;
  left_ = true;
  over_.abort();
}

// The other ranks learn of the exception as they do of any.
void nccl_link::begin() {
  if (left_)
    throw device_error(
        "group: NCCL: expected devices that exchange, but a rank left an earlier call by an error while they did; make a new group");
  if (over_.aborted()) engine_->blame();
  begun_ = true;
}

void nccl_link::exchange(std::span<const block> out, std::span<const block> in, cuda::stream on) {
  begin();
  over_.together([&] {
    for (int p = 0; p < over_.size(); ++p) {
      const auto at = static_cast<std::size_t>(p);
      if (p == over_.rank()) continue;
      if (out[at].bytes > 0) over_.send(out[at].data, static_cast<std::size_t>(out[at].bytes), p, on);
      if (in[at].bytes > 0) over_.receive(in[at].data, static_cast<std::size_t>(in[at].bytes), p, on);
    }
  });
  wait_until([&] { return over_.enqueued(); });
}

void nccl_link::add(const void* from, void* to, std::int64_t words, cuda::stream on) {
  begin();
  over_.add(from, to, static_cast<std::size_t>(words), on);
  wait_until([&] { return over_.enqueued(); });
}

void nccl_link::finish(cuda::stream on) {
  device()->record(*event_, on);
  wait_until([&] {
    if (device()->passed(*event_)) return true;
    (void)over_.enqueued();  // throws if a rank has ended
    return false;
  });
  begun_ = false;
}

}  // namespace ballast::wire
