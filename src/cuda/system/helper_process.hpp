// A program of Ballast that runs in the background.
// Layer: foundation. The JIT (jit/jit.hpp) uses it to compile. NVRTC in a background thread of the caller's process would delay the end of
// that process until it is done.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sys/types.h>

namespace ballast::cuda {

// A background process, which continues if the process that started it ends first. Not thread-safe.
class helper_process {
 public:
  // Starts a program; returns null on failure. It runs in a session of its own, with no input and with only its output open. The program
  // must fork at once and continue as the child. start() waits for the first process, at most 0.1 s, so that the application has no child
  // process when it returns.
  static std::unique_ptr<helper_process> start(const std::filesystem::path& program, std::span<const std::string> arguments);
  helper_process(const helper_process&) = delete;
  helper_process& operator=(const helper_process&) = delete;
  ~helper_process();

  // Returns the standard output of the program, after it has ended or closed it; nothing before. Does not wait.
  const std::optional<std::string>& ended();

 private:
  helper_process(pid_t process, int output) : process_(process), output_(output) {}
  bool reap();  // returns whether the first process has ended

  pid_t process_;  // 0: ended
  int output_;     // −1: closed
  std::string written_;
  std::optional<std::string> ended_;
};

}  // namespace ballast::cuda
