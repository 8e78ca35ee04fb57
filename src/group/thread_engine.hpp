// The engine of ranks that are threads of one process, with faults of the wire for tests.
// Layer: group.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <ballast/group.hpp>

#include "group/message.hpp"

namespace ballast::wire {

// Faults of a message of a rank. struck: one bit of its body flipped before the message got its seal, as in the memory of a rank that
// passes on what others sent; it is not among k_faults, as the body of an own block has no other seal. bit: one bit of it flips. swapped:
// its two halves change places. misrouted: it goes to another rank. stale: the message that went to the same rank before comes instead.
// late: it comes some milliseconds later. lost_rank: the rank ends.
enum class fault { bit, swapped, misrouted, stale, dropped, repeated, late, lost_rank, struck };
inline constexpr fault k_faults[] = {fault::bit,     fault::swapped,  fault::misrouted, fault::stale,
                                     fault::dropped, fault::repeated, fault::late,      fault::lost_rank};

struct wire_fault {
  fault what = fault::bit;
  int rank = 0;               // the sender
  std::uint64_t message = 0;  // the number of the message among those that it sends, from 0
  std::uint64_t count = 1;    // so many messages in a row
  std::uint64_t seed = 0;     // the bit, the rank, the delay
};

// Leaves the thread of a rank that is lost; the test that asked for it catches it.
class rank_ended : public std::exception {
 public:
  const char* what() const noexcept override { return "the rank was ended by a fault of the wire"; }
};

// The mailboxes of all ranks.
class switchboard {
 public:
  // awake: a rank that receives stays awake for 100 µs before it sleeps, if there are two processors for each: threads of devices wait for
  // each other for some microseconds, and a sleeping one takes ten times as long to begin again.
  explicit switchboard(int ranks, std::vector<wire_fault> faults = {}, bool awake = false);
  int ranks() const { return static_cast<int>(boxes_.size()); }
  void send(int from, int to, bytes message);
  int receive(int to, bytes& message, double seconds);
  bool ended(int rank) const { return boxes_[static_cast<std::size_t>(rank)]->ended.load(); }
  void end(int rank);
  std::uint64_t messages(int rank) const { return boxes_[static_cast<std::size_t>(rank)]->sent.load(); }
  // The number of messages that a fault has struck.
  std::uint64_t struck() const { return struck_.load(); }

 private:
  using clock = std::chrono::steady_clock;
  struct letter {
    int from;
    clock::time_point due;
    bytes message;
  };
  struct box {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<letter> letters;
    std::atomic<bool> ended{false};
    std::atomic<std::uint64_t> sent{0};
    std::vector<bytes> before;  // by receiver: the last message; only with faults, used by the sender alone
  };
  void put(int from, int to, bytes message, std::chrono::milliseconds delay);

  std::vector<std::unique_ptr<box>> boxes_;
  std::vector<wire_fault> faults_;
  std::atomic<std::uint64_t> struck_{0};
  std::chrono::microseconds awake_{0};
};

class thread_engine final : public transport {
 public:
  thread_engine(std::shared_ptr<switchboard> board, int rank) : board_(std::move(board)), rank_(rank) {}
  ~thread_engine() override { board_->end(rank_); }
  int rank() const override { return rank_; }
  int size() const override { return board_->ranks(); }
  void send(int to, std::span<const std::byte> message) override { board_->send(rank_, to, bytes(message.begin(), message.end())); }
  int receive(bytes& message, double seconds) override { return board_->receive(rank_, message, seconds); }
  bool lost(int rank) override { return board_->ended(rank); }

 private:
  std::shared_ptr<switchboard> board_;
  int rank_;
};

}  // namespace ballast::wire
