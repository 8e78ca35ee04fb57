// The table of the sites of the FFT, in the order in which a computation reaches them.
#include "fft/sites.hpp"

#include <algorithm>

#include "inject/sites.hpp"

namespace ballast::fft::site {

namespace {

using inject::site_role;

constexpr inject::site_row k_rows[] = {
    {input, site_role::data, "fft.input", "the elements of the tile, after they were loaded and encoded"},
    {twiddle, site_role::data, "fft.twiddle",
     "the twiddle factors of one stage, or between two passes, as they are used (an odd stage without any: those of its butterfly)"},
    {stage, site_role::data, "fft.stage", "the tile after one stage of butterflies"},
    {intermediate, site_role::data, "fft.intermediate",
     "what waits in memory between two passes; in a one-pass transform, the tile before its last stage"},
    {output, site_role::data, "fft.output", "the transformed elements before they are stored"},
    {checksum, site_role::checker, "fft.checksum", "the encoded checksum"},
    {threshold, site_role::checker, "fft.threshold", "the threshold of the comparison"},
    {comparison, site_role::checker, "fft.comparison", "the outcome of the comparison"},
};

constexpr inject::site_table k_table = {"fft", output, k_rows};

constexpr inject::site_row k_group_rows[] = {
    {block, site_role::data, "fft_group.block", "the numbers for another rank, after they were packed"},
    {copy, site_role::data, "fft_group.copy", "the first line of a block of another rank, after it was stored"},
    {product, site_role::data, "fft_group.product", "the products with the factors between the two steps of one dimension"},
};

constexpr inject::site_table k_group_table = {"fft_group", block, k_group_rows};

const inject::registration k_registered(k_table);

}  // namespace

const inject::site_table& table() noexcept { return k_table; }

const inject::site_table& group_table() noexcept { return k_group_table; }

bool is_of_group(inject::site one) noexcept {
  return std::ranges::any_of(k_group_rows, [&](const inject::site_row& each) { return each.site == one; });
}

}  // namespace ballast::fft::site
