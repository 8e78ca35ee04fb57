// See bytes.hpp.
#include "bytes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ballast/error.hpp>

#include "terminal.hpp"

namespace ballast::tools {

void refuse_file(const std::filesystem::path& file, const std::string& what) {
  throw invalid_argument_error(fmt::format("{}: {}", file == "-" ? "standard input" : printable(file), what));
}

namespace {

// Notes that a stream is read. Its bytes are there once: a second reader would see an empty file.
void read_once(const std::filesystem::path& file, const struct stat& about) {
  static std::vector<std::pair<dev_t, ino_t>> streams;
  const std::pair<dev_t, ino_t> own{about.st_dev, about.st_ino};
  if (std::ranges::find(streams, own) != streams.end()) refuse_file(file, "expected a stream that is read once, got it for two inputs");
  streams.push_back(own);
}

}  // namespace

file_bytes::file_bytes(std::filesystem::path file) : file_(std::move(file)) {
  const bool standard = file_ == "-";
  stream_ = core::descriptor(standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!stream_ && errno == ENOENT) refuse_file(file_, "expected a file, got nothing: it does not exist");
  if (!stream_) refuse_file(file_, fmt::format("cannot be opened for reading: {}", std::strerror(errno)));
  struct stat about {};
  if (fstat(stream_.get(), &about) != 0) refuse_file(file_, fmt::format("cannot be read: {}", std::strerror(errno)));
  if (S_ISDIR(about.st_mode)) refuse_file(file_, "expected a file, got a folder");
  if (!S_ISREG(about.st_mode) || standard) read_once(file_, about);
  if (!S_ISREG(about.st_mode)) return;
  const off_t at = lseek(stream_.get(), 0, SEEK_CUR);  // standard input may be a file that was read in part
  left_ = at >= 0 && at < about.st_size ? static_cast<std::uint64_t>(about.st_size - at) : 0;
}

std::size_t file_bytes::read(char* to, std::size_t count) {
  std::size_t have = 0;
  while (have < count) {
    const ssize_t got = ::read(stream_.get(), to + have, std::min(count - have, std::size_t{1} << 30));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_file(file_, fmt::format("could not be read to its end: {}", std::strerror(errno)));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  if (left_) *left_ -= std::min<std::uint64_t>(*left_, have);
  return have;
}

void file_bytes::skip(std::uint64_t count) {
  if (lseek(stream_.get(), static_cast<off_t>(count), SEEK_CUR) < 0)
    refuse_file(file_, fmt::format("cannot be read from there on: {}", std::strerror(errno)));
  *left_ -= count;
}

}  // namespace ballast::tools
