// Reading and writing of .npy and .csv.
#include "array.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ballast/error.hpp>

namespace ballast::tools {

static_assert(std::endian::native == std::endian::little, "the .npy code reads and writes little-endian values in place");

namespace {

[[noreturn]] void bad(const std::filesystem::path& file, const std::string& what) {
  throw invalid_argument_error(fmt::format("{}: {}", file.string(), what));
}

// What a damaged file holds may not be text: other bytes than printable ASCII are shown as \\xNN.
std::string printable(std::string_view text) {
  std::string made;
  for (const char c : text) made += c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return made;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t all = 1;
  for (const auto each : shape) {
    if (__builtin_mul_overflow(all, each, &all)) return -1;
  }
  return all;
}

// ---- .npy -----------------------------------------------------------------------------------------------------------------------------

// What the header's Python dictionary says. The format allows only these three keys.
struct npy_header {
  std::string descr;
  bool fortran = false;
  std::vector<std::int64_t> shape;
};

// A reader of the one dictionary that the format allows: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
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
      accept('L');  // Python 2 wrote long integers so
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

// Reads the number at the start of `text` and removes it; from_chars takes no leading plus.
bool take_number(std::string_view& text, double& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{}) return false;  // also what is too large or too small for a double
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

// 1.5, 2j, 1.5-2j
bool parse_value(std::string_view text, std::complex<double>& value, bool& is_complex) {
  double first = 0;
  if (!take_number(text, first)) return false;
  value = first;
  if (text.empty()) return true;
  is_complex = true;
  if (text == "j") {
    value = {0, first};
    return true;
  }
  if (text.front() != '+' && text.front() != '-') return false;
  double second = 0;
  if (!take_number(text, second) || text != "j") return false;
  value = {first, second};
  return true;
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\r' || c == '"'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

array read_csv(const std::filesystem::path& file, std::ifstream& in) {
  std::vector<std::complex<double>> values;
  std::int64_t rows = 0, columns = 0, number = 0;
  bool any_complex = false, may_be_header = true;
  std::string line;
  while (std::getline(in, line)) {
    ++number;
    if (line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // byte order mark
    const std::string_view content = trim(line);
    if (content.empty() || content.starts_with('#')) continue;
    if (line.find('\0') != std::string::npos) bad(file, fmt::format("line {}: expected text, got a zero byte", number));
    std::int64_t column = 0;
    bool is_header = false;
    std::string_view rest = content;
    for (bool more = true; more; ++column) {
      const auto separator = rest.find_first_of(",;\t");
      more = separator != std::string_view::npos;
      const std::string_view field = trim(rest.substr(0, separator));
      rest = more ? rest.substr(separator + 1) : std::string_view{};
      std::complex<double> value;
      if (!parse_value(field, value, any_complex)) {
        if (may_be_header && (is_header || column == 0)) {
          is_header = true;
          any_complex = false;
          continue;
        }
        bad(file, fmt::format("line {}, column {}: expected a number, got \"{}\"", number, column + 1, printable(field)));
      }
      if (is_header)
        bad(file, fmt::format("line {}, column {}: expected a name in the header line, got \"{}\"", number, column + 1, printable(field)));
      values.push_back(value);
    }
    may_be_header = false;
    if (is_header) continue;
    if (rows == 0) columns = column;
    if (column != columns) bad(file, fmt::format("line {}: expected {} columns as in the lines before, got {}", number, columns, column));
    ++rows;
  }
  if (in.bad()) bad(file, "could not be read to its end");
  if (rows == 0) bad(file, "expected at least one line of numbers, got none");
  array made;
  made.shape = columns == 1 ? std::vector<std::int64_t>{rows} : std::vector<std::int64_t>{rows, columns};
  if (any_complex) {
    made.values = std::move(values);
  } else {
    std::vector<double> real(values.size());
    std::ranges::transform(values, real.begin(), [](const auto& each) { return each.real(); });
    made.values = std::move(real);
  }
  return made;
}

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
    bad(file, fmt::format("expected a name that ends in .npy or .csv, got \"{}\"", file.filename().string()));
  std::ifstream in(file, std::ios::binary);
  if (!in) bad(file, "cannot be opened for reading");
  if (ending == ".csv") return read_csv(file, in);
  const std::uint64_t size = std::filesystem::file_size(file, status);
  if (status) bad(file, "expected a regular file, got one without a size");
  return read_npy(file, in, size);
}

void check_writable_kind(const std::filesystem::path& file, std::size_t axes) {
  const std::string ending = file.extension().string();
  if (ending != ".npy" && ending != ".csv")
    bad(file, fmt::format("expected a name that ends in .npy or .csv, got \"{}\"", file.filename().string()));
  if (ending == ".csv" && axes > 2) bad(file, fmt::format(".csv: expected an array of at most 2 axes, got {}", axes));
}

void write_array(const std::filesystem::path& file, const std::filesystem::path& kind, const array& value) {
  std::ofstream out(file, std::ios::binary);
  std::visit(
      [&](const auto& held) {
        using T = typename std::decay_t<decltype(held)>::value_type;
        if (kind.extension() == ".npy") {
          const char* descr = std::array{"<f4", "<f8", "<c8", "<c16", "<i4"}[value.values.index()];
          std::string shape;
          for (const auto each : value.shape) shape += fmt::format("{}, ", each);
          std::string header =
              fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}", descr, value.fortran ? "True" : "False", shape);
          header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
          header += '\n';
          const char start[10] = {
              '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
          out.write(start, 10);
          out << header;
          out.write(reinterpret_cast<const char*>(held.data()), static_cast<std::streamsize>(held.size() * sizeof(T)));
        } else {
          const std::int64_t rows = value.shape.empty() ? 1 : value.shape[0];
          const std::int64_t columns = value.shape.size() == 2 ? value.shape[1] : 1;
          const std::int64_t row = value.fortran ? 1 : columns, column = value.fortran ? rows : 1;
          for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < columns; ++j)
              out << (j > 0 ? "," : "") << csv_field(held[static_cast<std::size_t>(i * row + j * column)]);
            out << '\n';
          }
        }
      },
      value.values);
  out.close();
  if (!out) throw error(fmt::format("{}: could not be written in full", kind.string()));
}

}  // namespace ballast::tools
