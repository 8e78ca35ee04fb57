// See command_line.hpp.
#include "command_line.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "terminal.hpp"

namespace ballast::tools {
namespace {

// Parses an integer in decimal digits. CLI11's own conversion reads 072 as 58 and, for unsigned types, -1 as the largest value.
template <class T>
CLI::Validator integer_from(T low) {
  const std::string range = low != std::numeric_limits<T>::min() || low == 0 ? fmt::format("at least {}", low) : "";
  return {[=](const std::string& text) -> std::string {
            T value = 0;
            const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
            const std::string_view digits = text.starts_with('-') ? std::string_view(text).substr(1) : std::string_view(text);
            const bool whole = status == std::errc{} && end == text.data() + text.size() && (digits.size() == 1 || digits.front() != '0');
            if (whole && value >= low) return "";
            return fmt::format("expected an integer{}{}, got \"{}\"", range.empty() ? "" : " of ", range, text);
          },
          range, "integer"};
}

CLI::Validator any_number() {
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
            if (std::ranges::find(names, text) != names.end()) return "";
            return fmt::format("expected one of {}, got \"{}\"", fmt::join(names, ", "), text);
          },
          fmt::format("{{{}}}", fmt::join(names, ",")), "name"};
}

CLI::Validator not_empty() {
  return {[](const std::string& text) -> std::string { return text.empty() ? "expected a text, got an empty one" : ""; }, "", "text"};
}

// Returns the message about an empty argument, or "". Without this check the parser takes the argument after --option= as its value.
std::string about_empty(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view each = argv[i];
    if (each.empty())
      return fmt::format("argument {}, after \"{}\": expected a text, got an empty one (of an unset variable?)", i, argv[i - 1]);
    if (each.starts_with("--") && each.find('=') == each.size() - 1)
      return fmt::format("{}: expected a value, got an empty one (of an unset variable?)", each.substr(0, each.size() - 1));
  }
  return "";
}

int refuse(const std::string& program, const std::string& why) {
  write_text(stderr, "{}: {}\n`{} --help` says what there is.\n", program, printable(why), program);
  return k_bad_usage;
}

}  // namespace

struct command_line::parser {
  std::unique_ptr<CLI::App> own;  // set for the program only, which owns the parsers of its subcommands
  CLI::App* app = nullptr;
  std::vector<std::unique_ptr<command_line>> subcommands;
  std::function<int()> action;
};

command_line::command_line(const std::string& program, const std::string& description) : parser_(std::make_unique<parser>()) {
  parser_->own = std::make_unique<CLI::App>(description, program);
  parser_->app = parser_->own.get();
  parser_->app->require_subcommand(1);
}

command_line::command_line(std::unique_ptr<parser> part) : parser_(std::move(part)) {}

command_line::~command_line() = default;

command_line& command_line::subcommand(const std::string& name, const std::string& description) {
  auto part = std::make_unique<parser>();
  part->app = parser_->app->add_subcommand(name, description);
  return *parser_->subcommands.emplace_back(new command_line(std::move(part)));
}

void command_line::operand(const std::string& name, std::string& value, const std::string& description) {
  parser_->app->add_option(name, value, description)->required();
}

void command_line::operands(const std::string& name, std::vector<std::string>& values, const std::string& description) {
  parser_->app->add_option(name, values, description);
}

void command_line::flag(const std::string& names, bool& value, const std::string& description) {
  parser_->app->add_flag(names, value, description);
}

void command_line::text(const std::string& names, std::string& value, const std::string& description, presence needed) {
  parser_->app->add_option(names, value, description)->required(needed == presence::required)->capture_default_str();
}

void command_line::choice(const std::string& names, std::string& value, const std::string& description,
                          const std::vector<std::string>& allowed) {
  parser_->app->add_option(names, value, description)->check(one_of(allowed))->capture_default_str();
}

