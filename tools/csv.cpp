// See csv.hpp.
#include "csv.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <complex>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bytes.hpp"
#include "csv_records.hpp"
#include "field.hpp"
#include "terminal.hpp"

namespace ballast::tools {
namespace {

constexpr std::size_t k_open = std::numeric_limits<std::size_t>::max();

// Returns whether the line ends with a separator.
bool ends_empty(const std::vector<csv_field>& fields) { return fields.size() > 1 && fields.back().text.empty() && !fields.back().quoted; }

// Columns from `first` to `last`, counted from 1. An open range has the largest number as `last`.
struct column_range {
  std::size_t first, last;
};

// Parses 3, 2-4 or 2-. Returns nothing for other texts, which are names.
std::optional<column_range> parse_range(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::size_t> {
    std::size_t value = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || end != digits.data() + digits.size()) return std::nullopt;
    return status == std::errc{} ? value : k_open - 1;
  };
  const auto dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  if (!first || dash == std::string_view::npos) return first ? std::optional(column_range{*first, *first}) : std::nullopt;
  const auto last = dash + 1 == text.size() ? std::optional(k_open) : number(text.substr(dash + 1));
  return last ? std::optional(column_range{*first, *last}) : std::nullopt;
}

class table_parser {
 public:
  table_parser(const std::filesystem::path& file, std::string_view text, std::string_view separators, const table_options& options)
      : file_(file), options_(options), records_(file, text, separators) {}

  array parse() {
    facts_.skipped_lines = records_.skip_lines(options_.skip);
    if (facts_.skipped_lines < options_.skip)
      refuse_file(file_, fmt::format("--skip: expected at most {}, the number of lines, got {}", facts_.skipped_lines, options_.skip));
    if (records_.next(false)) {
      const std::vector<csv_field> first = records_.fields();
      facts_.has_header = is_header(first);
      find_columns(first);
      choose_columns(first);
      if (!facts_.has_header) take_row();
      while (records_.next(true)) take_row();
    }
    if (rows_ == 0) {
      const auto dropped = facts_.dropped_lines.size();
      refuse_file(file_, dropped == 0 ? "expected at least one line of numbers, got none"
                                      : fmt::format("expected a row without missing values, got none of {}", dropped));
    }
    return finish();
  }

 private:
  // Returns whether the first record is a header.
  bool is_header(const std::vector<csv_field>& first) const {
    if (options_.header != header_rule::automatic) return options_.header == header_rule::yes;
    const auto has = [&](const std::string& name) {
      return std::ranges::any_of(first, [&](const csv_field& each) { return each.unescaped() == name; });
    };
    bool named = options_.columns.empty();  // true if all columns decide, because none are chosen or some are by name
    std::vector<bool> chosen(first.size(), false);
    for (const std::string& each : options_.columns) {
      const auto range = parse_range(each);
      if (!range && has(each)) return true;
      named = named || !range;
      for (std::size_t i = 0; range && i < first.size(); ++i) chosen[i] = chosen[i] || (i + 1 >= range->first && i + 1 <= range->last);
    }
    std::optional<std::size_t> name, number;
    for (std::size_t i = 0; i < first.size(); ++i) {
      if ((!named && !chosen[i]) || is_missing(first[i].text)) continue;
      (is_name(first[i].text) ? name : number) = i;
    }
    if (name && number && !options_.columns.empty() && named) return false;  // choose_columns will not find the name
    if (name && number)
      records_.refuse(
          fmt::format("expected names only or numbers only, got \"{}\" in column {} and \"{}\" in column {} (--header yes takes "
                      "the line as names, --columns chooses columns)",
                      printable(first[*name].text), *name + 1, printable(first[*number].text), *number + 1));
    return name.has_value();
  }

  // Determines the number of columns. A separator at the end of each row begins no column.
  void find_columns(const std::vector<csv_field>& first) {
    columns_ = first.size();
    trailing_ = facts_.has_header || ends_empty(first);
    if (!trailing_) return;
    csv_records ahead = records_;
    bool more = ahead.next(true);
    if (more && facts_.has_header) columns_ = ahead.fields().size();
    for (; more && trailing_; more = ahead.next(true)) trailing_ = ends_empty(ahead.fields());
    // A header that names the last column shows that its values are missing.
    if (facts_.has_header && first.size() == columns_ && !ends_empty(first)) trailing_ = false;
    if (trailing_) --columns_;
  }

