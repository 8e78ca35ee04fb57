// The names of the schemes. See schemes.hpp.
#include "kmeans/cuda/schemes/schemes.hpp"

#include <algorithm>

#include "run/dispatch.hpp"

namespace ballast::kmeans::cuda {

namespace {

struct scheme_row {
  std::string_view name;
  tile_scheme does;
};

// The steps of Figure 7, without protection; then the schemes that Figures 15 to 18 compare.
constexpr scheme_row k_schemes[] = {
    {"naive", {true}},
    {"gemm", {false, tile_unit::lanes, tile_finish::distances}},
    {"fused", {false, tile_unit::lanes, tile_finish::minima}},
    {"broadcast", {false, tile_unit::lanes, tile_finish::labels}},
    {"tensor", {false, tile_unit::tensor, tile_finish::labels}},
    {"warp_checksum", {false, tile_unit::tensor, tile_finish::labels, tile_check::warp}},
    {"detect_recompute", {false, tile_unit::tensor, tile_finish::labels, tile_check::detect}},
    {"threadblock_checksum", {false, tile_unit::tensor, tile_finish::labels, tile_check::threadblock}},
};

}  // namespace

const std::vector<std::string_view>& schemes() {
  static const std::vector<std::string_view> names = run::names_of(k_schemes);
  return names;
}

std::optional<tile_scheme> scheme_named(std::string_view name) {
  const scheme_row* const row = run::row_named(k_schemes, name);
  return row == nullptr ? std::nullopt : std::optional(row->does);
}

std::string_view name_of(const tile_scheme& scheme) {
  const auto* const row = std::ranges::find(k_schemes, scheme, &scheme_row::does);
  return row == std::ranges::end(k_schemes) ? std::string_view() : row->name;
}

void check_scheme(std::string_view name, bool protect) {
  const std::optional<tile_scheme> found = scheme_named(name);
  if (found)
    run::check_use(name, found->check == tile_check::none ? run::scheme_use::unprotected : run::scheme_use::protected_only, protect);
}

}  // namespace ballast::kmeans::cuda
