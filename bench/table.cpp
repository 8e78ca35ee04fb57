// Markdown.
#include "table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include <fmt/format.h>

namespace ballast::bench {
namespace {

constexpr const char* k_rivals[] = {"FFTW", "MKL", "DUCC", "pocketfft"};

// A row within this part of its floor counts as reached.
constexpr double k_reached = 0.85;

double seconds_of_variant(const nlohmann::ordered_json& row, const std::string& name) {
  const auto& variants = row.at("variants");
  return variants.contains(name) ? variants.at(name).at("median_seconds").get<double>() : NAN;
}

std::string milliseconds(double seconds) { return std::isnan(seconds) ? "missing" : fmt::format("{:.3g}", seconds * 1e3); }

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double each : values) sum += std::log(each);
  return std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace

void fft_table::add(const subject& what, nlohmann::ordered_json& row) {
  const double least = floors_.seconds(what.flops, what.bytes, what.type);
  row["floor_seconds"] = least;
  row["floor_share"] = least / seconds_of_variant(row, "correct");
  if (const double by = seconds_of_variant(row, "FFTW"); !std::isnan(by)) row["over_fftw"] = by / seconds_of_variant(row, "correct");
  for (const auto& [name, why] : what.missing) ++missing_[name][why];
  rows_.push_back(row);
}

void fft_table::print_head() const {
  fmt::print("Floors measured in the same run: multiply-adds {:.1f} GFLOP/s in f32 and {:.1f} in f64; copies, GB/s read and written:",
             floors_.f32_flops * 1e-9, floors_.f64_flops * 1e-9);
  for (const floors::copy& each : floors_.copies) {
    if (each.bytes >= 1 << 20)
      fmt::print(" {} MiB {:.1f},", each.bytes >> 20, each.per_second * 1e-9);
    else
      fmt::print(" {} KiB {:.1f},", each.bytes >> 10, each.per_second * 1e-9);
  }
  fmt::print(" larger the same.\n\n| problem | off, ms | correct, ms | protection |");
  for (const char* const rival : k_rivals) fmt::print(" {}, ms |", rival);
  fmt::print(
      " best rival | FFTW / correct | best / correct | best / off | floor, ms | floor / correct "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  std::fflush(stdout);
}

void fft_table::print_last() const {
  const auto& row = rows_.back();
  fmt::print("| `{}` | {} | {} | {:+.1f} % |", row.at("token").get<std::string>(), milliseconds(seconds_of_variant(row, "off")),
             milliseconds(seconds_of_variant(row, "correct")), row.at("protection_overhead").get<double>() * 100);
  for (const char* const rival : k_rivals) fmt::print(" {} |", milliseconds(seconds_of_variant(row, rival)));
  const auto ratio = [&](const char* name) { return row.contains(name) ? fmt::format("{:.2f}", row.at(name).get<double>()) : "missing"; };
  fmt::print(" {} | {} | {} | {} | {:.3g} | {:.0f} %{} |\n", row.contains("peer") ? row.at("peer").get<std::string>() : "missing",
             ratio("over_fftw"), ratio("speedup_correct"), ratio("speedup_off"), row.at("floor_seconds").get<double>() * 1e3,
             row.at("floor_share").get<double>() * 100, row.at("floor_share").get<double>() >= k_reached ? ", reached" : "");
  std::fflush(stdout);
}

void fft_table::print_summary() const {
  const auto collect = [&](const char* name) {
    std::vector<double> made;
    for (const auto& row : rows_) {
      if (row.contains(name)) made.push_back(row.at(name).get<double>());
    }
    return made;
  };
  std::vector<double> protection = collect("protection_overhead");
  for (double& each : protection) each += 1;
  fmt::print("\n{} problems. Protection: {:+.1f} % in the geometric mean, {:+.1f} % at most.", rows_.size(),
             100 * (geometric_mean(protection) - 1), 100 * (*std::ranges::max_element(protection) - 1));
  for (const auto& [name, title] : {std::pair{"over_fftw", "FFTW"}, std::pair{"speedup_correct", "the best rival of each row"}}) {
    const std::vector<double> all = collect(name);
    if (all.empty()) continue;
    fmt::print(" Speed with protection over {}: {:.2f} in the geometric mean, {:.2f} at least, below 0.9 in {} rows.", title,
               geometric_mean(all), *std::ranges::min_element(all), std::ranges::count_if(all, [](double each) { return each < 0.9; }));
  }
  fmt::print("\n");
  for (const char* const rival : k_rivals) {
    std::size_t rows = 0;
    for (const auto& row : rows_) rows += row.at("variants").contains(rival) ? 1 : 0;
    fmt::print("\n- {}: in {} of {} rows.", rival, rows, rows_.size());
    if (!missing_.contains(rival)) continue;
    for (const auto& [why, count] : missing_.at(rival)) fmt::print(" Missing in {}: {}.", count, why);
  }
  fmt::print("\n");
}

}  // namespace ballast::bench
