// Reads and writes the lines of the tuning tables. See tuning.hpp.
#include "kmeans/cuda/policy/tuning.hpp"

#include <algorithm>
#include <istream>
#include <iterator>
#include <ostream>

namespace ballast::kmeans::cuda {

namespace {

using ballast::cuda::unknown_tuning;

constexpr std::string_view k_centroid_memories[] = {"global", "shared", "ring"};
constexpr std::string_view k_sums[] = {"none", "shared", "global"};

// Reads a word that must be one of `names`; returns its index.
template <std::size_t Count>
int read_name(std::istream& words, const std::string_view (&names)[Count], const char* expected) {
  std::string word;
  words >> word;
  const auto* const found = std::ranges::find(names, std::string_view(word));
  if (found == std::end(names)) throw unknown_tuning(expected);
  return static_cast<int>(found - names);
}

// read_problem, write_problem: the beginning that both kinds of lines share.
template <class Key>
void read_problem(std::istream& words, Key& at) {
  std::string architecture, precision;
  words >> architecture >> precision >> at.n >> at.k;
  at.major = ballast::cuda::read_architecture(architecture) / 10;
  if (precision != "f32" && precision != "f64") throw unknown_tuning("f32 or f64");
  at.wide = precision == "f64";
  if (!words || at.n < 1 || at.k < 1) throw unknown_tuning("numbers of features and clusters");
}
template <class Key>
void write_problem(std::ostream& to, const Key& at) {
  to << "sm_" << at.major << "0 " << (at.wide ? "f64 " : "f32 ") << at.n << ' ' << at.k << ' ';
}

}  // namespace

void pass_form::read(std::istream& words, key& at, value& chosen) {
  constexpr std::string_view checked[] = {"unchecked", "checked"};
  read_problem(words, at);
  at.checked = read_name(words, checked, "checked or unchecked") == 1;
  chosen.centroids = static_cast<centroid_memory>(read_name(words, k_centroid_memories, "global, shared or ring"));
  words >> chosen.tiles >> chosen.depth >> chosen.slots >> chosen.warps >> chosen.blocks;
  if (!words || chosen.tiles < 1 || chosen.depth < 1 || chosen.slots < 0 || chosen.slots > k_most_slots || chosen.warps < 1 ||
      chosen.warps % k_warpgroup_warps != 0 || chosen.blocks < 1)
    throw unknown_tuning("tiles, depth, slots, warps in fours and blocks");
  chosen.sums = static_cast<sum_memory>(read_name(words, k_sums, "shared or global"));
  if (chosen.sums == sum_memory::none) throw unknown_tuning("shared or global");
  if (!(words >> chosen.gain)) throw unknown_tuning("a gain");
}

void pass_form::write(std::ostream& to, const key& at, const value& chosen) {
  write_problem(to, at);
  to << (at.checked ? "checked " : "unchecked ") << k_centroid_memories[static_cast<int>(chosen.centroids)] << ' ' << chosen.tiles << ' '
     << chosen.depth << ' ' << chosen.slots << ' ' << chosen.warps << ' ' << chosen.blocks << ' ' << k_sums[static_cast<int>(chosen.sums)]
     << ' ' << chosen.gain;
}

void tile_form::read(std::istream& words, key& at, value& chosen) {
  read_problem(words, at);
  words >> at.scheme;
  const auto scheme = scheme_named(at.scheme);
  if (!scheme || scheme->naive) throw unknown_tuning("a scheme of tiles");
  tile_policy& p = chosen.policy;
  p.unit = scheme->unit, p.finish = scheme->finish, p.check = scheme->check;
  words >> p.rows >> p.columns >> p.depth >> p.warp_rows >> p.warp_columns >> p.stages >> p.blocks;
  if (!words || p.blocks < 1 || !(at.wide ? obeys_rules<double>(p) : obeys_rules<float>(p)))
    throw unknown_tuning("a tile that obeys the rules of the scheme");
  if (!(words >> chosen.gain)) throw unknown_tuning("a gain");
}

void tile_form::write(std::ostream& to, const key& at, const value& chosen) {
  const tile_policy& p = chosen.policy;
  write_problem(to, at);
  to << at.scheme << ' ' << p.rows << ' ' << p.columns << ' ' << p.depth << ' ' << p.warp_rows << ' ' << p.warp_columns << ' ' << p.stages
     << ' ' << p.blocks << ' ' << chosen.gain;
}

const pass_tuning& pass_tuning::active() {
  static const pass_tuning table(installed());
  return table;
}
const pass_tuning& pass_tuning::rules() {
  static const pass_tuning empty;
  return empty;
}
const tile_tuning& tile_tuning::active() {
  static const tile_tuning table(installed());
  return table;
}
const tile_tuning& tile_tuning::rules() {
  static const tile_tuning empty;
  return empty;
}

}  // namespace ballast::kmeans::cuda
