// Tracks the library calls under way, so that a process that is forked meanwhile can detect it.
// Layer: foundation. docs/design/threads.md lists the calls that a forked process can make.
#pragma once

namespace ballast::core {

// Marks one library call on the calling thread, from construction to destruction. The constructor throws unsupported_error in a process
// that was forked while another thread was in a call: that thread does not exist in the child, and the locks that it held are never
// released.
class active_call {
 public:
  active_call();
  ~active_call();
  active_call(const active_call&) = delete;
  active_call& operator=(const active_call&) = delete;
};

// Records that worker threads exist: processes forked from now on have none and cannot start any.
void workers_exist() noexcept;

// Returns whether this process was forked from one with workers. Then everything runs on the calling thread.
bool without_workers() noexcept;

}  // namespace ballast::core
