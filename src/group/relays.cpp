// Gathers by relays, and sums. See exchange.hpp; docs/design/distributed.md, "Relays".
#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>

#include "abft/seal.hpp"
#include "group/exchange.hpp"
#include "group/sum_of_ranks.hpp"
#include "run/attempt.hpp"

namespace ballast::wire {

namespace {

constexpr std::size_t k_small = 32 * 1024;      // bytes that add() does not divide among the ranks
constexpr std::size_t k_fewest_words = 16;      // fewest words of a segment
constexpr std::uint64_t k_gather = 0x67617468;  // digests of steps: the pattern; those of the ranks travel with their blocks
constexpr std::uint64_t k_add = 0x616464;

}  // namespace

// ---------------------------------------------------------------- Gathers.

// By dissemination: before the step with distance d a rank has the blocks of the d members from its own place on; it sends them to the
// member d places before it.
std::vector<bytes> exchange::gather_by_relays(std::span<const std::byte> block) {
  const std::size_t ranks = members_.size();
  const auto all = std::make_shared<gathering>();
  all->id = {call_, epoch_ + 1};
  all->messages.resize(ranks);
  head own = head_for(rank_, kind::data, all->id);
  own.to = k_all;
  all->messages[place_] = make_message(own, block);
  gatherings_[all->id] = all;
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    all->from = place_ + distance;
    all->count = std::min(distance, ranks - distance);
    const auto bundle = [all, first = place_, count = all->count] {
      bytes made;
      for (std::size_t i = 0; i < count; ++i) {
        const bytes& each = all->messages[(first + i) % all->messages.size()];
        made.insert(made.end(), each.begin(), each.end());
      }
      return made;
    };
    open(k_gather, {all->from % ranks}, [this, all](std::span<const std::byte> found) { return read_messages(*all, found); });
    gathering_ = all;
    post((place_ + ranks - distance) % ranks, bundle(), bundle);
    (void)close();
    throw_if_unlike();
  }
  gathering_ = nullptr;
  passed(all->id);
  std::vector<bytes> made;
  made.reserve(ranks);
  for (const bytes& each : all->messages) {
    head value;
    (void)read_head(each, value);
    unlike_ = unlike_ || value.digest != digest_;
    made.emplace_back(each.begin() + sizeof value, each.end());
  }
  throw_if_unlike();
  return made;
}

bool exchange::has_awaited(const gathering& all) const {
  for (std::size_t i = 0; i < all.count; ++i)
    if (all.messages[(all.from + i) % all.messages.size()].empty()) return false;
  return true;
}

// Reads the messages of several members that a relay passes on, one after the other.
exchange::content exchange::read_messages(gathering& all, std::span<const std::byte> bundle) {
  if (seen_ != nullptr && wanted_ != protection::off) seen_->checked(all.count);
  for (std::size_t i = 0; i < all.count && bundle.size() >= sizeof(head); ++i) {
    head value;
    std::memcpy(&value, bundle.data(), sizeof value);
    if (value.seal != seal_of_head(value) || value.length > bundle.size() - sizeof value) break;  // so the place of the next one is unknown
    const std::size_t size = sizeof value + value.length;
    (void)store_message(all, (all.from + i) % all.messages.size(), bundle.first(size));
    bundle = bundle.subspan(size);
  }
  return has_awaited(all) ? content::whole : content::damaged;
}

// Keeps the message of a member if it is whole and of this gather. Returns whether it is there.
bool exchange::store_message(gathering& all, std::size_t place, std::span<const std::byte> message) {
  if (!all.messages[place].empty()) return true;
  head value;
  if (!read_head(message, value) || value.what != static_cast<std::uint64_t>(kind::data) || value.to != k_all) return false;
  if (value.from != static_cast<std::uint64_t>(members_[place]) || value.generation != lost_.size()) return false;
  if (moment{value.call, value.epoch} != all.id) return false;
  if (wanted_ != protection::off && !body_is_whole(message, value)) return false;
  all.messages[place].assign(message.begin(), message.end());
  return true;
}

