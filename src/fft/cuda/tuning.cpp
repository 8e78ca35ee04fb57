// Reading and writing of tuning tables, and the one that is built in.
#include "fft/cuda/tuning.hpp"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

#include <ballast/error.hpp>

#include "cuda/jit.hpp"

namespace ballast::fft::cuda {

namespace {

constexpr std::string_view k_built_in =
#include "fft/cuda/tuning_table.inc"
    ;

bool fits_cluster(const tuned_line& value) {
  const auto stages = static_cast<int>(value.radices.size());
  if (value.cluster < 2 || value.cluster > k_most_cluster || value.cluster_after < 0 || value.cluster_after >= stages - 1) return false;
  std::int64_t sides[2] = {1, 1};
  for (int s = 0; s < stages; ++s) sides[s > value.cluster_after] *= value.radices[static_cast<std::size_t>(s)];
  // Runs of at least two: mirror images are exchanged between their halves.
  return value.lines == 1 && sides[0] % value.cluster == 0 && sides[1] % value.cluster == 0 && sides[0] > value.cluster;
}

}  // namespace

tuning_table::key tuning_table::key_of(const line_request& wanted, int major) {
  return {major, wanted.wide, wanted.length, wanted.in_columns, wanted.out_columns, wanted.check != check_form::none};
}

void tuning_table::set(const line_request& wanted, int major, tuned_line value) { entries_[key_of(wanted, major)] = std::move(value); }

std::optional<tuned_line> tuning_table::find(const line_request& wanted, int major) const {
  const auto found = entries_.find(key_of(wanted, major));
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::pair<line_request, tuned_line>> tuning_table::lines() const {
  std::vector<std::pair<line_request, tuned_line>> made;
  for (const auto& [key, value] : entries_) {
    const auto& [major, wide, length, in, out, checked] = key;
    made.push_back({{.length = length,
                     .wide = wide,
                     .in_columns = in,
                     .out_columns = out,
                     .check = checked ? check_form::verify_before_store : check_form::none},
                    value});
  }
  return made;
}

tuning_table tuning_table::parse(std::string_view text) {
  tuning_table made;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    const auto wrong = [&](const char* what) {
      return invalid_argument_error("tuning table, line " + std::to_string(number) + ": expected " + what + ", got \"" + line + "\"");
    };
    std::istringstream words(line);
    std::string arch, type, in, out, checked, radices, exchange;
    line_request request;
    tuned_line value;
    if (!(words >> arch >> type >> request.length >> in >> out >> checked >> radices >> value.threads >> value.lines >> exchange >>
          value.min_blocks >> value.gain))
      throw wrong("12 fields");
    int capability = 0;
    if (!arch.starts_with("sm_") || std::from_chars(arch.data() + 3, arch.data() + arch.size(), capability).ec != std::errc{})
      throw wrong("an architecture like sm_90");
    if (type != "f32" && type != "f64") throw wrong("f32 or f64");
    const auto order = [&](const std::string& word) {
      if (word != "rows" && word != "columns") throw wrong("rows or columns");
      return word == "columns";
    };
    request.wide = type == "f64";
    request.in_columns = order(in);
    request.out_columns = order(out);
    if (checked != "checked" && checked != "unchecked") throw wrong("checked or unchecked");
    request.check = checked == "checked" ? check_form::verify_before_store : check_form::none;
    if (exchange != "whole" && exchange != "split" && exchange != "staged" && exchange != "staged_split")
      throw wrong("whole, split, staged or staged_split");
    value.split = exchange.ends_with("split");
    value.staged = exchange.starts_with("staged");
    std::istringstream factors(radices);
    std::int64_t product = 1;
    for (std::string factor; std::getline(factors, factor, '.');) {
      int radix = 0;
      if (std::from_chars(factor.data(), factor.data() + factor.size(), radix).ec != std::errc{} || radix < 1 || radix > k_max_radix)
        throw wrong("radices from 1 to 32");
      value.radices.push_back(radix);
      product *= radix;
    }
    if (value.radices.size() > k_max_stages || product != request.length) throw wrong("at most 8 radices whose product is the length");
    if (value.threads < 1 || value.lines < 1 || value.min_blocks < 1) throw wrong("threads, lines and blocks of at least 1");
    if (words >> value.cluster) {
      if (!(words >> value.cluster_after) || !fits_cluster(value))
        throw wrong("a cluster of 2 to 16 blocks that divides both sides of its stage");
    } else {
      value.cluster = 1;
    }
    made.set(request, capability / 10, std::move(value));
  }
  return made;
}

std::string tuning_table::to_text() const {
  std::ostringstream text;
  for (const auto& [key, value] : entries_) {
    const auto& [major, wide, length, in, out, checked] = key;
    text << "sm_" << major << "0 " << (wide ? "f64 " : "f32 ") << length << (in ? " columns" : " rows") << (out ? " columns" : " rows")
         << (checked ? " checked " : " unchecked ");
    for (std::size_t s = 0; s < value.radices.size(); ++s) text << (s == 0 ? "" : ".") << value.radices[s];
    text << ' ' << value.threads << ' ' << value.lines
         << (value.staged  ? (value.split ? " staged_split " : " staged ")
             : value.split ? " split "
                           : " whole ")
         << value.min_blocks << ' ' << value.gain;
    if (value.cluster > 1) text << ' ' << value.cluster << ' ' << value.cluster_after;
    text << '\n';
  }
  return text.str();
}

const tuning_table& tuning_table::rules() {
  static const tuning_table empty;
  return empty;
}

const tuning_table& tuning_table::active() {
  static const tuning_table table = [] {
    tuning_table made = parse(k_built_in);
    const auto folder = ballast::cuda::default_cache_folder();
    std::ifstream file(folder / "tuning.txt");
    if (!folder.empty() && file) {
      std::ostringstream text;
      text << file.rdbuf();
      for (auto& [key, value] : parse(text.str()).entries_) made.entries_[key] = value;
    }
    return made;
  }();
  return table;
}

}  // namespace ballast::fft::cuda
