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

constexpr double k_longest_pause = 1;       // seconds between two requests for a block
constexpr double k_longest_wait = 0.05;     // seconds until losses are looked for again
constexpr int k_waits_at_end = 12;          // pauses of resend_after for which end_call() waits
constexpr std::size_t k_small = 32 * 1024;  // bytes that add() sends whole to all ranks

std::vector<int> list_of(std::span<const std::byte> body) {
  std::vector<std::int32_t> made(body.size() / 4);
  if (!made.empty()) std::memcpy(made.data(), body.data(), made.size() * 4);
  return {made.begin(), made.end()};
}

// The two weighted sums of a message of integers, which are sums over the ranks like its words.
void weigh(std::span<const std::int64_t> words, std::int64_t (&sums)[2]) {
  std::uint64_t plain = 0, weighted = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    plain += static_cast<std::uint64_t>(words[i]);
    weighted += static_cast<std::uint64_t>(words[i]) * (0x9e3779b97f4a7c15u * (2 * i + 1));
  }
  sums[0] = static_cast<std::int64_t>(plain);
  sums[1] = static_cast<std::int64_t>(weighted);
}

}  // namespace

exchange::exchange(std::shared_ptr<transport> over, const group_options& how) : over_(std::move(over)), how_(how), rank_(over_->rank()) {
  for (int r = 0; r < over_->size(); ++r) members_.push_back(r);
  place_ = place_of(rank_);
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

void exchange::send(int to, kind what, const moment& when) { over_->send(to, make_message(head_for(to, what, when), {})); }

// Tells the other ranks that the call is over; copy = 1: since a block came damaged each time.
void exchange::send_end(bool spoiled) {
  running_ = false;
  for (const int to : members_) {
    if (to == rank_) continue;
    head value = head_for(to, kind::given_up, now());
    value.copy = spoiled ? 1 : 0;
    over_->send(to, make_message(value, {}));
  }
}

void exchange::send_again(int to, sent& kept) {
  set_copy(kept.message, kept.copies++);
  over_->send(to, kept.message);
}

bool exchange::poll(double seconds) {
  bytes message;
  const auto start = clock::now();
  const int from = over_->receive(message, seconds);
  const double waited = std::min(seconds_since(start), 2 * seconds);
  for (wait& each : waits_) each.silent += waited;
  if (from < 0) return false;
  take(from, std::move(message));
  return true;
}

void exchange::take(int from, bytes&& message) {
  head value;
  if (!read_head(message, value) || value.from != static_cast<std::uint64_t>(from) || value.to != static_cast<std::uint64_t>(rank_))
    return damaged(from);
  if (is_lost(from)) return send_list(from, 1);  // it was given up and does not know
  const std::size_t peer = place_of(from);
  if (peer < waits_.size()) waits_[peer].silent = 0;
  const kind what = static_cast<kind>(value.what);
  if (what == kind::regroup) {
    if (!body_is_whole(message, value)) return damaged(from);
    return take_list(value, body_of(message));
  }
  if (value.generation != lost_.size() || regrouping_) return;
  const moment when = {value.call, value.epoch};
  switch (what) {
    case kind::data: return take_data(value, std::move(message));
    case kind::received: unconfirmed_.erase({from, when}); return;
    case kind::wanted:
      if (const auto kept = unconfirmed_.find({from, when}); kept != unconfirmed_.end()) send_again(from, kept->second);
      return;
    case kind::given_up: {
      if (value.call < call_) return;
      ended_ = {value.call, from, value.copy != 0};
      return;
    }
    case kind::regroup: return;
  }
}

// Leaves the call if another rank has ended it.
void exchange::leave_if_ended() {
  if (ended_.call != call_ || ended_.from < 0) return;
  running_ = false;
  const end found = std::exchange(ended_, {});
  if (found.spoiled && seen_ != nullptr)
    seen_->detected("group.wire", found.from, std::numeric_limits<double>::quiet_NaN(), 0, action::uncorrectable, 0);
  throw call_ended(found.from, found.spoiled);
}

void exchange::take_data(const head& value, bytes&& message) {
  const int from = static_cast<int>(value.from);
  const moment when = {value.call, value.epoch};
  const bool awaited = running_ && when == now() && !waits_[place_of(from)].here;
  const bool again = when < now() || (when == now() && !awaited) ||
                     std::ranges::any_of(early_, [&](const early& each) { return each.from == from && each.when == when; });
  if (again) return send(from, kind::received, when);
  if (wanted_ != protection::off && !body_is_whole(message, value)) {
    if (awaited) return damaged(from);
    return send(from, kind::wanted, when);
  }
  send(from, kind::received, when);
  if (awaited) return accept(value, std::move(message));
  early_.push_back({when, from, std::move(message)});
}

void exchange::accept(const head& value, bytes&& message) {
  wait& at = waits_[place_of(static_cast<int>(value.from))];
  at.here = true;
  at.alike = value.digest == digest_;
  at.block.assign(message.begin() + sizeof(head), message.end());
  if (seen_ == nullptr || wanted_ == protection::off) return;
  seen_->checked(2);
  if (value.copy > 0)
    seen_->detected("group.wire", static_cast<std::int64_t>(value.from), std::numeric_limits<double>::quiet_NaN(), 0,
                    wanted_ == protection::correct ? action::recomputed : action::uncorrectable, 0);
}

void exchange::ask(std::size_t peer) {
  waits_[peer].asked = clock::now();
  send(members_[peer], kind::wanted, now());
}

// A message of this rank came damaged: it may have been the block that is awaited.
void exchange::damaged(int from) {
  const std::size_t peer = place_of(from);
  if (!running_ || peer >= members_.size() || members_[peer] != from || waits_[peer].here) return;
  if (++waits_[peer].damaged < how_.tries) return ask(peer);
  if (seen_ != nullptr) seen_->detected("group.wire", from, std::numeric_limits<double>::quiet_NaN(), 0, action::uncorrectable, 0);
  send_end(true);
  throw call_ended(rank_, true);
}

// Returns the members that are missed: not those that have done their part of an exchange, or of an agreement, and may have left since.
std::vector<int> exchange::missed() {
  std::vector<int> made;
  for (std::size_t p = 0; p < members_.size(); ++p) {
    const int member = members_[p];
    if (p == place_ || is_lost(member) || (running_ && waits_[p].here)) continue;
    if (const auto list = lists_.find(member); regrouping_ && list != lists_.end() && list->second == lost_) continue;
    const bool silent = p < waits_.size() && waits_[p].silent > how_.patience;
    if (over_->lost(member) || silent) made.push_back(member);
  }
  return made;
}

void exchange::look_for_losses() {
  std::vector<int> found = missed();
  if (found.empty()) return;
  // Messages that they sent before they ended count.
  while (poll(0)) {
  }
  if (running_) leave_if_ended();
  found = missed();
  if (found.empty()) return;
  lost_.insert(lost_.end(), found.begin(), found.end());
  std::ranges::sort(lost_);
  if (!regrouping_) throw ranks_lost();
}

// ---------------------------------------------------------------- Calls and exchanges.

void exchange::begin_call(run::recorder* seen, protection wanted) {
  seen_ = seen;
  wanted_ = wanted;
  next_call();
}

// Exchanges between two calls have a number of their own, so that a rank that has left a call is not mistaken for one that is in it.
void exchange::next_call() {
  ++call_;
  epoch_ = 0;
  running_ = false;
}

void exchange::end_call() {
  for (int waits = 0; waits < k_waits_at_end && !unconfirmed_.empty();) {
    std::erase_if(unconfirmed_, [&](const auto& each) { return over_->lost(each.first.first); });
    if (unconfirmed_.empty() || poll(how_.resend_after)) continue;
    ++waits;
    for (auto& [where, kept] : unconfirmed_) send_again(where.first, kept);
  }
  // Who has not confirmed by now has left the call, too, or will ask in the next one: of each rank only its last block can be missing.
  const moment last = now();
  std::erase_if(unconfirmed_, [&](const auto& each) { return each.first.second < last; });
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

std::vector<bytes> exchange::all_to_all(const std::vector<std::span<const std::byte>>& blocks) {
  begin_all_to_all(blocks);
  return end_all_to_all();
}

void exchange::begin_all_to_all(const std::vector<std::span<const std::byte>>& blocks) {
  ++epoch_;
  leave_if_ended();
  waits_.assign(members_.size(), {});
  for (wait& each : waits_) each.pause = how_.resend_after;
  waits_[place_].here = true;
  waits_[place_].block.assign(blocks[place_].begin(), blocks[place_].end());
  running_ = true;
  for (std::size_t step = 1; step < members_.size(); ++step) {
    const std::size_t p = (place_ + step) % members_.size();
    const int to = members_[p];
    sent& kept = unconfirmed_[{to, now()}];
    kept.message = make_message(head_for(to, kind::data, now()), blocks[p]);
    over_->send(to, kept.message);
  }
  for (auto each = early_.begin(); each != early_.end();) {
    if (each->when != now()) {
      each = each->when < now() ? early_.erase(each) : std::next(each);
      continue;
    }
    head value;
    (void)read_head(each->message, value);
    accept(value, std::move(each->message));
    each = early_.erase(each);
  }
}

std::vector<bytes> exchange::end_all_to_all() {
  // Blocks that came while this rank computed are not late.
  while (poll(0)) {
  }
  const auto start = clock::now();
  for (wait& each : waits_) each.asked = start;
  for (;;) {
    // A rank that ends the call has sent its block of this exchange, if it took part.
    if (ended_.call == call_ && ended_.from >= 0 && !waits_[place_of(ended_.from)].here) leave_if_ended();
    double pause = k_longest_wait;
    bool all = true;
    for (std::size_t p = 0; p < waits_.size(); ++p) {
      wait& each = waits_[p];
      if (each.here) continue;
      all = false;
      const double left = each.pause - seconds_since(each.asked);
      if (left <= 0) {
        each.pause = std::min(2 * each.pause, k_longest_pause);
        ask(p);
      } else {
        pause = std::min(pause, left);
      }
    }
    if (all) break;
    if (!poll(pause)) look_for_losses();
  }
  running_ = false;
  std::vector<bytes> made;
  bool alike = true;
  for (wait& each : waits_) {
    alike = alike && each.alike;
    made.push_back(std::move(each.block));
  }
  waits_.clear();
  if (!alike)
    throw invalid_argument_error(fmt::format(
        "group: expected the same call with the same sizes and options on all {} ranks, got another one on some", members_.size()));
  return made;
}

std::vector<bytes> exchange::gather(std::span<const std::byte> block) {
  return all_to_all(std::vector<std::span<const std::byte>>(members_.size(), block));
}

void exchange::barrier() { (void)gather(std::span<const std::byte>()); }

void exchange::answer() {
  while (poll(0)) {
  }
}

// Adds the parts of all ranks, each words.size() words and their two weighted sums.
void exchange::add_parts(const std::vector<bytes>& parts, std::span<std::int64_t> words) {
  const auto once = [&](int) {
    std::vector<std::uint64_t> sums(words.size() + 2, 0);
    for (const bytes& each : parts) {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, each.data() + 8 * i, 8);
        sums[i] += word;
      }
    }
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::int64_t>(sums[i]);
    std::int64_t expected[2];
    weigh(words, expected);
    abft::finding found;
    found.residual = std::numeric_limits<double>::quiet_NaN();
    const bool same =
        static_cast<std::uint64_t>(expected[0]) == sums[words.size()] && static_cast<std::uint64_t>(expected[1]) == sums[words.size() + 1];
    found.word = same ? abft::k_pass : abft::k_fail;
    return found;
  };
  if (seen_ == nullptr || wanted_ == protection::off) {
    (void)once(0);
    return;
  }
  seen_->checked(2);
  (void)run::attempt(*seen_, wanted_, "group.sum", 0, once);
}

