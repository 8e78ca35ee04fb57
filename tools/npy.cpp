// See npy.hpp.
#include "npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "terminal.hpp"

namespace ballast::tools {

static_assert(std::endian::native == std::endian::little, "the .npy code reads and writes little-endian values in place");

namespace {

constexpr std::string_view k_known_types = "b1, i1 to i8, u1 to u8, f2, f4, f8, c8 or c16 with <, > or |";

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
        if (peek() != '\'' && peek() != '"') refuse_file(file_, fmt::format("dtype: expected {}, got a structured type", k_known_types));
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
    if (!has_descr || !has_order || !has_shape) refuse_file(file_, "header: expected descr, fortran_order and shape, got fewer");
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
    refuse_file(file_, fmt::format("header, byte {}: expected {}, got {}", at_, expected, got));
  }

  const std::filesystem::path& file_;
  std::string_view text_;
  std::size_t at_ = 0;
};

// A type of elements: the letter of its kind, the bytes of an element, and whether they are in big-endian order.
struct element_type {
  char kind = '\0';
  std::uint64_t bytes = 0;
  bool reversed = false;
};

element_type element_of(const std::filesystem::path& file, const std::string& descr) {
  static constexpr std::string_view known[] = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"};
  const std::string_view type = descr.empty() ? "" : std::string_view(descr).substr(1);
  const bool one_byte = type.ends_with('1');
  const bool ordered =
      !descr.empty() && (std::string_view("<>=").find(descr.front()) != std::string_view::npos || (descr.front() == '|' && one_byte));
  if (!ordered || std::ranges::find(known, type) == std::end(known))
    refuse_file(file, fmt::format("dtype: expected {}, got {}", k_known_types, printable(descr)));
  element_type made{type.front(), 0, descr.front() == '>' && !one_byte};
  std::from_chars(type.data() + 1, type.data() + type.size(), made.bytes);
  return made;
}

// Turns the bytes of each of the words around.
void reverse_words(char* words, std::size_t bytes, std::size_t word) {
  for (char* each = words; each != words + bytes; each += word) std::reverse(each, each + word);
}

