// Owns a file descriptor. Writes bytes to one.
// Layer: foundation. Only inline functions: the tools use it, too, and link only to the public interface of the library.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace ballast::core {

class descriptor {
 public:
  explicit descriptor(int number = -1) : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  // Closes it now, because some file systems report lost data only at close. Returns 0 or errno.
  int close() {
    const int number = std::exchange(number_, -1);
    return number >= 0 && ::close(number) != 0 ? errno : 0;
  }

 private:
  int number_;
};

// Writes all bytes. Returns 0 or errno.
inline int write_all(const descriptor& to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(to.get(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace ballast::core
