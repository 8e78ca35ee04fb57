// The injector strikes what the plan says, once, the same for any order of visits; and the production injector is nothing.
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "kmeans/sites.hpp"
#include "qr/sites.hpp"

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
  const plan faults({flip(fft::site::stage, 1)});
  EXPECT_THROW(no_injector(&faults, fft::site::table()), unsupported_error);
  EXPECT_NO_THROW(no_injector(nullptr, fft::site::table()));
}

TEST(injector, strikes_one_word_once_whatever_the_order) {
  std::set<std::int64_t> places;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const plan faults({flip(fft::site::stage, seed)});
    fault_injector forward(&faults, fft::site::table());
    fault_injector backward(&faults, fft::site::table());
    const auto a = struck<float>(forward, fft::site::stage, 7, 5, 64);
    EXPECT_EQ(a, struck<float>(backward, fft::site::stage, 7, 5, 64, true));
    ASSERT_EQ(a.size(), 1u);
    places.insert(*a.begin());
    EXPECT_EQ(forward.fired(), 1);
    EXPECT_TRUE(struck<float>(forward, fft::site::stage, 7, 5, 64).empty()) << "a transient fault is gone at the next visit";
  }
  EXPECT_GT(places.size(), 40u) << "seeds must spread";
}

TEST(injector, leaves_other_sites_alone) {
  const plan faults({flip(fft::site::stage, 3)});
  fault_injector faulty(&faults, fft::site::table());
  EXPECT_TRUE(struck<float>(faulty, fft::site::input, 3, 3, 16).empty());
  EXPECT_EQ(faulty.fired(), 0);
}

TEST(injector, count_makes_that_many_faults) {
  request wanted = flip(fft::site::stage, 5);
  wanted.count = 4;
  const plan faults({wanted});
  fault_injector faulty(&faults, fft::site::table());
  EXPECT_EQ(struck<double>(faulty, fft::site::stage, 100, 10, 1000).size(), 4u);
}

TEST(injector, visit_and_interval_are_honoured) {
  request wanted = flip(kmeans::site::product, 5);
  wanted.visit = 2;
  wanted.interval = 3;
  const plan faults({wanted});
  fault_injector faulty(&faults, kmeans::site::table());
  EXPECT_TRUE(struck<float>(faulty, kmeans::site::product, 6, 1, 8).empty());
  EXPECT_TRUE(struck<float>(faulty, kmeans::site::product, 6, 1, 8).empty());
  const auto hit = struck<float>(faulty, kmeans::site::product, 6, 1, 8);
  ASSERT_EQ(hit.size(), 1u);
  EXPECT_EQ(*hit.begin() / 8, 3);
}

TEST(injector, every_model_changes_a_word) {
  for (std::size_t m = 0; m < k_model_names.size(); ++m) {
    request wanted;
    wanted.site = qr::site::trailing;
    wanted.model = static_cast<model>(m);
    wanted.seed = 11;
    const plan faults({wanted});
    fault_injector f32(&faults, qr::site::table()), f64(&faults, qr::site::table()), i32(&faults, qr::site::table());
    EXPECT_FALSE((struck<float>(f32, qr::site::trailing, 1, 1, 40).empty())) << k_model_names[m];
    EXPECT_FALSE((struck<double>(f64, qr::site::trailing, 1, 1, 40).empty())) << k_model_names[m];
    EXPECT_FALSE((struck<std::int32_t>(i32, qr::site::trailing, 1, 1, 40).empty())) << k_model_names[m];
  }
}

TEST(injector, stuck_at_persists_and_vector_mask_hits_a_vector) {
  request stuck = flip(fft::site::output, 2, -1);
  stuck.model = model::stuck_at;
  request mask = flip(fft::site::input, 2, 22);
  mask.model = model::vector_mask;
  const plan faults({stuck, mask});
  fault_injector faulty(&faults, fft::site::table());
  for (int round = 0; round < 3; ++round) EXPECT_EQ((struck<float>(faulty, fft::site::output, 4, 1, 32).size()), 1u);
  EXPECT_EQ((struck<float>(faulty, fft::site::input, 1, 1, 64).size()), 16u);
}