  // Determines the chosen columns and their names.
  void choose_columns(const std::vector<csv_field>& first) {
    std::vector<std::string> names;
    if (facts_.has_header) {
      for (const csv_field& each : first) names.push_back(each.unescaped());
      if (names.size() == columns_ + 1 && ends_empty(first)) names.pop_back();
    }
    for (const std::string& each : options_.columns) {
      if (const auto range = parse_range(each)) {
        const std::size_t last = range->last == k_open ? columns_ : range->last;
        if (range->first < 1 || range->first > last || last > columns_) refuse_choice(fmt::format("columns from 1 to {}", columns_), each);
        for (std::size_t i = range->first; i <= last; ++i) chosen_.push_back(i - 1);
        continue;
      }
      const auto found = std::ranges::find(names, each);
      if (!facts_.has_header) refuse_choice("numbers of columns, because there is no header", each);
      if (found == names.end()) refuse_choice(fmt::format("one of the names {}", fmt::join(names, ", ")), each);
      if (std::ranges::count(names, each) > 1) refuse_choice("the number of a column whose name another one has, too", each);
      chosen_.push_back(static_cast<std::size_t>(found - names.begin()));
    }
    for (std::size_t i = 0; options_.columns.empty() && i < columns_; ++i) chosen_.push_back(i);
    auto sorted = chosen_;
    std::ranges::sort(sorted);
    if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
      refuse_choice("different columns", fmt::format("{} twice", *twice + 1));
    for (const std::size_t each : chosen_) {
      if (facts_.has_header) facts_.header.push_back(each < names.size() ? printable(names[each]) : "");
    }
    if (facts_.has_header && names.size() != columns_) header_columns_ = names.size();
  }

  [[noreturn]] void refuse_choice(const std::string& expected, const std::string& got) const {
    refuse_file(file_, fmt::format("{}: expected {}, got {}", options_.columns_option, printable(expected), printable(got)));
  }

  void take_row() {
    const std::vector<csv_field>& fields = records_.fields();
    if (fields.size() != columns_ + (trailing_ ? 1 : 0) || header_columns_)
      records_.refuse(fmt::format("expected {} columns as in the lines before, got {}", header_columns_.value_or(columns_),
                                  fields.size() - (trailing_ && ends_empty(fields) ? 1 : 0)));
    const std::size_t before = rows_ * chosen_.size();
    bool complete = true;
    for (const std::size_t column : chosen_) {
      std::complex<double> value;
      if (const auto status = parse_value(fields[column].text, value, complex_); status != std::errc{}) {
        refuse_field(column, status);
        value = std::numeric_limits<double>::quiet_NaN();
      }
      complete = complete && !std::isnan(value.real()) && !std::isnan(value.imag());
      push(value);
    }
    if (options_.missing == missing_rule::drop) {
      facts_.row_lines.push_back(records_.line());
      if (!complete) {
        real_.resize(std::min(real_.size(), before));
        complex_values_.resize(std::min(complex_values_.size(), before));
        facts_.dropped_rows.push_back(static_cast<std::int64_t>(facts_.row_lines.size()) - 1);
        facts_.dropped_lines.push_back(records_.line());
        return;
      }
    }
    ++rows_;
  }

  // Refuses a field that is not a number; returns if it is a missing value that may be left out.
  void refuse_field(std::size_t column, std::errc status) const {
    const std::string_view text = records_.fields()[column].text;
    if (status == std::errc::result_out_of_range)
      records_.refuse(column, fmt::format("expected a number that a double can hold, got \"{}\"", printable(text)));
    const bool missing = is_missing(text);
    if (missing && options_.missing == missing_rule::drop) return;
    const bool first = rows_ == 0 && facts_.dropped_lines.empty() && options_.header == header_rule::automatic && !facts_.has_header;
    records_.refuse(column, fmt::format("expected a number, got \"{}\"{}", printable(text),
                                        missing ? " (a missing value: --missing drop leaves out its row)"
                                        : first ? " (--header yes takes the first line as names)"
                                                : ""));
  }

