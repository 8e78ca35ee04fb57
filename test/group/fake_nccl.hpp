// An NCCL for tests: the functions that a group calls, between ranks that are threads and devices of the emulator, with faults. The program
// exports them, so that the library finds them as those of a program that is linked with NCCL.
// Layer: test harness.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <ballast/group.hpp>

#include "support/devices.hpp"

namespace ballast::test {

// Faults of what NCCL moves. bit: one bit flips. swapped: the halves change places. stale: nothing is written to the receiver's memory.
// half: only the first half is. late: it takes some milliseconds. bit_of_sum: a bit of an allreduce's result, on one rank. left_out: an
// allreduce leaves out a rank, for all.
enum class nccl_fault { bit, swapped, stale, half, late, bit_of_sum, left_out };

struct nccl_strike {
  nccl_fault what = nccl_fault::bit;
  int rank = 0;              // the sender; of sums the rank that is struck
  std::uint64_t number = 0;  // among the operations that it sends, or among its sums, from 0, since its group was made
  std::uint64_t count = 1;   // so many in a row
  std::uint64_t seed = 0;
  std::int64_t longer = 0;  // only operations of more bytes count
  bool of_blocks = false;   // `number` is among operations of less than 4 KiB, and only these are struck: no slots of messages
};

// Forgets all communicators, and sets the faults of the next ones.
void begin_fake_nccl(std::vector<nccl_strike> strikes = {});
// Returns how many operations were struck.
std::uint64_t struck_nccl();
// Makes the communicator of rank `rank` of `size` in a clique of threads: what ncclCommInitRank does. `device`: its number.
void* make_fake_communicator(int rank, int size, int device);
// From now on the rank takes part in nothing more; its own calls return an error.
void end_fake_rank(int rank);
// Operations of a rank from number `number` on are never begun, as if its process had ended there.
void end_fake_rank_at(int rank, std::uint64_t number);
// Returns whether a stream of the device has work of NCCL that has not ended. `hopeless`: false if a rank has ended,
// for which it may wait.
bool fake_nccl_works(int device, const void* stream, bool hopeless);

// A device whose streams wait for the work of this NCCL.
class nccl_device final : public forwarding_device {
 public:
  nccl_device(std::shared_ptr<cuda::device> inner, int number) : forwarding_device(std::move(inner)), number_(number) {}
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override;
  void copy_columns(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch, std::int64_t bytes, std::int64_t columns,
                    cuda::stream on) override;
  void zero(void* memory, std::int64_t bytes, cuda::stream on) override;
  void launch(const cuda::kernel& which, std::int64_t blocks, std::span<const cuda::kernel_argument> arguments, cuda::stream on) override;
  using device::launch;
  void synchronize(cuda::stream on) override;
  std::unique_ptr<cuda::stream_event> make_event(bool timed) override;
  void record(cuda::stream_event& event, cuda::stream on) override;
  void wait(const cuda::stream_event& event, cuda::stream on) override;
  bool passed(const cuda::stream_event& event) override;

 private:
  void wait_for(const void* stream) const;
  int number_;
};

// Emulated devices with their streams bound to this NCCL, as the devices of the process while it lives.
class nccl_devices {
 public:
  explicit nccl_devices(int count);
  ~nccl_devices();
  nccl_devices(const nccl_devices&) = delete;
  nccl_devices& operator=(const nccl_devices&) = delete;
  const std::shared_ptr<cuda::device>& operator[](std::size_t number) const { return all_[number]; }

 private:
  std::vector<std::shared_ptr<cuda::device>> all_;
};

// Runs work(rank, group) on a thread for each rank, rank r on device r, and returns how each ended.
std::vector<std::exception_ptr> run_nccl_ranks(int ranks, const group_options& how, const std::function<void(int, const group&)>& work);

}  // namespace ballast::test