TEST(injector, a_repair_site_brings_its_carrier) {
  const plan faults({flip(qr::site::corrector, 9)});
  fault_injector faulty(&faults, qr::site::table());
  EXPECT_EQ((struck<double>(faulty, qr::site::table().carrier, 3, 1, 20).size()), 1u);
}

TEST(injector, refuses_a_site_of_another_operation) {
  const plan faults({flip(qr::site::tau, 9)});
  EXPECT_THROW(fault_injector(&faults, fft::site::table()), invalid_argument_error);
}

TEST(register_of_sites, has_every_operation_in_alphabetical_order_and_then_what_all_share) {
  ASSERT_EQ(&fft::site::table(), site_tables().at(0));
  std::vector<std::string_view> operations;
  for (const site_table* const table : site_tables()) operations.push_back(table->operation);
  EXPECT_TRUE(std::ranges::is_sorted(operations));
  const std::vector<site_row> all = sites();
  EXPECT_EQ(all.front().name, "fft.input");
  EXPECT_EQ(all.back().site, k_event_log);
  for (const site_row& row : all) EXPECT_EQ(row_of(row.site).name, row.name);
  EXPECT_THROW((void)row_of(site_of("no.where")), invalid_argument_error);
}

TEST(register_of_sites, takes_the_table_of_an_algorithm_that_is_not_in_the_library) {
  static constexpr site_row rows[] = {{site_of("mine.sum"), site_role::data, "mine.sum", "a sum"}};
  static constexpr site_table mine = {"mine", rows[0].site, rows};
  EXPECT_THROW((void)parse_request("site=mine.sum"), invalid_argument_error);
  register_sites(mine);
  EXPECT_EQ(parse_request("site=mine.sum").site, rows[0].site);
  EXPECT_EQ(row_of(rows[0].site).operation(), "mine");
  EXPECT_THROW(register_sites(mine), invalid_argument_error) << "it is registered already";
}

TEST(register_of_sites, refuses_wrong_tables) {
  const auto refused = [](std::vector<site_row> rows, site carrier) {
    try {
      register_sites({"clash", carrier, rows});
    } catch (const invalid_argument_error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const site_row first = {site_of("clash.s1122789"), site_role::data, "clash.s1122789", ""};
  const site_row second = {site_of("clash.s1339192"), site_role::data, "clash.s1339192", ""};
  const site_row check = {site_of("clash.check"), site_role::checker, "clash.check", ""};
  ASSERT_EQ(first.site, second.site) << "the hash of both names";
  EXPECT_NE(refused({first, second}, first.site).find("got that of clash.s1122789"), std::string::npos);
  EXPECT_NE(refused({first, {site_of("fft.input"), site_role::data, "fft.input", ""}}, first.site).find("begins with"), std::string::npos);
  EXPECT_NE(refused({{site_of("clash.b"), site_role::data, "clash.a", ""}}, site_of("clash.b")).find("site_of"), std::string::npos);
  EXPECT_NE(refused({first, check}, check.site).find("carrier"), std::string::npos);
  EXPECT_NE(refused({check}, first.site).find("carrier"), std::string::npos);
}

TEST(injector, is_armed_where_a_fault_waits_and_not_at_a_site_that_shares_its_bit) {
  const plan faults({flip(fft::site::stage, 1)});
  const fault_injector faulty(&faults, fft::site::table());
  EXPECT_TRUE(faulty.armed(fft::site::stage));
  EXPECT_FALSE(faulty.armed(static_cast<site>(static_cast<std::uint32_t>(fft::site::stage) + 64)));
}

TEST(parse_request, reads_what_the_help_documents_and_names_what_is_wrong) {
  const request r = parse_request("site=kmeans.product,model=nan,count=3,seed=42,bit=5,visit=1,interval=2");
  EXPECT_EQ(r.site, kmeans::site::product);
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
