// Writes the output files of a program atomically: each under a temporary name in its folder; when all are complete, all are renamed.
// Devices, FIFOs and the file of standard output or error are written directly.
// Layer: tools.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::tools {

class outputs {
 public:
  // A function that passes the bytes of a file to `put`, in pieces.
  using content = std::function<void(const std::function<void(std::string_view)>& put)>;

  outputs();
  ~outputs();
  outputs(const outputs&) = delete;
  outputs& operator=(const outputs&) = delete;

  // Announces an output before the computation. It tests at once whether the file can be written, by a temporary file that it removes
  // again: so before commit() there is no file on disk that a signal could leave there. A replaced file keeps its mode, owner and group. A
  // symbolic link stays; the file that it names is replaced, or created if it does not exist.
  // Throws invalid_argument_error if the path cannot be written, is a folder, has an owner or group that the result could not get, or was
  // announced before.
  void reserve(const std::filesystem::path& file);

  // Set the content of a reserved output.
  void write(const std::filesystem::path& file, content filled);
  void write(const std::filesystem::path& file, std::string text);

  // Writes all temporary files, then the outputs that are written directly, and then renames all files. If a rename fails, the files before
  // it get their former content back (if the file system can exchange two names, see renameat2). Throws error. Signals that end the process
  // remove the temporary files; they are delayed during the renames.
  void commit();

 private:
  class entry;
  entry& find(const std::filesystem::path& file);
  std::vector<std::unique_ptr<entry>> entries_;
};

}  // namespace ballast::tools
