// The schemes of FT K-Means by name, and the kernels that each launches for a pass.
// Layer: backend "cuda" of K-Means, host.
// Source: S. Wu, Y. Ding, Y. Zhai et al., FT K-Means, 2024, Figures 5 and 7.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kmeans/cuda/schemes/tile.hpp"

namespace ballast::kmeans::cuda {

// Describes how a pass finds labels: by tiles, unless `naive`.
struct tile_scheme {
  bool naive = false;
  tile_unit unit = tile_unit::tensor;
  tile_finish finish = tile_finish::labels;
  tile_check check = tile_check::none;
  bool operator==(const tile_scheme&) const = default;
};

// Returns the scheme with this name; nothing for the default scheme, which does not use tiles.
std::optional<tile_scheme> scheme_named(std::string_view name);
std::string_view name_of(const tile_scheme& scheme);

// Declared in contract.hpp as well, for code that does not include this folder.
const std::vector<std::string_view>& schemes();
void check_scheme(std::string_view name, bool protect);

}  // namespace ballast::kmeans::cuda
