// Exchanges of blocks between the ranks of a group, each block protected by a seal and sent again until it has come whole; sums of
// integers; and the agreement on lost ranks.
// Layer: group.
// Source: docs/design/distributed.md. One exchange has one epoch: every rank sends one block, which may be empty, to every other and
// takes one of each. A rank leaves an exchange when all blocks for it have come whole. It keeps what it sent until the other rank has
// confirmed it, and sends it again when asked; so it answers requests of exchanges that it has left. No rank can be more than one epoch
// ahead of another.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ballast/group.hpp>

#include "group/message.hpp"
#include "run/recorder.hpp"

namespace ballast::wire {

// Thrown out of an exchange when ranks are lost, on each rank that is left, which then calls regroup().
class ranks_lost : public std::exception {
 public:
  const char* what() const noexcept override { return "ranks of the group are lost"; }
};

// Thrown out of an exchange when a rank has ended the call. damaged: since a block came to it damaged each time, which is recorded as
// uncorrectable on every rank; otherwise by an exception.
class call_ended : public std::exception {
 public:
  call_ended(int rank, bool damaged) : rank(rank), damaged(damaged) {}
  const char* what() const noexcept override { return "a rank of the group has ended the call"; }
  int rank;
  bool damaged;
};

class exchange {
 public:
  exchange(std::shared_ptr<transport> over, const group_options& how);

  // The ranks that are left, ascending; ranks of the engine. place(): this rank's index in it.
  const std::vector<int>& members() const { return members_; }
  int rank() const { return rank_; }
  std::size_t place() const { return place_; }
  std::size_t size() const { return members_.size(); }
  // Returns whether the engine knows that a member has ended.
  bool has_ended(std::size_t place) const { return over_->lost(members_[place]); }

  // begin_call: begins a call; its checks and faults are recorded in `seen`, unless that is null. end_call: gives the other ranks a moment
  // to confirm the last blocks. A rank that has not will ask in the next call.
  void begin_call(run::recorder* seen, protection wanted);
  void end_call();
  // Tells all ranks that this one leaves the call by an exception.
  void leave_call();
  // Ends a call that another rank has ended.
  void forget_call();
  // A number that all ranks must have alike in the exchanges that follow, such as a seal of replicated data. An exchange throws
  // invalid_argument_error if another rank's is different: the ranks made different calls, or hold different data.
  void expect_alike(std::uint64_t digest) { digest_ = digest; }

  // Sends block p to member p and returns the blocks that came from the members; the own one is copied.
  std::vector<bytes> all_to_all(const std::vector<std::span<const std::byte>>& blocks);
  // The two halves of it: a rank may compute between them, while the blocks are on their way. No other exchange may begin meanwhile.
  void begin_all_to_all(const std::vector<std::span<const std::byte>>& blocks);
  std::vector<bytes> end_all_to_all();
  // Sends one block to all and returns those of all members in their order.
  std::vector<bytes> gather(std::span<const std::byte> block);
  template <class Number>
  std::vector<std::vector<Number>> gather(std::span<const Number> block);
  // Replaces the words of every rank by their sums over all ranks, modulo 2⁶⁴. Two weighted sums over the words travel with them and must
  // be those of the result (check "group.sum"); otherwise it is added again.
  void add(std::span<std::int64_t> words);
  void barrier();
  // Answers the messages that have come, without waiting. A rank that waits for something else than an exchange calls it.
  void answer();

  // Agrees with all ranks that are left on which are lost, and begins a new generation with them. Throws rank_lost_error if they have given
  // this rank up.
  void regroup();
  const std::vector<int>& lost() const { return lost_; }  // ascending

 private:
  using clock = std::chrono::steady_clock;
  struct sent {
    bytes message;
    std::uint64_t copies = 1;
  };
  // The state of a peer in the exchange that runs.
  struct wait {
    bool alike = true;  // its digest is this rank's
    bool here = false;  // its block has come
    bytes block;
    int damaged = 0;          // copies of its block that came damaged
    clock::time_point asked;  // when it was last asked for its block, or the exchange began
    double pause = 0;         // until it is asked again
    double silent = 0;        // seconds for which this rank has waited since it last sent anything
  };
  // Exchanges of all calls in their order.
  struct moment {
    std::uint64_t call, epoch;
    bool operator==(const moment&) const = default;
    bool operator<(const moment& other) const { return call != other.call ? call < other.call : epoch < other.epoch; }
  };
  // A call that a rank has ended.
  struct end {
    std::uint64_t call = 0;
    int from = -1;
    bool spoiled = false;
  };
  struct early {
    moment when;
    int from;
    bytes message;
  };

  moment now() const { return {call_, epoch_}; }
  std::size_t place_of(int rank) const;
  bool is_lost(int rank) const;
  head head_for(int to, kind what, const moment& when) const;
  void send(int to, kind what, const moment& when);
  void send_end(bool spoiled);
  void send_again(int to, sent& kept);
  // Takes one message, waiting `seconds` at most, and acts on it. Returns whether one came. Ranks that were suspended with this one, or had
  // no processor, must not count as silent for all that time: a wait counts for twice the seconds that were asked for at most.
  bool poll(double seconds);
  void take(int from, bytes&& message);
  void take_data(const head& value, bytes&& message);
  void take_list(const head& value, std::span<const std::byte> list);
  void accept(const head& value, bytes&& message);
  void ask(std::size_t peer);
  void damaged(int from);
  std::vector<int> missed();
  void look_for_losses();
  void leave_if_ended();
  void next_call();
  void send_list(int to, std::uint64_t copy);
  void add_parts(const std::vector<bytes>& parts, std::span<std::int64_t> words);

  std::shared_ptr<transport> over_;
  group_options how_;
  int rank_;
  std::vector<int> members_, lost_;
  std::size_t place_ = 0;
  run::recorder* seen_ = nullptr;
  protection wanted_ = protection::correct;
  std::uint64_t call_ = 0, epoch_ = 0, digest_ = 0;
  end ended_;
  bool running_ = false;  // within all_to_all
  bool regrouping_ = false;
  std::vector<wait> waits_;                             // by place
  std::map<std::pair<int, moment>, sent> unconfirmed_;  // by rank
  std::deque<early> early_;                             // blocks of exchanges that this rank has not begun
  std::map<int, std::vector<int>> lists_;               // regroup: the lists of lost ranks that have come, by rank
};

template <class Number>
std::vector<std::vector<Number>> exchange::gather(std::span<const Number> block) {
  std::vector<std::vector<Number>> made;
  for (const bytes& each : gather(std::as_bytes(block))) {
    std::vector<Number> numbers(each.size() / sizeof(Number));
    if (!numbers.empty()) std::memcpy(numbers.data(), each.data(), numbers.size() * sizeof(Number));
    made.push_back(std::move(numbers));
  }
  return made;
}

}  // namespace ballast::wire
