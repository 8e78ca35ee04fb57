// The input files of a run: reads them, and tells what was found and what was left out.
// Layer: tools.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "array.hpp"
#include "command_line.hpp"

namespace ballast::tools {

class inputs {
 public:
  // Adds the options for tables: --header, --columns, --skip and --missing. `second`: also --columns-b, for a second operand.
  void add_to(command_line& command, bool second = false);

  // From here on reads only one part of each file. Throws invalid_argument_error if rows are to be left out of a table.
  void read_part(const array_part& part);

  // Reads an operand of the command, the second with --columns-b in place of --columns.
  array operand(const std::string& file);
  array second_operand(const std::string& file);
  // Reads the file that an option names; the options for tables are not for it. Messages begin with the option.
  array of_option(const std::string& option, const std::string& file);

  // The same for a file that every rank reads whole.
  array whole(const std::string& option, const std::string& file);

  // Leaves out of each array the rows that were left out of the other one, if both had the same number of rows.
  static void keep_common_rows(array& a, array& b);

  // Returns the number of input values that are NaN or Inf.
  std::int64_t not_finite() const;
  // Return the facts for JSON, and as lines of text.
  nlohmann::ordered_json json() const;
  std::vector<std::string> lines() const;

 private:
  array noted(array read);
  array operand(const std::string& file, const std::string& option, const std::vector<std::string>& columns);

  std::string header_ = "auto", missing_ = "error";
  std::vector<std::string> columns_, second_columns_;
  std::int64_t skip_ = 0;
  array_part part_;
  std::vector<std::shared_ptr<const input_facts>> facts_;
};

}  // namespace ballast::tools
