// Safe use of the standard streams: prints text without control characters, and reports an error if output was lost.
// Layer: tools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ballast::tools {

// Converts external text (file names, file contents, arguments) for messages and JSON to valid UTF-8 without control characters. Bytes that
// are not UTF-8 become \xNN, control characters become \n, \t or \xNN. Characters that change the direction of text, have no width, or are
// spaces of another kind become \u{NNNN}.
std::string printable(std::string_view text);
inline std::string printable(const std::string& text) { return printable(std::string_view(text)); }
std::string printable(const std::filesystem::path& file);

struct decoded {
  std::uint32_t character = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

// Decodes the first character of `text`, by the table of well-formed sequences in the Unicode Standard, section 3.9.
decoded first_character(std::string_view text);

// Formats and writes. A stream that does not take the text keeps its error flag, which run_program looks at; nothing is thrown, so that a
// full disk or a closed stream does not change the exit status of a fault that could not be repaired.
template <class... Arguments>
void write_text(std::FILE* to, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), to));
}
template <class... Arguments>
void write_text(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write_text(stdout, format, std::forward<Arguments>(arguments)...);
}

// The exit statuses of the command.
enum exit_status : int { k_done = 0, k_failure = 1, k_bad_usage = 2, k_uncorrectable = 3 };

// Runs a program and returns the exit status of `body`, or of the exception that it throws, whose message goes to standard error:
//   2  invalid_argument_error, rank_deficient_error, unsupported_error, out_of_memory_error
//   3  uncorrectable_error
//   1  device_error and any other; also success whose output standard output did not take.
// Streams 0, 1 and 2 that are closed are opened first, so that no file that is opened later becomes one of them; writing to them fails.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace ballast::tools
