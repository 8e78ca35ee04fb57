// See outputs.hpp and core/file_replacement.hpp.
#include "outputs.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ballast/error.hpp>

#include "core/descriptor.hpp"
#include "core/file_replacement.hpp"
#include "terminal.hpp"

namespace ballast::tools {

namespace fs = std::filesystem;
using core::descriptor;

namespace {

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw invalid_argument_error(fmt::format("{}: {}", printable(file), what));
}

[[noreturn]] void fail(const fs::path& file, int reason) { throw error(fmt::format("{}: {}", printable(file), std::strerror(reason))); }

// Returns the path that a link to a file that does not exist leads to, or the path itself. Such a link is followed as one to a file is.
fs::path end_of_links(const fs::path& file) {
  fs::path at = file;
  for (int links = 0; links < 40; ++links) {  // as many as the kernel follows
    std::error_code failure;
    const fs::path next = fs::read_symlink(at, failure);
    if (failure) return at;
    at = at.parent_path() / next;  // an absolute `next` replaces the folder
  }
  refuse(file, fmt::format("cannot be written: {}", std::strerror(ELOOP)));
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// --- removal of temporary files by a signal --------------------------------------------------------------------------------------------

// The existing temporary files. An entry is first claimed, then filled; the signal handler removes the files of filled entries only.
struct temporary_file {
  std::atomic<bool> claimed{false}, filled{false};
  int folder = -1;
  core::file_replacement::name name{};
};
std::array<temporary_file, 16> temporary_files;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

std::atomic<bool> names_are_given{false};
std::atomic<int> waiting_signal{0};

void end_by(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
}

extern "C" void on_signal(int number) {
  if (names_are_given) {
    waiting_signal = number;
    return;
  }
  for (const temporary_file& each : temporary_files) {
    if (each.filled) unlinkat(each.folder, each.name.data(), 0);
  }
  end_by(number);
}

void watch_signals() {
  static const bool once = [] {
    for (const int number :
         {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGPIPE, SIGXCPU, SIGXFSZ, SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
      struct sigaction now {};
      if (sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;  // an ignored signal stays ignored (nohup)
      struct sigaction wanted {};
      wanted.sa_handler = on_signal;
      wanted.sa_flags = SA_RESTART;
      sigaction(number, &wanted, nullptr);
    }
    return true;
  }();
  (void)once;
}

}  // namespace

// --- one output ------------------------------------------------------------------------------------------------------------------------

class outputs::entry {
 public:
  explicit entry(fs::path file) : file_(std::move(file)) {
    look();
    if (through_) {
      if (!stream_ && access(file_.c_str(), W_OK) != 0) refuse(file_, fmt::format("cannot be written: {}", std::strerror(errno)));
    } else {
      make_temporary();
      drop_temporary();
    }
  }
  ~entry() { drop_temporary(); }

  const fs::path& file() const { return file_; }
  bool through() const { return through_; }
  bool same(const entry& other) const {
    if (exists_ != other.exists_) return false;
    return exists_ ? same_file(about_, other.about_) : same_file(about_folder_, other.about_folder_) && name_ == other.name_;
  }

  content filled;

  void write() {
    if (!through_) make_temporary();
    if (through_ && !stream_) {
      stream_ = descriptor(open(file_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));  // waits for the reader of a FIFO
      if (!stream_) fail(file_, errno);
      struct stat now {};
      if (fstat(stream_.get(), &now) != 0 || !same_file(now, about_))
        throw error(fmt::format("{}: was replaced meanwhile", printable(file_)));
    }
    filled([&](std::string_view bytes) { put(bytes); });
    flush();
    if (const int reason = through_ ? stream_.close() : made_->close(); reason != 0) fail(file_, reason);
  }

  // Renames the temporary file to its final name. An existing file of that name gets the temporary name, if the file system can exchange
  // names.
  void publish() {
    struct stat now {};
    const bool there = fstatat(folder_.get(), name_.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && S_ISDIR(now.st_mode)) throw error(fmt::format("{}: expected a file to replace, got a folder", printable(file_)));
    exchanged_ = there && made_->exchange_with(name_.c_str()) == 0;
    if (!exchanged_) {
      if (const int reason = made_->rename_to(name_.c_str()); reason != 0) fail(file_, reason);
      drop_temporary();
    }
    created_ = !there;
    placed_ = true;
  }

  void take_back() noexcept {
    if (!placed_) return;
    if (exchanged_) {
      (void)made_->exchange_with(name_.c_str());
    } else if (created_) {
      unlinkat(folder_.get(), name_.c_str(), 0);
    }
    placed_ = false;
  }

 private:
  // Examines `file_` and opens its folder. Symbolic links are followed only here, by the kernel with its protections.
  void look() {
    fs::path real = file_;
    const descriptor at(open(file_.c_str(), O_PATH | O_CLOEXEC));
    if (at) {
      exists_ = true;
      if (fstat(at.get(), &about_) != 0) refuse(file_, std::strerror(errno));
      if (S_ISDIR(about_.st_mode)) refuse(file_, "expected a file to write, got a folder");
      through_ = !S_ISREG(about_.st_mode);
      // If standard output or error goes to this file, the output is written to that stream, after its existing content.
      for (const int number : {1, 2}) {
        struct stat about {};
        if (stream_ || fstat(number, &about) != 0 || !same_file(about, about_)) continue;
        stream_ = descriptor(fcntl(number, F_DUPFD_CLOEXEC, 3));
        through_ = true;
      }
      if (through_) return;
      if (access(file_.c_str(), W_OK) != 0) refuse(file_, fmt::format("cannot be overwritten: {}", std::strerror(errno)));
      std::error_code failure;
      real = fs::canonical(file_, failure);
      if (failure) refuse(file_, failure.message());
    } else if (errno != ENOENT || !file_.has_filename()) {
      refuse(file_, fmt::format("cannot be written: {}", std::strerror(errno)));
    } else {
      real = end_of_links(file_);
    }
    const fs::path parent = real.has_parent_path() ? real.parent_path() : fs::path(".");
    name_ = real.filename().native();
    folder_ = descriptor(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder_ || fstat(folder_.get(), &about_folder_) != 0) refuse(file_, fmt::format("cannot be written: {}", std::strerror(errno)));
  }

  void make_temporary() {
    watch_signals();
    for (temporary_file& each : temporary_files) {
      if (!each.claimed.exchange(true)) {
        temporary_ = &each;
        break;
      }
    }
    if (temporary_ == nullptr) throw error(fmt::format("{}: expected at most {} outputs", printable(file_), temporary_files.size()));
    temporary_->name = core::file_replacement::temporary_name();
    temporary_->folder = folder_.get();
    temporary_->filled = true;  // set before the file exists; the random name belongs to no other file
    made_.emplace(folder_.get(), temporary_->name);
    if (const int reason = made_->create(exists_ ? 0600 : 0666); reason != 0) {
      drop_temporary();
      refuse(file_, fmt::format("cannot be written: {}", std::strerror(reason)));
    }
    if (!exists_) return;
    struct stat mine {};
    const int file = made_->file().get();
    const bool theirs = fstat(file, &mine) == 0 && (mine.st_uid != about_.st_uid || mine.st_gid != about_.st_gid);
    if ((theirs && fchown(file, about_.st_uid, about_.st_gid) != 0) || fchmod(file, about_.st_mode & 07777) != 0) {
      const int reason = errno;
      drop_temporary();
      refuse(file_,
             fmt::format("expected a file that can be replaced by one of the same owner and mode, got one of user {} and group {}: {}",
                         about_.st_uid, about_.st_gid, std::strerror(reason)));
    }
  }

  void drop_temporary() noexcept {
    if (temporary_ == nullptr) return;
    made_.reset();
    temporary_->filled = false;
    temporary_->claimed = false;
    temporary_ = nullptr;
  }

  void put(std::string_view bytes) {
    constexpr std::size_t block = 1 << 20;
    if (waiting_.size() + bytes.size() > block) flush();
    if (bytes.size() > block) return write_now(bytes);
    waiting_ += bytes;
  }

  void flush() {
    write_now(waiting_);
    waiting_.clear();
  }

  void write_now(std::string_view bytes) {
    const int reason = core::write_all(through_ ? stream_ : made_->file(), bytes);
    if (reason != 0) throw error(fmt::format("{}: could not be written in full: {}", printable(file_), std::strerror(reason)));
  }

  fs::path file_;
  bool exists_ = false, through_ = false;
  struct stat about_ {};  // status of the file, if it exists
  struct stat about_folder_ {};
  descriptor folder_, stream_;
  std::string name_;                            // the file name in the folder
  std::string waiting_;                         // buffered bytes
  temporary_file* temporary_ = nullptr;         // the entry of made_ for signals
  std::optional<core::file_replacement> made_;  // while it has its temporary name
  bool placed_ = false, exchanged_ = false, created_ = false;
};

// --- all outputs -----------------------------------------------------------------------------------------------------------------------

outputs::outputs() = default;
outputs::~outputs() = default;

void outputs::reserve(const fs::path& file) {
  if (file == "-") refuse(file, "expected the name of a file (./- is one, /dev/stdout is standard output), got -");
  auto made = std::make_unique<entry>(file);
  for (const auto& each : entries_) {
    if (each->same(*made)) refuse(file, "expected a different file for each output, got the same twice");
  }
  entries_.push_back(std::move(made));
}

outputs::entry& outputs::find(const fs::path& file) {
  for (const auto& each : entries_) {
    if (each->file() == file) return *each;
  }
  throw error(fmt::format("{}: was not reserved", printable(file)));
}

void outputs::write(const fs::path& file, content filled) { find(file).filled = std::move(filled); }

void outputs::write(const fs::path& file, std::string text) {
  write(file, [text = std::move(text)](const auto& put) { put(text); });
}

void outputs::commit() {
  std::vector<entry*> regular;
  for (const bool through : {false, true}) {
    for (const auto& each : entries_) {
      if (!each->filled || each->through() != through) continue;
      each->write();
      if (!through) regular.push_back(each.get());
    }
  }
  names_are_given = true;
  std::exception_ptr failure;
  try {
    for (entry* const each : regular) each->publish();
  } catch (...) {
    failure = std::current_exception();
    for (entry* const each : regular) each->take_back();
  }
  entries_.clear();  // removes the temporary files: unfinished outputs, or the replaced files
  names_are_given = false;
  if (const int number = waiting_signal.exchange(0); number != 0) end_by(number);
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace ballast::tools
