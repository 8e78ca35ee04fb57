// The table of the sites of the FFT, in the order in which a computation reaches them.
#include "fft/sites.hpp"

#include "inject/sites.hpp"

namespace ballast::fft::site {

namespace {

using inject::site_role;

constexpr inject::site_row k_rows[] = {
    {input, "fft.input", site_role::data, "the elements of the tile, after they were loaded and encoded"},
    {twiddle, "fft.twiddle", site_role::data,
     "the twiddle factors of one stage, or between two passes, as they are used (an odd stage without any: those of its butterfly)"},
    {stage, "fft.stage", site_role::data, "the tile after one stage of butterflies"},
    {intermediate, "fft.intermediate", site_role::data,
     "what waits in memory between two passes; in a one-pass transform, the tile before its last stage"},
    {output, "fft.output", site_role::data, "the transformed elements before they are stored"},
    {checksum, "fft.checksum", site_role::checker, "the encoded checksum"},
    {threshold, "fft.threshold", site_role::checker, "the threshold of the comparison"},
    {comparison, "fft.comparison", site_role::checker, "the outcome of the comparison"},
};

constexpr inject::site_table k_table = {"fft", output, k_rows};

const inject::registration k_registered(k_table);

}  // namespace

const inject::site_table& table() noexcept { return k_table; }

}  // namespace ballast::fft::site
