// A folder of files that only this user and root can have written. The library executes code that it reads from here.
// Layer: foundation.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ballast::cuda {

// The folder and each file in it must belong to this user or to root, and group and others must not have write permission. All checks use
// descriptors, not names, so that nothing can change between check and use. A relative path refers to the current folder at construction.
class private_folder {
 public:
  private_folder() = default;  // no folder: reads and writes nothing
  explicit private_folder(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }

  // Returns the content of a file; nothing if it does not exist, or if other users could have written it.
  std::optional<std::string> read(const std::string& name) const;

  // Creates the folder, with access for this user only, unless it exists. Returns the reason why it cannot be used, or "".
  std::string make() const;

  // Creates the folder and writes a file with access for this user only. The write is atomic, also for other processes that read or write
  // the file. Returns the reason of a failure, or "".
  std::string write(const std::string& name, std::string_view content) const;

  // Returns the result that make() would have, as far as it can be determined without changing anything.
  std::string refusal() const;

 private:
  std::filesystem::path path_;
};

// Checks that only this user, root, and users who can also write `own` and its folder could have written `file` or placed it in its folder.
// Returns the reason if another user could, or "".
std::string why_not_as_private(const std::filesystem::path& file, const std::filesystem::path& own);

// Replaces or creates a file anywhere, atomically. Replaces only regular files. Returns the reason of a failure, or "".
std::string replace_file(const std::filesystem::path& file, std::string_view content);

}  // namespace ballast::cuda
