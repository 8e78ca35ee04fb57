// Output files that appear whole or not at all: written under a temporary name beside the final one, then renamed.
// Layer: tools.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "array.hpp"

namespace ballast::tools {

class outputs {
 public:
  outputs() = default;
  ~outputs();  // removes temporary files that were not committed
  outputs(const outputs&) = delete;
  outputs& operator=(const outputs&) = delete;

  // Announces an output before the computation: opens its temporary file, so that an unwritable place is known at once.
  // `axes` as in check_writable_kind; 0 for text. Throws invalid_argument_error.
  void reserve(const std::filesystem::path& file, std::size_t axes);

  // Fills a reserved output.
  void write(const std::filesystem::path& file, const array& value);
  void write_text(const std::filesystem::path& file, const std::string& text);

  // Gives everything that was written its final name. Throws error.
  void commit();

 private:
  struct entry {
    std::filesystem::path final, temporary;
    bool written = false;
  };
  entry& find(const std::filesystem::path& file);
  std::vector<entry> entries_;
};

}  // namespace ballast::tools
