// Reads one-line names of problems: kmeans_f32_m131072_n128_k128.
// Layer: foundation. Each algorithm states its form; this reader takes the parts in order and words the refusal.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include <ballast/error.hpp>
#include <ballast/types.hpp>

#include "core/format.hpp"

namespace ballast::core {

class token_reader {
 public:
  // `form`: an example, for messages.
  token_reader(std::string_view text, std::string_view form) : text_(text), rest_(text), form_(form) {}

  // The refusal: expected `what`, got the whole text.
  invalid_argument_error refusal(std::string_view what) const {
    return invalid_argument_error(fmt::format("token: expected {}, got \"{}\"", what, text_));
  }
  invalid_argument_error refusal() const { return refusal(fmt::format("{} or the like", form_)); }

  bool at(std::string_view prefix) const noexcept { return rest_.starts_with(prefix); }

  void skip(std::string_view prefix) {
    if (!at(prefix)) throw refusal();
    rest_.remove_prefix(prefix.size());
  }

  ballast::precision precision() {
    const auto found = parse_precision(rest_.substr(0, 3));
    if (!found) throw refusal();
    rest_.remove_prefix(3);
    return *found;
  }

  // A number of at least 1, without sign or leading zeros, after `prefix`.
  std::int64_t number(std::string_view prefix) {
    skip(prefix);
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (status == std::errc::result_out_of_range) throw refusal("numbers below 2^63");
    if (rest_.starts_with('0')) throw refusal("numbers of at least 1 without leading zeros");
    if (status != std::errc{} || value < 1) throw refusal();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  void end() const {
    if (!rest_.empty()) throw refusal();
  }

 private:
  std::string_view text_, rest_, form_;
};

}  // namespace ballast::core
