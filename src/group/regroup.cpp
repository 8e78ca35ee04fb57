// The agreement of the ranks that are left on which are lost. See exchange.hpp.
#include <algorithm>
#include <iterator>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "group/elapsed.hpp"
#include "group/exchange.hpp"

namespace ballast::wire {

namespace {

std::vector<int> list_of(std::span<const std::byte> body) {
  std::vector<std::int32_t> made(body.size() / 4);
  if (!made.empty()) std::memcpy(made.data(), body.data(), made.size() * 4);
  return {made.begin(), made.end()};
}

}  // namespace

bool exchange::is_missed(std::size_t place) { return over_->lost(members_[place]) || waited_ - heard_[place] > how_.patience; }

// Returns the members that are missed: in a step only those whose block is awaited and has not come, so that a rank which has done its part
// may have ended since, and one that waits for a third rank, but answers, is not accused; in an agreement those whose list has not come.
std::vector<int> exchange::missed() {
  std::vector<int> made;
  if (!regrouping_) {
    for (const wait& each : waits_)
      if (running_ && !each.here && is_missed(each.place)) made.push_back(members_[each.place]);
    std::ranges::sort(made);
    return made;
  }
  for (std::size_t p = 0; p < members_.size(); ++p) {
    const int member = members_[p];
    if (p == place_ || is_lost(member)) continue;
    if (const auto list = lists_.find(member); list != lists_.end() && list->second == lost_) continue;
    if (is_missed(p)) made.push_back(member);
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
  waits_.clear();
  heard_.assign(members_.size(), waited_);
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
  gatherings_.clear();
  gathering_ = nullptr;
  wait_of_.assign(members_.size(), k_none);
  heard_.assign(members_.size(), waited_);
  call_ = epoch_ = 0;
  ended_ = left_ = {};
  seen_ = nullptr;
  regrouping_ = false;
  // Who lacks this rank's list asks by sending its own again.
}

}  // namespace ballast::wire
