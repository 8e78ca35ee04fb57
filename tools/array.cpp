// Reads and writes .npy and .csv files.
#include "array.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ballast/error.hpp>

#include "terminal.hpp"

namespace ballast::tools {

static_assert(std::endian::native == std::endian::little, "the .npy code reads and writes little-endian values in place");

namespace {

[[noreturn]] void bad(const std::filesystem::path& file, const std::string& what) {
  throw invalid_argument_error(fmt::format("{}: {}", printable(file), what));
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t all = 1;
  for (const auto each : shape) {
    if (__builtin_mul_overflow(all, each, &all)) return -1;
  }
  return all;
}

// ---- .npy -----------------------------------------------------------------------------------------------------------------------------

// The content of the header's Python dictionary. The format allows only these three keys.
struct npy_header {
  std::string descr;
  bool fortran = false;
  std::vector<std::int64_t> shape;
};

// Parses the only dictionary that the format allows: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class header_parser {
 public:
  header_parser(const std::filesystem::path& file, std::string_view text) : file_(file), text_(text) {}

  npy_header parse() {
    npy_header made;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        if (peek() != '\'' && peek() != '"') bad(file_, "dtype: expected one of <f4, <f8, <c8, <c16, got a structured type");
        made.descr = quoted();
        has_descr = true;
      } else if (key == "fortran_order") {
        made.fortran = truth();
        has_order = true;
      } else if (key == "shape") {
        made.shape = tuple();
        has_shape = true;
      } else {
        fail("the key descr, fortran_order or shape");
      }
      if (!accept(',') && peek() != '}') fail("',' or '}'");
    }
    if (!has_descr || !has_order || !has_shape) bad(file_, "header: expected descr, fortran_order and shape, got fewer");
    return made;
  }

 private:
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}'", c));
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("a quoted string");
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a closing quote");
    std::string inside(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return inside;
  }
  bool truth() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return word == "True";
      }
    }
    fail("True or False");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> made;
    expect('(');
    while (!accept(')')) {
      peek();
      std::int64_t value = 0;
      const auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (status != std::errc{} || value < 0) fail("a length ≥ 0 that fits into 64 bits");
      at_ = static_cast<std::size_t>(end - text_.data());
      accept('L');  // the suffix of long integers in Python 2
      made.push_back(value);
      if (!accept(',') && peek() != ')') fail("',' or ')'");
    }
    return made;
  }
  [[noreturn]] void fail(const std::string& expected) {
    const std::string got = at_ < text_.size() ? fmt::format("\"{}\"", printable(text_.substr(at_, 12))) : "its end";
    bad(file_, fmt::format("header, byte {}: expected {}, got {}", at_, expected, got));
  }

  const std::filesystem::path& file_;
  std::string_view text_;
  std::size_t at_ = 0;
};

template <class T>
std::vector<T> read_values(std::ifstream& in, std::int64_t count, const std::filesystem::path& file) {
  std::vector<T> values(static_cast<std::size_t>(count));
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!in) bad(file, fmt::format("expected {} values after the header, got the end of the file", count));
  return values;
}

