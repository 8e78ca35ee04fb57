// One call of an algorithm on a group: its beginning and end, the ways in which it fails, and one report on all ranks.
// Layer: group.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <ballast/error.hpp>
#include <ballast/execution.hpp>
#include <ballast/report.hpp>

#include "core/format.hpp"
#include "group/exchange.hpp"
#include "run/recorder.hpp"

namespace ballast::wire {

// Returns the exchange of a rank. Throws unsupported_error for a group of devices; `token` names the problem.
exchange& exchange_of(const group& ranks, std::string_view token);

// An exception of another rank has ended the call.
class left_by_other : public error {
 public:
  using error::error;
};

// Returns the message of a rank_lost_error.
std::string lost_message(const exchange& over, std::string_view token);

// Runs exchanges outside of a call: lost ranks become rank_lost_error, messages that stay damaged an error that names their reader.
template <class Work>
void in_exchange(exchange& over, std::string_view token, Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (const ranks_lost&) {
    over.regroup();
    throw rank_lost_error(lost_message(over, token), over.lost());
  } catch (const call_ended& end) {
    throw left_by_other(
        fmt::format("{}: expected messages that are whole, rank {} of the group got one damaged each time", token, end.rank));
  }
}

// Prepares a call; an exception ends it on all ranks.
template <class Work>
void prepare(exchange& over, Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (...) {
    over.refuse_call();
    throw;
  }
}

// Returns the callback of a rank for a call. A rank with one may go another way than one without: so all have one if any has.
std::function<void(const progress&)> progress_of_all(const std::function<void(const progress&)>& own, bool any);

// Returns the report of all ranks: counts added, events in the order of ranks, the longest time. Every rank has the same.
report joined(exchange& over, const report& own);

// Runs work(), a call that ends with joined(), with `seen` as its recorder. A block that came damaged each time ends it on every rank with
// the report of the rank, whose verdict is uncorrectable; an exception of one rank ends it on all others with an error that names the rank.
// Lost ranks leave it as ranks_lost.
template <class Work>
report in_group(exchange& over, run::recorder& seen, std::string_view token, Work&& work) {
  over.begin_call(&seen, seen.protection());
  report made;
  try {
    made = std::forward<Work>(work)();
    over.end_call();
  } catch (const call_ended& end) {
    over.forget_call();
    if (end.damaged) return seen.deliver(seen.collect());
    throw left_by_other(fmt::format("{}: rank {} of the group left the call by an error", token, end.rank));
  } catch (const ranks_lost&) {
    throw;  // regroup() begins anew
  } catch (...) {
    over.leave_call();
    throw;
  }
  return seen.deliver(std::move(made));
}

}  // namespace ballast::wire
