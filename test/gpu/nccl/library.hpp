// The NCCL that the stage `nccl` runs on, loaded from a file, with faults of what it moves. The program exports NCCL's functions under
// their own names, as one that is linked with NCCL has them, so the library finds them there; each passes its call on to the loaded NCCL.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace ballast::gpu_check::loaded_nccl {

struct unique_id {  // ncclUniqueId
  char bytes[128] = {};
};

// Opens the file. Throws error with the loader's words, or the name of a function that it lacks.
void load(const std::string& file);
// Returns the version, "2.28.9".
std::string version();
unique_id make_id();
// Joins the communicator of `size` processes on the current device; returns when all have. Throws error with NCCL's words.
void* join(const unique_id& id, int rank, int size);
void leave(void* communicator);

// Faults of what NCCL moves. A struck message goes from a copy of the source, which stays right. bit: one bit of the copy is flipped.
// swapped: its halves change places. stale: it has zeros in place of the source. left_out: the words of this process are missing from an
// allreduce. bit_of_sum: one bit of its result is flipped on this process.
enum class fault { bit, swapped, stale, left_out, bit_of_sum };
const char* to_string(fault what);

struct strike {
  fault what = fault::bit;
  std::uint64_t number = 0;  // among the messages of this process, or among its sums, since arm()
  std::uint64_t count = 1;   // so many in a row
  std::uint64_t seed = 0;    // which bit
  std::int64_t longer = 0;   // only messages of more bytes count
};
// From now on this strikes, and nothing that was armed before.
void arm(const strike& what);
void disarm();
// Returns how many operations arm()'s last strike has met.
std::uint64_t struck();
// This process ends by SIGKILL at its message or sum with this number from now on, 0 for the next one; `when` gets the time, now().
void end_at(std::uint64_t number, std::atomic<double>* when);
// Seconds of a clock that all processes of the machine share.
double now();

}  // namespace ballast::gpu_check::loaded_nccl
