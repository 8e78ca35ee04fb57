// Reads arbitrary bytes as .npy, .csv or .tsv, and compares what comes out with code that knows nothing of the readers. Aborts on a
// difference. The first byte chooses, so that corpora begin with a letter:
//   bit 0      .npy, otherwise a table
//   bits 1-2   --header auto, yes, no (3: auto)
//   bit 3      --missing drop
//   bit 4      .tsv, otherwise .csv
//   bit 5      --skip 1
//   bit 6      all columns, otherwise --columns 2-
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ballast/error.hpp>

#include "csv.hpp"
#include "npy.hpp"

namespace {

namespace tools = ballast::tools;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "array_fuzz: %s\n", what);
  std::abort();
}

class memory_bytes : public tools::byte_source {
 public:
  memory_bytes(std::string_view bytes, bool known) : bytes_(bytes), known_(known) {}
  std::size_t read(char* to, std::size_t count) override {
    const std::size_t now = std::min(count, bytes_.size());
    if (now > 0) std::memcpy(to, bytes_.data(), now);  // an empty vector has no address
    bytes_.remove_prefix(now);
    return now;
  }
  void skip(std::uint64_t count) override { bytes_.remove_prefix(count); }
  std::optional<std::uint64_t> left() const override { return known_ ? std::optional<std::uint64_t>(bytes_.size()) : std::nullopt; }

 private:
  std::string_view bytes_;
  bool known_;
};

// The components of all values, in the order of the file.
std::vector<double> components(const tools::array& from) {
  std::vector<double> made;
  std::visit(
      [&](const auto& held) {
        using value = typename std::decay_t<decltype(held)>::value_type;
        for (const value& each : held) {
          if constexpr (std::is_arithmetic_v<value>) {
            made.push_back(static_cast<double>(each));
          } else {
            made.push_back(each.real());
            made.push_back(each.imag());
          }
        }
      },
      from.values);
  return made;
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) {
    return (std::isnan(x) && std::isnan(y)) || std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  });
}

// ---- .npy

std::optional<tools::array> read_npy(std::string_view bytes, bool known, const tools::array_part& part = {}) {
  try {
    memory_bytes in(bytes, known);
    return tools::read_npy("fuzz.npy", "", in, part);
  } catch (const ballast::invalid_argument_error&) {
    return std::nullopt;
  }
}

// A number of the format's type, from its bytes by arithmetic.
double decoded(char kind, bool big, std::string_view bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) bits = bits << 8 | static_cast<unsigned char>(bytes[big ? i : bytes.size() - 1 - i]);
  const int width = static_cast<int>(bytes.size()) * 8;
  if (kind == 'b') return bits != 0 ? 1 : 0;
  if (kind == 'u') return static_cast<double>(static_cast<long double>(bits));
  const bool negative = (bits >> (width - 1) & 1) != 0;
  if (kind == 'i')
    return static_cast<double>(negative ? static_cast<long double>(bits) - std::ldexp(1.0L, width) : static_cast<long double>(bits));
  // IEEE 754: sign, exponent, fraction.
  const int fraction_bits = width == 16 ? 10 : width == 32 ? 23 : 52, exponent_bits = width - 1 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1, exponent = static_cast<int>(bits >> fraction_bits & ((1u << exponent_bits) - 1));
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << fraction_bits) - 1);
  double size = std::ldexp(static_cast<double>(fraction), 1 - bias - fraction_bits);
  if (exponent == (1 << exponent_bits) - 1)
    size = fraction == 0 ? INFINITY : NAN;
  else if (exponent > 0)
    size = std::ldexp(static_cast<double>(fraction | std::uint64_t{1} << fraction_bits), exponent - bias - fraction_bits);
  return negative ? -size : size;
}

