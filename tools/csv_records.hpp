// Splits the text of a table into records of fields.
// Layer: tools.
// Source: RFC 4180: a field may be in double quotes, and may then contain separators, ends of lines, and quotes, each written twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::tools {

// A field, without the quotes and the spaces around it.
struct csv_field {
  std::string_view text;
  bool quoted = false;

  std::string unescaped() const;  // with one quote for two
};

// Reads the records of a text one by one. A copy goes on from where the original was.
class csv_records {
 public:
  csv_records(const std::filesystem::path& file, std::string_view text, std::string_view separators);

  // Passes over lines of any content. Returns the number of lines that were there.
  std::int64_t skip_lines(std::int64_t count);

  // Reads the next record; comments and blank lines are counted and left out. Returns false at the end. `in_rows`: rows of numbers have
  // begun, so that a blank line counts, and a line like #NV is not a comment.
  bool next(bool in_rows);

  const std::vector<csv_field>& fields() const { return fields_; }
  std::int64_t line() const { return line_; }  // the number of the record's first line
  std::int64_t comment_lines() const { return comments_; }
  std::int64_t blank_lines() const { return blanks_; }  // between rows

  // Throw invalid_argument_error with the place of the record, or of one of its fields.
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse(std::size_t column, const std::string& what) const;

 private:
  std::string_view rest_of_line() const;
  void end_line();
  bool is_comment(std::string_view line, bool in_rows) const;
  void split();
  csv_field take_field();

  const std::filesystem::path* file_;
  std::string_view text_, separators_;
  std::size_t at_ = 0;
  std::int64_t next_line_ = 1, line_ = 0, comments_ = 0, blanks_ = 0;
  char separator_ = '\0';  // '\0' until the first separator
  std::vector<csv_field> fields_;
};

}  // namespace ballast::tools
