// NVIDIA's NCCL, which is found at run time and never linked: the few functions that a group needs, and a communicator of its own.
// Layer: group. Source: nccl.h of NCCL 2.32 (values of the enumerations, layout of the configuration since 2.18), and its manual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/function_ref.hpp"
#include "cuda/device/device.hpp"

namespace ballast::nccl {

using handle = void*;  // ncclComm_t
using status = int;    // ncclResult_t
inline constexpr status k_success = 0, k_in_progress = 7;
enum class data_type : int { bytes = 1, words = 5 };  // ncclUint8, ncclUint64
inline constexpr int k_sum = 0;

// ncclConfig_t as NCCL 2.18 has it, which tells its own length. The last member was padding then and is the traffic class now.
struct configuration {
  static constexpr int k_unset = INT32_MIN;
  std::size_t size = sizeof(configuration);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cluster = k_unset, least_blocks = k_unset, most_blocks = k_unset;
  const char* network = nullptr;
  int shares = k_unset, traffic_class = k_unset;
};

struct api {
  const char* (*words)(status);
  status (*count)(handle, int*);
  status (*rank)(handle, int*);
  status (*device)(handle, int*);
  status (*async_error)(handle, status*);
  status (*split)(handle, int color, int key, handle* made, configuration* how);
  status (*abort)(handle);
  status (*send)(const void*, std::size_t count, data_type, int peer, handle, cuda::stream);
  status (*receive)(void*, std::size_t count, data_type, int peer, handle, cuda::stream);
  status (*all_reduce)(const void*, void*, std::size_t count, data_type, int operation, handle, cuda::stream);
  status (*group_start)();
  status (*group_end)();
};

// Returns the functions of the NCCL that this process has loaded: that of $BALLAST_NCCL (a file), else the one among the global symbols,
// else libnccl.so.2. A communicator can only be used with the library that made it, so none is loaded anew, except $BALLAST_NCCL. Throws
// unsupported_error: there is none, or it is older than 2.18.
const api& found();

// A communicator of the same ranks as another. It never blocks the host: an operation is enqueued, or is still being enqueued, when a call
// returns. Only one thread at a time may use it.
class communicator {
 public:
  // Every rank of `parent` makes one, in the same order. Throws device_error with NCCL's words, also if the others do not come within
  // `patience` seconds.
  communicator(const api& functions, handle parent, double patience);
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;
  ~communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }

  // Begins the operations of `work` as one.
  void together(core::function_ref<void()> work);
  void send(const void* from, std::size_t bytes, int peer, cuda::stream on);
  void receive(void* to, std::size_t bytes, int peer, cuda::stream on);
  // Adds words over all ranks, modulo 2⁶⁴.
  void add(const void* from, void* to, std::size_t words, cuda::stream on);
  // Returns whether all operations are on their streams. Throws device_error if NCCL has found an error: another rank has ended.
  bool enqueued();
  // Ends all operations, also those on the device. The communicator does nothing afterwards.
  void abort() noexcept;
  bool aborted() const { return made_ == nullptr; }

 private:
  void check(status got, std::string_view call) const;
  const api& functions_;
  handle made_ = nullptr;
  int rank_ = 0, size_ = 1, device_ = 0;
};

}  // namespace ballast::nccl