// A relay has passed on damaged blocks, and again when it was asked: their origins have them.
void exchange::ask_origins() {
  if (!gathering_) return;
  for (std::size_t i = 0; i < gathering_->count; ++i) {
    const std::size_t p = (gathering_->from + i) % members_.size();
    if (gathering_->messages[p].empty()) send(members_[p], kind::origin_wanted, gathering_->id);
  }
}

// The block of a member has come from itself.
void exchange::take_origin(const head& value, bytes&& message) {
  if (!running_ || !gathering_ || gathering_->id != moment{value.call, value.epoch} || missing_ == 0) return;
  if (!store_message(*gathering_, place_of(static_cast<int>(value.from)), body_of(message)) || !has_awaited(*gathering_)) return;
  repaired("group.wire", members_[waits_[0].place]);
  arrived(waits_[0]);
}

// ---------------------------------------------------------------- Sums.

// Let 2^q be the largest power of two of at most P ranks. Those beyond give their words to the ranks 2^q before them. Then in q steps each
// rank exchanges with the one whose place differs in one bit, from the highest to the lowest: its sums, if they are few; else only those of
// the half of the segments that the other is going to keep, after which all gather the segments.
void exchange::add_by_relays(std::span<std::int64_t> words) {
  const std::size_t ranks = members_.size(), whole = std::bit_floor(ranks), beyond = ranks - whole;
  const bool divided = words.size_bytes() > k_small && words.size() >= k_fewest_words * whole;
  const moment first = {call_, epoch_ + 1};
  const auto mark = [&](std::size_t p) { return mark_of(p, first); };
  // The marks of the ranks that come together in p, p + step, … below 2^q.
  const auto marks = [&](std::size_t p, std::size_t step) {
    std::uint64_t made = 0;
    for (; p < whole; p += step) made += mark(p) + (p < beyond ? mark(p + whole) : 0);
    return made;
  };
  const std::uint64_t digest = abft::chained(k_add, digest_), pattern = abft::chained(k_add, words.size());
  const auto sums = std::make_shared<sum_of_ranks>(words, divided ? whole : 1, mark(place_), digest);
  const std::size_t all = sums->segments();
  const auto give = [&](std::size_t to, std::size_t from, std::size_t until) {
    post(to, sums->block(from, until), [sums, from, until, parts = sums->parts()] { return sums->again(from, until, parts); });
  };
  bytes came;
  const auto reader = [&](std::size_t from, std::size_t until, std::uint64_t expected) {
    return [&, from, until, expected](std::span<const std::byte> block) {
      if (!sums->fits(from, until, block)) return content::unlike;
      if (wanted_ != protection::off && !sums->is_whole(from, until, block, expected)) return content::damaged;
      came.assign(block.begin(), block.end());
      return content::whole;
    };
  };
  const auto end = [&] {
    (void)close();
    throw_if_unlike();
  };
  const auto add_what_came = [&](std::size_t from, std::size_t until, std::uint64_t expected) {
    sums->keep(from, until, std::exchange(came, {}));
    check_sum(*sums, from, until, expected);
  };

  if (beyond > 0) {
    const bool takes = place_ < beyond;
    const std::uint64_t expected = takes ? mark(place_ + whole) : 0;
    open(pattern, takes ? std::vector{place_ + whole} : std::vector<std::size_t>(), reader(0, all, expected));
    if (place_ >= whole) give(place_ - whole, 0, all);
    end();
    if (takes) add_what_came(0, all, mark(place_) + expected);
  }
  std::size_t from = 0, until = all;
  for (std::size_t distance = whole / 2; distance > 0; distance /= 2) {
    if (place_ >= whole) {
      open(pattern, {});
      end();
      continue;
    }
    const std::size_t other = place_ ^ distance;
    const std::size_t middle = divided ? from + (until - from) / 2 : until;
    const bool low = (place_ & distance) == 0;
    const std::size_t kept[2] = {low || !divided ? from : middle, low ? middle : until};
    const std::size_t given[2] = {low && divided ? middle : from, low ? until : middle};
    open(pattern, {other}, reader(kept[0], kept[1], marks(other % (2 * distance), 2 * distance)));
    give(other, given[0], given[1]);
    end();
    from = kept[0];
    until = kept[1];
    add_what_came(from, until, marks(place_ % distance, distance));
  }
  if (beyond > 0 && !divided) {
    const bool takes = place_ >= whole;
    open(pattern, takes ? std::vector{place_ - whole} : std::vector<std::size_t>(), reader(0, all, marks(0, 1)));
    if (place_ < beyond) give(place_ + whole, 0, all);
    end();
    if (takes) sums->become(0, all, came);
  }
  if (divided) {
    const std::vector<std::int64_t> own = place_ < whole ? sums->words(from, until) : std::vector<std::int64_t>();
    auto to = words.begin();
    for (const auto& each : gather(std::span<const std::int64_t>(own))) to = std::ranges::copy(each, to).out;
    return;
  }
  passed(first);
  unlike_ = sums->digests(0) != ranks * digest;
  throw_if_unlike();
  std::ranges::copy(sums->words(0, all), words.begin());
}

