// The text of one field of a table: a number, a missing value, or a name.
// Layer: tools.
#pragma once

#include <complex>
#include <string_view>
#include <system_error>

namespace ballast::tools {

// Parses 1.5, 2j, 1.5-2j or (1.5-2j); i means j, and the minus sign of Unicode (U+2212) means -. Sets `is_complex` if there is an imaginary
// part. Returns result_out_of_range if a number is too large or too small for a double, and invalid_argument if the text is not a number.
std::errc parse_value(std::string_view text, std::complex<double>& value, bool& is_complex);

// Returns whether the field is one of the texts that programs write for a missing value: nothing, NA, null, ?, or an error of a
// spreadsheet.
bool is_missing(std::string_view field);

// Returns whether the field is an error value of a spreadsheet, like #N/A or #DIV/0!, in any language. `sure`: the text cannot be the start
// of a comment; otherwise a word in capitals, like the German #NV, is one, too.
bool is_error_value(std::string_view field, bool sure);

// Returns whether the field is a name: its first letter or digit is a letter, and it is neither a number (nan) nor a missing value (NA). So
// a damaged number like <0.01, $5 or '5 is not a name.
bool is_name(std::string_view field);

}  // namespace ballast::tools
