// Another program of Ballast that works behind the caller.
// Layer: foundation. The run-time compiler (jit.hpp) is its user: NVRTC in a thread of the caller's process would have to be waited for
// when the process ends.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sys/types.h>

namespace ballast::cuda {

// A process that this one has started, and that goes on if this one ends first. Not thread-safe.
class helper_process {
 public:
  // Null if it cannot be started. It is in a session of its own, reads nothing, and has no file open but what it writes to. The program is
  // to fork at once and go on as the child: its first process is waited for, at most 0.1 s, so that it is no child of the application when
  // this returns.
  static std::unique_ptr<helper_process> start(const std::filesystem::path& program, std::span<const std::string> arguments);
  helper_process(const helper_process&) = delete;
  helper_process& operator=(const helper_process&) = delete;
  ~helper_process();

  // What it has written to its standard output, once it has ended or closed that. Does not wait.
  const std::optional<std::string>& ended();

 private:
  helper_process(pid_t process, int output) : process_(process), output_(output) {}
  bool reap();  // whether the first process is gone

  pid_t process_;  // 0: gone
  int output_;     // −1: closed
  std::string written_;
  std::optional<std::string> ended_;
};

}  // namespace ballast::cuda