// A value of the file as the number that an array holds.
template <class T>
T loaded(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half(const char* from) {
  const auto bits = loaded<std::uint16_t>(from);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                     : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                     : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

// Reads `count` elements, a block at a time: a file that is shorter than its header says cannot make the reader allocate more than twice
// the bytes that are there. `convert` turns the bytes of an element into a T.
template <class T, class Convert>
std::vector<T> read_values(byte_source& in, std::int64_t count, const element_type& type, std::size_t word,
                           const std::filesystem::path& file, Convert convert) {
  constexpr std::uint64_t block = 1 << 16;
  std::vector<T> values;
  if (in.left()) values.reserve(static_cast<std::size_t>(count));
  std::vector<char> bytes(std::min(block, static_cast<std::uint64_t>(count)) * type.bytes);
  for (std::uint64_t left = static_cast<std::uint64_t>(count); left > 0;) {
    const std::uint64_t now = std::min(block, left);
    if (in.read(bytes.data(), now * type.bytes) != now * type.bytes)
      refuse_file(file,
                  fmt::format("expected {} values after the header, got {}: truncated", count, static_cast<std::uint64_t>(count) - left));
    if (type.reversed) reverse_words(bytes.data(), now * type.bytes, word);
    for (std::uint64_t i = 0; i < now; ++i) values.push_back(convert(bytes.data() + i * type.bytes));
    left -= now;
  }
  return values;
}

template <class T>
std::vector<T> read_as(byte_source& in, std::int64_t count, const element_type& type, const std::filesystem::path& file) {
  if (!in.left() || type.reversed) {
    const std::size_t word = type.kind == 'c' ? type.bytes / 2 : type.bytes;
    return read_values<T>(in, count, type, word, file, loaded<T>);
  }
  std::vector<T> values(static_cast<std::size_t>(count));
  if (in.read(reinterpret_cast<char*>(values.data()), values.size() * sizeof(T)) != values.size() * sizeof(T))
    refuse_file(file, fmt::format("expected {} values after the header, got the end of the file: truncated", count));
  return values;
}

template <class T>
std::vector<double> read_integers(byte_source& in, std::int64_t count, const element_type& type, const std::filesystem::path& file,
                                  std::int64_t& rounded) {
  return read_values<double>(in, count, type, type.bytes, file, [&](const char* from) {
    const T value = loaded<T>(from);
    const auto number = static_cast<double>(value);
    if constexpr (sizeof(T) == 8) {
      // The double 2⁶³ or 2⁶⁴ has no value of T: it is the result of rounding.
      rounded += number >= std::ldexp(1.0, std::is_signed_v<T> ? 63 : 64) || static_cast<T>(number) != value ? 1 : 0;
    }
    return number;
  });
}

// The bytes of one part of an array: those of the others are left out. The array has lines of elements, one after the other.
class part_bytes : public byte_source {
 public:
  using ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;
  // `lines`: the part's lines; `columns`: the elements of each line that it has; `length`: that of a line; `bytes`: of an element.
  part_bytes(byte_source& in, ranges lines, ranges columns, std::int64_t length, std::uint64_t bytes)
      : in_(in),
        lines_(std::move(lines)),
        columns_(std::move(columns)),
        length_(static_cast<std::uint64_t>(length) * bytes),
        bytes_(bytes) {
    left_ = static_cast<std::uint64_t>(length_of(lines_)) * static_cast<std::uint64_t>(length_of(columns_)) * bytes;
    if (left_ == 0) return;
    line_ = lines_[0].first;
    begin();
  }

  std::size_t read(char* to, std::size_t count) override {
    std::size_t have = 0;
    while (have < count && left_ > 0) {
      if (at_ == end_) next();
      const std::size_t now = std::min<std::uint64_t>(count - have, end_ - at_), got = in_.read(to + have, now);
      have += got;
      at_ += got;
      left_ -= got;
      if (got < now) break;
    }
    return have;
  }
  void skip(std::uint64_t count) override {
    std::vector<char> unused(std::min<std::uint64_t>(count, 1 << 16));
    for (std::size_t got = 1; count > 0 && got > 0; count -= got) got = read(unused.data(), std::min<std::uint64_t>(count, unused.size()));
  }
  std::optional<std::uint64_t> left() const override { return left_; }
  // The place in the array's bytes where the source below stands.
  std::uint64_t at() const { return at_; }

 private:
  // Goes to the elements columns_[column_] of the line.
  void begin() {
    const std::uint64_t line = static_cast<std::uint64_t>(line_) * length_,
                        from = line + static_cast<std::uint64_t>(columns_[column_].first) * bytes_;
    if (from > at_) in_.skip(from - at_);
    at_ = from;
    end_ = line + static_cast<std::uint64_t>(columns_[column_].second) * bytes_;
  }
  void next() {
    if (++column_ == columns_.size()) {
      column_ = 0;
      if (++line_ == lines_[range_].second) line_ = lines_[++range_].first;
    }
    begin();
  }

  byte_source& in_;
  const ranges lines_, columns_;
  const std::uint64_t length_, bytes_;
  std::uint64_t left_ = 0, at_ = 0, end_ = 0;
  std::int64_t line_ = 0;
  std::size_t range_ = 0, column_ = 0;
};

// The bytes of a part, whose shape replaces that of `whole`. The first axis is that of the rows.
part_bytes bytes_of(const array_part& part, byte_source& in, array& whole, std::uint64_t bytes) {
  const std::int64_t rows = whole.shape[0], rest = whole.size() / rows;  // elements of a row
  const part_bytes::ranges of_rows = part.rows.ranges(rows),
                           of_rest = part.of_matrix ? part.columns.ranges(rest) : part_bytes::ranges{{0, rest}};
  whole.shape[0] = length_of(of_rows);
  if (part.of_matrix) whole.shape = {whole.shape[0], length_of(of_rest)};
  if (whole.fortran) return {in, of_rest, of_rows, rows, bytes};
  if (length_of(of_rest) < rest) return {in, of_rows, of_rest, rest, bytes};
  part_bytes::ranges runs;  // rows are whole: one line of all elements has the ranges of rows
  for (const auto& [first, end] : of_rows) runs.emplace_back(first * rest, end * rest);
  return {in, {{0, 1}}, runs, rows * rest, bytes};
}

}  // namespace

array read_npy(const std::filesystem::path& file, std::string_view start, byte_source& in, const array_part& part) {
  std::array<char, 12> first{};
  std::ranges::copy(start.substr(0, 10), first.begin());
  if (start.size() < 10) in.read(first.data() + start.size(), 10 - start.size());
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(first[i]); };
  if (std::string_view(first.data(), k_npy_signature.size()) != k_npy_signature) {
    const bool zip = std::string_view(first.data(), 2) == "PK";
    refuse_file(file, fmt::format("expected the .npy signature \\x93NUMPY, got {}", zip ? "a .npz archive" : "something else"));
  }
  const int version = byte(6);
  if (version < 1 || version > 3) refuse_file(file, fmt::format("expected .npy format 1, 2 or 3, got {}.{}", version, byte(7)));
  std::uint64_t length = byte(8) | std::uint64_t{byte(9)} << 8;
  if (version >= 2) {
    if (in.read(first.data() + 10, 2) != 2) refuse_file(file, "expected a header, got the end of the file: truncated");
    length |= std::uint64_t{byte(10)} << 16 | std::uint64_t{byte(11)} << 24;
  }
  if (in.left() && *in.left() < length)
    refuse_file(file, fmt::format("expected a header of {} bytes, got {}: truncated", length, *in.left()));
  std::string text;
  while (text.size() < length) {  // in blocks: the length of a stream may be a lie
    const std::size_t before = text.size(), now = std::min<std::uint64_t>(length - before, 1 << 16);
    text.resize(before + now);
    if (in.read(text.data() + before, now) != now)
      refuse_file(file, fmt::format("expected a header of {} bytes, got the end of the file: truncated", length));
  }
  const npy_header header = header_parser(file, text).parse();

  const element_type type = element_of(file, header.descr);
  array made;
  made.shape = header.shape;
  made.fortran = header.fortran;
  std::int64_t count = made.size();
  std::uint64_t wanted = 0;
  if (count < 0 || __builtin_mul_overflow(static_cast<std::uint64_t>(count), type.bytes, &wanted))
    refuse_file(file, fmt::format("shape: expected a size that fits into 64 bits, got {}", to_string(header.shape)));
  if (in.left() && *in.left() != wanted)
    refuse_file(file, fmt::format("expected {} bytes of values for shape {} of {}, got {}{}", wanted, to_string(header.shape), header.descr,
                                  *in.left(), *in.left() < wanted ? ": truncated" : ""));
  if (part.of_matrix && (made.shape.empty() || made.shape.size() > 2))
    refuse_file(file, fmt::format("expected a matrix (1 or 2 axes) on a grid, got shape {}", to_string(header.shape)));
  std::optional<part_bytes> own;
  if (!part.is_whole() && in.left() && !made.shape.empty() && made.shape[0] > 0) {
    own.emplace(bytes_of(part, in, made, type.bytes));
    count = made.size();
  }
  byte_source& values = own ? *own : in;
  std::int64_t rounded = 0;
  const auto is = [&](char kind, std::uint64_t bytes) { return type.kind == kind && type.bytes == bytes; };
  if (is('b', 1)) made.values = read_values<double>(values, count, type, 1, file, [](const char* from) { return *from != 0 ? 1.0 : 0.0; });
  if (is('f', 2)) made.values = read_values<float>(values, count, type, 2, file, half);
  if (is('f', 4)) made.values = read_as<float>(values, count, type, file);
  if (is('f', 8)) made.values = read_as<double>(values, count, type, file);
  if (is('c', 8)) made.values = read_as<std::complex<float>>(values, count, type, file);
  if (is('c', 16)) made.values = read_as<std::complex<double>>(values, count, type, file);
  if (is('i', 1)) made.values = read_integers<std::int8_t>(values, count, type, file, rounded);
  if (is('i', 2)) made.values = read_integers<std::int16_t>(values, count, type, file, rounded);
  if (is('i', 4)) made.values = read_integers<std::int32_t>(values, count, type, file, rounded);
  if (is('i', 8)) made.values = read_integers<std::int64_t>(values, count, type, file, rounded);
  if (is('u', 1)) made.values = read_integers<std::uint8_t>(values, count, type, file, rounded);
  if (is('u', 2)) made.values = read_integers<std::uint16_t>(values, count, type, file, rounded);
  if (is('u', 4)) made.values = read_integers<std::uint32_t>(values, count, type, file, rounded);
  if (is('u', 8)) made.values = read_integers<std::uint64_t>(values, count, type, file, rounded);
  if (own) in.skip(wanted - own->at());
  char more = 0;
  if (in.read(&more, 1) != 0) refuse_file(file, fmt::format("expected {} bytes of values, got more", wanted));
  made.facts = std::make_shared<input_facts>();
  if (own) made.facts->shape = header.shape;
  if (rounded > 0) made.facts->notes.push_back(fmt::format("{} of {} integers need more than 53 bits and were rounded", rounded, count));
  return made;
}

void write_npy(const array& value, const std::function<void(std::string_view)>& put) {
  const char* descr = std::array{"<f4", "<f8", "<c8", "<c16", "<i4"}[value.values.index()];
  std::string shape;
  for (const auto each : value.shape) shape += fmt::format("{}, ", each);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}", descr, value.fortran ? "True" : "False", shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  put(k_npy_signature);
  const char rest[] = {1, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  put({rest, sizeof rest});
  put(header);
  std::visit([&](const auto& held) { put({reinterpret_cast<const char*>(held.data()), held.size() * sizeof(held[0])}); }, value.values);
}

}  // namespace ballast::tools
