// Command lines: options whose values are checked as text, subcommands, --help, and error messages.
// Layer: tools. Only command_line.cpp includes the parser, CLI11, because it adds some seconds to the compilation of a source.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ballast::tools {

enum class presence { optional, required };

// The command line of a program, or of one of its subcommands. Options have names like "-o,--output". parse() writes their values through
// the references, which must still be valid. The value before parse() is the default: --help shows it if it is allowed and not empty. An
// empty argument, as an unset variable of a shell gives it, is no value: it is refused.
class command_line {
 public:
  command_line(const std::string& program, const std::string& description);
  ~command_line();
  command_line(const command_line&) = delete;
  command_line& operator=(const command_line&) = delete;

  // Adds a subcommand to this program; every command line must name one. Valid as long as the program's command line.
  command_line& subcommand(const std::string& name, const std::string& description);

  // Add a required argument without a name; add any number of arguments, or none.
  void operand(const std::string& name, std::string& value, const std::string& description);
  void operands(const std::string& name, std::vector<std::string>& values, const std::string& description);

  void flag(const std::string& names, bool& value, const std::string& description);
  void text(const std::string& names, std::string& value, const std::string& description, presence needed = presence::optional);
  void choice(const std::string& names, std::string& value, const std::string& description, const std::vector<std::string>& allowed);
  // Adds an option for a number in decimal or scientific notation.
  void number(const std::string& names, double& value, const std::string& description);
  // Adds an option for an integer in decimal digits, at least `low`. T: int, std::int64_t or std::uint64_t.
  template <class T>
  void integer(const std::string& names, T& value, const std::string& description, T low, presence needed = presence::optional);
  // Adds an option for values separated by commas, in one argument.
  void list(const std::string& names, std::vector<std::string>& values, const std::string& description);
  void list(const std::string& names, std::vector<int>& values, const std::string& description);
  // Adds an option that can be repeated, with one value each time.
  void repeated(const std::string& names, std::vector<std::string>& values, const std::string& description);
  // Stores all following arguments, including --help, for another program.
  void rest(std::vector<std::string>& arguments);

  // Leaves this subcommand out of the list in --help and in messages. It can still be named.
  void hide();

  // Makes --version print the result of `text`.
  void version(std::function<std::string()> text);
  // Adds text below the options in --help.
  void footer(const std::string& text);
  // Sets the function that run() calls.
  void action(std::function<int()> body);

  // Parses the program's command line. Returns the exit status if the program must end now: 0 after printing the requested help or version,
  // 2 after printing the reason of an invalid command line to standard error.
  std::optional<int> parse(int argc, char** argv);

  // Call after parse(). given() returns whether the option was given to the named subcommand; run() runs that subcommand.
  bool given(const std::string& name) const;
  int run() const;

 private:
  struct parser;
  explicit command_line(std::unique_ptr<parser> part);
  const command_line& named() const;
  std::unique_ptr<parser> parser_;
};

}  // namespace ballast::tools
