// Output files that appear whole and together, or not at all: each is written under a temporary name in its folder and then renamed, when
// all of them are complete. Devices, FIFOs and the file that standard output or error goes to are written through.
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
  // Hands the bytes of a file to `put`, piece by piece.
  using content = std::function<void(const std::function<void(std::string_view)>& put)>;

  outputs();
  ~outputs();
  outputs(const outputs&) = delete;
  outputs& operator=(const outputs&) = delete;

  // Announces an output before the computation. Whether it can be written is tried at once, by a temporary file that is removed again:
  // until commit() there is nothing on disk that a signal could leave behind. A file that is replaced keeps its mode, owner and group.
  // Throws invalid_argument_error if the place cannot be written, is a folder, belongs to somebody whose the result could not be, or was
  // announced before.
  void reserve(const std::filesystem::path& file);

  // What a reserved output will hold.
  void write(const std::filesystem::path& file, content filled);
  void write(const std::filesystem::path& file, std::string text);

  // Writes all temporary files, then what is written through, then gives all files their names; if one cannot have it, those before get
  // their former content back (where the filesystem can exchange two names, see renameat2). Throws error. Signals that end the process
  // remove the temporary files, and wait while names are given.
  void commit();

 private:
  class entry;
  entry& find(const std::filesystem::path& file);
  std::vector<std::unique_ptr<entry>> entries_;
};

}  // namespace ballast::tools
