// The tuning tables of K-Means: the pass, or the tile of a scheme, that was measured to be faster than the rules' choice, by problem and
// architecture.
// Layer: backend "cuda" of K-Means. The built-in tables come from `ballast tune`; a user's own table is read from the cache folder.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/tuning/tuning_table.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"
#include "kmeans/cuda/policy/tile_policies.hpp"

namespace ballast::kmeans::cuda {

// "kmeans sm_90 f32 128 128 checked shared 9 8 0 8 2 shared 1.08": architecture, precision, features, clusters, checked or unchecked,
// storage of packed centroids, tiles of a group, depth, slots, warps, blocks, storage of sums, gain. An entry is for passes with sums, and
// also for those without, which ignore the storage of sums. In f64 the tiles also decide whether rows stay in registers.
struct pass_form {
  struct key {
    int major = 0;
    bool wide = false;
    std::int64_t n = 0, k = 0;
    bool checked = false;

    auto operator<=>(const key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 means the implicit code
  };
  struct value {
    centroid_memory centroids = centroid_memory::shared;
    int tiles = 1, depth = 1, slots = 0, warps = 8, blocks = 1;
    sum_memory sums = sum_memory::shared;
    double gain = 1;
    bool operator==(const value&) const = default;
  };
  static constexpr std::string_view algorithm = "kmeans";
  // Measured on an NVIDIA H100 80GB HBM3 at 131072 and at 1048576 points, iterations 5 to 36 of a run.
  static constexpr std::string_view built_in =
      "kmeans sm_90 f32 8 8 checked shared 2 1 0 4 4 shared 1.018\n"
      "kmeans sm_90 f32 16 64 unchecked shared 8 1 0 16 1 global 1.122\n"
      "kmeans sm_90 f32 16 64 checked shared 9 1 0 16 1 global 1.045\n"
      "kmeans sm_90 f32 32 64 checked shared 9 2 0 8 2 global 1.037\n"
      "kmeans sm_90 f32 128 128 unchecked shared 8 8 0 12 1 global 1.079\n"
      "kmeans sm_90 f32 128 128 checked shared 9 8 0 12 1 global 1.177\n";
  static void read(std::istream& words, key& at, value& chosen);
  static void write(std::ostream& to, const key& at, const value& chosen);
};

// "kmeans_tile sm_90 f32 128 128 warp_checksum 64 128 16 64 32 3 1 1.2": architecture, precision, features, clusters, scheme, rows and
// columns of the block's tile, depth, rows and columns of a warp's tile, stages, blocks, gain.
struct tile_form {
  struct key {
    int major = 0;
    bool wide = false;
    std::int64_t n = 0, k = 0;
    std::string scheme;

    auto operator<=>(const key&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct value {
    tile_policy policy;  // unit, finish and check follow from the scheme
    double gain = 1;
    bool operator==(const value&) const = default;
  };
  static constexpr std::string_view algorithm = "kmeans_tile";
  static constexpr std::string_view built_in = "";
  static void read(std::istream& words, key& at, value& chosen);
  static void write(std::ostream& to, const key& at, const value& chosen);
};

class pass_tuning : public ballast::cuda::tuning_entries<pass_form> {
  using entries_type = ballast::cuda::tuning_entries<pass_form>;

 public:
  pass_tuning() = default;
  explicit pass_tuning(entries_type entries) : entries_type(std::move(entries)) {}
  static const pass_tuning& active();  // built-in entries, overridden by the user's
  static const pass_tuning& rules();   // an empty table: the rules decide
  static pass_form::key key_of(const pass_problem& what, int major) { return {major, what.f64, what.n, what.k, what.check}; }
};

class tile_tuning : public ballast::cuda::tuning_entries<tile_form> {
  using entries_type = ballast::cuda::tuning_entries<tile_form>;

 public:
  tile_tuning() = default;
  explicit tile_tuning(entries_type entries) : entries_type(std::move(entries)) {}
  static const tile_tuning& active();
  static const tile_tuning& rules();
  static tile_form::key key_of(const tile_problem& what, int major) {
    return {major, what.f64, what.n, what.k, std::string(name_of(what.scheme))};
  }
};

}  // namespace ballast::kmeans::cuda