// The parts of a grid of 2 × 3 in blocks of 2, and three even parts of the rows, have the numbers of the whole array.
void check_parts(std::string_view bytes, const tools::array& whole) {
  const std::size_t axes = whole.shape.size(), parts = whole.is_complex() ? 2 : 1;
  if (whole.size() == 0 || axes == 0) return;
  const std::vector<double> all = components(whole);
  const std::int64_t m = whole.shape[0], n = whole.size() / m, down = whole.strides()[0];
  // Elements of a row are 1 apart in the file, or m in the order of Fortran.
  const auto check = [&](const tools::array_part& part, const auto& has_row, const auto& has_column) {
    const auto made = read_npy(bytes, true, part);
    require(made.has_value(), "a file is read whole and not in parts");
    const std::vector<double> own = components(*made);
    const std::int64_t rows = made->shape[0];
    std::int64_t i_own = 0, columns = 0;
    for (std::int64_t j = 0; j < n; ++j) columns += has_column(j) ? 1 : 0;
    for (std::int64_t i = 0; i < m; ++i) {
      if (!has_row(i)) continue;
      std::int64_t j_own = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        if (!has_column(j)) continue;
        const std::int64_t from = i * down + j * (whole.fortran ? m : 1),
                           to = whole.fortran ? i_own + j_own * rows : i_own * columns + j_own;
        for (std::size_t c = 0; c < parts; ++c) {
          const std::size_t at = static_cast<std::size_t>(to) * parts + c;
          require(at < own.size() && same({own[at]}, {all[static_cast<std::size_t>(from) * parts + c]}), "a part has another number");
        }
        ++j_own;
      }
      ++i_own;
    }
    require(i_own == rows && static_cast<std::uint64_t>(rows * columns) * parts == own.size(), "a part has another size");
  };
  for (std::int64_t p = 0; p < 3; ++p)
    check(
        {.rows = {p, 3}}, [&](std::int64_t i) { return i >= m * p / 3 && i < m * (p + 1) / 3; }, [](std::int64_t) { return true; });
  for (std::int64_t p = 0; p < 6 && axes < 3; ++p)
    check(
        {.rows = {p / 3, 2, 2}, .columns = {p % 3, 3, 2}, .of_matrix = true}, [&](std::int64_t i) { return i / 2 % 2 == p / 3; },
        [&](std::int64_t j) { return j / 2 % 3 == p % 3; });
}

void check_npy(std::string_view bytes) {
  const auto made = read_npy(bytes, true), streamed = read_npy(bytes, false);
  require(made.has_value() == streamed.has_value(), "a file is read and the same stream is not, or the reverse");
  if (!made) return;
  const std::vector<double> values = components(*made);
  require(made->shape == streamed->shape && same(values, components(*streamed)), "a file and the same stream give different arrays");
  check_parts(bytes, *made);

  // The last quoted text after the last "descr" is the type; the values are the last bytes.
  const std::size_t parts = made->is_complex() ? 2 : 1;
  require(static_cast<std::uint64_t>(made->size()) * parts == values.size(), "the shape does not have the number of values");
  if (!values.empty()) {
    const std::size_t key = bytes.substr(0, bytes.find('}', 10)).rfind("descr"), colon = bytes.find(':', key),
                      quote = bytes.find_first_of("'\"", colon);
    const char order = bytes[quote + 1], kind = bytes[quote + 2];
    const auto size = static_cast<std::size_t>(std::strtoul(std::string(bytes.substr(quote + 3, 2)).c_str(), nullptr, 10)) / parts;
    require(size * values.size() <= bytes.size(), "more values than bytes");
    const std::string_view body = bytes.substr(bytes.size() - size * values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = decoded(kind == 'c' ? 'f' : kind, order == '>', body.substr(i * size, size));
      require(same({values[i]}, {expected}), "a number differs from its bytes");
    }
  }

  std::string written;
  tools::write_npy(*made, [&](std::string_view piece) { written += piece; });
  const auto again = read_npy(written, true);
  require(again && again->shape == made->shape && again->fortran == made->fortran && same(values, components(*again)),
          "what was written is not what was read");
}

// ---- tables

std::optional<tools::array> read_table(std::string_view text, std::string_view separators, const tools::table_options& options) {
  try {
    return tools::parse_csv("fuzz.csv", text, separators, options);
  } catch (const ballast::invalid_argument_error&) {
    return std::nullopt;
  }
}

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view at) {
  std::vector<std::string_view> made;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = text.find_first_of(at);
    made.push_back(text.substr(0, end));
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  return made;
}

// The value of digits with a sign, a point and an exponent, by the C library; nothing for other texts.
std::optional<double> plain_number(std::string_view field) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t from = at;
    while (at < field.size() && field[at] >= '0' && field[at] <= '9') ++at;
    return at - from;
  };
  if (at < field.size() && (field[at] == '+' || field[at] == '-')) ++at;
  std::size_t some = digits();
  if (at < field.size() && field[at] == '.') ++at, some += digits();
  if (some == 0) return std::nullopt;
  if (at < field.size() && (field[at] == 'e' || field[at] == 'E')) {
    ++at;
    if (at < field.size() && (field[at] == '+' || field[at] == '-')) ++at;
    if (digits() == 0) return std::nullopt;
  }
  if (at != field.size()) return std::nullopt;
  const double value = std::strtod(std::string(field).c_str(), nullptr);
  const bool zero = field.substr(0, field.find_first_of("eE")).find_first_of("123456789") == std::string_view::npos;
  return std::isfinite(value) && (std::abs(value) >= 1e-300 || zero) ? std::optional(value) : std::nullopt;
}

