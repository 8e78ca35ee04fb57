// Reads and writes lines of the FFT's tuning table, and provides the table that plans use.
#include "fft/cuda/policy/tuning.hpp"

#include <charconv>
#include <istream>
#include <ostream>
#include <sstream>
#include <string>

namespace ballast::fft::cuda {

namespace {

using ballast::cuda::unknown_tuning;

bool fits_cluster(const tuned_line& value) {
  const auto stages = static_cast<int>(value.radices.size());
  if (value.cluster < 2 || value.cluster > k_most_cluster || value.cluster_after < 0 || value.cluster_after >= stages - 1) return false;
  std::int64_t sides[2] = {1, 1};
  for (int s = 0; s < stages; ++s) sides[s > value.cluster_after] *= value.radices[static_cast<std::size_t>(s)];
  // Runs have at least two elements, because mirror images are exchanged between the halves of a run.
  return value.lines == 1 && sides[0] % value.cluster == 0 && sides[1] % value.cluster == 0 && sides[0] > value.cluster;
}

bool in_columns(const std::string& order) {
  if (order != "rows" && order != "columns") throw unknown_tuning("rows or columns");
  return order == "columns";
}

// Reads "checked", "unchecked", or one of these after "few_".
void read_check(const std::string& word, bool& checked, bool& few) {
  few = word.starts_with("few_");
  const std::string rest = few ? word.substr(4) : word;
  if (rest != "checked" && rest != "unchecked") throw unknown_tuning("checked or unchecked, or one of them after few_");
  checked = rest == "checked";
}

std::string check_word(bool checked, bool few) { return std::string(few ? "few_" : "") + (checked ? "checked" : "unchecked"); }

std::vector<int> read_radices(const std::string& text, int length) {
  std::vector<int> radices;
  std::istringstream factors(text);
  std::int64_t product = 1;
  for (std::string factor; std::getline(factors, factor, '.');) {
    int radix = 0;
    if (std::from_chars(factor.data(), factor.data() + factor.size(), radix).ec != std::errc{} || radix < 1 || radix > k_max_radix)
      throw unknown_tuning("radices from 1 to 32");
    radices.push_back(radix);
    product *= radix;
  }
  if (radices.size() > k_max_stages || product != length) throw unknown_tuning("at most 8 radices whose product is the length");
  return radices;
}

}  // namespace

void line_form::read(std::istream& words, key& at, value& chosen) {
  std::string arch, type, in, out, checked, radices, exchange;
  if (!(words >> arch >> type >> at.length >> in >> out >> checked >> radices >> chosen.threads >> chosen.lines >> exchange >>
        chosen.min_blocks >> chosen.gain))
    throw unknown_tuning("12 fields");
  at.major = ballast::cuda::read_architecture(arch) / 10;
  if (type != "f32" && type != "f64") throw unknown_tuning("f32 or f64");
  at.wide = type == "f64";
  at.in_columns = in_columns(in);
  at.out_columns = in_columns(out);
  read_check(checked, at.checked, at.few);
  if (exchange != "whole" && exchange != "split" && exchange != "staged" && exchange != "staged_split")
    throw unknown_tuning("whole, split, staged or staged_split");
  chosen.split = exchange.ends_with("split");
  chosen.staged = exchange.starts_with("staged");
  chosen.radices = read_radices(radices, at.length);
  if (chosen.threads < 1 || chosen.lines < 1 || chosen.min_blocks < 1) throw unknown_tuning("threads, lines and blocks of at least 1");
  if (words >> chosen.cluster) {
    if (!(words >> chosen.cluster_after) || !fits_cluster(chosen))
      throw unknown_tuning("a cluster of 2 to 16 blocks that divides both sides of its stage");
  } else {
    chosen.cluster = 1;
  }
}

void line_form::write(std::ostream& to, const key& at, const value& chosen) {
  const auto order = [](bool columns) { return columns ? " columns" : " rows"; };
  to << "sm_" << at.major << "0 " << (at.wide ? "f64 " : "f32 ") << at.length << order(at.in_columns) << order(at.out_columns) << ' '
     << check_word(at.checked, at.few) << ' ';
  for (std::size_t s = 0; s < chosen.radices.size(); ++s) to << (s == 0 ? "" : ".") << chosen.radices[s];
  to << ' ' << chosen.threads << ' ' << chosen.lines
     << (chosen.staged  ? (chosen.split ? " staged_split " : " staged ")
         : chosen.split ? " split "
                        : " whole ")
     << chosen.min_blocks << ' ' << chosen.gain;
  if (chosen.cluster > 1) to << ' ' << chosen.cluster << ' ' << chosen.cluster_after;
}

void split_form::read(std::istream& words, key& at, value& chosen) {
  std::string arch, type, checked, lengths;
  if (!(words >> arch >> type >> at.length >> checked >> lengths >> chosen.gain)) throw unknown_tuning("6 fields");
  at.major = ballast::cuda::read_architecture(arch) / 10;
  if (type != "f32" && type != "f64") throw unknown_tuning("f32 or f64");
  at.wide = type == "f64";
  read_check(checked, at.checked, at.few);
  std::istringstream factors(lengths);
  std::int64_t product = 1;
  for (std::string factor; std::getline(factors, factor, '.');) {
    std::int64_t length = 0;
    if (std::from_chars(factor.data(), factor.data() + factor.size(), length).ec != std::errc{} || length < 2 || length > k_longest_pass)
      throw unknown_tuning("lengths from 2 to " + std::to_string(k_longest_pass));
    chosen.lengths.push_back(length);
    if (product <= at.length) product *= length;
  }
  if (chosen.lengths.size() < 2 || chosen.lengths.size() > 3 || product != at.length)
    throw unknown_tuning("two or three lengths whose product is the length");
}

void split_form::write(std::ostream& to, const key& at, const value& chosen) {
  to << "sm_" << at.major << "0 " << (at.wide ? "f64 " : "f32 ") << at.length << ' ' << check_word(at.checked, at.few) << ' ';
  for (std::size_t i = 0; i < chosen.lengths.size(); ++i) to << (i == 0 ? "" : ".") << chosen.lengths[i];
  to << ' ' << chosen.gain;
}

std::optional<tuned_line> tuning_table::find(const line_request& wanted, int major) const {
  line_form::key at = key_of(wanted, major);
  if (auto found = entries_type::find(at); found || !at.few) return found;
  at.few = false;
  return entries_type::find(at);
}

std::optional<split_form::value> tuning_table::find_split(split_form::key at) const {
  if (auto found = splits_.find(at); found || !at.few) return found;
  at.few = false;
  return splits_.find(at);
}

std::vector<std::string> tuning_table::warnings() const {
  std::vector<std::string> all = entries_type::warnings();
  all.insert(all.end(), splits_.warnings().begin(), splits_.warnings().end());
  return all;
}

std::vector<std::pair<line_request, tuned_line>> tuning_table::lines() const {
  std::vector<std::pair<line_request, tuned_line>> made;
  for (const auto& [at, value] : entries()) {
    made.push_back({{.length = at.length,
                     .wide = at.wide,
                     .in_columns = at.in_columns,
                     .out_columns = at.out_columns,
                     .check = at.checked ? check_form::verify_before_store : check_form::none,
                     .few = at.few},
                    value});
  }
  return made;
}

const tuning_table& tuning_table::rules() {
  static const tuning_table empty;
  return empty;
}

const tuning_table& tuning_table::active() {
  static const tuning_table table(entries_type::installed(), splits_type::installed());
  return table;
}

}  // namespace ballast::fft::cuda
