// ballast-strike: flips bits of registers while the library runs, and counts the outcomes. `make strike` runs it; docs/design/strike.md
// defines the counts. Exit status: 0 if no strike at data was silent above the floor outside of the declared windows and none was repaired
// wrongly, 3 if some were, 1 if the program failed, 2 for bad usage.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include <ballast/error.hpp>
#include <ballast/info.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "campaign.hpp"
#include "location.hpp"
#include "processor.hpp"
#include "support/bound.hpp"

namespace ballast::strike {
namespace {

using json = nlohmann::ordered_json;

constexpr int k_holes = 3;

// A window: code that no check covers, as docs/protection.md declares. It contains strikes in this function, or in functions that are
// inlined in it, during operations whose names begin with `operation`.
struct window {
  std::string_view operation, function, what;
};
constexpr window k_declared[] = {
    {"ormqr_", "host_engine::copy", "result while it is stored"},
    {"gels_", "host_engine::copy", "result while it is stored"},
};

// Calls of about a millisecond, so that many are possible. FFT in one pass (lengths 4096 and 1000), in two passes, of reals, of long reals,
// of several axes, real to real, and in other layouts; convolution in blocks and in one; K-Means of points of every kind; QR with every
// shape of its operations; batches.
constexpr const char* k_default_subjects[] = {"fft_c2c_f32_n4096_b64_fwd",
                                              "fft_c2c_f64_n4096_b32_fwd",
                                              "fft_c2c_f32_n1000_b256_fwd",
                                              "fft_c2c_f64_n1000_b128_fwd",
                                              "fft_c2c_f32_n131072_b2_fwd",
                                              "fft_c2c_f64_n131072_b1_fwd",
                                              "fft_r2c_f32_n4096_b128_fwd",
                                              "fft_r2c_f64_n4096_b64_fwd",
                                              "fft_r2c_f32_n1000_b512_fwd",
                                              "fft_r2c_f64_n1000_b256_fwd",
                                              "fft_r2c_f32_n16384_b4_fwd",
                                              "fft_c2r_f64_n12500_b3_inv",
                                              "fft_r2c_f32_n96x128_b4_fwd",
                                              "fft_r2c_f64_n24x32x40_b2_fwd",
                                              "fft_c2c_f32_n24x32x40_b2_fwd",
                                              "fft_dct2_f32_n500_b64_fwd",
                                              "fft_dst4_f64_n250_b64_inv",
                                              "fft_dht_f32_n240_b16_fwd",
                                              "fft_hc2r_f64_n240_b16_fwd",
                                              "fft_dct1_f64_n241_b16_fwd",
                                              "fft_dct2xdst4_f32_n24x20_b4_fwd",
                                              "fft_c2c_f64_n4x5x6x7_b2_fwd",
                                              "strided_fft_c2c_f32_n24x20_b8_fwd",
                                              "strided_fft_c2r_f64_n24x20_b8_inv",
                                              "split_fft_r2c_f32_n24x20_b8_fwd",
                                              "split_fft_c2c_f64_n24x20_b8_fwd",
                                              "convolve_real_f32_n4096_m65_full",
                                              "convolve_complex_f64_n600_m400_same",
                                              "convolve_real_f32_n24x20_m5x4_full",
                                              "correlate_complex_f64_n24x20_m5x4_same",
                                              "kmeans_f32_m8000_n32_k64",
                                              "kmeans_f64_m8000_n32_k64",
                                              "kmeans_f32_m8000_n256_k64_csr",
                                              "kmeans_f64_m8000_n256_k64_csr",
                                              "kmeans_bf16_m8000_n32_k64",
                                              "kmeans_f16_m1000_n16_k10",
                                              "kmeans_f32_m1000_n16_k10_spherical",
                                              "predict_bf16_m1000_n16_k10",
                                              "predict_f32_m800_n256_k10_csr",
                                              "transform_f64_m400_n256_k10_csr",
                                              "transform_f64_m1000_n16_k10_spherical",
                                              "kmeans_f32_m4000_n16_k10_mini500",
                                              "kmeans_f64_m4000_n16_k10_mini500",
                                              "predict_f32_m12000_n32_k64",
                                              "predict_f64_m12000_n32_k64",
                                              "transform_f32_m4000_n32_k64",
                                              "transform_f64_m4000_n32_k64",
                                              "kmeans_f32_m500_n16_k10_b16",
                                              "kmeans_f64_m500_n16_k10_b16",
                                              "geqrf_f32_m384_n256",
                                              "geqrf_f64_m384_n256",
                                              "geqp3_f32_m384_n256",
                                              "geqp3_f64_m384_n256",
                                              "geqrf_f32_m200_n300",
                                              "geqrf_f64_m200_n300",
                                              "geqrf_f32_m64_n48_b32",
                                              "geqrf_f64_m64_n48_b32",
                                              "ormqr_f32_m384_n256",
                                              "ormqr_f64_m384_n256",
                                              "ormqr_right_f32_m384_n256",
                                              "ormqr_right_f64_m384_n256",
                                              "ormqr_f32_m64_n48_b32",
                                              "ormqr_f64_m64_n48_b32",
                                              "orgqr_f32_m384_n256",
                                              "orgqr_f64_m384_n256",
                                              "orgqr_f32_m64_n48_b32",
                                              "orgqr_f64_m64_n48_b32",
                                              "gels_f32_m384_n256",
                                              "gels_f64_m384_n256",
                                              "gels_f32_m240_n240",
                                              "gels_f64_m240_n240",
                                              "gels_f32_m160_n300",
                                              "gels_f64_m160_n300",
                                              "gels_f32_m64_n48_b32",
                                              "gels_f64_m64_n48_b32",
                                              "gels_f32_m48_n64_b32",
                                              "gels_f64_m48_n64_b32",
                                              "geqrf_c64_m256_n160",
                                              "geqrf_c128_m256_n160",
                                              "geqrf_c128_m120_n200",
                                              "geqp3_c64_m256_n160",
                                              "geqp3_c128_m256_n160",
                                              "gelsy_c64_m256_n160",
                                              "gelsy_c128_m256_n160",
                                              "gelsy_c64_m120_n200",
                                              "gelsy_c128_m120_n200",
                                              "gelsy_f32_m160_n300",
                                              "gelsy_f64_m160_n300",
                                              "ormqr_c64_m256_n160",
                                              "ormqr_c128_m256_n160",
                                              "ormqr_right_c64_m256_n160",
                                              "ormqr_right_c128_m256_n160",
                                              "orgqr_c64_m256_n160",
                                              "orgqr_c128_m256_n160",
                                              "gels_c64_m256_n160",
                                              "gels_c128_m256_n160",
                                              "gels_c64_m100_n200",
                                              "gels_c128_m100_n200",
                                              "geqrf_c128_m64_n48_b16",
                                              "ormqr_c128_m64_n48_b16",
                                              "gels_c128_m64_n48_b16",
                                              "gels_c64_m48_n64_b16"};

using strike = entry<processor_striker::shot>;

// Returns whether the output lists the strike.
bool is_worth_a_look(const strike& one) {
  return one.result != outcome::masked && one.result != outcome::repaired && one.result != outcome::rounding;
}

code_address instruction_of(const strike& one) { return code_at(one.shot.address); }
code_address caller_of(const strike& one) { return one.shot.caller == 0 ? code_address{} : code_at(one.shot.caller - 1); }

bool is_bad(const strike& one) { return one.result == outcome::material || one.result == outcome::wrongly_repaired; }

bool is_declared(const std::string& problem, const std::string& location) {
  return std::ranges::any_of(k_declared, [&](const window& each) {
    const std::size_t at = location.find(each.function), end = at + each.function.size();
    const bool whole = at != std::string::npos && (end == location.size() || location[end] != '_');  // not distances_block
    return whole && problem.starts_with(each.operation);
  });
}

json counts(const tally& of, std::int64_t declared) {
  json made = {{"strikes", of.strikes}};
  for (int i = 0; i < k_outcomes; ++i) made[std::string(to_string(static_cast<outcome>(i)))] = of.outcomes[static_cast<std::size_t>(i)];
  made["material_declared"] = declared;
  made["material_bound_99"] = test::bound_99(of.of(outcome::material) - declared, of.strikes);
  return made;
}

// Returns the location of a strike. If it is in a system library, the caller is appended.
std::string location_of(const strike& one, const std::map<code_address, std::string>& locations) {
  return locations.at(instruction_of(one)) + (one.shot.caller == 0 ? "" : " < " + locations.at(caller_of(one)));
}

json details(const std::string& problem, const strike& one, const std::map<code_address, std::string>& locations) {
  return {{"target", to_string(one.shot.what)},
          {"register", name_of(one.shot.where)},
          {"nanoseconds", one.shot.when.nanoseconds},
          {"instructions", one.shot.when.instructions},
          {"outcome", to_string(one.result)},
          {"detected", one.detected},
          {"signal", one.signal},
          {"lasting", one.lasting},
          {"roundings", std::isfinite(one.change.roundings) ? json(one.change.roundings) : json("inf")},
          {"floors", std::isfinite(one.change.floors) ? json(one.change.floors) : json("inf")},
          {"module", instruction_of(one).module},
          {"offset", fmt::format("{:#x}", instruction_of(one).offset)},
          {"place", location_of(one, locations)},
          {"declared", is_declared(problem, location_of(one, locations))}};
}

// The columns of the table.
constexpr const char* k_heading = "{:<28} {:<8} {:<8} {:>6} {:>7} {:>8} {:>6} {:>7} {:>7} {:>5} {:>8} {:>7} {:>6} {:>8} {:>9}\n";

// Prints a line of the table. `declared`: the number of material strikes in declared windows.
void print_line(const record<processor_striker::shot>& of, const tally& seen, target which, std::int64_t declared, bool first) {
  if (seen.strikes == 0) return;
  const auto at = [&](outcome what) { return seen.of(what); };
  const std::int64_t material = at(outcome::material) - declared;
  fmt::print(fmt::runtime(k_heading), first ? of.subject : "", first ? to_string(of.protection) : "", to_string(which), seen.strikes,
             at(outcome::masked), at(outcome::repaired), at(outcome::wrongly_repaired), at(outcome::uncorrectable),
             at(outcome::crashed) + at(outcome::failed), at(outcome::hung), at(outcome::rounding), at(outcome::below_floor), declared,
             material, fmt::format("{:.2g}", test::bound_99(material, seen.strikes)));
}

// Returns the functions of a location, without line numbers.
std::string functions_of(const std::string& location) {
  std::string made;
  for (std::size_t i = 0; i < location.size(); ++i) {
    if (location[i] == '(')
      i = std::min(location.find(')', i), location.size() - 1);
    else if (!(location[i] == ' ' && i + 1 < location.size() && location[i + 1] == '('))
      made += location[i];
  }
  return made;
}

// Prints the locations of material strikes at vector and mask registers, most frequent first.
void print_locations(const record<processor_striker::shot>& seen, const std::map<code_address, std::string>& locations) {
  struct group {
    std::int64_t count = 0, lasting = 0;
    double least = 0, most = 0;
    std::string line;
  };
  std::map<std::string, group> groups;
  for (const strike& one : seen.strikes) {
    if (!is_bad(one) || one.shot.what == target::general) continue;
    const std::string location = location_of(one, locations);
    group& to = groups[std::string(one.result == outcome::material ? "material: " : "wrongly repaired: ") + functions_of(location)];
    to.lasting += one.lasting ? 1 : 0;
    if (to.count++ == 0 || one.change.floors < to.least) to.least = one.change.floors;
    if (to.count == 1 || !(one.change.floors <= to.most)) {
      to.most = one.change.floors;
      to.line = location;
    }
  }
  std::vector<std::pair<std::string, group>> order(groups.begin(), groups.end());
  std::ranges::sort(order, [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  for (const auto& [name, of] : order)
    fmt::print("    {:>4} {}{}{}, {:.3g} to {:.3g} floors; the largest at {}\n", of.count,
               is_declared(seen.subject, name) ? "declared window, " : "", name,
               of.lasting > 0 ? fmt::format(" ({} with wrong calls after it)", of.lasting) : "", of.least, of.most,
               of.line.substr(0, of.line.find(" < ")));
}

int run(int argc, char** argv) {
  std::vector<std::string> names;
  plan wanted;
  std::int64_t unprotected = -1;
  std::string output;
  int threads = 2;
  CLI::App app("Strikes registers of the running library from outside, at random times, and counts what becomes of it.");
  app.add_option("PROBLEM", names,
                 std::string("fft_c2c_f32_n4096_b64_fwd, strided_fft_…, split_fft_…, convolve_real_f32_n4096_m65_full, correlate_…, "
                             "kmeans_f32_m8000_n32_k64, predict_…, transform_…, "
                             "geqrf_f64_m384_n256, geqrf_c128_m256_n160, geqp3_…, ormqr_…, ormqr_right_…, orgqr_…, gelsy_…, "
                             "gels_…; default: ") +
                     std::to_string(std::size(k_default_subjects)) + " problems, every operation in both precisions");
  app.add_option("--strikes", wanted.strikes, "of each problem with protection")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--unprotected", unprotected, "strikes of each problem without; default: a tenth")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", wanted.seed)->capture_default_str();
  app.add_option("--threads", threads, "of the library")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seconds", wanted.seconds, "at most, of each problem and protection");
  app.add_option("--json", output, "where counts and every strike that was not masked or repaired go");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  wanted.most_restarts =
      static_cast<int>(std::clamp<std::int64_t>(wanted.strikes, 1000, 1'000'000));  // a strike at an address ends a process
  if (unprotected < 0) unprotected = std::max<std::int64_t>(wanted.strikes / 10, 1);
  if (names.empty()) names.assign(std::begin(k_default_subjects), std::end(k_default_subjects));
  bench::gpu::pretend();  // operands lie in the memory of the host

  json all = {{"version", information().version},
              {"seed", wanted.seed},
              {"threads", threads},
              {"registers", {{"vectors", registers().vectors}, {"vector_bits", registers().vector_bits}, {"masks", registers().masks}}},
              {"results", json::array()}};
  fmt::print(fmt::runtime(k_heading), "problem", "protect", "target", "n", "masked", "repaired", "wrong", "uncorr.", "crashed", "hung",
             "rounding", "<=floor", "window", "material", "99% bound");
  // The summary: strikes at data over all problems, with protection.
  std::int64_t data = 0, windows = 0, holes = 0, wrong = 0;
  bool stopped = false;
  for (const std::string& name : names) {
    for (const protection how : {protection::correct, protection::off}) {
      plan part = wanted;
      part.strikes = how == protection::off ? unprotected : wanted.strikes;
      if (part.strikes == 0) continue;
      const execution where{.backend = backend::cpu, .threads = threads, .protection = how};
      auto struck = make_subject(name, backend::cpu);
      processor_striker::small = struck->number_bits() == 32;
      const auto seen = campaign<processor_striker>(name, std::move(struck), where, part).run();
      if (!seen.stopped.empty()) {
        fmt::print(stderr, "ballast-strike: {}: stopped after {} strikes: {}\n", name, seen.strikes.size(), seen.stopped);
        stopped = true;
      }
      std::array<tally, k_targets> tallies;
      std::vector<code_address> addresses;
      for (const strike& one : seen.strikes) {
        tallies[static_cast<std::size_t>(one.shot.what)].add(one.result);
        if (!is_worth_a_look(one)) continue;
        addresses.push_back(instruction_of(one));
        addresses.push_back(caller_of(one));
      }
      const auto locations = source_locations(addresses);
      std::array<std::int64_t, k_targets> declared{};
      for (const strike& one : seen.strikes) {
        if (how != protection::off && one.result == outcome::material && is_declared(name, location_of(one, locations)))
          ++declared[static_cast<std::size_t>(one.shot.what)];
      }
      bool first = true;
      for (int i = 0; i < k_targets; ++i) {
        const auto which = static_cast<target>(i);
        const tally& all_of = tallies[static_cast<std::size_t>(i)];
        const std::int64_t inside = declared[static_cast<std::size_t>(i)];
        print_line(seen, all_of, which, inside, first);
        first = first && all_of.strikes == 0;
        if (how == protection::off || which == target::general || which == target::none) continue;
        data += all_of.strikes;
        windows += inside;
        holes += all_of.of(outcome::material) - inside;
        wrong += all_of.of(outcome::wrongly_repaired);
      }
      json entry = {{"problem", name},
                    {"protection", to_string(how)},
                    {"scheme", seen.scheme},
                    {"clean_error", seen.clean_error},
                    {"call_seconds", seen.call_seconds},
                    {"seconds", seen.seconds},
                    {"missed", seen.missed},
                    {"processes", seen.processes},
                    {"damaged", seen.damaged},
                    {"targets", json::object()},
                    {"strikes", json::array()}};
      for (int i = 0; i < k_targets; ++i)
        entry["targets"][std::string(to_string(static_cast<target>(i)))] =
            counts(tallies[static_cast<std::size_t>(i)], declared[static_cast<std::size_t>(i)]);
      for (const strike& one : seen.strikes)
        if (is_worth_a_look(one)) entry["strikes"].push_back(details(name, one, locations));
      all["results"].push_back(std::move(entry));
      if (how != protection::off) print_locations(seen, locations);
      std::fflush(stdout);
      if (!output.empty()) {  // after each problem, so that an interrupted run loses no counts
        std::ofstream to(output, std::ios::trunc);
        to << all.dump(1) << '\n';
        if (!to.flush()) throw std::runtime_error("cannot write " + output);
      }
    }
  }
  if (data > 0)
    fmt::print(
        "With protection, at numbers, bits and masks: {} strikes, {} silent above the floor in declared windows ({:.2f} %), {} elsewhere "
        "(99 % bound {:.2g}), "
        "{} wrongly repaired\n",
        data, windows, 100.0 * static_cast<double>(windows) / static_cast<double>(data), holes, test::bound_99(holes, data), wrong);
  return stopped ? 1 : holes + wrong == 0 ? 0 : k_holes;
}

}  // namespace
}  // namespace ballast::strike

int main(int argc, char** argv) {
  try {
    return ballast::strike::run(argc, argv);
  } catch (const ballast::invalid_argument_error& e) {
    fmt::print(stderr, "ballast-strike: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "ballast-strike: {}\n", e.what());
    return 1;
  }
}
