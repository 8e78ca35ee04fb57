// See usage.hpp.
#include "usage.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <fmt/ranges.h>

#include <ballast/error.hpp>

#include "terminal.hpp"

namespace ballast::tools {

CLI::Validator number() {
  return {[](const std::string& text) -> std::string {
            double value = 0;
            const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (status == std::errc{} && end == text.data() + text.size()) return "";
            return fmt::format("expected a number, got \"{}\"", text);
          },
          "", "number"};
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  return {[=](const std::string& text) -> std::string {
            for (const std::string& each : names) {
              if (each == text) return "";
            }
            return fmt::format("expected one of {}, got \"{}\"", fmt::join(names, ", "), text);
          },
          fmt::format("{{{}}}", fmt::join(names, ",")), "name"};
}

namespace {

constexpr int k_failure = 1, k_bad_usage = 2;

// Messages may have several lines (a compiler's), but nothing else that a terminal obeys.
int report(const char* program, int status, std::string_view what) {
  std::string text;
  for (bool more = true; more;) {
    const auto end = what.find('\n');
    more = end != std::string_view::npos;
    text += printable(what.substr(0, end)) + '\n';
    if (more) what.remove_prefix(end + 1);
  }
  fmt::print(stderr, "{}: {}", program, text);
  return status;
}

}  // namespace

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  const auto refuse = [](const std::string& program, const std::string& why) {
    fmt::print(stderr, "{}: {}\n`{} --help` says what there is.\n", program, printable(why), program);
    return k_bad_usage;
  };
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  if (argc < 2 || (argv[1][0] != '-' && std::ranges::find(names, std::string_view(argv[1])) == names.end())) {
    const std::string got = argc < 2 ? "none" : fmt::format("\"{}\"", argv[1]);
    return refuse(app.get_name(), fmt::format("expected a subcommand ({}), got {}", fmt::join(names, ", "), got));
  }
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      std::ostringstream out, unused;
      app.exit(e, out, unused);
      fmt::print("{}", out.str());
      return 0;
    }
    std::string program = app.get_name();
    for (const CLI::App* each : app.get_subcommands()) program += " " + each->get_name();
    if (dynamic_cast<const CLI::ExtrasError*>(&e) == nullptr) return refuse(program, e.what());
    return refuse(program, fmt::format("not expected: {}", fmt::join(app.remaining(true), " ")));
  }
}

int run_program(const char* name, const std::function<int()>& body) {
  open_standard_streams();
  try {
    return checked_output(name, body());
  } catch (const invalid_argument_error& e) {
    return report(name, k_bad_usage, e.what());
  } catch (const unsupported_error& e) {
    return report(name, k_bad_usage, e.what());
  } catch (const std::bad_alloc&) {
    return report(name, k_bad_usage, "not enough memory for this problem on this machine");
  } catch (const std::length_error&) {
    return report(name, k_bad_usage, "not enough memory for this problem on this machine");
  } catch (const std::exception& e) {
    return report(name, k_failure, e.what());
  }
}

}  // namespace ballast::tools
