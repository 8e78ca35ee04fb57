// The injector strikes what the plan says, once, the same for any order of visits; and the production injector is nothing.
#include <bit>
#include <cmath>
#include <set>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "inject/injector.hpp"

namespace ballast::inject {
namespace {

request flip(site where, std::uint64_t seed, int bit = 30) {
  request made;
  made.site = where;
  made.seed = seed;
  made.bit = bit;
  return made;
}

// Visits every place of `intervals` × `steps` with `width` ones each; returns the index of the words that changed.
template <class T>
std::set<std::int64_t> struck(fault_injector& faults, site where, std::int64_t intervals, std::int64_t steps, std::int64_t width,
                              bool reversed = false) {
  std::set<std::int64_t> changed;
  for (std::int64_t v = 0; v < intervals * steps; ++v) {
    const std::int64_t p = reversed ? intervals * steps - 1 - v : v;
    std::vector<T> data(static_cast<std::size_t>(width), T(1));
    faults.strike(where, {p / steps, intervals, p % steps, steps}, data.data(), width);
    for (std::int64_t i = 0; i < width; ++i) {
      if (!(data[static_cast<std::size_t>(i)] == T(1))) changed.insert(p * width + i);
    }
  }
  return changed;
}

TEST(production_injector, has_no_state_and_refuses_a_plan) {
  EXPECT_TRUE(std::is_empty_v<no_injector>);
  EXPECT_FALSE(no_injector::enabled);
  const plan faults({flip(site::fft_stage, 1)});
  EXPECT_THROW(no_injector(&faults, "fft"), unsupported_error);
  EXPECT_NO_THROW(no_injector(nullptr, "fft"));
}

TEST(injector, strikes_one_word_once_whatever_the_order) {
  std::set<std::int64_t> places;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const plan faults({flip(site::fft_stage, seed)});
    fault_injector forward(&faults, "fft");
    fault_injector backward(&faults, "fft");
    const auto a = struck<float>(forward, site::fft_stage, 7, 5, 64);
    EXPECT_EQ(a, struck<float>(backward, site::fft_stage, 7, 5, 64, true));
    ASSERT_EQ(a.size(), 1u);
    places.insert(*a.begin());
    EXPECT_EQ(forward.fired(), 1);
    EXPECT_TRUE(struck<float>(forward, site::fft_stage, 7, 5, 64).empty()) << "a transient fault is gone at the next visit";
  }
  EXPECT_GT(places.size(), 40u) << "seeds must spread";
}

TEST(injector, leaves_other_sites_alone) {
  const plan faults({flip(site::fft_stage, 3)});
  fault_injector faulty(&faults, "fft");
  EXPECT_TRUE(struck<float>(faulty, site::fft_input, 3, 3, 16).empty());
  EXPECT_EQ(faulty.fired(), 0);
}

TEST(injector, count_makes_that_many_faults) {
  request wanted = flip(site::fft_stage, 5);
  wanted.count = 4;
  const plan faults({wanted});
  fault_injector faulty(&faults, "fft");
  EXPECT_EQ(struck<double>(faulty, site::fft_stage, 100, 10, 1000).size(), 4u);
}

TEST(injector, visit_and_interval_are_honoured) {
  request wanted = flip(site::kmeans_product, 5);
  wanted.visit = 2;
  wanted.interval = 3;
  const plan faults({wanted});
  fault_injector faulty(&faults, "kmeans");
  EXPECT_TRUE(struck<float>(faulty, site::kmeans_product, 6, 1, 8).empty());
  EXPECT_TRUE(struck<float>(faulty, site::kmeans_product, 6, 1, 8).empty());
  const auto hit = struck<float>(faulty, site::kmeans_product, 6, 1, 8);
  ASSERT_EQ(hit.size(), 1u);
  EXPECT_EQ(*hit.begin() / 8, 3);
}

TEST(injector, every_model_changes_a_word) {
  for (std::size_t m = 0; m < k_model_names.size(); ++m) {
    request wanted;
    wanted.site = site::qr_trailing;
    wanted.model = static_cast<model>(m);
    wanted.seed = 11;
    const plan faults({wanted});
    fault_injector f32(&faults, "qr"), f64(&faults, "qr"), i32(&faults, "qr");
    EXPECT_FALSE((struck<float>(f32, site::qr_trailing, 1, 1, 40).empty())) << k_model_names[m];
    EXPECT_FALSE((struck<double>(f64, site::qr_trailing, 1, 1, 40).empty())) << k_model_names[m];
    EXPECT_FALSE((struck<std::int32_t>(i32, site::qr_trailing, 1, 1, 40).empty())) << k_model_names[m];
  }
}

TEST(injector, stuck_at_persists_and_vector_mask_hits_a_vector) {
  request stuck = flip(site::fft_output, 2, -1);
  stuck.model = model::stuck_at;
  request mask = flip(site::fft_input, 2, 22);
  mask.model = model::vector_mask;
  const plan faults({stuck, mask});
  fault_injector faulty(&faults, "fft");
  for (int round = 0; round < 3; ++round) EXPECT_EQ((struck<float>(faulty, site::fft_output, 4, 1, 32).size()), 1u);
  EXPECT_EQ((struck<float>(faulty, site::fft_input, 1, 1, 64).size()), 16u);
}

TEST(injector, a_repair_site_brings_its_carrier) {
  const plan faults({flip(site::qr_corrector, 9)});
  fault_injector faulty(&faults, "qr");
  EXPECT_EQ((struck<double>(faulty, carrier_of("qr"), 3, 1, 20).size()), 1u);
}

TEST(injector, refuses_a_site_of_another_operation) {
  const plan faults({flip(site::qr_tau, 9)});
  EXPECT_THROW(fault_injector(&faults, "fft"), invalid_argument_error);
}

TEST(parse_request, reads_what_the_help_documents_and_names_what_is_wrong) {
  const request r = parse_request("site=kmeans.product,model=nan,count=3,seed=42,bit=5,visit=1,interval=2");
  EXPECT_EQ(r.site, site::kmeans_product);
  EXPECT_EQ(r.model, model::nan);
  EXPECT_EQ(r.count, 3);
  EXPECT_EQ(r.seed, 42u);
  EXPECT_EQ(r.bit, 5);
  EXPECT_EQ(r.visit, 1);
  EXPECT_EQ(r.interval, 2);
  for (const char* bad : {"", "model=nan", "site=nowhere", "site=fft.stage,model=evil", "site=fft.stage,count=0", "site=fft.stage,count=x",
                          "site=fft.stage,bit=64", "site=fft.stage,colour=red", "site"})
    EXPECT_THROW(parse_request(bad), invalid_argument_error) << bad;
}

}  // namespace
}  // namespace ballast::inject