array read_npy(const std::filesystem::path& file, std::ifstream& in, std::uint64_t file_size) {
  std::array<unsigned char, 12> start{};
  in.read(reinterpret_cast<char*>(start.data()), 10);
  if (!in || std::memcmp(start.data(), "\x93NUMPY", 6) != 0) bad(file, "expected the .npy signature \\x93NUMPY, got something else");
  const int version = start[6];
  if (version < 1 || version > 3) bad(file, fmt::format("expected .npy format 1, 2 or 3, got {}.{}", version, start[7]));
  std::uint64_t length = start[8] | std::uint64_t{start[9]} << 8;
  std::uint64_t offset = 10;
  if (version >= 2) {
    in.read(reinterpret_cast<char*>(start.data() + 10), 2);
    length |= std::uint64_t{start[10]} << 16 | std::uint64_t{start[11]} << 24;
    offset = 12;
  }
  if (!in || offset + length > file_size)
    bad(file, fmt::format("expected a header of {} bytes, got a file of {} bytes: truncated", length, file_size));
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  const npy_header header = header_parser(file, text).parse();

  std::uint64_t bytes = 0;
  if (header.descr == "<f4") bytes = 4;
  if (header.descr == "<f8" || header.descr == "<c8") bytes = 8;
  if (header.descr == "<c16") bytes = 16;
  if (bytes == 0) bad(file, fmt::format("dtype: expected one of <f4, <f8, <c8, <c16, got {}", printable(header.descr)));
  const std::int64_t count = product(header.shape);
  const std::uint64_t there = file_size - offset - length;
  std::uint64_t wanted = 0;
  if (count < 0 || __builtin_mul_overflow(static_cast<std::uint64_t>(count), bytes, &wanted))
    bad(file, fmt::format("shape: expected a size that fits into 64 bits, got {}", to_string(header.shape)));
  if (wanted != there)
    bad(file, fmt::format("expected {} bytes of values for shape {} of {}, got {}{}", wanted, to_string(header.shape), header.descr, there,
                          there < wanted ? ": truncated" : ""));
  array made;
  made.shape = header.shape;
  made.fortran = header.fortran;
  if (header.descr == "<f4") made.values = read_values<float>(in, count, file);
  if (header.descr == "<f8") made.values = read_values<double>(in, count, file);
  if (header.descr == "<c8") made.values = read_values<std::complex<float>>(in, count, file);
  if (header.descr == "<c16") made.values = read_values<std::complex<double>>(in, count, file);
  return made;
}

// ---- .csv -----------------------------------------------------------------------------------------------------------------------------

// Reads the number at the start of `text` and removes it. It accepts a leading plus, which from_chars does not.
std::errc take_number(std::string_view& text, double& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc{}) text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return status;
}

// Parses 1.5, 2j or 1.5-2j. Returns result_out_of_range if a number is too large or too small for a double, and invalid_argument if the
// text is not a number.
std::errc parse_value(std::string_view text, std::complex<double>& value, bool& is_complex) {
  double first = 0, second = 0;
  if (const auto status = take_number(text, first); status != std::errc{}) return status;
  value = first;
  if (text.empty()) return {};
  is_complex = true;
  value = {0, first};
  if (text == "j") return {};
  if (text.front() != '+' && text.front() != '-') return std::errc::invalid_argument;
  if (const auto status = take_number(text, second); status != std::errc{}) return status;
  value = {first, second};
  return text == "j" ? std::errc{} : std::errc::invalid_argument;
}

