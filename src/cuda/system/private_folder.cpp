// See private_folder.hpp.
#include "cuda/system/private_folder.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/descriptor.hpp"
#include "core/file_replacement.hpp"
#include "core/format.hpp"

namespace ballast::cuda {

namespace fs = std::filesystem;

namespace {

using core::descriptor;

// Returns whether only this user and root can write the file. With an access control list, the group bits are the mask: the most that any
// entry allows.
bool is_private(const struct stat& about) {
  return (about.st_uid == ::geteuid() || about.st_uid == 0) && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string why_not_private(const fs::path& path, const struct stat& about) {
  return fmt::format("{}: expected that only user {} and root can write it, got owner {} and mode {:04o}", path.string(), ::geteuid(),
                     about.st_uid, static_cast<unsigned>(about.st_mode) & 07777U);
}

std::string because(const fs::path& path, int reason) { return fmt::format("{}: {}", path.string(), std::strerror(reason)); }

descriptor open_folder(const fs::path& path, std::string& why) {
  descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about {};
  if (!folder || ::fstat(folder.get(), &about) != 0) {
    why = because(path, errno);
  } else if (!is_private(about)) {
    why = why_not_private(path, about);
  }
  return folder;
}

// Replaces or creates the file in its folder. Returns the reason of a failure, or "".
std::string write_in(const descriptor& folder, const fs::path& file, std::string_view content, mode_t mode) {
  core::file_replacement made(folder.get());
  int reason = made.create(mode);
  if (reason == 0) reason = core::write_all(made.file(), content);
  if (reason == 0) reason = made.close();
  if (reason == 0) reason = made.rename_to(file.filename().c_str());
  return reason == 0 ? "" : because(file, reason);
}

}  // namespace

std::string why_not_as_private(const fs::path& file, const fs::path& own) {
  const std::pair<fs::path, fs::path> pairs[] = {{file, own}, {file.parent_path(), own.parent_path()}};
  for (const auto& [path, like] : pairs) {
    struct stat about {
    }, known{};
    if (::stat(path.c_str(), &about) != 0) return because(path, errno);
    if (is_private(about)) continue;
    const bool alike = ::stat(like.c_str(), &known) == 0 && about.st_uid == known.st_uid && about.st_gid == known.st_gid &&
                       (about.st_mode & ~known.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    if (!alike) return why_not_private(path, about);
  }
  return "";
}

std::string replace_file(const fs::path& file, std::string_view content) {
  std::error_code nothing;
  if (fs::exists(file, nothing) && !fs::is_regular_file(file, nothing))
    return fmt::format("{}: expected a file to replace, got something else", file.string());
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder ? write_in(folder, file, content, 0666) : because(parent, errno);
}

private_folder::private_folder(const fs::path& path) {
  if (path.empty()) return;
  std::error_code failure;
  path_ = fs::absolute(path, failure).lexically_normal();
  if (failure) path_ = path;
  if (!path_.has_filename()) path_ = path_.parent_path();  // "cache/"
}

std::optional<std::string> private_folder::read(const std::string& name) const {
  if (path_.empty()) return std::nullopt;
  std::string why;
  const descriptor folder = open_folder(path_, why);
  if (!why.empty()) return std::nullopt;
  const descriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || !is_private(about)) return std::nullopt;
  std::string content(static_cast<std::size_t>(about.st_size), '\0');
  for (std::size_t have = 0; have < content.size();) {
    const ssize_t got = ::read(file.get(), content.data() + have, content.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    have += static_cast<std::size_t>(got);
  }
  return content;
}

std::string private_folder::make() const {
  std::error_code failure;
  fs::create_directories(path_.parent_path(), failure);
  if (failure) return fmt::format("{}: {}", path_.parent_path().string(), failure.message());
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) return because(path_, errno);
  std::string why;
  (void)open_folder(path_, why);
  return why;
}

std::string private_folder::write(const std::string& name, std::string_view content) const {
  std::string why = make();
  if (!why.empty()) return why;
  const descriptor folder = open_folder(path_, why);
  return why.empty() ? write_in(folder, path_ / name, content, 0600) : why;
}

namespace {

// Tries to create something in the folder. Returns 0 or errno. Permissions do not tell: by them root may write everywhere, also in /proc.
int try_to_create_in(const fs::path& folder) {
  // Other processes never see a file without a name, but some file systems have no such files.
  if (descriptor(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600))) return 0;
  const fs::path probe = folder / core::file_replacement::temporary_name().data();
  if (::mkdir(probe.c_str(), 0700) != 0) return errno;
  ::rmdir(probe.c_str());
  return 0;
}

}  // namespace

std::string private_folder::refusal() const {
  // The existing part of the path must be a writable folder; make() would create the rest.
  for (fs::path existing = path_;; existing = existing.parent_path()) {
    struct stat about {};
    if (::stat(existing.c_str(), &about) != 0) {
      if (errno == ENOENT && existing != existing.parent_path()) continue;
      return because(existing, errno);
    }
    if (!S_ISDIR(about.st_mode)) return fmt::format("{} is not a folder", existing.string());
    if (existing == path_ && !is_private(about)) return why_not_private(existing, about);
    const int reason = try_to_create_in(existing);
    return reason == 0 ? "" : "nothing can be created in " + because(existing, reason);
  }
}

}  // namespace ballast::cuda
