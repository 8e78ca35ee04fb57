// A rival in a process of its own.
// Layer: tools.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ballast/error.hpp>

namespace ballast::bench {

// A child process that answers each line of input with one measurement, in seconds.
class child {
 public:
  // `what`: the rival, for messages.
  child(const std::vector<std::string>& command, std::string what) : what_(std::move(what)) {
    int to[2], from[2];
    // Closed in programs that are started later: a child ends when its input does, and another child must not hold that open.
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw error("pipe failed");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      std::vector<char*> arguments;
      for (const auto& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    requests_ = fdopen(to[1], "w");
    answers_ = fdopen(from[0], "r");
  }
  ~child() {
    std::fclose(requests_);
    std::fclose(answers_);
    waitpid(pid_, nullptr, 0);
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;

  double ask() {
    std::fputs("run\n", requests_);
    std::fflush(requests_);
    double seconds = 0;
    if (std::fscanf(answers_, "%lf", &seconds) != 1) throw error(fmt::format("{} gave no time", what_));
    return seconds;
  }

 private:
  std::string what_;
  pid_t pid_ = -1;
  std::FILE* requests_ = nullptr;
  std::FILE* answers_ = nullptr;
};

}  // namespace ballast::bench
