// The tuning table of QR: how work is divided into panels, thread blocks and launches, by architecture and precision.
// Layer: backend "cuda" of QR. The built-in entries hold for every architecture without entries of its own; a user's own table is read from
// the cache folder.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <utility>

#include "cuda/tuning/tuning_table.hpp"
#include "qr/cuda/kernels/kernels.hpp"

namespace ballast::qr::cuda {

// The tuned choices. Their names in the table are those of the enumerators; the numbers of each are the members of launch_choices.
enum class tuned : std::uint8_t { scan, chunk_rows, team_rows, tall_rows, one_panel, panel_steps };
inline constexpr int k_tuned_count = 6;

// "qr sm_90 f32 team_rows 0 192 1536 4096 1": architecture, precision, choice, its numbers, gain.
struct choice_form {
  static constexpr int k_most_numbers = 4;
  struct key {
    int major = 0;
    bool wide = false;
    tuned what = tuned::scan;

    auto operator<=>(const key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 means the implicit code
  };
  struct value {
    std::array<std::int64_t, k_most_numbers> numbers{};
    double gain = 1;
    bool operator==(const value&) const = default;
  };
  static constexpr std::string_view algorithm = "qr";
  // Measured on an NVIDIA H100 80GB HBM3: docs/design/qr-cuda.md.
  static constexpr std::string_view built_in =
      "qr sm_90 f32 scan 4096 2048 1\n"
      "qr sm_90 f32 chunk_rows 256 1\n"
      "qr sm_90 f32 team_rows 0 192 1536 4096 1\n"
      "qr sm_90 f32 tall_rows 128 1\n"
      "qr sm_90 f32 one_panel 128 1\n"
      "qr sm_90 f32 panel_steps 192 512 2048 1\n"
      "qr sm_90 f64 scan 4096 2048 1\n"
      "qr sm_90 f64 chunk_rows 256 1\n"
      "qr sm_90 f64 team_rows 0 192 1536 4096 1\n"
      "qr sm_90 f64 tall_rows 128 1\n"
      "qr sm_90 f64 one_panel 128 1\n"
      "qr sm_90 f64 panel_steps 192 512 2048 1\n";
  static void read(std::istream& words, key& at, value& chosen);
  static void write(std::ostream& to, const key& at, const value& chosen);
};

// The choices for one architecture and precision.
struct launch_choices {
  // Norms of columns: the rows that one thread block reads at least, and the blocks that keep the memory of all multiprocessors busy.
  std::int64_t scan_rows = 0, scan_blocks = 0;
  // VᵀV: the rows that one thread block sums at least.
  std::int64_t chunk_rows = 0;
  // A panel with more rows than team_rows[t] is factored by k_clusters[t] or a larger cluster. With fewer rows, a block of that cluster
  // waits for the others longer than it computes.
  std::int64_t team_rows[k_cluster_count] = {};
  // From this number of rows on, a panel wider than k_inner is computed by passes of the whole device over its rows.
  std::int64_t tall_rows = 0;
  // With at least this number of rows for each column, a narrow matrix is a single panel: it then needs no update, and no check of one.
  std::int64_t one_panel = 0;
  // From so many steps on: panels of 64 columns; the widest panels if they are tall; the widest panels.
  std::int64_t medium_steps = 0, wide_tall_steps = 0, wide_steps = 0;
};

class choice_table : public ballast::cuda::tuning_entries<choice_form> {
  using entries_type = ballast::cuda::tuning_entries<choice_form>;

 public:
  choice_table() = default;
  explicit choice_table(entries_type entries) : entries_type(std::move(entries)) {}
  static const choice_table& active();  // the built-in entries, overridden by the user's

  launch_choices choices_for(int major, bool wide) const;
};

}  // namespace ballast::qr::cuda