// A table of plain numbers with commas: what it holds if each line has the same number of them.
std::optional<std::vector<double>> plain_table(std::string_view text, std::size_t& rows) {
  std::vector<double> made;
  std::size_t columns = 0;
  rows = 0;
  for (const std::string_view line : split(text, "\n")) {
    if (trim(line).empty()) continue;
    const auto fields = split(line, ",");
    if (rows > 0 && fields.size() != columns) return std::nullopt;
    columns = fields.size();
    ++rows;
    for (const std::string_view field : fields) {
      const auto value = plain_number(trim(field));
      if (!value) return std::nullopt;
      made.push_back(*value);
    }
  }
  return rows > 0 ? std::optional(made) : std::nullopt;
}

// Each line of a text without quotes is a row, a header, a comment or blank: nothing is lost. Each plain number is what the C library
// reads.
void check_lines(std::string_view text, const tools::array& made, const tools::table_options& options, std::size_t first_column) {
  const tools::input_facts& facts = *made.facts;
  while (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  auto lines = split(text, "\n");
  require(facts.skipped_lines == options.skip, "lines were skipped, or not");
  std::vector<std::pair<std::int64_t, std::string_view>> rows;
  std::int64_t comments = 0, number = 0;
  for (const std::string_view line : lines) {
    ++number;
    if (number <= options.skip || trim(line).empty()) continue;
    if (trim(line).starts_with('#') && !std::ranges::binary_search(facts.dropped_lines, number)) {
      ++comments;
    } else {
      rows.emplace_back(number, line);
    }
  }
  // A header or a column that is not chosen may begin with #N/A.
  require(comments == facts.comment_lines || facts.has_header || first_column > 0, "comments were not counted");
  if (comments != facts.comment_lines) return;
  if (facts.has_header) rows.erase(rows.begin());
  std::erase_if(rows, [&](const auto& row) { return std::ranges::binary_search(facts.dropped_lines, row.first); });
  require(static_cast<std::int64_t>(rows.size()) == made.shape[0], "a line was lost");
  const std::size_t columns = made.shape.size() == 2 ? static_cast<std::size_t>(made.shape[1]) : 1, parts = made.is_complex() ? 2 : 1;
  const std::vector<double> values = components(made);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // Only one separator is in use: with all of them each field is found.
    const auto fields = split(rows[i].second, ",;\t");
    require(fields.size() >= columns + first_column, "a row has fewer fields than the array has columns");
    for (std::size_t j = 0; j < columns; ++j) {
      if (const auto value = plain_number(trim(fields[j + first_column])))
        require(values[(i * columns + j) * parts] == *value, "a number differs");
    }
  }
}

void check_table(unsigned char choice, std::string_view text) {
  tools::table_options options;
  const bool tsv = (choice & 16) != 0;
  options.header = std::array{tools::header_rule::automatic, tools::header_rule::yes, tools::header_rule::no,
                              tools::header_rule::automatic}[choice >> 1 & 3];
  if ((choice & 8) != 0) options.missing = tools::missing_rule::drop;
  if ((choice & 32) != 0) options.skip = 1;
  if ((choice & 64) == 0) options.columns = {"2-"};
  const auto made = read_table(text, tsv ? tools::k_tsv_separators : tools::k_csv_separators, options);

  if (text.find_first_not_of("0123456789.,+-eE\n ") == std::string_view::npos && !tsv) {
    std::size_t rows = 0;
    const auto expected = plain_table(text, rows);
    const bool default_options = options.header != tools::header_rule::yes && options.skip == 0 && options.columns.empty();
    if (expected && default_options)
      require(made && static_cast<std::size_t>(made->shape[0]) == rows && same(components(*made), *expected),
              "a plain table is read otherwise");
  }
  if (!made) return;
  const std::size_t parts = made->is_complex() ? 2 : 1;
  const std::vector<double> values = components(*made);
  require(made->shape[0] > 0 && static_cast<std::uint64_t>(made->size()) * parts == values.size(),
          "the shape does not have the number of values");
  require(made->facts->dropped_lines.empty() || options.missing == tools::missing_rule::drop, "a row was left out");
  if (text.find_first_of("\"\r") == std::string_view::npos && !tsv) check_lines(text, *made, options, options.columns.empty() ? 0 : 1);

  std::string written;
  tools::write_csv(*made, tsv ? '\t' : ',', [&](std::string_view piece) { written += piece; });
  tools::table_options plain;
  plain.header = tools::header_rule::no;
  const auto again = read_table(written, tsv ? tools::k_tsv_separators : tools::k_csv_separators, plain);
  require(again && again->shape == made->shape && same(components(*again), values), "what was written is not what was read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) {
    check_npy(rest);
  } else {
    check_table(data[0], rest);
  }
  return 0;
}
