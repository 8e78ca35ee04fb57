// The protocol of an exchange, and what is built on exchanges. See exchange.hpp.
#include "group/exchange.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "group/elapsed.hpp"
#include "run/attempt.hpp"

namespace ballast::wire {

namespace {

constexpr double k_longest_pause = 1;  // seconds between two requests for a block
constexpr double k_longest_first_pause = 1e6;
constexpr double k_longest_wait = 0.05;  // seconds until losses are looked for again
constexpr int k_waits_at_end = 12;       // pauses of resend_after for which end_call() waits

// Memory of messages that is kept for others: in fresh memory a message costs a page fault for every 4096 bytes, which take longer than to
// write them.
constexpr std::size_t k_most_spares = 64;
constexpr std::size_t k_most_spare_bytes = std::size_t{16} << 20;

}  // namespace

exchange::exchange(std::shared_ptr<transport> over, const group_options& how) : over_(std::move(over)), how_(how), rank_(over_->rank()) {
  for (int r = 0; r < over_->size(); ++r) members_.push_back(r);
  place_ = place_of(rank_);
  wait_of_.assign(members_.size(), k_none);
  heard_.assign(members_.size(), 0);
}

std::size_t exchange::place_of(int rank) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(members_, rank) - members_.begin());
}

bool exchange::is_lost(int rank) const { return std::ranges::binary_search(lost_, rank); }

// ---------------------------------------------------------------- Messages.

head exchange::head_for(int to, kind what, const moment& when) const {
  head made;
  made.what = static_cast<std::uint64_t>(what);
  made.generation = lost_.size();
  made.call = when.call;
  made.epoch = when.epoch;
  made.from = static_cast<std::uint64_t>(rank_);
  made.to = static_cast<std::uint64_t>(to);
  made.digest = digest_;
  return made;
}

void exchange::send(int to, kind what, const moment& when, std::uint64_t copy) {
  head value = head_for(to, what, when);
  value.copy = copy;
  over_->send(to, make_message(value, {}));
}

// Tells the other ranks that the call is over; copy = 1: since a block came damaged each time.
void exchange::send_end(bool spoiled) {
  running_ = false;
  left_ = {call_, epoch_, rank_, spoiled};
  if (leaves_) leaves_();
  for (const int to : members_)
    if (to != rank_) send(to, kind::given_up, now(), spoiled ? 1 : 0);
  try {
    answer();      // an engine of rounds begins one with what was sent
  } catch (...) {  // the error that ends the call is the one to tell
  }
}

void exchange::send_again(int to, sent& kept) {
  set_copy(kept.message, kept.copies++);
  over_->send(to, kept.message);
}

bytes exchange::spare(std::size_t length) {
  // The shortest that is long enough, or else the longest: a vector that grows is filled with zeros.
  auto found = spares_.end();
  for (auto each = spares_.begin(); each != spares_.end(); ++each) {
    const bool enough = each->size() >= length;
    if (found == spares_.end() || (enough ? found->size() < length || each->size() < found->size() : each->size() > found->size()))
      found = each;
  }
  if (found == spares_.end()) return {};
  std::swap(*found, spares_.back());
  bytes made = std::move(spares_.back());
  spares_.pop_back();
  spare_bytes_ -= made.capacity();
  return made;
}

bytes exchange::message_for(std::size_t length) {
  bytes made = spare(sizeof(head) + length);
  made.resize(sizeof(head) + length);
  return made;
}

void exchange::forget(bytes&& message) {
  if (message.capacity() == 0 || spares_.size() == k_most_spares || spare_bytes_ + message.capacity() > k_most_spare_bytes) return;
  spare_bytes_ += message.capacity();
  spares_.push_back(std::move(message));
}

bool exchange::poll(double seconds) {
  bytes message = spare(std::numeric_limits<std::size_t>::max());
  const auto start = clock::now();
  const int from = over_->receive(message, seconds);
  waited_ += std::min(seconds_since(start), 2 * seconds);
  if (from < 0) {
    forget(std::move(message));
    return false;
  }
  take(from, std::move(message));
  forget(std::move(message));  // NOLINT(bugprone-use-after-move): empty if it is kept elsewhere
  return true;
}

