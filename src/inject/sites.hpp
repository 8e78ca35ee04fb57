// The catalogue of places where faults can be injected: one row for each place, in the order in which a computation reaches them.
// Layer: foundation. `ballast info` prints it, and the tests iterate over it. A kernel strikes its sites through inject/injector.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "inject/site.hpp"

namespace ballast::inject {

// data: a fault here reaches the output if protection is off. checker: it strikes the protection itself.
// repair: as checker, but the struck code runs only after a fault was detected, so the injector adds a fault at carrier_of(operation).
enum class site_role : std::uint8_t { data, checker, repair };

struct site_row {
  inject::site site;
  std::string_view operation;  // "fft", "kmeans", "qr"; "" for every operation
  std::string_view name;
  site_role role;
  std::string_view description;
};

inline constexpr std::array k_sites = {
    site_row{site::fft_input, "fft", "fft.input", site_role::data, "the elements of the tile, after they were loaded and encoded"},
    site_row{
        site::fft_twiddle, "fft", "fft.twiddle", site_role::data,
        "the twiddle factors of one stage, or between two passes, as they are used (an odd stage without any: those of its butterfly)"},
    site_row{site::fft_stage, "fft", "fft.stage", site_role::data, "the tile after one stage of butterflies"},
    site_row{site::fft_intermediate, "fft", "fft.intermediate", site_role::data,
             "what waits in memory between two passes; in a one-pass transform, the tile before its last stage"},
    site_row{site::fft_output, "fft", "fft.output", site_role::data, "the transformed elements before they are stored"},
    site_row{site::fft_checksum, "fft", "fft.checksum", site_role::checker, "the encoded checksum"},
    site_row{site::fft_threshold, "fft", "fft.threshold", site_role::checker, "the threshold of the comparison"},
    site_row{site::fft_comparison, "fft", "fft.comparison", site_role::checker, "the outcome of the comparison"},
    site_row{site::kmeans_range, "kmeans", "kmeans.range", site_role::data,
             "the ranges and sums of the features, as the survey leaves them"},
    site_row{site::kmeans_frame, "kmeans", "kmeans.frame", site_role::data,
             "scale and shift, by which points and centroids are brought near the origin"},
    site_row{site::kmeans_tolerance, "kmeans", "kmeans.tolerance", site_role::data,
             "the shift below which a run ends: as it was computed, or while it waits"},
    site_row{site::kmeans_points, "kmeans", "kmeans.points", site_role::data,
             "a block of points after it was loaded into scratch, from which its distances are computed"},
    site_row{site::kmeans_norm, "kmeans", "kmeans.norm", site_role::data, "the squared norms of the centroids, which distances start from"},
    site_row{site::kmeans_product, "kmeans", "kmeans.product", site_role::data, "the accumulated products x·c of a block"},
    site_row{site::kmeans_minimum, "kmeans", "kmeans.minimum", site_role::data,
             "the smallest distance of each point so far, half-way through a tile of centroids"},
    site_row{site::kmeans_index, "kmeans", "kmeans.index", site_role::data, "the index of the smallest distance, as the search leaves it"},
    site_row{site::kmeans_label, "kmeans", "kmeans.label", site_role::data, "the labels of a block before they are stored and behind it"},
    site_row{site::kmeans_sum, "kmeans", "kmeans.sum", site_role::data, "the sums of the points of each cluster in one group of blocks"},
    site_row{site::kmeans_count, "kmeans", "kmeans.count", site_role::data, "the weights (counts) of each cluster in one group of blocks"},
    site_row{site::kmeans_total, "kmeans", "kmeans.total", site_role::data,
             "the sums or the weights (counts) of all clusters, before they are divided"},
    site_row{site::kmeans_centroid, "kmeans", "kmeans.centroid", site_role::data,
             "the centroids: as the division leaves them, while they wait, and on their way into the frame or out of it"},
    site_row{site::kmeans_shift, "kmeans", "kmeans.shift", site_role::data, "the summed centroid shift that decides convergence"},
    site_row{site::kmeans_inertia, "kmeans", "kmeans.inertia", site_role::data,
             "the inertia of a run, as the sum over all points leaves it"},
    site_row{site::kmeans_checksum, "kmeans", "kmeans.checksum", site_role::checker, "the checksum centroids"},
    site_row{site::kmeans_threshold, "kmeans", "kmeans.threshold", site_role::checker, "the thresholds of the checks of a block"},
    site_row{site::kmeans_comparison, "kmeans", "kmeans.comparison", site_role::checker, "the outcome of the comparisons of a block"},
    site_row{site::qr_transfer, "qr", "qr.transfer", site_role::data,
             "a panel as it arrives on the host, and what comes back from there: V and R, T (scheme hybrid)"},
    site_row{site::qr_panel, "qr", "qr.panel", site_role::data,
             "the panel before it is factored, after its entry check; of a tall one on cuda also its Gram matrices and triangular factors"},
    site_row{site::qr_reflector, "qr", "qr.reflector", site_role::data,
             "the vectors V: of a panel as it was factored, after it was verified, or when all is done"},
    site_row{site::qr_tau, "qr", "qr.tau", site_role::data, "the scalars tau of a factored panel"},
    site_row{site::qr_t, "qr", "qr.t", site_role::data, "the triangular factor T of a block reflector, before or after it was verified"},
    site_row{site::qr_product, "qr", "qr.product", site_role::data, "the product VᵀC of a trailing update or of an application of Q"},
    site_row{site::qr_trailing, "qr", "qr.trailing", site_role::data, "a block of the trailing matrix after its update"},
    site_row{site::qr_r, "qr", "qr.r", site_role::data, "the finished rows of R, before the final check"},
    site_row{site::qr_q, "qr", "qr.q", site_role::data, "a block of C while Q is applied to it (ormqr, orgqr, gels)"},
    site_row{site::qr_checksum, "qr", "qr.checksum", site_role::checker, "the checksum columns of a block before they are compared"},
    site_row{site::qr_threshold, "qr", "qr.threshold", site_role::checker, "the threshold of a comparison"},
    site_row{site::qr_comparison, "qr", "qr.comparison", site_role::checker, "the outcome of a comparison"},
    site_row{site::qr_corrector, "qr", "qr.corrector", site_role::repair, "a rebuilt element, before it is verified"},
    site_row{site::event_log, "", "event_log", site_role::repair, "an event while it waits in the log"},
};

constexpr const site_row& row_of(site wanted) { return k_sites[static_cast<std::size_t>(wanted)]; }

static_assert(
    [] {
      for (std::size_t i = 0; i < k_sites.size(); ++i) {
        if (static_cast<std::size_t>(k_sites[i].site) != i) return false;
      }
      return true;
    }(),
    "k_sites must stand in the order of the enumeration");

// Returns the site of the added fault that makes the code of a site of role repair run.
constexpr site carrier_of(std::string_view operation) {
  return operation == "fft" ? site::fft_output : operation == "kmeans" ? site::kmeans_product : site::qr_trailing;
}

}  // namespace ballast::inject
