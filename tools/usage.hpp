// Command lines: values of options checked as text, and messages for what does not parse.
// Layer: tools, over CLI11.
#pragma once

#include <charconv>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace ballast::tools {

// An integer in decimal digits. CLI11's own conversion takes 072 for 58 and, for unsigned types, -1 for the largest value.
template <class T>
CLI::Validator integer_in(T low, T high = std::numeric_limits<T>::max()) {
  std::string range;
  if (high != std::numeric_limits<T>::max()) {
    range = fmt::format("{} to {}", low, high);
  } else if (low != std::numeric_limits<T>::min() || low == 0) {
    range = fmt::format("at least {}", low);
  }
  return {[=](const std::string& text) -> std::string {
            T value = 0;
            const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
            const std::string_view digits = text.starts_with('-') ? std::string_view(text).substr(1) : std::string_view(text);
            const bool whole = status == std::errc{} && end == text.data() + text.size() && (digits.size() == 1 || digits.front() != '0');
            if (whole && value >= low && value <= high) return "";
            return fmt::format("expected an integer{}{}, got \"{}\"", range.empty() ? "" : " of ", range, text);
          },
          range, "integer"};
}

// A number in decimal or scientific notation.
CLI::Validator number();

CLI::Validator one_of(const std::vector<std::string>& names);

// Parses the command line. Returns the exit status if the program is to end now: help or the version was asked for and printed, or the
// command line has no meaning and standard error says why (2).
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

// The exit status of `body`, or of what it throws: 2 for bad usage, bad input or too little memory, 1 for anything else, with the message
// on standard error. 1, too, if it succeeded and standard output did not take what it printed.
int run_program(const char* name, const std::function<int()>& body);

}  // namespace ballast::tools