void exchange::take(int from, bytes&& message) {
  head value;
  if (!read_head(message, value) || value.from != static_cast<std::uint64_t>(from) || value.to != static_cast<std::uint64_t>(rank_))
    return damaged(from);
  if (is_lost(from)) return send_list(from, 1);  // it was given up and does not know
  heard_[place_of(from)] = waited_;
  const kind what = static_cast<kind>(value.what);
  if (what == kind::regroup) {
    if (!body_is_whole(message, value)) return damaged(from);
    return take_list(value, body_of(message));
  }
  if (value.generation != lost_.size() || regrouping_) return;
  const moment when = {value.call, value.epoch};
  switch (what) {
    case kind::data: return take_data(value, std::move(message));
    case kind::received:
      if (auto kept = unconfirmed_.extract({from, when}); !kept.empty()) forget(std::move(kept.mapped().message));
      return;
    case kind::wanted: return take_wanted(value);
    case kind::waiting: return;  // it lives
    case kind::left:
      // It has sent nothing of this step, so it left before.
      if (running_ && when == now() && awaited(from) != nullptr) take_end({when.call, when.epoch - 1, from, value.copy != 0});
      return;
    case kind::origin_wanted:
      if (const auto found = gatherings_.find(when); found != gatherings_.end())
        over_->send(from, make_message(head_for(from, kind::origin, when), found->second->messages[place_]));
      return;
    case kind::origin: return take_origin(value, std::move(message));
    case kind::given_up: return take_end({value.call, value.epoch, from, value.copy != 0});
    case kind::regroup: return;
  }
}

// Answers always: a rank that asks must learn that this one lives, also if it waits for a third one itself.
void exchange::take_wanted(const head& value) {
  const int from = static_cast<int>(value.from);
  const moment when = {value.call, value.epoch};
  const auto kept = unconfirmed_.find({from, when});
  if (kept == unconfirmed_.end()) {
    // A block that was sent and is not kept any more has been confirmed; then the other rank does not heed the answer.
    if (now() < when) return send(from, kind::waiting, when);
    return send(from, kind::left, when, left_.call == when.call && left_.spoiled ? 1 : 0);
  }
  sent& block = kept->second;
  if (value.copy != 0 && block.make) {
    head same;
    (void)read_head(block.message, same);
    block.message = make_message(same, block.make());
  }
  send_again(from, block);
}

// Another rank has left a call. The first of several counts.
void exchange::take_end(const end& found) {
  if (found.call < call_) return;
  const auto order = [](const end& each) { return moment{each.call, each.epoch}; };
  if (ended_.from < 0 || ended_.call < call_ || order(found) < order(ended_)) ended_ = found;
}

// Returns whether the step that runs cannot end, since a rank has left the call. Blocks that it sent before may still be on their way
// through others, so a step up to its last one goes on, unless its own block is missing.
bool exchange::must_leave() { return has_call_ended() && (epoch_ > ended_.epoch || awaited(ended_.from) != nullptr); }

void exchange::leave() {
  running_ = false;
  const end found = std::exchange(ended_, {});
  left_ = {call_, epoch_, found.from, found.spoiled};
  if (leaves_) leaves_();
  if (found.spoiled && seen_ != nullptr)
    seen_->detected("group.wire", found.from, std::numeric_limits<double>::quiet_NaN(), 0, action::uncorrectable, 0);
  throw call_ended(found.from, found.spoiled);
}

// Returns the wait for a rank's block in the step that runs; null if there is none, or it has come.
exchange::wait* exchange::awaited(int from) {
  const std::size_t place = place_of(from);
  if (!running_ || place >= members_.size() || members_[place] != from || wait_of_[place] == k_none) return nullptr;
  wait& found = waits_[wait_of_[place]];
  return found.here ? nullptr : &found;
}

