// Command lines: options whose values are checked as text, subcommands, --help, and messages for what does not parse.
// Layer: tools. Only command_line.cpp includes the parser, CLI11: a source that does takes some seconds longer to compile.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ballast::tools {

enum class presence { optional, required };

// The command line of a program, or of one of its subcommands. Options are named like "-o,--output". parse() writes their values through
// the references, which must be valid then. What a value is before that is its default: --help shows it if it is not empty and is allowed.
class command_line {
 public:
  command_line(const std::string& program, const std::string& description);
  ~command_line();
  command_line(const command_line&) = delete;
  command_line& operator=(const command_line&) = delete;

  // A subcommand of this program; a command line has to name one. It lives as long as the program's command line.
  command_line& subcommand(const std::string& name, const std::string& description);

  // An argument without a name, which has to be there; any number of them, or none.
  void operand(const std::string& name, std::string& value, const std::string& description);
  void operands(const std::string& name, std::vector<std::string>& values, const std::string& description);

  void flag(const std::string& names, bool& value, const std::string& description);
  void text(const std::string& names, std::string& value, const std::string& description, presence needed = presence::optional);
  void choice(const std::string& names, std::string& value, const std::string& description, const std::vector<std::string>& allowed);
  // A number in decimal or scientific notation.
  void number(const std::string& names, double& value, const std::string& description);
  // An integer in decimal digits, at least `low`. For int, std::int64_t and std::uint64_t.
  template <class T>
  void integer(const std::string& names, T& value, const std::string& description, T low, presence needed = presence::optional);
  // Values separated by commas.
  void list(const std::string& names, std::vector<std::string>& values, const std::string& description);
  void list(const std::string& names, std::vector<int>& values, const std::string& description);
  // An option that can be given several times, each time with one value.
  void repeated(const std::string& names, std::vector<std::string>& values, const std::string& description);
  // Everything that follows, --help as well, is for another program.
  void rest(std::vector<std::string>& arguments);

  // --version prints what `text` returns.
  void version(std::function<std::string()> text);
  // Below the options of --help.
  void footer(const std::string& text);
  // What run() does.
  void action(std::function<int()> body);

  // Parses the program's command line. Returns the exit status if the program is to end now: help or the version was asked for and printed,
  // or the command line has no meaning and standard error says why (2).
  std::optional<int> parse(int argc, char** argv);

  // After parse(): whether the option was given to the subcommand that was named; does what that subcommand is for.
  bool given(const std::string& name) const;
  int run() const;

 private:
  struct parser;
  explicit command_line(std::unique_ptr<parser> part);
  const command_line& named() const;
  std::unique_ptr<parser> parser_;
};

}  // namespace ballast::tools
