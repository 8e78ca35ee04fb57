// See outputs.hpp.
#include "outputs.hpp"

#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ballast/error.hpp>

namespace ballast::tools {

outputs::~outputs() {
  for (const entry& each : entries_) {
    std::error_code nothing_more_to_do;
    std::filesystem::remove(each.temporary, nothing_more_to_do);
  }
}

void outputs::reserve(const std::filesystem::path& file, std::size_t axes) {
  if (axes > 0) check_writable_kind(file, axes);
  for (const entry& each : entries_) {
    if (each.final == file)
      throw invalid_argument_error(fmt::format("{}: expected a different file for each output, got the same twice", file.string()));
  }
  std::error_code status;
  if (std::filesystem::is_directory(file, status))
    throw invalid_argument_error(fmt::format("{}: expected a file to write, got a folder", file.string()));
  if (std::filesystem::exists(file, status) && access(file.c_str(), W_OK) != 0)
    throw invalid_argument_error(fmt::format("{}: cannot be overwritten: {}", file.string(), std::strerror(errno)));
  entry made;
  made.final = file;
  made.temporary = file;
  made.temporary += fmt::format(".{}.partial", getpid());
  const int handle = open(made.temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (handle < 0) throw invalid_argument_error(fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
  close(handle);
  entries_.push_back(std::move(made));
}

outputs::entry& outputs::find(const std::filesystem::path& file) {
  for (entry& each : entries_) {
    if (each.final == file) return each;
  }
  throw error(fmt::format("{}: was not reserved", file.string()));
}

void outputs::write(const std::filesystem::path& file, const array& value) {
  entry& target = find(file);
  write_array(target.temporary, target.final, value);
  target.written = true;
}

void outputs::write_text(const std::filesystem::path& file, const std::string& text) {
  entry& target = find(file);
  std::ofstream out(target.temporary, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw error(fmt::format("{}: could not be written in full", file.string()));
  target.written = true;
}

void outputs::commit() {
  for (entry& each : entries_) {
    if (!each.written) continue;
    std::error_code status;
    std::filesystem::rename(each.temporary, each.final, status);
    if (status) throw error(fmt::format("{}: {}", each.final.string(), status.message()));
    each.written = false;
  }
}

}  // namespace ballast::tools
