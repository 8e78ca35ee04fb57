// The output of ballast-gpu-check: one JSON object per line. Written by hand, since the test machine may lack a JSON library.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

namespace ballast::gpu_check {

class row {
 public:
  explicit row(std::string_view type) { add("type", type); }

  row& add(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
  row& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  template <class Number>
  requires std::is_arithmetic_v<Number> row& add(std::string_view key, Number value) {
    if constexpr (std::is_same_v<Number, bool>) return raw(key, value ? "true" : "false");
    if constexpr (std::is_integral_v<Number>) return raw(key, std::to_string(value));
    if (!std::isfinite(value)) return raw(key, "null");
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", static_cast<double>(value));
    return raw(key, text);
  }

  // Flushes, so that the rows before a time limit are not lost.
  void print() const {
    std::printf("{%s}\n", text_.c_str());
    std::fflush(stdout);
  }

 private:
  row& raw(std::string_view key, std::string_view value) {
    if (!text_.empty()) text_ += ", ";
    text_ += quoted(key);
    text_ += ": ";
    text_ += value;
    return *this;
  }

  static std::string quoted(std::string_view value) {
    std::string made = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') {
        made += '\\';
        made += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
        made += escape;
      } else {
        made += c;
      }
    }
    return made + "\"";
  }

  std::string text_;
};

}  // namespace ballast::gpu_check
