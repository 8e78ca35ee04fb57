// Replaces or creates a file atomically: the new file is written under a temporary name in the same folder, and renamed. Other processes
// see the old file or the whole new one. A file that was not renamed is removed.
// Layer: foundation.
// Only inline functions, as in descriptor.hpp.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <random>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/descriptor.hpp"

namespace ballast::core {

// The new file. Names are looked up in a folder that is already open, and the file is accessed by its descriptor, so that changes of paths
// by other processes have no effect. All functions return 0 or errno.
class file_replacement {
 public:
  using name = std::array<char, 56>;  // with a zero at its end

  // Returns a name that no other file has: random, and hidden in listings.
  static name temporary_name() {
    std::random_device random;
    name made{};
    std::snprintf(made.data(), made.size(), ".ballast-%08x%08x%08x%08x.partial", random(), random(), random(), random());
    return made;
  }

  // `folder`: an open folder, which must stay open. Creates nothing.
  file_replacement(int folder, const name& temporary) : folder_(folder), temporary_(temporary) {}
  explicit file_replacement(int folder) : file_replacement(folder, temporary_name()) {}
  file_replacement(const file_replacement&) = delete;
  file_replacement& operator=(const file_replacement&) = delete;
  ~file_replacement() { remove(); }

  // Creates the temporary file.
  int create(mode_t mode) {
    file_ = descriptor(::openat(folder_, temporary_.data(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file_) return errno;
    exists_ = true;
    return 0;
  }

  const descriptor& file() const { return file_; }
  int close() { return file_.close(); }

  // Gives the file its name. An existing file of that name is removed.
  int rename_to(const char* file) {
    if (::renameat(folder_, temporary_.data(), folder_, file) != 0) return errno;
    exists_ = false;
    return 0;
  }

  // Exchanges the names of this file and an existing one, which is removed in place of this file. The second call takes the first one back.
  // Not all file systems can exchange names.
  int exchange_with(const char* file) { return ::renameat2(folder_, temporary_.data(), folder_, file, RENAME_EXCHANGE) == 0 ? 0 : errno; }

  // Removes what has the temporary name, now.
  void remove() noexcept {
    if (exists_) ::unlinkat(folder_, temporary_.data(), 0);
    exists_ = false;
    (void)file_.close();
  }

 private:
  int folder_;
  name temporary_;
  bool exists_ = false;
  descriptor file_;
};

}  // namespace ballast::core
