// See inputs.hpp.
#include "inputs.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ballast/error.hpp>

#include "csv.hpp"
#include "terminal.hpp"

namespace ballast::tools {
namespace {

std::string count_of(std::int64_t count, const std::string& what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

// The first few of many numbers.
std::string some_of(const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t shown = 10;
  const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(std::min(shown, numbers.size()));
  return fmt::format("{}{}", fmt::join(numbers.begin(), end, ", "), numbers.size() > shown ? ", …" : "");
}

// Leaves out the rows `more`, numbers among all rows of the file; `gone` are those that were left out before.
void leave_out(array& from, const std::vector<std::int64_t>& more, const std::vector<std::int64_t>& gone) {
  std::vector<std::int64_t> now;
  for (const std::int64_t row : more) {
    const auto before = std::ranges::lower_bound(gone, row);
    if (before != gone.end() && *before == row) continue;
    now.push_back(row - (before - gone.begin()));
  }
  leave_out_rows(from, now);
  if (from.facts == nullptr || now.empty()) return;
  input_facts& facts = *from.facts;
  std::vector<std::int64_t> all;
  std::ranges::set_union(gone, more, std::back_inserter(all));
  facts.dropped_rows = std::move(all);
  facts.shape = from.shape;
  facts.dropped_lines.clear();
  for (const std::int64_t row : facts.dropped_rows) {
    if (!facts.row_lines.empty()) facts.dropped_lines.push_back(facts.row_lines[static_cast<std::size_t>(row)]);
  }
}

}  // namespace

void inputs::add_to(command_line& command, bool second) {
  command.choice("--header", header_, "of a table: whether its first line holds names; auto: if they are names and not numbers",
                 {"auto", "yes", "no"});
  command.list("--columns", columns_, "of a table: names, numbers from 1, or ranges (2-4, 2-), separated by commas; default: all");
  if (second) command.list("--columns-b", second_columns_, "the same for B; --columns is for A");
  command.integer("--skip", skip_, "of a table: leave out so many lines at its start", std::int64_t{0});
  command.choice("--missing", missing_, "of a table: refuse missing values, or leave out (drop) the rows that have one", {"error", "drop"});
}

void inputs::read_part(const array_part& part) {
  if (!part.is_whole() && missing_ == "drop") throw invalid_argument_error("--missing: expected error on several ranks, got drop");
  part_ = part;
}

array inputs::noted(array read) {
  facts_.push_back(read.facts);
  return read;
}

array inputs::operand(const std::string& file, const std::string& option, const std::vector<std::string>& columns) {
  table_options options;
  options.header = header_ == "yes" ? header_rule::yes : header_ == "no" ? header_rule::no : header_rule::automatic;
  options.missing = missing_ == "drop" ? missing_rule::drop : missing_rule::error;
  options.skip = skip_;
  options.columns = columns;
  options.columns_option = option;
  return noted(read_array(file, options, part_));
}

array inputs::operand(const std::string& file) { return operand(file, "--columns", columns_); }

array inputs::second_operand(const std::string& file) { return operand(file, "--columns-b", second_columns_); }

array inputs::of_option(const std::string& option, const std::string& file) {
  try {
    return noted(read_array(file, {}, part_));
  } catch (const invalid_argument_error& e) {
    throw invalid_argument_error(fmt::format("{}: {}", option, e.what()));
  }
}

array inputs::whole(const std::string& option, const std::string& file) {
  const array_part part = std::exchange(part_, {});
  array read = of_option(option, file);
  part_ = part;
  return read;
}

void inputs::keep_common_rows(array& a, array& b) {
  const auto gone = [](const array& from) { return from.facts != nullptr ? from.facts->dropped_rows : std::vector<std::int64_t>{}; };
  const std::vector<std::int64_t> of_a = gone(a), of_b = gone(b);
  const auto rows = [](const array& from, const auto& left_out) {
    return (from.shape.empty() ? 0 : from.shape[0]) + static_cast<std::int64_t>(left_out.size());
  };
  if (rows(a, of_a) != rows(b, of_b)) return;
  leave_out(a, of_b, of_a);
  leave_out(b, of_a, of_b);
}

std::int64_t inputs::not_finite() const {
  std::int64_t all = 0;
  for (const auto& each : facts_) all += each->not_finite;
  return all;
}

nlohmann::ordered_json inputs::json() const {
  auto made = nlohmann::ordered_json::array();
  for (const auto& each : facts_) {
    nlohmann::ordered_json one = {{"file", each->file}, {"shape", each->shape}, {"not_finite", each->not_finite}};
    if (each->table) {
      one["header"] = each->has_header ? nlohmann::ordered_json(each->header) : nlohmann::ordered_json(nullptr);
      one["comment_lines"] = each->comment_lines;
      one["blank_lines"] = each->blank_lines;
      one["skipped_lines"] = each->skipped_lines;
    }
    if (each->table || !each->dropped_rows.empty()) {
      one["dropped_rows"] = each->dropped_rows.size();
      one["dropped_lines"] = each->dropped_lines;
    }
    one["notes"] = each->notes;
    made.push_back(std::move(one));
  }
  return made;
}

std::vector<std::string> inputs::lines() const {
  std::vector<std::string> made;
  for (const auto& each : facts_) {
    std::vector<std::string> parts;
    if (each->table) {
      std::string header = "no header";
      if (each->has_header) header = fmt::format("header \"{}\"", fmt::join(each->header, "\", \""));
      if (header.size() > 100) header = fmt::format("header of {} names", each->header.size());
      const std::int64_t columns = each->shape.size() == 2 ? each->shape[1] : 1;
      parts.push_back(fmt::format("{} of {}, {}", count_of(each->shape[0], "row"), count_of(columns, "number"), header));
    }
    if (each->skipped_lines > 0) parts.push_back(count_of(each->skipped_lines, "line") + " skipped");
    if (each->comment_lines > 0) parts.push_back(count_of(each->comment_lines, "comment line"));
    if (each->blank_lines > 0) parts.push_back(count_of(each->blank_lines, "blank line") + " between rows left out");
    if (const auto dropped = static_cast<std::int64_t>(each->dropped_rows.size()); dropped > 0)
      parts.push_back(
          count_of(dropped, "row") + " with missing values left out" +
          (each->dropped_lines.empty() ? "" : fmt::format(" (line{} {})", dropped == 1 ? "" : "s", some_of(each->dropped_lines))));
    for (const std::string& note : each->notes) parts.push_back(note);
    if (!parts.empty()) made.push_back(fmt::format("read {}: {}", each->file, fmt::join(parts, "; ")));
  }
  return made;
}

}  // namespace ballast::tools