void exchange::add(std::span<std::int64_t> words) {
  const std::size_t ranks = members_.size();
  if (ranks <= 1) return;
  const auto with_sums = [](std::span<const std::int64_t> part) {
    std::vector<std::int64_t> made(part.begin(), part.end());
    std::int64_t sums[2];
    weigh(part, sums);
    made.insert(made.end(), std::begin(sums), std::end(sums));
    return made;
  };
  if (words.size_bytes() <= k_small || ranks == 2) {
    const std::vector<std::int64_t> own = with_sums(words);
    return add_parts(gather(std::as_bytes(std::span(own))), words);
  }
  // Each rank adds one segment of the words and sends it to all.
  const std::size_t count = words.size();
  const auto first = [&](std::size_t p) { return p * count / ranks; };
  std::vector<std::vector<std::int64_t>> segments;
  std::vector<std::span<const std::byte>> blocks;
  for (std::size_t p = 0; p < ranks; ++p) segments.push_back(with_sums(words.subspan(first(p), first(p + 1) - first(p))));
  blocks.reserve(ranks);
  for (const auto& each : segments) blocks.push_back(std::as_bytes(std::span(each)));
  std::vector<std::int64_t> own(first(place_ + 1) - first(place_));
  add_parts(all_to_all(blocks), own);
  const std::vector<std::vector<std::int64_t>> sums = gather(std::span<const std::int64_t>(own));
  auto to = words.begin();
  for (const auto& each : sums) to = std::ranges::copy(each, to).out;
}

