// Where and how a call runs: the last argument of every operation, the same type for all.
// Layer: interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include <ballast/report.hpp>
#include <ballast/types.hpp>

namespace ballast {

namespace inject {
class plan;  // src/inject/plan.hpp; honoured only by the instrumented library
}

// How far a long call has come. `unit` is what is counted ("iteration", "block column", "signal").
struct progress {
  std::int64_t done = 0;
  std::int64_t total = 0;  // 0 if unknown
  const char* unit = "";
  std::int64_t run = 0;                                     // which of several runs this is (K-Means: of n_init)
  double value = std::numeric_limits<double>::quiet_NaN();  // what is minimised so far (K-Means: inertia), where there is such a number
};

struct execution {
  ballast::backend backend = ballast::backend::automatic;
  // At most so many; 0: every core that the process may use. Fewer where the process cannot have so many, one alone in a process that was
  // forked from one that has computed with several. Results do not depend on it. A process that was forked while another thread was inside
  // Ballast cannot use it: every call throws unsupported_error.
  int threads = 0;
  ballast::protection protection = ballast::protection::correct;
  std::string scheme = {};                          // empty: the default of the algorithm for this problem
  bool throw_on_uncorrectable = true;               // false: return the report with verdict uncorrectable instead
  std::function<void(const event&)> on_event = {};  // called for every detected fault, from the calling thread, at the end of the call
  std::function<void(const progress&)> on_progress =
      {};                                // called after each iteration (K-Means) or panel (QR), from the calling thread; not by FFT
  const inject::plan* faults = nullptr;  // faults to inject; unsupported_error in the production library unless null

  // Operands may lie in host memory, on the device, or in managed memory. The backend uses them where they lie if it can; else it copies
  // them, and results back. Copies and the cuda backend's work are ordered on `stream`.
  void* stream = nullptr;  // a cudaStream_t or CUstream; null: the default stream
  // Device memory to use instead of allocating, at a multiple of 256 bytes as CUDA allocates it. It must live, and be nobody else's, while
  // a call runs.
  std::span<std::byte> workspace = {};
  // The cuda backend's kernels are made for each problem, which takes a compiler seconds. Meanwhile kernels that suit every problem compute
  // the first calls (FFT; report::general_kernels says when), more slowly and with other rounding. They use memory of their own beside
  // `workspace`. True: the first call waits instead. The environment variable BALLAST_WAIT_FOR_KERNELS=1 says so for all calls.
  bool wait_for_kernels = false;
  // QR of floats on the cuda backend, compute capability 9.0, multiplies large matrices on tensor cores, as three products of TF32
  // (3xTF32): as accurate as FP32, with other rounding. False: in FP32.
  bool tf32x3 = true;
};

}  // namespace ballast