bool is_space(char c) { return c == ' ' || c == '\r'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Reads a file of separated values line by line. A file has one separator. A field may be in double quotes, and may then contain separators
// (RFC 4180).
class csv_reader {
 public:
  explicit csv_reader(const std::filesystem::path& file) : file_(file) {}

  array read(std::ifstream& in) {
    for (std::string line; std::getline(in, line);) {
      ++number_;
      if (number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // byte order mark
      if (line.find('\0') != std::string::npos) refuse("expected text, got a zero byte");
      const std::string_view content = trim(line);
      if (!content.empty() && content.front() != '#') take_line(content);
    }
    if (in.bad()) bad(file_, "could not be read to its end");
    if (rows_ == 0) bad(file_, "expected at least one line of numbers, got none");
    array made;
    made.shape = columns_ == 1 ? std::vector<std::int64_t>{rows_} : std::vector<std::int64_t>{rows_, columns_};
    if (complex_) {
      made.values = std::move(values_);
    } else {
      std::vector<double> real(values_.size());
      std::ranges::transform(values_, real.begin(), [](const auto& each) { return each.real(); });
      made.values = std::move(real);
    }
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) { bad(file_, fmt::format("line {}: {}", number_, what)); }
  [[noreturn]] void refuse(std::size_t column, const std::string& what) {
    bad(file_, fmt::format("line {}, column {}: {}", number_, column + 1, what));
  }

  // Splits a line into fields_, without the quotes and spaces around them.
  void split(std::string_view line) {
    fields_.clear();
    for (bool more = true; more;) {
      while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
      std::string_view field;
      if (line.starts_with('"')) {
        // Two quotes in a quoted field mean one quote. A number contains none, so only the end of the field is searched.
        std::size_t end = line.find('"', 1);
        while (end != std::string_view::npos && line.substr(end).starts_with("\"\"")) end = line.find('"', end + 2);
        if (end == std::string_view::npos) refuse(fields_.size(), "expected a closing quote, got none on this line");
        field = line.substr(1, end - 1);
        line = line.substr(end + 1);
        while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
        if (!line.empty() && k_separators.find(line.front()) == std::string_view::npos)
          refuse(fields_.size(), fmt::format("expected a separator behind the closing quote, got \"{}\"", printable(line)));
      }
      const auto end = line.find_first_of(k_separators);
      if (field.data() == nullptr) field = line.substr(0, end);
      fields_.push_back(trim(field));
      more = end != std::string_view::npos;
      if (!more) continue;
      if (separator_ == '\0') separator_ = line[end];
      if (separator_ != line[end])
        refuse(fields_.size() - 1,
               fmt::format("expected one kind of separator in the file, got '{}' and '{}' (numbers have a decimal point)",
                           separator_ == '\t' ? "tab" : std::string(1, separator_), line[end] == '\t' ? "tab" : std::string(1, line[end])));
      line.remove_prefix(end + 1);
    }
  }

  void take_line(std::string_view line) {
    split(line);
    if (columns_ == 0) {
      columns_ = static_cast<std::int64_t>(fields_.size());
      if (is_header()) return;
    }
    if (static_cast<std::int64_t>(fields_.size()) != columns_)
      refuse(fmt::format("expected {} columns as in the lines before, got {}", columns_, fields_.size()));
    for (std::size_t column = 0; column < fields_.size(); ++column) {
      std::complex<double> value;
      const std::errc status = parse_value(fields_[column], value, complex_);
      if (status == std::errc::result_out_of_range)
        refuse(column, fmt::format("expected a number that a double can hold, got \"{}\"", printable(fields_[column])));
      if (status != std::errc{}) refuse(column, fmt::format("expected a number, got \"{}\"", printable(fields_[column])));
      values_.push_back(value);
    }
    ++rows_;
  }

  // Returns whether the field is a name. A field that begins like a number is not: a first line of damaged numbers must not be skipped as a
  // header.
  static bool is_name(std::string_view field) {
    std::complex<double> value;
    bool is_complex = false;
    return !field.empty() && std::string_view("+-.0123456789").find(field.front()) == std::string_view::npos &&
           parse_value(field, value, is_complex) != std::errc{};
  }

  // Returns whether the first line is a header of names, some of which may be empty.
  bool is_header() {
    if (std::ranges::none_of(fields_, is_name)) return false;
    for (std::size_t column = 0; column < fields_.size(); ++column) {
      if (!fields_[column].empty() && !is_name(fields_[column]))
        refuse(column, fmt::format("expected a name as in the rest of this header (or a line of numbers only), got \"{}\"",
                                   printable(fields_[column])));
    }
    return true;
  }

  static constexpr std::string_view k_separators = ",;\t";

  const std::filesystem::path& file_;
  std::int64_t number_ = 0;  // the number of the line
  char separator_ = '\0';    // '\0' until the first separator
  std::vector<std::string_view> fields_;
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<std::complex<double>> values_;
  bool complex_ = false;
};

template <class T>
std::string csv_field(const T& value) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return fmt::format("{}{:+}j", value.real(), value.imag());
  } else {
    return fmt::format("{}", value);
  }
}

}  // namespace

std::int64_t array::size() const { return product(shape); }

std::vector<std::int64_t> array::strides() const {
  std::vector<std::int64_t> made(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t axis = fortran ? i : shape.size() - 1 - i;
    made[axis] = stride;
    stride *= shape[axis];
  }
  return made;
}

