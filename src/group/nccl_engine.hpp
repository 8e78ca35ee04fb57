// The engine of ranks with a GPU each, over NCCL: messages between the hosts, and blocks and sums between the memories of the devices.
// Layer: group. docs/design/distributed.md, "NCCL".
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ballast/group.hpp>

#include "cuda/device/device.hpp"
#include "group/message.hpp"
#include "group/nccl.hpp"

namespace ballast::wire {

// Messages. NCCL has no receive of any sender and any length, so all ranks move on by rounds: in each every rank sends a slot of fixed size
// to every other, with its next messages or parts of them, or with none. A slot that comes damaged is left out; the exchange asks for what
// it had. Rounds go on while any rank has more to send.
class nccl_engine final : public transport {
 public:
  // `slot`: bytes of a slot, at least 256 and a multiple of 8.
  nccl_engine(const nccl::api& functions, nccl::handle parent, double patience, std::int64_t slot);
  ~nccl_engine() override;
  int rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  const std::shared_ptr<cuda::device>& device() const { return device_; }
  int device_number() const { return over_.device(); }
  double patience() const { return patience_; }

  void send(int to, std::span<const std::byte> message) override;
  // Throws rank_lost_error with the names of those of which nothing, or no slot with a whole head, came for `patience` seconds, or that
  // NCCL has found to have ended; then and later.
  int receive(bytes& message, double seconds) override;
  bool lost(int) override { return false; }  // receive() throws

  // Moves on the round that runs, and begins one if others wait for messages of this rank. Does not wait. A rank that waits for something
  // else calls it, so that no other waits for its messages meanwhile.
  void serve();
  // Finds out, by rounds, who does not answer, and throws rank_lost_error; a rank calls it that has waited in vain for others elsewhere.
  // One that has served for all that time knows by now.
  [[noreturn]] void blame();

 private:
  using clock = std::chrono::steady_clock;
  enum class phase { idle, enqueued, runs };
  // The messages for one rank that wait, or of one rank of which parts have come.
  struct stream_of_messages {
    std::deque<bytes> waiting;
    std::size_t sent = 0;        // bytes of the first one that have gone
    std::uint64_t number = 0;    // the number of the next one
    bytes coming;                // a message of which parts have come
    std::uint64_t expected = 0;  // its number
    bool whole_so_far = false;
    bool unread = false;  // its slot of the last round came damaged
    double silent = 0;    // seconds for which receive() has waited since then
  };

  // Begins a round: all messages that wait are in it, as far as they fit.
  void begin_round();
  // Returns whether the round has ended.
  bool move_on();
  std::uint64_t fill(std::byte* slot, int to);
  void read(const std::byte* slot, int from);
  std::int64_t left(const stream_of_messages& to) const;
  // Counts seconds of waiting for those whose slots come damaged; gives up if that was too long for one.
  void count_silence(double seconds);
  // Ends the communicator, and throws.
  [[noreturn]] void give_up();
  std::byte* host(int part, int peer) const {
    return static_cast<std::byte*>(host_[part].data()) + static_cast<std::int64_t>(peer) * slot_;
  }
  std::byte* there(int part, int peer) const {
    return static_cast<std::byte*>(memory_[part].data()) + static_cast<std::int64_t>(peer) * slot_;
  }

  nccl::communicator over_;
  double patience_;
  std::int64_t slot_;
  std::shared_ptr<cuda::device> device_;
  cuda::device_stream on_, beside_;
  std::unique_ptr<cuda::stream_event> event_;
  cuda::device_buffer memory_[2];  // the slots that go, and those that come
  cuda::pinned_buffer host_[2];
  std::vector<stream_of_messages> peers_;
  std::deque<std::pair<int, bytes>> come_;
  phase now_ = phase::idle;
  std::uint64_t round_ = 0;
  bool more_ = false;  // a rank had more to send in the last round
  // A block of an exchange, or the end of a call, waits, which is in no round yet; one is in the round that runs. Confirmations, requests
  // and repeated blocks do not count: at the end of a call no rank may be left that takes them.
  // ends: it is the end of a call.
  struct urgency {
    bool waits = false, runs = false;
  };
  urgency urgent_, ends_;
  clock::time_point began_;  // the round
  double waited_ = 0;        // seconds for which receive() has waited for this round
  std::vector<int> lost_;
};

// Blocks and sums between the memories of the devices of an engine's ranks, on a communicator of their own.
class nccl_link {
 public:
  // Moves a word by each kind of operation, so that NCCL has made its connections and loaded its kernels before any other work runs: while
  // a kernel waits for another rank, these steps can wait for the kernel.
  nccl_link(const nccl::api& functions, nccl::handle parent, std::shared_ptr<nccl_engine> engine);
  // A rank calls `answer` again and again while it waits for the device, so that it answers requests of the others. An exception of
  // it ends the wait.
  void answer_by(std::function<void()> answer) { answer_ = std::move(answer); }
  // This rank leaves a call by an error. If operations have begun since finish(), others may not join them, but later ones in their place:
  // so they are ended, and later ones throw device_error. A call begins with an exchange of messages, so no rank begins an operation of the
  // next call before all have left this one.
  void leave();
  const std::shared_ptr<cuda::device>& device() const { return engine_->device(); }
  int device_number() const { return engine_->device_number(); }

  struct block {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };
  // Sends out[p] to rank p and takes in[p] of it; the own one is left out. Enqueues.
  void exchange(std::span<const block> out, std::span<const block> in, cuda::stream on);
  // Writes the sums of the words of all ranks to `to`, modulo 2⁶⁴. Enqueues.
  void add(const void* from, void* to, std::int64_t words, cuda::stream on);
  // Waits for the stream. Throws rank_lost_error if that takes longer than `patience`, or NCCL finds an error.
  void finish(cuda::stream on);

 private:
  template <class Ready>
  void wait_until(Ready&& ready);
  void begin();
  std::shared_ptr<nccl_engine> engine_;
  nccl::communicator over_;
  std::unique_ptr<cuda::stream_event> event_;
  std::function<void()> answer_;
  bool begun_ = false;  // operations since finish()
  bool left_ = false;   // some were ended, as a rank has left their call
};

}  // namespace ballast::wire