  void push(std::complex<double> value) {
    if (complex_ && !real_.empty()) {
      complex_values_.assign(real_.begin(), real_.end());
      real_ = {};
    }
    if (complex_) {
      complex_values_.push_back(value);
    } else {
      real_.push_back(value.real());
    }
  }

  array finish() {
    facts_.comment_lines = records_.comment_lines();
    facts_.blank_lines = records_.blank_lines();
    facts_.table = true;
    if (trailing_) facts_.notes.push_back("each line ends with a separator, which begins no column");
    note_counters();
    array made;
    made.shape = {static_cast<std::int64_t>(rows_)};
    if (chosen_.size() > 1) made.shape.push_back(static_cast<std::int64_t>(chosen_.size()));
    if (complex_) {
      made.values = std::move(complex_values_);
    } else {
      made.values = std::move(real_);
    }
    made.facts = std::make_shared<input_facts>(std::move(facts_));
    return made;
  }

  // Notes a first line or a first column that counts: it may be a header or an index that was read as numbers.
  void note_counters() {
    const std::size_t columns = chosen_.size();
    if (complex_ || columns < 2 || rows_ < 2) return;
    const auto counts = [&](std::size_t count, std::size_t stride, double from) {
      for (std::size_t i = 0; i < count; ++i) {
        if (real_[i * stride] != from + static_cast<double>(i)) return false;
      }
      return true;
    };
    if (!facts_.has_header && options_.header == header_rule::automatic &&
        (counts(columns, 1, 0) || (columns > 2 && counts(columns, 1, 1))))
      facts_.notes.push_back("the first line counts the columns and was read as numbers (--header yes takes it as names)");
    const bool named = facts_.has_header && !facts_.header.front().empty();
    if (!named && options_.columns.empty() && rows_ > 2 && (counts(rows_, columns, 0) || counts(rows_, columns, 1)))
      facts_.notes.push_back("column 1 counts the rows and was read as numbers (--columns 2- leaves it out)");
  }

  const std::filesystem::path& file_;
  const table_options& options_;
  csv_records records_;
  input_facts facts_;
  std::size_t columns_ = 0, rows_ = 0;
  std::optional<std::size_t> header_columns_;  // if the header has another number of columns than the first row
  bool trailing_ = false, complex_ = false;
  std::vector<std::size_t> chosen_;
  std::vector<double> real_;
  std::vector<std::complex<double>> complex_values_;
};

template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
template <class T>
std::string text_of(const std::complex<T>& value) {
  return fmt::format("{}{:+}j", value.real(), value.imag());
}

}  // namespace

array parse_csv(const std::filesystem::path& file, std::string_view text, std::string_view separators, const table_options& options) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) refuse_file(file, "expected text in UTF-8, got UTF-16");
  if (text.starts_with("\x93NUMPY")) refuse_file(file, "expected text, got a .npy file");
  while (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // byte order marks: joined files have several
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    refuse_file(file, fmt::format("line {}: expected text, got a zero byte", std::ranges::count(text.substr(0, zero), '\n') + 1));
  return table_parser(file, text, separators, options).parse();
}

void write_csv(const array& value, char separator, const std::function<void(std::string_view)>& put) {
  const std::int64_t rows = value.shape.empty() ? 1 : value.shape[0];
  const std::int64_t columns = value.shape.size() == 2 ? value.shape[1] : 1;
  const std::int64_t row = value.fortran ? 1 : columns, column = value.fortran ? rows : 1;
  std::visit(
      [&](const auto& held) {
        for (std::int64_t i = 0; i < rows; ++i) {
          std::string line;
          for (std::int64_t j = 0; j < columns; ++j) {
            if (j > 0) line += separator;
            line += text_of(held[static_cast<std::size_t>(i * row + j * column)]);
          }
          put(line += '\n');
        }
      },
      value.values);
}

}  // namespace ballast::tools
