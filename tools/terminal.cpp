// See terminal.hpp.
#include "terminal.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>

#include <ballast/error.hpp>

namespace ballast::tools {

decoded first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return {};
  std::uint32_t character = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {};
    character = character << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (character < least[bytes] || character > 0x10ffff || (character >= 0xd800 && character <= 0xdfff)) return {};
  return {character, bytes};
}

namespace {

// Returns whether the character ends a line, changes the direction of the following text, has no width, or looks like a space.
bool deceives(std::uint32_t c) {
  return c == 0xa0 || c == 0xad || c == 0x61c || (c >= 0x2000 && c <= 0x200f) || (c >= 0x2028 && c <= 0x202f) ||
         (c >= 0x205f && c <= 0x206f) || c == 0x3000 || c == 0xfeff;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const auto [character, bytes] = first_character(text);
    if (bytes == 0) {
      made += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (character == '\n') {
      made += "\\n";
    } else if (character == '\t') {
      made += "\\t";
    } else if (character < ' ' || (character >= 0x7f && character <= 0x9f)) {
      made += fmt::format("\\x{:02x}", character);
    } else if (deceives(character)) {
      made += fmt::format("\\u{{{:x}}}", character);
    } else {
      made += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return made;
}

std::string printable(const std::filesystem::path& file) { return printable(std::string_view(file.native())); }

namespace {

void open_standard_streams() {
  for (int stream = 0; stream < 3; ++stream) {
    // Opened in the wrong direction, so that using the stream is an error.
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF && open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY) != stream) return;
  }
}

int checked_output(const char* program, int status) {
  errno = 0;
  const bool lost = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !lost) return status;
  write_text(stderr, "{}: standard output could not be written in full: {}\n", program,
             errno != 0 ? std::strerror(errno) : "an earlier write failed");
  return status == k_done ? k_failure : status;
}

// Prints a message. It may have several lines (a compiler's log); all other control characters are escaped.
int report(const char* program, int status, std::string_view what) {
  std::string text;
  for (bool more = true; more;) {
    const auto end = what.find('\n');
    more = end != std::string_view::npos;
    text += printable(what.substr(0, end)) + '\n';
    if (more) what.remove_prefix(end + 1);
  }
  write_text(stderr, "{}: {}", program, text);
  return status;
}

}  // namespace

constexpr const char* k_no_memory = "expected enough memory for this problem, got none from the system";

int run_program(const char* name, const std::function<int()>& body) {
  open_standard_streams();
  try {
    return checked_output(name, body());
  } catch (const uncorrectable_error& e) {
    return report(name, k_uncorrectable, e.what());
  } catch (const device_error& e) {
    return report(name, k_failure, e.what());
  } catch (const invalid_argument_error& e) {
    return report(name, k_bad_usage, e.what());
  } catch (const rank_deficient_error& e) {
    return report(name, k_bad_usage, e.what());
  } catch (const unsupported_error& e) {
    return report(name, k_bad_usage, e.what());
  } catch (const out_of_memory_error& e) {
    return report(name, k_bad_usage, e.what());
  } catch (const std::bad_alloc&) {
    return report(name, k_bad_usage, k_no_memory);
  } catch (const std::length_error&) {
    return report(name, k_bad_usage, k_no_memory);
  } catch (const std::exception& e) {
    return report(name, k_failure, e.what());
  }
}

}  // namespace ballast::tools
