// Files that nobody but this user and root can have written: what is read from here is run.
// Layer: foundation.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ballast::cuda {

// The folder, and each file in it, must belong to this user or to root, and group and others may not write it. All is looked at by
// descriptors, not by names, so that nothing can change between the look and the use. Relative paths are those of the folder that is
// current at construction.
class private_folder {
 public:
  private_folder() = default;  // none: nothing is read or written
  explicit private_folder(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }

  // The content of a file; nothing if it is not there, or others could have written it.
  std::optional<std::string> read(const std::string& name) const;

  // Makes the folder, for this user alone, unless it is there. Returns why it cannot be used, or "".
  std::string make() const;

  // Makes the folder and writes a file for this user alone: whole or not at all, also for processes that read or write it meanwhile.
  // Returns why not, or "".
  std::string write(const std::string& name, std::string_view content) const;

  // What make() would return, as far as can be said without making anything.
  std::string refusal() const;

 private:
  std::filesystem::path path_;
};

// Why somebody could have written `file`, or put it into its folder, who is neither this user nor root and cannot write `own` and its
// folder; empty if nobody could.
std::string why_not_as_private(const std::filesystem::path& file, const std::filesystem::path& own);

// Replaces a file anywhere, whole or not at all; nothing but a file is replaced. Returns why not, or "".
std::string replace_file(const std::filesystem::path& file, std::string_view content);

}  // namespace ballast::cuda
