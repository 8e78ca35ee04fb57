// The table of the sites of K-Means, in the order in which a computation reaches them.
#include "kmeans/sites.hpp"

#include "inject/sites.hpp"

namespace ballast::kmeans::site {

namespace {

using inject::site_role;

constexpr inject::site_row k_rows[] = {
    {range, site_role::data, "kmeans.range", "the ranges and sums of the features, as the column_stats leaves them"},
    {normalization, site_role::data, "kmeans.normalization", "scale and shift, by which points and centroids are brought near the origin"},
    {tolerance, site_role::data, "kmeans.tolerance", "the shift below which a run ends: as it was computed, or while it waits"},
    {points, site_role::data, "kmeans.points", "a block of points after it was loaded into scratch, from which its distances are computed"},
    {norm, site_role::data, "kmeans.norm", "the squared norms of the centroids, which distances start from"},
    {product, site_role::data, "kmeans.product",
     "the accumulated products x·c of a block; of transform also its distances before they are stored"},
    {minimum, site_role::data, "kmeans.minimum", "the smallest distance of each point so far, half-way through a tile of centroids"},
    {index, site_role::data, "kmeans.index", "the index of the smallest distance, as the search leaves it"},
    {label, site_role::data, "kmeans.label", "the labels of a block before they are stored and behind it"},
    {sum, site_role::data, "kmeans.sum", "the sums of the points of each cluster in one group of blocks"},
    {count, site_role::data, "kmeans.count", "the weights (counts) of each cluster in one group of blocks"},
    {total, site_role::data, "kmeans.total", "the sums or the weights (counts) of all clusters, before they are divided"},
    {centroid, site_role::data, "kmeans.centroid",
     "the centroids: as the division leaves them, while they wait, and on their way into the normalization or out of it"},
    {shift, site_role::data, "kmeans.shift", "the summed centroid shift that decides convergence"},
    {inertia, site_role::data, "kmeans.inertia", "the inertia of a run, as the sum over all points leaves it"},
    {checksum, site_role::checker, "kmeans.checksum", "the checksum centroids"},
    {threshold, site_role::checker, "kmeans.threshold", "the thresholds of the checks of a block"},
    {comparison, site_role::checker, "kmeans.comparison", "the outcome of the comparisons of a block"},
};

constexpr inject::site_table k_table = {"kmeans", product, k_rows};

const inject::registration k_registered(k_table);

constexpr inject::site_row k_mini_batch_rows[] = {
    {mini_batch::points, site_role::data, "mini_batch.points", "the copy of the points that were drawn for a step, or for a start"},
    {mini_batch::reassignment, site_role::data, "mini_batch.reassignment",
     "the centroids, and then their weights, after some went to points of the batch"},
    {mini_batch::progress, site_role::data, "mini_batch.progress", "the smoothed inertia, and what else decides whether a fit ends"},
};

constexpr inject::site_table k_mini_batch_table = {"mini_batch", mini_batch::points, k_mini_batch_rows};

const inject::registration k_mini_batch_registered(k_mini_batch_table);

}  // namespace

const inject::site_table& table() noexcept { return k_table; }
const inject::site_table& mini_batch::table() noexcept { return k_mini_batch_table; }

}  // namespace ballast::kmeans::site
