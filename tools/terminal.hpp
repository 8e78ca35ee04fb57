// What a program owes its standard streams and whoever reads them: text without control characters, and a failure if output was lost.
// Layer: tools.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ballast::tools {

// Text from outside (names of files, their content, arguments) for messages and JSON: valid UTF-8 without control characters. Bytes that
// are no UTF-8 become \xNN, control characters \n, \t or \xNN, and those that change the direction of text \u{NNNN}.
std::string printable(std::string_view text);
inline std::string printable(const std::string& text) { return printable(std::string_view(text)); }
std::string printable(const std::filesystem::path& file);

// Opens those of the streams 0, 1 and 2 that are closed, so that no file that is opened later becomes one of them. Writing to them fails.
void open_standard_streams();

// The exit status of a program that would end with `status`: 1 instead of 0, with a message, if standard output did not take everything.
int checked_output(const char* program, int status);

}  // namespace ballast::tools
