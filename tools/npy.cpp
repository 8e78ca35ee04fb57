// See npy.hpp.
#include "npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

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

}  // namespace

array read_npy(const std::filesystem::path& file, std::string_view start, byte_source& in, const row_part& rows) {
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
  const bool in_part = rows.parts > 1 && in.left() && !made.fortran && !made.shape.empty() && made.shape[0] > 0;
  std::uint64_t after = 0;  // bytes after the part
  if (in_part) {
    const std::uint64_t row = wanted / static_cast<std::uint64_t>(made.shape[0]);
    const std::int64_t first = rows.first(made.shape[0]), end = rows.end(made.shape[0]);
    in.skip(static_cast<std::uint64_t>(first) * row);
    after = static_cast<std::uint64_t>(made.shape[0] - end) * row;
    made.shape[0] = end - first;
    count = made.size();
  }
  std::int64_t rounded = 0;
  const auto is = [&](char kind, std::uint64_t bytes) { return type.kind == kind && type.bytes == bytes; };
  if (is('b', 1)) made.values = read_values<double>(in, count, type, 1, file, [](const char* from) { return *from != 0 ? 1.0 : 0.0; });
  if (is('f', 2)) made.values = read_values<float>(in, count, type, 2, file, half);
  if (is('f', 4)) made.values = read_as<float>(in, count, type, file);
  if (is('f', 8)) made.values = read_as<double>(in, count, type, file);
  if (is('c', 8)) made.values = read_as<std::complex<float>>(in, count, type, file);
  if (is('c', 16)) made.values = read_as<std::complex<double>>(in, count, type, file);
  if (is('i', 1)) made.values = read_integers<std::int8_t>(in, count, type, file, rounded);
  if (is('i', 2)) made.values = read_integers<std::int16_t>(in, count, type, file, rounded);
  if (is('i', 4)) made.values = read_integers<std::int32_t>(in, count, type, file, rounded);
  if (is('i', 8)) made.values = read_integers<std::int64_t>(in, count, type, file, rounded);
  if (is('u', 1)) made.values = read_integers<std::uint8_t>(in, count, type, file, rounded);
  if (is('u', 2)) made.values = read_integers<std::uint16_t>(in, count, type, file, rounded);
  if (is('u', 4)) made.values = read_integers<std::uint32_t>(in, count, type, file, rounded);
  if (is('u', 8)) made.values = read_integers<std::uint64_t>(in, count, type, file, rounded);
  if (in_part) in.skip(after);
  char more = 0;
  if (in.read(&more, 1) != 0) refuse_file(file, fmt::format("expected {} bytes of values, got more", wanted));
  made.facts = std::make_shared<input_facts>();
  if (in_part) made.facts->shape = header.shape;
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