// ---------------------------------------------------------------- Lost ranks.

void exchange::send_list(int to, std::uint64_t copy) {
  const std::vector<std::int32_t> list(lost_.begin(), lost_.end());
  head value = head_for(to, kind::regroup, now());
  value.copy = copy;
  over_->send(to, make_message(value, std::as_bytes(std::span(list))));
}

// A list of lost ranks has come. copy = 1 marks an answer, which is not answered.
void exchange::take_list(const head& value, std::span<const std::byte> body) {
  const int from = static_cast<int>(value.from);
  std::vector<int> list = list_of(body);
  std::ranges::sort(list);
  if (std::ranges::binary_search(list, rank_)) {
    throw rank_lost_error(fmt::format("group: rank {} was given up by the others", rank_), {rank_});
  }
  const bool known = std::ranges::includes(lost_, list);
  lists_[from] = std::move(list);
  if (regrouping_) return;
  if (!known) throw ranks_lost();
  if (value.copy == 0 && value.generation == lost_.size()) send_list(from, 1);
}

void exchange::regroup() {
  regrouping_ = true;
  running_ = false;
  std::size_t told = 0;  // lost ranks in the list that was sent last
  auto start = clock::now();
  waits_.assign(members_.size(), {});
  for (;;) {
    look_for_losses();
    for (const auto& [from, list] : lists_) {
      if (is_lost(from)) continue;
      std::vector<int> joined;
      std::ranges::set_union(lost_, list, std::back_inserter(joined));
      lost_ = std::move(joined);
    }
    if (lost_.size() != told || seconds_since(start) > how_.resend_after) {
      told = lost_.size();
      start = clock::now();
      for (const int to : members_)
        if (to != rank_ && !is_lost(to)) send_list(to, 0);
    }
    const bool done = std::ranges::all_of(members_, [&](int each) {
      const auto found = lists_.find(each);
      return each == rank_ || is_lost(each) || (found != lists_.end() && found->second == lost_);
    });
    if (done) break;
    (void)poll(how_.resend_after / 4);
  }
  std::erase_if(members_, [&](int each) { return is_lost(each); });
  place_ = place_of(rank_);
  unconfirmed_.clear();
  early_.clear();
  waits_.clear();
  call_ = epoch_ = 0;
  ended_ = {};
  seen_ = nullptr;
  regrouping_ = false;
  // Who lacks this rank's list asks by sending its own again.
}

}  // namespace ballast::wire