// Few words: each rank adds those of all. More: each rank adds one segment of the words and sends it to all.
void exchange::add_directly(std::span<std::int64_t> words) {
  const std::size_t ranks = members_.size();
  const bool divided = words.size_bytes() > k_small && ranks > 2;
  std::uint64_t marks = 0;
  for (std::size_t p = 0; p < ranks; ++p) marks += mark_of(p, {call_, epoch_ + 1});
  sum_of_ranks sums(words, divided ? ranks : 1, mark_of(place_, {call_, epoch_ + 1}), 0);
  const std::size_t from = divided ? place_ : 0, until = from + 1;
  std::vector<bytes> parts;
  if (divided) {
    std::vector<std::span<const std::byte>> blocks;
    for (std::size_t p = 0; p < ranks; ++p) blocks.push_back(sums.block(p, p + 1));
    parts = all_to_all(blocks);
  } else {
    parts = gather(sums.block(0, 1));
  }
  for (std::size_t p = 0; p < ranks; ++p) {
    if (p == place_) continue;
    unlike_ = !sums.fits(from, until, parts[p]);
    throw_if_unlike();
    sums.keep(from, until, std::move(parts[p]));
  }
  check_sum(sums, from, until, marks);
  const std::vector<std::int64_t> own = sums.words(from, until);
  if (!divided) {
    std::ranges::copy(own, words.begin());
    return;
  }
  auto to = words.begin();
  for (const auto& each : gather(std::span<const std::int64_t>(own))) to = std::ranges::copy(each, to).out;
}

// Adds what `sums` keeps, and verifies the sums of these segments; if they are wrong, adds again.
void exchange::check_sum(sum_of_ranks& sums, std::size_t from, std::size_t until, std::uint64_t marks) {
  if (seen_ == nullptr || wanted_ == protection::off) return sums.add();
  const auto once = [&](int number) {
    number == 0 ? sums.add() : sums.add_again();
    abft::finding made;
    made.residual = std::numeric_limits<double>::quiet_NaN();
    made.word = sums.is_whole(from, until, sums.block(from, until), marks) ? abft::k_pass : abft::k_fail;
    return made;
  };
  seen_->checked(2);
  (void)run::attempt(*seen_, wanted_, "group.sum", 0, once);
}

// The mark of a member's words in the sum that begins with this step.
std::uint64_t exchange::mark_of(std::size_t place, const moment& first) const {
  return abft::chained(abft::chained(first.call << 32 ^ first.epoch, lost_.size()), static_cast<std::uint64_t>(members_[place]) + 1);
}

}  // namespace ballast::wire
