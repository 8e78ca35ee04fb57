// Reads and writes tables of numbers as text, .csv and .tsv.
// Layer: tools.
// Source: RFC 4180 for quotes; docs/command.md describes what is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "array.hpp"

namespace ballast::tools {

enum class header_rule { automatic, yes, no };
enum class missing_rule { error, drop };

struct table_options {
  header_rule header = header_rule::automatic;
  missing_rule missing = missing_rule::error;
  std::int64_t skip = 0;             // lines before the table
  std::vector<std::string> columns;  // names, numbers from 1, or ranges of numbers like 2-4 and 2-; empty: all columns
  std::string columns_option = "--columns";
};

// The separators that a file can have. A file has one of them.
inline constexpr std::string_view k_csv_separators = ",;\t", k_tsv_separators = "\t";

// Parses a table of numbers. A single column gives a one-dimensional array. The result is double, or complex double if there is a number
// with an imaginary part. Throws invalid_argument_error with file, line and column, and the expected and the actual text.
//   header    automatic: the first line is a header if it has names (is_name in field.hpp), and else names or missing values only
//   missing   drop: rows with a missing value or a NaN in a chosen column are left out
// Lines that begin with # are comments, except those that begin with an error value of a spreadsheet. The facts tell what was left out.
array parse_csv(const std::filesystem::path& file, std::string_view text, std::string_view separators, const table_options& options);

// Passes the text of an array with at most two axes to `put`.
void write_csv(const array& value, char separator, const std::function<void(std::string_view)>& put);

}  // namespace ballast::tools
