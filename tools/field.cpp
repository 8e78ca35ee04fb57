// See field.hpp.
#include "field.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

#include "terminal.hpp"

namespace ballast::tools {
namespace {

constexpr std::string_view k_minus = "\xe2\x88\x92";  // U+2212

// Reads the number at the start of `text` and removes it. It accepts a leading plus, which from_chars does not.
std::errc take_number(std::string_view& text, double& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc{}) text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return status;
}

std::errc parse_ascii(std::string_view text, std::complex<double>& value, bool& is_complex) {
  const bool bracketed = text.size() > 2 && text.front() == '(' && text.back() == ')';
  if (bracketed) text = text.substr(1, text.size() - 2);
  double first = 0, second = 0;
  if (const auto status = take_number(text, first); status != std::errc{}) return status;
  if (text.empty()) {
    value = first;
    return bracketed ? std::errc::invalid_argument : std::errc{};  // (5) may be −5: so accountants write it
  }
  const auto imaginary = [](std::string_view rest) { return rest == "j" || rest == "i"; };
  if (imaginary(text)) {
    value = {0, first};
  } else {
    if (text.starts_with("+-")) text.remove_prefix(1);  // 1+-2j
    if (text.front() != '+' && text.front() != '-') return std::errc::invalid_argument;
    if (const auto status = take_number(text, second); status != std::errc{}) return status;
    if (!imaginary(text)) return std::errc::invalid_argument;
    value = {first, second};
  }
  is_complex = true;
  return {};
}

enum class character_class { letter, digit, other };

// The class of a character in a name. Characters of all scripts are letters, except the ranges of signs and digits below.
character_class class_of(std::uint32_t c) {
  struct range {
    std::uint32_t first, last;
  };
  static constexpr range digits[] = {{'0', '9'},       {0xb2, 0xb3},     {0xb9, 0xb9},     {0xbc, 0xbe},
                                     {0x660, 0x669},   {0x6f0, 0x6f9},   {0x966, 0x96f},   {0x2070, 0x2079},
                                     {0x2080, 0x2089}, {0x2150, 0x2189}, {0x2460, 0x249b}, {0xff10, 0xff19}};
  static constexpr range others[] = {{0, '@'},         {'[', '^'},       {'`', '`'},       {'{', 0xa9},      {0xab, 0xb4},
                                     {0xb6, 0xb9},     {0xbb, 0xbf},     {0xd7, 0xd7},     {0xf7, 0xf7},     {0x2000, 0x206f},
                                     {0x20a0, 0x20cf}, {0x2190, 0x2bff}, {0x3000, 0x303f}, {0xfe00, 0xfe0f}, {0xfe50, 0xfe6f},
                                     {0xfeff, 0xff20}, {0xffe0, 0xffff}};
  const auto within = [c](const range& each) { return c >= each.first && c <= each.last; };
  if (std::ranges::any_of(digits, within)) return character_class::digit;
  return std::ranges::any_of(others, within) ? character_class::other : character_class::letter;
}

}  // namespace

std::errc parse_value(std::string_view text, std::complex<double>& value, bool& is_complex) {
  if (text.find(k_minus) == std::string_view::npos) return parse_ascii(text, value, is_complex);
  std::string ascii;
  while (!text.empty()) {
    const bool minus = text.starts_with(k_minus);
    ascii += minus ? '-' : text.front();
    text.remove_prefix(minus ? k_minus.size() : 1);
  }
  return parse_ascii(ascii, value, is_complex);
}

bool is_missing(std::string_view field) {
  static constexpr std::string_view texts[] = {"",       "NA",      "N/A",          "n/a",          "<NA>",        "NaT", "NULL",
                                               "Null",   "null",    "None",         "none",         "missing",     "NIL", "nil",
                                               "1.#IND", "-1.#IND", "1.#QNAN",      "-1.#QNAN",     "?",           ".",   "-",
                                               "--",     "---",     "\xe2\x80\x93", "\xe2\x80\x94", "\xe2\x88\x92"};
  return std::ranges::find(texts, field) != std::end(texts) || is_error_value(field, false);
}

bool is_error_value(std::string_view field, bool sure) {
  if (field.size() < 3 || field.size() > 32 || field.front() != '#') return false;
  if (field.starts_with("#N/A")) return true;  // also #N/A N/A, of Bloomberg
  const std::string_view word = field.substr(1);
  const auto capital = [](char c) { return (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80; };
  if (!std::ranges::all_of(word, [&](char c) { return capital(c) || c == '_' || c == '/' || c == '0' || c == '!' || c == '?'; }))
    return false;
  return capital(word.front()) && (!sure || word.find_first_of("!?/") != std::string_view::npos);
}

bool is_name(std::string_view field) {
  std::complex<double> value;
  bool is_complex = false;
  if (is_missing(field) || parse_value(field, value, is_complex) != std::errc::invalid_argument) return false;
  while (!field.empty()) {
    const auto [character, bytes] = first_character(field);
    if (const auto found = class_of(character); bytes > 0 && found != character_class::other) return found == character_class::letter;
    field.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return false;
}

}  // namespace ballast::tools
