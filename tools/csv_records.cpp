// See csv_records.hpp.
#include "csv_records.hpp"

#include <algorithm>
#include <complex>
#include <system_error>

#include <fmt/format.h>

#include "bytes.hpp"
#include "field.hpp"
#include "terminal.hpp"

namespace ballast::tools {
namespace {

constexpr std::string_view k_line_ends = "\n\r";

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool is_number(std::string_view field) {
  std::complex<double> value;
  bool is_complex = false;
  return parse_value(field, value, is_complex) == std::errc{};
}

std::string name_of(char separator) { return separator == '\t' ? "tab" : std::string(1, separator); }

}  // namespace

std::string csv_field::unescaped() const {
  std::string made(text);
  if (!quoted) return made;
  for (auto at = made.find("\"\""); at != std::string::npos; at = made.find("\"\"", at + 1)) made.erase(at, 1);
  return made;
}

csv_records::csv_records(const std::filesystem::path& file, std::string_view text, std::string_view separators)
    : file_(&file), text_(text), separators_(separators) {}

std::int64_t csv_records::skip_lines(std::int64_t count) {
  std::int64_t done = 0;
  for (; done < count && at_ < text_.size(); ++done) {
    at_ += rest_of_line().size();
    end_line();
  }
  return done;
}

std::string_view csv_records::rest_of_line() const {
  const auto end = text_.find_first_of(k_line_ends, at_);
  return text_.substr(at_, end == std::string_view::npos ? end : end - at_);
}

// Passes over the end of a line: "\n", "\r\n", "\r" of old systems, or "\r\r\n" of a file that was converted twice.
void csv_records::end_line() {
  ++next_line_;
  if (at_ >= text_.size()) return;
  const auto feed = text_.find_first_not_of('\r', at_);
  at_ = feed != std::string_view::npos && text_[feed] == '\n' ? feed + 1 : at_ + 1;
}

bool csv_records::is_comment(std::string_view line, bool in_rows) const {
  if (!line.starts_with('#')) return false;
  auto end = line.find_first_of(separators_);
  const std::string_view first = trim(line.substr(0, end));
  if (is_error_value(first, true)) return false;
  if (!is_error_value(first, false)) return true;
  if (in_rows) return false;
  while (end != std::string_view::npos) {
    line.remove_prefix(end + 1);
    end = line.find_first_of(separators_);
    if (is_number(trim(line.substr(0, end)))) return false;
  }
  return true;
}

bool csv_records::next(bool in_rows) {
  std::int64_t blank = 0;
  while (at_ < text_.size()) {
    const std::string_view line = rest_of_line();
    const std::string_view content = trim(line);
    if (!content.empty() && !is_comment(content, in_rows)) {
      if (in_rows) blanks_ += blank;
      line_ = next_line_;
      split();
      return true;
    }
    (content.empty() ? blank : comments_) += 1;
    at_ += line.size();
    end_line();
  }
  return false;
}

void csv_records::split() {
  fields_.clear();
  for (bool more = true; more;) {
    fields_.push_back(take_field());
    more = at_ < text_.size() && separators_.find(text_[at_]) != std::string_view::npos;
    if (!more) continue;
    if (separator_ == '\0') separator_ = text_[at_];
    if (separator_ != text_[at_])
      refuse(fields_.size() - 1, fmt::format("expected one kind of separator in the file, got '{}' and '{}' (numbers have a decimal point)",
                                             name_of(separator_), name_of(text_[at_])));
    ++at_;
  }
  end_line();
}

// Reads a field up to the separator or the end of the line.
csv_field csv_records::take_field() {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  csv_field made;
  if (at_ < text_.size() && text_[at_] == '"') {
    const std::size_t start = at_ + 1;
    std::size_t end = text_.find('"', start);
    while (end != std::string_view::npos && end + 1 < text_.size() && text_[end + 1] == '"') end = text_.find('"', end + 2);
    if (end == std::string_view::npos) refuse(fields_.size(), "expected a closing quote, got none before the end of the file");
    made = {trim(text_.substr(start, end - start)), true};
    next_line_ += std::ranges::count(made.text, '\n');
    at_ = end + 1;
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ < text_.size() && k_line_ends.find(text_[at_]) == std::string_view::npos &&
        separators_.find(text_[at_]) == std::string_view::npos)
      refuse(fields_.size(), fmt::format("expected a separator after the closing quote, got \"{}\"", printable(rest_of_line())));
    return made;
  }
  std::size_t end = at_;
  while (end < text_.size() && k_line_ends.find(text_[end]) == std::string_view::npos &&
         separators_.find(text_[end]) == std::string_view::npos)
    ++end;
  made.text = trim(text_.substr(at_, end - at_));
  at_ = end;
  return made;
}

void csv_records::refuse(const std::string& what) const { refuse_file(*file_, fmt::format("line {}: {}", line_, what)); }

void csv_records::refuse(std::size_t column, const std::string& what) const {
  refuse_file(*file_, fmt::format("line {}, column {}: {}", line_, column + 1, what));
}

}  // namespace ballast::tools
