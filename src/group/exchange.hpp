// Exchanges of blocks between the ranks of a group, each block protected by a seal and sent again until it has come whole; sums of
// integers; and the agreement on lost ranks.
// Layer: group.
// Source: docs/design/distributed.md. An exchange consists of steps. In a step, which has an epoch of its own, a rank sends one block to
// each of some members and takes one of each of some others; both sides know of each other. A rank leaves a step when all its blocks have
// come whole. It keeps what it sent until the other rank has confirmed it, and sends it again when asked; so it answers requests of steps
// that it has left. A few ranks exchange directly, each with every other, in one step. More ranks gather and add in about log₂ P steps with
// one block each: relays.cpp.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ballast/group.hpp>

#include "group/message.hpp"
#include "run/recorder.hpp"

namespace ballast::wire {

class sum_of_ranks;

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

// It has many members because each message may change the call, the step that runs, the blocks that are kept for others, and who is lost.
class exchange {
 public:
  // Groups of more ranks gather and add by relays. An exchange with all of a few takes less time in one step.
  static constexpr std::size_t k_direct_ranks = 8;

  exchange(std::shared_ptr<transport> over, const group_options& how);
  // Sets another limit than k_direct_ranks, alike on all ranks: for engines whose messages go to all ranks anyhow, and for tests.
  void set_direct_ranks(std::size_t limit) { direct_ = limit; }

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
  // Tells all ranks that this one leaves the call by an exception. Over NCCL it waits for the round before the one with that message.
  void leave_call();
  // Leaves a call that this rank does not begin.
  void refuse_call();
  // The number of calls that this rank has begun or refused.
  std::uint64_t calls() const { return calls_; }
  // Ends a call that another rank has ended.
  void forget_call();
  // `leaves` is called when this rank leaves a call by an error, its own or another rank's.
  void when_left(std::function<void()> leaves) { leaves_ = std::move(leaves); }
  // A number that all ranks must have alike in the exchanges that follow, such as a seal of replicated data. An exchange throws
  // invalid_argument_error if another rank's is different: the ranks made different calls, or hold different data.
  void expect_alike(std::uint64_t digest) { digest_ = digest; }

  // Sends block p to member p and returns the blocks that came from the members; the own one is copied. Every rank sends to every other.
  std::vector<bytes> all_to_all(const std::vector<std::span<const std::byte>>& blocks);
  // The two halves of it: a rank may compute between them, while the blocks are on their way. No other exchange may begin meanwhile.
  void begin_all_to_all(const std::vector<std::span<const std::byte>>& blocks);
  std::vector<bytes> end_all_to_all();
  // Compares what expect_alike() was told, before ranks that made different calls wait for blocks which the others do not send. A few ranks
  // compare it in every exchange.
  void check_alike() {
    if (by_relays()) barrier();
  }
  // The same between ranks that have something for each other: no message goes for an empty block, and none is awaited from a member p
  // whose awaited[p] is false. awaited[p] must be whether member p's block for this rank is not empty. A few ranks send empty blocks, too,
  // so as to be sure.
  std::vector<bytes> some_to_some(const std::vector<std::span<const std::byte>>& blocks, const std::vector<bool>& awaited);
  // The same in two halves, without empty blocks for any number of ranks: all ranks must be known to make the same call. A block that was
  // sent is kept until it is confirmed or all ranks have come to a later exchange of all.
  void begin_some_to_some(const std::vector<std::span<const std::byte>>& blocks, const std::vector<bool>& awaited);
  std::vector<bytes> end_some_to_some();
  // As some_to_some in two halves, with blocks that lie in messages, so that none is copied: messages[p] is one of message_for() with
  // member p's block after the head, or empty, and stays here until it is confirmed. The results are messages, too, or empty; forget()
  // takes them back. The own one is neither sent nor returned. A rank may compute between the halves. No other exchange may begin
  // meanwhile.
  void begin_messages(std::vector<bytes> messages, const std::vector<bool>& awaited);
  std::vector<bytes> end_messages();
  // Returns a message for a block of so many bytes, with any contents, in memory that an earlier one has left if there is some.
  bytes message_for(std::size_t length);
  void forget(bytes&& message);
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
  // Returns whether another rank has ended this call. leave_if_ended() throws call_ended then.
  bool has_call_ended() const { return ended_.from >= 0 && ended_.call == call_; }
  void leave_if_ended();

  // Agrees with all ranks that are left on which are lost, and begins a new generation with them. Throws rank_lost_error if they have given
  // this rank up.
  void regroup();
  const std::vector<int>& lost() const { return lost_; }  // ascending

 private:
  static constexpr std::size_t k_none = ~std::size_t{0};
  using clock = std::chrono::steady_clock;
  struct sent {
    bytes message;
    std::uint64_t copies = 1;
    std::function<bytes()> make;  // computes the block again from its sources; null: it is the rank's own
  };
  // A peer whose block is awaited in the step that runs.
  struct wait {
    std::size_t place = 0;
    bool here = false;        // its block has come
    bytes message;            // with it; empty if a reader has it
    bool spoiled = false;     // its block came whole, but what it carries of other ranks did not
    int damaged = 0;          // copies of its block that came damaged
    clock::time_point asked;  // when it was last asked for its block, or the step began
    double pause = 0;         // until it is asked again
  };
  // Steps of all calls in their order.
  struct moment {
    std::uint64_t call, epoch;
    bool operator==(const moment&) const = default;
    bool operator<(const moment& other) const { return call != other.call ? call < other.call : epoch < other.epoch; }
  };
  // A call that a rank has ended.
  struct end {
    std::uint64_t call = 0, epoch = 0;  // the rank has sent its blocks of this step, and none later
    int from = -1;
    bool spoiled = false;
  };
  // A reader's judgement of a block that came whole from its sender. damaged: blocks of other ranks in it are not. unlike: another call.
  enum class content { whole, damaged, unlike };
  // The blocks of a gather by relays: each is a message of its origin to all, with the origin's seal.
  struct gathering {
    moment id;                        // its first step
    std::vector<bytes> messages;      // by place; empty: has not come
    std::size_t from = 0, count = 0;  // those that are awaited in the step that runs; places beyond the last begin anew
  };

