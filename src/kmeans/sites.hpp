// The sites of K-Means: positions where the injector can strike it. sites.cpp describes them.
// Layer: K-Means, for host and device code.
#pragma once

#include "inject/site.hpp"

namespace ballast::kmeans::site {

inline constexpr inject::site range = inject::site_of("kmeans.range");
inline constexpr inject::site normalization = inject::site_of("kmeans.normalization");
inline constexpr inject::site tolerance = inject::site_of("kmeans.tolerance");
inline constexpr inject::site points = inject::site_of("kmeans.points");
inline constexpr inject::site norm = inject::site_of("kmeans.norm");
inline constexpr inject::site product = inject::site_of("kmeans.product");
inline constexpr inject::site minimum = inject::site_of("kmeans.minimum");
inline constexpr inject::site index = inject::site_of("kmeans.index");
inline constexpr inject::site label = inject::site_of("kmeans.label");
inline constexpr inject::site sum = inject::site_of("kmeans.sum");
inline constexpr inject::site count = inject::site_of("kmeans.count");
inline constexpr inject::site total = inject::site_of("kmeans.total");
inline constexpr inject::site centroid = inject::site_of("kmeans.centroid");
inline constexpr inject::site shift = inject::site_of("kmeans.shift");
inline constexpr inject::site inertia = inject::site_of("kmeans.inertia");
inline constexpr inject::site checksum = inject::site_of("kmeans.checksum");
inline constexpr inject::site threshold = inject::site_of("kmeans.threshold");
inline constexpr inject::site comparison = inject::site_of("kmeans.comparison");

// The table of these sites, for inject::active_injector; it is in the register (inject/sites.hpp).
const inject::site_table& table() noexcept;

// The sites of mini-batches beside those of K-Means.
namespace mini_batch {
inline constexpr inject::site points = inject::site_of("mini_batch.points");
inline constexpr inject::site reassignment = inject::site_of("mini_batch.reassignment");
inline constexpr inject::site progress = inject::site_of("mini_batch.progress");

const inject::site_table& table() noexcept;
}  // namespace mini_batch

}  // namespace ballast::kmeans::site
