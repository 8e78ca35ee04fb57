// The bytes of an input: a file, a FIFO, a device or standard input.
// Layer: tools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/descriptor.hpp"

namespace ballast::tools {

// Throws invalid_argument_error with the file's name before the text.
[[noreturn]] void refuse_file(const std::filesystem::path& file, const std::string& what);

// Bytes that are read once, from the first to the last.
class byte_source {
 public:
  virtual ~byte_source() = default;

  // Reads `count` bytes and returns `count`, or a smaller number at the end.
  virtual std::size_t read(char* to, std::size_t count) = 0;
  // Leaves out `count` bytes: at most left(), which must be known.
  virtual void skip(std::uint64_t count) = 0;
  // Returns the number of bytes that are left, if that is known without reading them.
  virtual std::optional<std::uint64_t> left() const = 0;
};

// The bytes of a file; the name "-" is standard input. Opening a FIFO waits for its writer.
class file_bytes : public byte_source {
 public:
  // Throws invalid_argument_error if the file cannot be opened, is a folder, or is a stream (standard input, a FIFO, a device) that this
  // process has read before.
  explicit file_bytes(std::filesystem::path file);

  std::size_t read(char* to, std::size_t count) override;
  void skip(std::uint64_t count) override;
  std::optional<std::uint64_t> left() const override { return left_; }

 private:
  std::filesystem::path file_;
  core::descriptor stream_;
  std::optional<std::uint64_t> left_;
};

}  // namespace ballast::tools
