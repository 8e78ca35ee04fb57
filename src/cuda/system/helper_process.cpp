// Starts the process with posix_spawn, and reads its output from a non-blocking pipe.
#include "cuda/system/helper_process.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace ballast::cuda {

std::unique_ptr<helper_process> helper_process::start(const std::filesystem::path& program, std::span<const std::string> arguments) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return nullptr;
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& each : arguments) words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  pid_t process = 0;
  int failed = posix_spawn_file_actions_init(&files);
  if (failed == 0) {
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
      failed = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
      if (failed == 0) failed = posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
      if (failed == 0) failed = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
      if (failed == 0) failed = posix_spawnattr_setsigmask(&attributes, &none);
      // A session of its own: signals from the application's terminal do not reach it.
      if (failed == 0) failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
      if (failed == 0) failed = posix_spawn(&process, program.c_str(), &files, &attributes, words.data(), environ);
      posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
  }
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return nullptr;
  }
  std::unique_ptr<helper_process> made(new helper_process(process, ends[0]));
  for (int i = 0; i < 100 && !made->reap(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return made;
}

helper_process::~helper_process() {
  (void)reap();
  if (output_ >= 0) close(output_);
}

// Reaps the first process. Its exit status is not used; the application may have reaped it already.
bool helper_process::reap() {
  if (process_ != 0 && waitpid(process_, nullptr, WNOHANG) != 0) process_ = 0;
  return process_ == 0;
}

const std::optional<std::string>& helper_process::ended() {
  (void)reap();  // on a busy machine the first process may have ended only after start() returned
  std::array<char, 4096> part{};
  while (!ended_) {
    const ssize_t got = read(output_, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;  // no further output yet
    if (got > 0) {
      written_.append(part.data(), static_cast<std::size_t>(got));
      continue;
    }
    close(std::exchange(output_, -1));
    (void)reap();
    ended_ = std::move(written_);
  }
  return ended_;
}

}  // namespace ballast::cuda