template <class T>
std::vector<T> array::as() && {
  return std::visit(
      [](auto&& held) -> std::vector<T> {
        using held_type = std::decay_t<decltype(held)>;
        using value_type = typename held_type::value_type;
        if constexpr (std::is_same_v<value_type, T>) {
          return std::forward<decltype(held)>(held);
        } else if constexpr (!std::is_constructible_v<T, value_type> && !std::is_arithmetic_v<T> && !std::is_arithmetic_v<value_type>) {
          return {held.begin(), held.end()};
        } else if constexpr (std::is_arithmetic_v<T> && !std::is_arithmetic_v<value_type>) {
          throw invalid_argument_error("expected real values, got complex ones");
        } else {
          std::vector<T> made(held.size());
          std::ranges::transform(held, made.begin(), [](const auto& each) {
            if constexpr (std::is_arithmetic_v<T>) {
              return static_cast<T>(each);
            } else if constexpr (std::is_arithmetic_v<value_type>) {
              return T(static_cast<typename T::value_type>(each), 0);
            } else {
              return T(static_cast<typename T::value_type>(each.real()), static_cast<typename T::value_type>(each.imag()));
            }
          });
          return made;
        }
      },
      std::move(values));
}

template std::vector<float> array::as<float>() &&;
template std::vector<double> array::as<double>() &&;
template std::vector<std::complex<float>> array::as<std::complex<float>>() &&;
template std::vector<std::complex<double>> array::as<std::complex<double>>() &&;

std::string to_string(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

array read_array(const std::filesystem::path& file) {
  std::error_code status;
  const auto kind = std::filesystem::status(file, status).type();
  if (kind == std::filesystem::file_type::not_found) bad(file, "expected a file, got nothing: it does not exist");
  if (kind == std::filesystem::file_type::directory) bad(file, "expected a file, got a folder");
  const std::string ending = file.extension().string();
  if (ending != ".npy" && ending != ".csv")
    bad(file, fmt::format("expected a name that ends in .npy or .csv, got \"{}\"", printable(file.filename())));
  std::ifstream in(file, std::ios::binary);
  if (!in) bad(file, "cannot be opened for reading");
  if (ending == ".csv") return csv_reader(file).read(in);
  const std::uint64_t size = std::filesystem::file_size(file, status);
  if (status) bad(file, "expected a regular file, got one without a size");
  return read_npy(file, in, size);
}

void check_writable_kind(const std::filesystem::path& file, std::size_t axes) {
  const std::string ending = file.extension().string();
  if (ending != ".npy" && ending != ".csv")
    bad(file, fmt::format("expected a name that ends in .npy or .csv, got \"{}\"", printable(file.filename())));
  if (ending == ".csv" && axes > 2) bad(file, fmt::format(".csv: expected an array of at most 2 axes, got {}", axes));
}

outputs::content content_of(const std::filesystem::path& file, array value) {
  const bool csv = file.extension() == ".csv";
  return [csv, value = std::move(value)](const auto& put) {
    std::visit(
        [&](const auto& held) {
          using T = typename std::decay_t<decltype(held)>::value_type;
          if (csv) {
            const std::int64_t rows = value.shape.empty() ? 1 : value.shape[0];
            const std::int64_t columns = value.shape.size() == 2 ? value.shape[1] : 1;
            const std::int64_t row = value.fortran ? 1 : columns, column = value.fortran ? rows : 1;
            for (std::int64_t i = 0; i < rows; ++i) {
              std::string line;
              for (std::int64_t j = 0; j < columns; ++j) {
                if (j > 0) line += ',';
                line += csv_field(held[static_cast<std::size_t>(i * row + j * column)]);
              }
              put(line += '\n');
            }
          } else {
            const char* descr = std::array{"<f4", "<f8", "<c8", "<c16", "<i4"}[value.values.index()];
            std::string shape;
            for (const auto each : value.shape) shape += fmt::format("{}, ", each);
            std::string header =
                fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}", descr, value.fortran ? "True" : "False", shape);
            header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
            header += '\n';
            const char start[10] = {
                '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
            put({start, sizeof start});
            put(header);
            put({reinterpret_cast<const char*>(held.data()), held.size() * sizeof(T)});
          }
        },
        value.values);
  };
}

}  // namespace ballast::tools