void exchange::take_data(const head& value, bytes&& message) {
  const int from = static_cast<int>(value.from);
  const moment when = {value.call, value.epoch};
  wait* const at = when == now() ? awaited(from) : nullptr;
  if (at == nullptr && early_.contains({when, from})) return;
  if (at == nullptr && (when < now() || when == now())) {
    // A repeated block, or one of a rank that makes another call.
    if (running_ && when == now()) {
      const bool other = wait_of_[place_of(from)] == k_none;
      unlike_ = unlike_ || other;
      if (!other && missing_ > 0) return;  // arrived() will confirm it
    }
    return send(from, kind::received, when);
  }
  if (wanted_ != protection::off && !body_is_whole(message, value)) return at != nullptr ? damaged(*at) : send(from, kind::wanted, when);
  if (at != nullptr) return accept(*at, value, std::move(message));
  early_[{when, from}] = std::move(message);
}

// A block has come whole from its sender.
void exchange::accept(wait& at, const head& value, bytes&& message) {
  const int from = static_cast<int>(value.from);
  bool alike = value.digest == expected_;
  if (alike && read_) {
    const content found = read_(body_of(message));
    if (found == content::damaged) {
      at.spoiled = true;
      return damaged(at);
    }
    alike = found == content::whole;
  }
  unlike_ = unlike_ || !alike;
  if (alike && !read_) at.message = std::move(message);
  if (seen_ != nullptr && wanted_ != protection::off) {
    seen_->checked(2);
    if (value.copy > 0) repaired("group.wire", from);
  }
  arrived(at);
}

// Records what has been sent more than once.
void exchange::repaired(const char* site, int from) {
  if (seen_ != nullptr && wanted_ != protection::off)
    seen_->detected(site, from, std::numeric_limits<double>::quiet_NaN(), 0,
                    wanted_ == protection::correct ? action::recomputed : action::uncorrectable, 0);
}

// Confirms the blocks of a step together, when the last has come. So a rank whose blocks are confirmed knows that the ranks which it sent
// them to need nothing more of this step, from no rank. Over NCCL none could ask a third rank once this one makes no rounds any more.
void exchange::arrived(wait& at) {
  at.here = true;
  if (--missing_ > 0) return;
  for (const wait& each : waits_) send(members_[each.place], kind::received, now());
}

void exchange::ask(wait& at) {
  at.asked = clock::now();
  send(members_[at.place], kind::wanted, now(), at.spoiled ? 1 : 0);
  if (at.spoiled && at.damaged > 1) ask_origins();
}

// Asks for the blocks that are late. Returns when the next ones will be.
exchange::clock::time_point exchange::ask_late() {
  const auto time = clock::now();
  auto next = time + std::chrono::hours(24);
  for (wait& each : waits_) {
    if (each.here) continue;
    const auto due = [&] { return each.asked + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(each.pause)); };
    if (due() <= time) {
      // A rank that lives answers. It must have several occasions before it counts as lost.
      each.pause = std::min({2 * each.pause, how_.patience / 4, k_longest_pause});
      ask(each);
    }
    next = std::min(next, due());
  }
  return next;
}

// A message of this rank came damaged: it may have been the block that is awaited.
void exchange::damaged(int from) {
  if (wait* const at = awaited(from)) damaged(*at);
}

void exchange::damaged(wait& at) {
  if (++at.damaged < how_.tries) return ask(at);
  if (seen_ != nullptr)
    seen_->detected("group.wire", members_[at.place], std::numeric_limits<double>::quiet_NaN(), 0, action::uncorrectable, 0);
  send_end(true);
  throw call_ended(rank_, true);
}

// ---------------------------------------------------------------- Calls.

void exchange::begin_call(run::recorder* seen, protection wanted) {
  seen_ = seen;
  wanted_ = wanted;
  ++calls_;
  next_call();
}

// Exchanges between two calls have a number of their own, so that a rank that has left a call is not mistaken for one that is in it.
void exchange::next_call() {
  ++call_;
  epoch_ = 0;
  running_ = false;
}

