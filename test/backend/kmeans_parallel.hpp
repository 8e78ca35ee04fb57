// Faults in the choice of first centroids by k-means‖: of points in a matrix and in compressed rows.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "backend/kmeans_cases.hpp"
#include "inject/plan.hpp"
#include "kmeans/sites.hpp"

namespace ballast::kmeans {

// Expects that a fault in any step is repaired, and that it matters without protection. run(faults, level): a fit with these faults.
template <class T, class Run>
void expect_steps_protected(const Run& run, std::uint64_t seeds) {
  const auto same = [](const model<T>& a, const model<T>& b) {
    return a.labels == b.labels && a.inertia == b.inertia &&
           std::equal(a.centroids.data(), a.centroids.data() + a.centroids.size(), b.centroids.data());
  };
  const auto clean = run(nullptr, protection::correct);
  ASSERT_EQ(clean.report.verdict, verdict::clean);
  for (const auto where : {kmeans::site::product, kmeans::site::minimum, kmeans::site::index, kmeans::site::label, kmeans::site::count}) {
    int changed = 0, detected = 0;
    for (std::size_t model = 0; model < inject::k_model_names.size(); ++model) {
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const std::uint64_t number = 20 * seed + model;
        inject::request fault = fault_at(where, static_cast<inject::model>(model), number,
                                         where == kmeans::site::count ? 0 : static_cast<std::int64_t>(seed + model) % 3);
        // In a number of a list, the fault changes a bit that makes it another number of the list.
        if (fault.bit >= 0 && where == kmeans::site::index) fault.bit = 1;
        if (fault.bit >= 0 && where == kmeans::site::label) fault.bit = 9;
        const inject::plan faults({fault});
        SCOPED_TRACE(std::string(inject::k_model_names[model]) + " seed " + std::to_string(seed) + " site " +
                     std::to_string(static_cast<int>(where)));
        const auto found = run(&faults, protection::correct);
        detected += found.report.detected > 0;
        if (found.report.verdict != verdict::uncorrectable) {
          EXPECT_TRUE(same(found, clean)) << to_json(found.report);
        }
        const bool matters = !same(run(&faults, protection::off), clean);
        changed += matters;
        if (found.report.detected == 0) {
          EXPECT_FALSE(matters);
        }
      }
    }
    EXPECT_GT(detected, 0) << static_cast<int>(where);
    EXPECT_GT(changed, 0) << static_cast<int>(where) << ": with protection off no fault reached the output";
  }
}

}  // namespace ballast::kmeans
