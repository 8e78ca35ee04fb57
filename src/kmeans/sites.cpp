// The table of the sites of K-Means, in the order in which a computation reaches them.
#include "kmeans/sites.hpp"

#include "inject/sites.hpp"

namespace ballast::kmeans::site {

namespace {

using inject::site_role;

constexpr inject::site_row k_rows[] = {
    {range, "kmeans.range", site_role::data, "the ranges and sums of the features, as the survey leaves them"},
    {normalization, "kmeans.normalization", site_role::data, "scale and shift, by which points and centroids are brought near the origin"},
    {tolerance, "kmeans.tolerance", site_role::data, "the shift below which a run ends: as it was computed, or while it waits"},
    {points, "kmeans.points", site_role::data, "a block of points after it was loaded into scratch, from which its distances are computed"},
    {norm, "kmeans.norm", site_role::data, "the squared norms of the centroids, which distances start from"},
    {product, "kmeans.product", site_role::data, "the accumulated products x·c of a block"},
    {minimum, "kmeans.minimum", site_role::data, "the smallest distance of each point so far, half-way through a tile of centroids"},
    {index, "kmeans.index", site_role::data, "the index of the smallest distance, as the search leaves it"},
    {label, "kmeans.label", site_role::data, "the labels of a block before they are stored and behind it"},
    {sum, "kmeans.sum", site_role::data, "the sums of the points of each cluster in one group of blocks"},
    {count, "kmeans.count", site_role::data, "the weights (counts) of each cluster in one group of blocks"},
    {total, "kmeans.total", site_role::data, "the sums or the weights (counts) of all clusters, before they are divided"},
    {centroid, "kmeans.centroid", site_role::data,
     "the centroids: as the division leaves them, while they wait, and on their way into the frame or out of it"},
    {shift, "kmeans.shift", site_role::data, "the summed centroid shift that decides convergence"},
    {inertia, "kmeans.inertia", site_role::data, "the inertia of a run, as the sum over all points leaves it"},
    {checksum, "kmeans.checksum", site_role::checker, "the checksum centroids"},
    {threshold, "kmeans.threshold", site_role::checker, "the thresholds of the checks of a block"},
    {comparison, "kmeans.comparison", site_role::checker, "the outcome of the comparisons of a block"},
};

constexpr inject::site_table k_table = {"kmeans", product, k_rows};

const inject::registration k_registered(k_table);

}  // namespace

const inject::site_table& table() noexcept { return k_table; }

}  // namespace ballast::kmeans::site