void exchange::end_call() {
  // Who has not confirmed in this time has left the call, too, or will ask in the next one.
  for (int waits = 0; waits < k_waits_at_end && !unconfirmed_.empty();) {
    if (poll(how_.resend_after)) continue;
    std::erase_if(unconfirmed_, [&](const auto& each) { return over_->lost(each.first.first); });
    ++waits;
    for (auto& [where, kept] : unconfirmed_) send_again(where.first, kept);
  }
  forget_call();
}

void exchange::forget_call() {
  seen_ = nullptr;
  next_call();
}

void exchange::leave_call() {
  send_end(false);
  forget_call();
}

void exchange::refuse_call() {
  begin_call(nullptr, protection::off);
  leave_call();
}

void exchange::answer() {
  while (poll(0)) {
  }
}

void exchange::leave_if_ended() {
  if (has_call_ended()) leave();
}

// ---------------------------------------------------------------- Steps.

void exchange::open(std::uint64_t digest, const std::vector<std::size_t>& from, std::function<content(std::span<const std::byte>)> read) {
  ++epoch_;
  if (must_leave()) leave();
  for (const wait& each : waits_) wait_of_[each.place] = k_none;
  waits_.clear();
  for (const std::size_t p : from) {
    wait_of_[p] = waits_.size();
    wait& made = waits_.emplace_back();
    made.place = p;
    made.pause = std::min({how_.resend_after, how_.patience / 4, k_longest_first_pause});
    heard_[p] = waited_;
  }
  missing_ = from.size();
  expected_ = digest;
  read_ = std::move(read);
  unlike_ = false;
  gathering_ = nullptr;
  running_ = true;
}

void exchange::post(std::size_t to, std::span<const std::byte> block, std::function<bytes()> make) {
  bytes message = message_for(block.size());
  if (!block.empty()) std::memcpy(message.data() + sizeof(head), block.data(), block.size());
  post_message(to, std::move(message), std::move(make));
}

void exchange::post_message(std::size_t to, bytes&& message, std::function<bytes()> make) {
  const int rank = members_[to];
  sent& kept = unconfirmed_[{rank, now()}];
  head value = head_for(rank, kind::data, now());
  value.digest = expected_;
  kept.message = std::move(message);
  seal_message(value, kept.message);
  kept.make = std::move(make);
  over_->send(rank, kept.message);
}

// Takes the blocks of this step that came before it began.
void exchange::take_early() {
  while (!early_.empty() && early_.begin()->first.first < now()) early_.erase(early_.begin());
  while (!early_.empty() && early_.begin()->first.first == now()) {
    bytes message = std::move(early_.begin()->second);
    early_.erase(early_.begin());
    head value;
    (void)read_head(message, value);
    if (wait* const at = awaited(static_cast<int>(value.from))) {
      accept(*at, value, std::move(message));
    } else {
      take_data(value, std::move(message));
    }
  }
}

void exchange::await() {
  struct ending {
    exchange& of;
    ~ending() {
      of.running_ = false;
      of.read_ = {};  // it may refer to what the caller has
    }
  } const over{*this};
  take_early();
  if (waits_.empty()) answer();  // an engine may move on only in calls, and others wait for blocks of this rank
  // Blocks that came while this rank computed are not late.
  while (missing_ > 0 && poll(0)) {
  }
  for (wait& each : waits_) each.asked = clock::now();
  auto look = missing_ > 0 ? ask_late() : clock::time_point();
  while (missing_ > 0) {
    if (must_leave()) leave();
    const double left = -seconds_since(look);
    if (left <= 0) look = ask_late();
    if (!poll(std::clamp(left, 0.0, k_longest_wait))) look_for_losses();
  }
}

std::vector<bytes> exchange::close() {
  await();
  std::vector<bytes> made;
  made.reserve(waits_.size());
  for (wait& each : waits_) {
    bytes& message = each.message;
    made.emplace_back(message.begin() + (message.empty() ? 0 : sizeof(head)), message.end());
    forget(std::move(message));
  }
  return made;
}

