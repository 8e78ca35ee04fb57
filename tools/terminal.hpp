// What a program owes its standard streams and whoever reads them: text without control characters, and a failure if output was lost.
// Layer: tools.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace ballast::tools {

// Text from outside (names of files, their content, arguments) for messages and JSON: valid UTF-8 without control characters. Bytes that
// are no UTF-8 become \xNN, control characters \n, \t or \xNN, and those that change the direction of text \u{NNNN}.
std::string printable(std::string_view text);
inline std::string printable(const std::string& text) { return printable(std::string_view(text)); }
std::string printable(const std::filesystem::path& file);

// The exit statuses of the command.
enum exit_status : int { k_done = 0, k_failure = 1, k_bad_usage = 2, k_uncorrectable = 3 };

// A program: the exit status of `body`, or of what it throws: 2 for bad usage, bad input or too little memory, 1 for anything else, with
// the message on standard error. 1, too, if it succeeded and standard output did not take what it printed. Streams 0, 1 and 2 that are
// closed are opened first, so that no file that is opened later becomes one of them; writing to them fails.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace ballast::tools
