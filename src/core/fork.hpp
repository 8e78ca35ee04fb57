// Calls of the library that are under way, so that a process which is forked meanwhile knows.
// Layer: foundation. docs/design/threads.md says what a forked process can do.
#pragma once

namespace ballast::core {

// One call of the library on the thread that makes it, for as long as it lasts. Throws unsupported_error in a process that was forked while
// another thread was in a call: that thread is not there any more, and the locks that it held are never released.
class active_call {
 public:
  active_call();
  ~active_call();
  active_call(const active_call&) = delete;
  active_call& operator=(const active_call&) = delete;
};

// Says that worker threads exist: processes that are forked from now on have none and cannot get any.
void workers_exist() noexcept;

// Whether this process was forked from one with workers: everything runs on the calling thread.
bool without_workers() noexcept;

}  // namespace ballast::core