void exchange::passed(const moment& first) {
  for (auto each = unconfirmed_.begin(); each != unconfirmed_.end();) {
    const auto next = std::next(each);
    if (each->first.second < first) forget(std::move(unconfirmed_.extract(each).mapped().message));
    each = next;
  }
  gatherings_.erase(gatherings_.begin(), gatherings_.lower_bound(first));
}

void exchange::throw_if_unlike() {
  if (unlike_)
    throw invalid_argument_error(fmt::format(
        "group: expected the same call with the same sizes and options on all {} ranks, got another one on some", members_.size()));
}

// ---------------------------------------------------------------- Exchanges of blocks.

std::vector<bytes> exchange::all_to_all(const std::vector<std::span<const std::byte>>& blocks) {
  begin_all_to_all(blocks);
  return end_all_to_all();
}

void exchange::begin_all_to_all(const std::vector<std::span<const std::byte>>& blocks) {
  const std::vector<std::size_t> all = others();
  open(digest_, all);
  own_.assign(blocks[place_].begin(), blocks[place_].end());
  for (const std::size_t p : all) post(p, blocks[p]);
}

std::vector<bytes> exchange::end_all_to_all() {
  std::vector<bytes> made = close_by_place();
  passed(now());
  throw_if_unlike();
  return made;
}

std::vector<std::size_t> exchange::senders(const std::vector<bool>& awaited) const {
  std::vector<std::size_t> made = others();
  if (by_relays()) std::erase_if(made, [&](std::size_t p) { return !awaited[p]; });
  return made;
}

std::vector<bytes> exchange::some_to_some(const std::vector<std::span<const std::byte>>& blocks, const std::vector<bool>& awaited) {
  if (!by_relays()) return all_to_all(blocks);
  begin_some_to_some(blocks, awaited);
  return end_some_to_some();
}

void exchange::begin_some_to_some(const std::vector<std::span<const std::byte>>& blocks, const std::vector<bool>& awaited) {
  const std::vector<std::size_t> all = others();
  std::vector<std::size_t> from;
  std::ranges::copy_if(all, std::back_inserter(from), [&](std::size_t p) { return awaited[p]; });
  open(digest_, from);
  own_.assign(blocks[place_].begin(), blocks[place_].end());
  for (const std::size_t p : all)
    if (!blocks[p].empty()) post(p, blocks[p]);
}

std::vector<bytes> exchange::end_some_to_some() {
  std::vector<bytes> made = close_by_place();
  throw_if_unlike();
  return made;
}

void exchange::begin_messages(std::vector<bytes> messages, const std::vector<bool>& awaited) {
  open(digest_, senders(awaited));
  for (const std::size_t p : others()) {
    if (messages[p].empty() && by_relays()) continue;
    post_message(p, messages[p].empty() ? message_for(0) : std::move(messages[p]));
  }
}

std::vector<bytes> exchange::end_messages() {
  await();
  std::vector<bytes> made(members_.size());
  for (wait& each : waits_) made[each.place] = std::move(each.message);
  if (!by_relays()) passed(now());
  throw_if_unlike();
  return made;
}

std::vector<std::size_t> exchange::others() const {
  std::vector<std::size_t> made;
  for (std::size_t step = 1; step < members_.size(); ++step) made.push_back((place_ + step) % members_.size());
  return made;
}

std::vector<bytes> exchange::close_by_place() {
  std::vector<bytes> made(members_.size());
  std::vector<bytes> came = close();
  for (std::size_t w = 0; w < came.size(); ++w) made[waits_[w].place] = std::move(came[w]);
  made[place_] = std::move(own_);
  return made;
}

std::vector<bytes> exchange::gather(std::span<const std::byte> block) {
  if (by_relays()) return gather_by_relays(block);
  return all_to_all(std::vector<std::span<const std::byte>>(members_.size(), block));
}

void exchange::add(std::span<std::int64_t> words) {
  if (members_.size() <= 1) return;
  by_relays() ? add_by_relays(words) : add_directly(words);
}

void exchange::barrier() {
  if (by_relays()) return add_by_relays({});
  (void)gather(std::span<const std::byte>());
}

}  // namespace ballast::wire