  moment now() const { return {call_, epoch_}; }
  bool by_relays() const { return members_.size() > direct_; }
  std::size_t place_of(int rank) const;
  bool is_lost(int rank) const;
  head head_for(int to, kind what, const moment& when) const;
  void send(int to, kind what, const moment& when, std::uint64_t copy = 0);
  void send_end(bool spoiled);
  void send_again(int to, sent& kept);

  // A step: open() begins it, post() sends a block, close() waits for those of the members in `from` and returns them in this order;
  // await() leaves them in the messages of waits_. read() examines a block before it is confirmed; one that a reader keeps is returned
  // empty.
  void open(std::uint64_t digest, const std::vector<std::size_t>& from, std::function<content(std::span<const std::byte>)> read = {});
  void post(std::size_t to, std::span<const std::byte> block, std::function<bytes()> make = {});
  // Members by their distance from this one, so that not all send to the same one first.
  std::vector<std::size_t> others() const;
  std::vector<bytes> close_by_place();
  void post_message(std::size_t to, bytes&& message, std::function<bytes()> make = {});
  void take_early();
  void await();
  std::vector<bytes> close();
  // The members whose awaited[p] is true, or, unless relays are used, all others; in the order in which this rank sends to them.
  std::vector<std::size_t> senders(const std::vector<bool>& awaited) const;
  // Memory that messages have left.
  bytes spare(std::size_t length);
  // All ranks have come to the step `first`, so none will ask for what is older.
  void passed(const moment& first);
  // Takes one message, waiting `seconds` at most, and acts on it. Returns whether one came. Ranks that were suspended with this one, or had
  // no processor, must not count as silent for all that time: a wait counts for twice the seconds that were asked for at most.
  bool poll(double seconds);
  void take(int from, bytes&& message);
  void take_data(const head& value, bytes&& message);
  void take_wanted(const head& value);
  void take_end(const end& found);
  void take_list(const head& value, std::span<const std::byte> list);
  void accept(wait& at, const head& value, bytes&& message);
  void arrived(wait& at);
  void repaired(const char* site, int from);
  wait* awaited(int from);
  void ask(wait& at);
  clock::time_point ask_late();
  void damaged(int from);
  void damaged(wait& at);
  bool is_missed(std::size_t place);
  std::vector<int> missed();
  void look_for_losses();
  bool must_leave();
  void leave();
  void next_call();
  void send_list(int to, std::uint64_t copy);

  std::vector<bytes> gather_by_relays(std::span<const std::byte> block);
  bool has_awaited(const gathering& all) const;
  content read_messages(gathering& all, std::span<const std::byte> bundle);
  bool store_message(gathering& all, std::size_t place, std::span<const std::byte> message);
  void take_origin(const head& value, bytes&& message);
  void ask_origins();
  void add_directly(std::span<std::int64_t> words);
  void add_by_relays(std::span<std::int64_t> words);
  void check_sum(sum_of_ranks& sums, std::size_t from, std::size_t until, std::uint64_t marks);
  std::uint64_t mark_of(std::size_t place, const moment& first) const;
  void throw_if_unlike();

  std::shared_ptr<transport> over_;
  group_options how_;
  int rank_;
  std::vector<int> members_, lost_;
  std::size_t place_ = 0;
  std::function<void()> leaves_;
  run::recorder* seen_ = nullptr;
  protection wanted_ = protection::correct;
  std::size_t direct_ = k_direct_ranks;
  std::uint64_t call_ = 0, epoch_ = 0, digest_ = 0;
  std::uint64_t calls_ = 0;  // call_ begins anew in each generation
  end ended_, left_;         // the earliest end of this call by another rank; the end of the last call that this one left
  bool running_ = false;     // within a step
  bool regrouping_ = false;
  std::vector<wait> waits_;           // the blocks of the step that runs
  std::vector<std::size_t> wait_of_;  // by place: the number in waits_, or k_none
  std::size_t missing_ = 0;           // blocks that have not come
  std::uint64_t expected_ = 0;        // the digest of the step that runs
  bool unlike_ = false;               // another rank's was different
  std::function<content(std::span<const std::byte>)> read_;
  double waited_ = 0;                                        // seconds for which this rank has waited
  std::vector<double> heard_;                                // by place: waited_ when a message came last, or was first awaited
  std::map<std::pair<int, moment>, sent> unconfirmed_;       // by rank
  std::map<std::pair<moment, int>, bytes> early_;            // blocks of steps that this rank has not begun, by rank
  std::map<moment, std::shared_ptr<gathering>> gatherings_;  // until all ranks have left them
  bytes own_;                                                // the block of this rank for itself
  std::vector<bytes> spares_;                                // memory that messages have left, for those to come
  std::size_t spare_bytes_ = 0;
  std::shared_ptr<gathering> gathering_;   // the one that runs
  std::map<int, std::vector<int>> lists_;  // regroup: the lists of lost ranks that have come, by rank
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