void command_line::number(const std::string& names, double& value, const std::string& description) {
  CLI::Option* const option = parser_->app->add_option(names, value, description)->check(any_number());
  if (std::isfinite(value)) option->capture_default_str();
}

template <class T>
void command_line::integer(const std::string& names, T& value, const std::string& description, T low, presence needed) {
  CLI::Option* const option =
      parser_->app->add_option(names, value, description)->required(needed == presence::required)->check(integer_from(low));
  if (value >= low) option->capture_default_str();
}
template void command_line::integer(const std::string&, int&, const std::string&, int, presence);
template void command_line::integer(const std::string&, std::int64_t&, const std::string&, std::int64_t, presence);
template void command_line::integer(const std::string&, std::uint64_t&, const std::string&, std::uint64_t, presence);

void command_line::list(const std::string& names, std::vector<std::string>& values, const std::string& description) {
  CLI::Option* const option =
      parser_->app->add_option(names, values, description)->delimiter(',')->allow_extra_args(false)->check(not_empty());
  if (!values.empty()) option->capture_default_str();
}

void command_line::list(const std::string& names, std::vector<int>& values, const std::string& description) {
  CLI::Option* const option = parser_->app->add_option(names, values, description)
                                  ->delimiter(',')
                                  ->allow_extra_args(false)
                                  ->check(integer_from(std::numeric_limits<int>::min()));
  if (!values.empty()) option->capture_default_str();
}

void command_line::repeated(const std::string& names, std::vector<std::string>& values, const std::string& description) {
  parser_->app->add_option(names, values, description)->allow_extra_args(false);
}

void command_line::rest(std::vector<std::string>& arguments) {
  parser_->app->prefix_command();
  parser_->app->set_help_flag();
  parser_->app->callback([app = parser_->app, &arguments] { arguments = app->remaining(); });
}

void command_line::hide() { parser_->app->group(""); }

void command_line::version(std::function<std::string()> text) { parser_->app->set_version_flag("--version", std::move(text)); }

void command_line::footer(const std::string& text) { parser_->app->footer(text); }

void command_line::action(std::function<int()> body) { parser_->action = std::move(body); }

std::optional<int> command_line::parse(int argc, char** argv) {
  CLI::App& app = *parser_->app;
  std::vector<std::string> names;
  bool known = false;
  for (const auto& each : parser_->subcommands) {
    const CLI::App& command = *each->parser_->app;
    known = known || (argc > 1 && command.get_name() == argv[1]);
    if (!command.get_group().empty()) names.push_back(command.get_name());
  }
  if (argc < 2 || (argv[1][0] != '-' && !known)) {
    const std::string got = argc < 2 ? "none" : fmt::format("\"{}\"", argv[1]);
    return refuse(app.get_name(), fmt::format("expected a subcommand ({}), got {}", fmt::join(names, ", "), got));
  }
  if (const std::string empty = about_empty(argc, argv); !empty.empty())
    return refuse(known ? fmt::format("{} {}", app.get_name(), argv[1]) : app.get_name(), empty);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      std::ostringstream out, unused;
      app.exit(e, out, unused);
      write_text("{}", out.str());
      return k_done;
    }
    std::string program = app.get_name();
    for (const CLI::App* each : app.get_subcommands()) program += " " + each->get_name();
    if (dynamic_cast<const CLI::ExtrasError*>(&e) == nullptr) return refuse(program, e.what());
    return refuse(program, fmt::format("not expected: {}", fmt::join(app.remaining(true), " ")));
  }
}

// Returns the subcommand of the command line. There is one, because parse() succeeded with require_subcommand(1).
const command_line& command_line::named() const {
  return **std::ranges::find_if(parser_->subcommands, [](const auto& each) { return each->parser_->app->parsed(); });
}

bool command_line::given(const std::string& name) const {
  const CLI::Option* const option = named().parser_->app->get_option_no_throw(name);
  return option != nullptr && option->count() > 0;
}

int command_line::run() const { return named().parser_->action(); }

}  // namespace ballast::tools
