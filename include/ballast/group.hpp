// Groups: several ranks that compute one problem, each on its own part of the data.
// Layer: interface; implemented in src/group. docs/distributed.md shows their use, docs/design/distributed.md the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ballast/types.hpp>

namespace ballast {
inline namespace abi_1 {

// A communication engine, as a group needs it: messages of bytes between ranks. <ballast/mpi.hpp> implements it by MPI, group::threads by
// threads of one process. An engine only carries bytes. It adds no numbers, and the group does not trust it: each message has a seal, and
// one that is damaged, lost, late, repeated or delivered to the wrong rank is sent again. Only the thread that makes calls on the group
// calls the engine of its rank.
class BALLAST_API transport {
 public:
  virtual ~transport();
  virtual int rank() const = 0;  // 0 … size() − 1
  virtual int size() const = 0;
  // Begins to send a message and returns before it has arrived. The bytes are copied, or have been sent, when it returns.
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  // Takes the next message of any rank, in any order; waits for it `seconds` at most. Returns its sender, −1 if none came.
  virtual int receive(std::vector<std::byte>& bytes, double seconds) = 0;
  // Returns whether the engine knows that a rank has ended or cannot be reached any more.
  virtual bool lost(int rank) = 0;
};

// How a group repairs and gives up.
struct group_options {
  // A message is sent at most this often. If the last copy is damaged, too, the call is uncorrectable on all ranks.
  int tries = 5;
  // Seconds after which a rank asks for a message that has not come; each further request waits twice as long.
  double resend_after = 0.02;
  // Seconds of silence of a rank from which a message is awaited, after which it counts as lost. A rank that computes is silent: choose
  // more than the longest pass over a rank's data. Ranks that the engine knows to be lost are found at once.
  double patience = 300;
};

// A handle of one rank on its group, or of all devices of one; copies share it. All ranks make the same calls in the same order, each from
// one thread at a time.
class group {
 public:
  group() = default;  // no group: calls compute alone
  // Joins the ranks of an engine. Throws invalid_argument_error: options, or an engine without ranks.
  BALLAST_API explicit group(std::shared_ptr<transport> over, const group_options& how = {});
  // Makes a group of `ranks` ≥ 1 threads of this process, which the caller starts: element r belongs to the thread of rank r. A rank whose
  // last handle is destroyed is lost to the others.
  BALLAST_API static std::vector<group> threads(int ranks, const group_options& how = {});
  // Makes a group of CUDA devices of this process, by their numbers in the driver's order; element r computes for rank r. A call on it is
  // made once, by one thread, with all operands, which may lie in host memory or in memory of any device; the library divides them and
  // runs a thread for each device. A number may occur several times. `patience` has no effect: a device that does not answer is found by
  // $BALLAST_DEVICE_PATIENCE. Throws invalid_argument_error: an empty list, a number below 0, options. A number above the last device is
  // refused when a plan is made.
  BALLAST_API static group devices(std::vector<int> numbers, const group_options& how = {});
  // Joins the ranks of a communicator of NCCL 2.18 or later (an ncclComm_t), a GPU each: calls compute on its device. Every rank calls it;
  // the caller may release the communicator afterwards. Blocks go from device to device. The library takes the NCCL that the process has
  // loaded; $BALLAST_NCCL can name its file. A rank that does not answer within `patience`, or has ended, ends the call on the others with
  // rank_lost_error, and the group. An exception of a rank ends the call on the others with an error that names it; if devices exchanged
  // then, later exchanges throw device_error. The group's end waits up to `patience` for others to hear of it. Throws
  // invalid_argument_error: null, options; unsupported_error: no NCCL, or an older one; device_error with NCCL's words.
  BALLAST_API static group nccl(void* communicator, const group_options& how = {});

  explicit operator bool() const noexcept { return state_ != nullptr; }
  BALLAST_API int rank() const;  // the rank in the engine: it stays the same when other ranks are lost; of devices 0
  BALLAST_API int size() const;  // the ranks that are left, or the devices
  // Returns the ranks that are left, ascending.
  BALLAST_API std::vector<int> ranks() const;
  // Returns when every rank has called it. Throws rank_lost_error.
  BALLAST_API void barrier() const;
  // The number of calls that this rank has begun or left.
  BALLAST_API std::uint64_t calls() const;
  // This rank does not make the call that comes next, its arguments were refused, say: the other ranks leave that call at once with an
  // error that names this rank, instead of waiting for `patience`. For a caller who refuses arguments himself; a call that throws has told
  // the others already, see prepare_call(). Does nothing on devices. Throws what the engine throws.
  BALLAST_API void leave_call() const;

  struct state;  // src/group/state.hpp
  state* internal() const noexcept { return state_.get(); }

 private:
  std::shared_ptr<state> state_;
};

// Returns work(), which prepares a call on a group and makes it: reads and converts operands, makes a plan. If an exception leaves it
// before the call has begun, the other ranks are told by leave_call().
template <class Work>
decltype(auto) prepare_call(const group& ranks, Work&& work) {
  const std::uint64_t before = ranks.calls();
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    try {
      if (ranks.calls() == before) ranks.leave_call();
    } catch (...) {  // the first error is the one to tell
    }
    throw;
  }
}

}  // namespace abi_1
}  // namespace ballast
