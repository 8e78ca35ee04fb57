// Parses the argument of --inject.
#include "inject/plan.hpp"

#include "inject/active.hpp"
#include "inject/sites.hpp"

#include <algorithm>
#include <charconv>

#include <ballast/error.hpp>

#include "core/format.hpp"

namespace ballast::inject {

namespace {

template <class Integer>
Integer parse_integer(std::string_view key, std::string_view text, Integer least) {
  Integer value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < least)
    throw invalid_argument_error(fmt::format("inject: {}: expected an integer of at least {}, got \"{}\"", key, least, text));
  return value;
}

}  // namespace

request parse_request(std::string_view text) {
  request made;
  bool has_site = false;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) throw invalid_argument_error(fmt::format("inject: expected key=value, got \"{}\"", item));
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(equals + 1);
    if (key == "site") {
      const std::vector<site_row> known = sites();
      const auto found = std::ranges::find(known, value, &site_row::name);
      if (found == known.end()) {
        std::vector<std::string_view> names;
        for (const site_row& row : known) names.push_back(row.name);
        throw invalid_argument_error(fmt::format("inject: site: expected one of {}, got \"{}\"", core::join(names, ", "), value));
      }
      made.site = found->site;
      has_site = true;
    } else if (key == "model") {
      const auto found = std::ranges::find(k_model_names, value);
      if (found == k_model_names.end())
        throw invalid_argument_error(fmt::format("inject: model: expected one of {}, got \"{}\"", core::join(k_model_names, ", "), value));
      made.model = static_cast<model>(found - k_model_names.begin());
    } else if (key == "count") {
      made.count = parse_integer<int>(key, value, 1);
    } else if (key == "seed") {
      made.seed = parse_integer<std::uint64_t>(key, value, 0);
    } else if (key == "bit") {
      made.bit = parse_integer<int>(key, value, 0);
      if (made.bit > 63) throw invalid_argument_error(fmt::format("inject: bit: expected 0 to 63, got {}", made.bit));
    } else if (key == "visit") {
      made.visit = parse_integer<std::int64_t>(key, value, 0);
    } else if (key == "interval") {
      made.interval = parse_integer<std::int64_t>(key, value, 0);
    } else {
      throw invalid_argument_error(fmt::format("inject: expected site, model, count, seed, bit, visit or interval, got \"{}\"", key));
    }
  }
  if (!has_site) throw invalid_argument_error(fmt::format("inject: site=… is missing in \"{}\"", text));
  return made;
}

namespace {
thread_local const plan* faults_here = nullptr;
}

scope::scope(const plan* faults) noexcept : before_(faults_here) { faults_here = faults; }
scope::~scope() { faults_here = before_; }
const plan* scoped_faults() noexcept { return faults_here; }

}  // namespace ballast::inject
