// Execution: the place and protection of a plan. Call: the stream, memory and callbacks of one call.
// Layer: interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include <ballast/group.hpp>
#include <ballast/report.hpp>
#include <ballast/types.hpp>

namespace ballast {
inline namespace abi_1 {

// Fixed once, when a plan is made. The results of a plan do not depend on `threads`, nor on what earlier calls have cached.
struct execution {
  ballast::backend backend = ballast::backend::automatic;
  // The CUDA device by its number in the driver's order; -1: the current device of the calling thread's context, else the first.
  int device = -1;
  // The most threads of a host backend; 0: every core that the process may use. Fewer run where the process cannot have so many, and one in
  // a process that was forked from one that had computed with several. A process that was forked while another thread was inside Ballast
  // cannot use the library: every call throws unsupported_error.
  int threads = 0;
  ballast::protection protection = ballast::protection::correct;
  std::string scheme = {};  // empty: the default scheme of the algorithm for this problem
  // The ranks that compute together, each on a part of the operands; none: the call computes alone. Each algorithm says which calls take a
  // group and how operands are divided.
  ballast::group group = {};
  // s ≥ 1: of s calls of one operation of the plan one has the protection above, the first and every s-th after it; the others have none,
  // and report::protection says off. Further plans of the same problem in the process begin at the second, third, … of s calls, so that
  // calls that make a plan each are sampled too. A fault that persists is found within s calls. A refused call may count. A CUDA graph
  // keeps what the captured call had. Only 1 on a group.
  int sampled = 1;
};

// The progress of a long call.
struct progress {
  std::int64_t done = 0;
  std::int64_t total = 0;                                   // 0 if unknown
  const char* unit = "";                                    // the unit of both: "iteration", "block column"
  std::int64_t run = 0;                                     // the number of the current run (K-Means: of n_init)
  double value = std::numeric_limits<double>::quiet_NaN();  // the objective so far (K-Means: inertia); NaN if there is none
};

// Belongs to one call of a plan.
struct call {
  // Orders copies and kernels of the cuda backend: a cudaStream_t or CUstream; null: the default stream. Operands may lie in host memory,
  // in device memory or in managed memory. The backend uses them where they lie if it can; otherwise it copies them, and results back.
  void* stream = nullptr;
  // Device memory to use instead of the plan's own, at a multiple of 256 bytes, of plan::workspace_bytes() bytes or more. The call owns it
  // until it has passed on the stream.
  std::span<std::byte> workspace = {};
  std::function<void(const event&)> on_event = {};  // called for each detected fault, from the calling thread, at the end of the call
  // Called after each iteration (K-Means) or panel (QR), from the calling thread. An exception that it throws cancels the call and leaves
  // it. K-Means and gels have then stored no result; nor has geqrf of finite numbers under protection::correct, whose arguments hold what
  // they held before. Without, A and tau are not to be used.
  std::function<void(const progress&)> on_progress = {};
  bool throw_on_uncorrectable = true;  // false: the call returns the report with verdict uncorrectable instead
};

}  // namespace abi_1
}  // namespace ballast
