// The supervisor of strikes: a struck process that crashes, hangs, throws or damages a later call is counted as such and replaced.
#include "campaign.hpp"

#include <gtest/gtest.h>

#include <unistd.h>
#include <csignal>
#include <cstring>
#include <functional>
#include <limits>

namespace ballast::strike {
namespace {

enum class order { nothing, wrong, wrong_from_now_on, wrong_then_crash, tiny, crash, hang, fail, later, detected, spoil_shared };
order now_ordered = order::nothing;  // the effect of the next strike
bool damaged = false, crashing = false;
std::function<void()> spoil;  // damages the shared memory

// The result of its call is one number, 1.
class simple_subject final : public subject {
 public:
  void prepare(const execution&) override {}
  void reset() override {}
  report run(const call&) override {
    report said;
    if (crashing) raise(SIGKILL);
    value_ = damaged ? 5 : 1;
    switch (now_ordered) {
      case order::wrong: value_ = 2; break;
      case order::wrong_from_now_on:
        value_ = 2;
        damaged = true;
        break;
      case order::wrong_then_crash:
        value_ = 2;
        crashing = true;
        break;
      case order::tiny: value_ = 1.25; break;
      case order::crash: raise(SIGKILL); break;
      case order::hang: pause(); break;
      case order::fail: throw error("failed");
      case order::later: damaged = true; break;
      case order::detected: said.detected = 1; break;
      case order::spoil_shared:
        spoil();
        raise(SIGKILL);
        break;
      default: break;
    }
    return said;
  }
  void keep() override {}
  effect judge() override {
    effect seen;
    seen.same = value_ == 1;
    seen.add(value_ - 1, 0.5, 0.75);
    return seen;
  }
  double clean_error() const override { return 0; }
  int number_bits() const override { return 64; }

 private:
  double value_ = 0;
};

// Strike i has order i of a list, which is repeated.
class scripted_striker {
 public:
  struct shot {
    order what = order::nothing;
  };
  struct shared {
    std::atomic<bool> landed{false};
    std::atomic<int> drawn{0};
  };
  static inline std::vector<order> script;
  static inline shared* last = nullptr;
  scripted_striker(shared& of, const execution&) : shared_(of) { last = &of; }
  static call how() { return {}; }
  void ready(const std::function<void()>&) {}
  static std::string note() { return "noted"; }
  shot draw(std::mt19937_64&, double) { return {script[static_cast<std::size_t>(shared_.drawn++) % script.size()]}; }
  void arm(const shot& one) {
    now_ordered = one.what;
    shared_.landed = true;
  }
  void enter() {}
  bool leave() {
    now_ordered = order::nothing;
    return shared_.landed;
  }
  static void complete(const shared&, shot&) {}
  static bool possible(const shot& one) { return one.what >= order::nothing && one.what <= order::spoil_shared; }
  static bool changes(const shot&) { return true; }
  static bool may_write_elsewhere(const shot& one) { return one.what == order::later && looks_again; }
  static inline bool looks_again = false;
  static bool fresh_after(const shot&, outcome result) { return result != outcome::failed; }

 private:
  shared& shared_;
};

tally counts_of(std::vector<order> script, std::int64_t strikes) {
  scripted_striker::script = std::move(script);
  plan wanted;
  wanted.strikes = strikes;
  wanted.patience = 0.3;
  const auto seen = campaign<scripted_striker>("simple", std::make_unique<simple_subject>(), {}, wanted).run();
  EXPECT_EQ(seen.note, "noted");
  EXPECT_EQ(seen.stopped, "");
  tally all;
  for (const auto& each : seen.strikes) all.add(each.result);
  return all;
}

TEST(Campaign, CountsOutcomes) {
  const tally all = counts_of({order::nothing, order::wrong, order::tiny, order::detected}, 40);
  EXPECT_EQ(all.of(outcome::masked), 10);
  EXPECT_EQ(all.of(outcome::material), 10);
  EXPECT_EQ(all.of(outcome::rounding), 10);
  EXPECT_EQ(all.of(outcome::repaired), 10);
}

TEST(Campaign, GoesOnAfterCrashesAndExceptions) {
  const tally all = counts_of({order::nothing, order::crash, order::fail, order::nothing}, 12);
  EXPECT_EQ(all.strikes, 12);
  EXPECT_EQ(all.of(outcome::crashed), 3);
  EXPECT_EQ(all.of(outcome::failed), 3);
  EXPECT_EQ(all.of(outcome::masked), 6);
}

TEST(Campaign, EndsCallsThatHang) {
  const tally all = counts_of({order::nothing, order::hang}, 4);
  EXPECT_EQ(all.of(outcome::hung), 2);
  EXPECT_EQ(all.of(outcome::masked), 2);
}

TEST(Campaign, KeepsToItsTime) {
  scripted_striker::script = {order::nothing, order::hang};
  plan wanted;
  wanted.strikes = 1000;
  wanted.patience = 0.2;
  wanted.seconds = 1;
  const double began = now();
  const auto seen = campaign<scripted_striker>("simple", std::make_unique<simple_subject>(), {}, wanted).run();
  EXPECT_LT(now() - began, 10);
  EXPECT_GT(seen.strikes.size(), 0U);
  EXPECT_LT(seen.strikes.size(), 1000U);
}

// The book of the struck process, which holds `shared`; its entries follow it.
book<scripted_striker>& book_of_process() {
  static const book<scripted_striker> sample;
  const auto offset = reinterpret_cast<const char*>(&sample.under_way) - reinterpret_cast<const char*>(&sample);
  return *reinterpret_cast<book<scripted_striker>*>(reinterpret_cast<char*>(scripted_striker::last) - offset);
}
entry<scripted_striker::shot>& entry_of_process(std::int64_t i) {
  return reinterpret_cast<entry<scripted_striker::shot>*>(&book_of_process() + 1)[i];
}

// Each of these made the supervisor read or write outside of its memory, or wait for ever.
TEST(Campaign, DiscardsABookThatTheStruckProcessHasDamaged) {
  const std::function<void()> damages[] = {
      [] { book_of_process().count = std::int64_t{1} << 40; },
      [] { book_of_process().count = -5; },
      [] { book_of_process().count = 0; },
      [] { book_of_process().last = 1 << 30; },
      [] { entry_of_process(1).result = static_cast<outcome>(250); },
      [] { entry_of_process(0).result = static_cast<outcome>(77); },
      [] { entry_of_process(1).shot.what = static_cast<order>(1 << 20); },
      [] { std::memset(book_of_process().note, 'x', sizeof(book_of_process().note)); },
      [] { std::memset(book_of_process().message, 'x', sizeof(book_of_process().message)); },
      [] { book_of_process().seconds = std::numeric_limits<double>::quiet_NaN(); },
      [] { book_of_process().missed = -1; },
  };
  for (const auto& damage : damages) {
    SCOPED_TRACE(&damage - damages);
    spoil = damage;
    // The first process ends by its second strike, so that the supervisor has a copy; the next one by the damage.
    scripted_striker::script = {order::nothing, order::crash, order::wrong, order::spoil_shared, order::tiny, order::nothing};
    plan wanted;
    wanted.strikes = 5;
    wanted.patience = 0.3;
    const auto seen = campaign<scripted_striker>("simple", std::make_unique<simple_subject>(), {}, wanted).run();
    EXPECT_EQ(seen.damaged, 1);
    EXPECT_EQ(seen.stopped, "");
    EXPECT_EQ(seen.note, "noted");
    ASSERT_EQ(seen.strikes.size(), 5U);
    // The wrong result of the damaged process is left out.
    const outcome expected[] = {outcome::masked, outcome::crashed, outcome::crashed, outcome::rounding, outcome::masked};
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(seen.strikes[i].result, expected[i]) << i;
  }
}

TEST(Campaign, EndsACallWhoseBeginningIsDamaged) {
  spoil = [] {
    book_of_process().began = std::numeric_limits<double>::quiet_NaN();
    pause();
  };
  const tally all = counts_of({order::nothing, order::spoil_shared}, 4);
  EXPECT_EQ(all.of(outcome::hung), 2);
  EXPECT_EQ(all.of(outcome::masked), 2);
}

TEST(Campaign, TellsAWrongResultFromOneThatLasts) {
  scripted_striker::script = {order::wrong, order::wrong_from_now_on, order::wrong_then_crash, order::tiny};
  plan wanted;
  wanted.strikes = 4;
  const auto seen = campaign<scripted_striker>("simple", std::make_unique<simple_subject>(), {}, wanted).run();
  ASSERT_EQ(seen.strikes.size(), 4U);
  EXPECT_EQ(seen.processes, 3);
  const outcome expected[] = {outcome::material, outcome::material, outcome::material, outcome::rounding};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(seen.strikes[i].result, expected[i]) << i;
    EXPECT_EQ(seen.strikes[i].lasting, i == 1 || i == 2) << i;
  }
}

TEST(Campaign, DamageByAStrikeThatMayWriteElsewhereIsItsOutcome) {
  for (const bool looks : {false, true}) {
    scripted_striker::looks_again = looks;
    scripted_striker::script = {order::later, order::nothing};
    plan wanted;
    wanted.strikes = 2;
    const auto seen = campaign<scripted_striker>("simple", std::make_unique<simple_subject>(), {}, wanted).run();
    ASSERT_EQ(seen.strikes.size(), 2U);
    EXPECT_EQ(seen.strikes[0].result, looks ? outcome::material : outcome::masked);
    EXPECT_EQ(seen.strikes[0].lasting, looks);
    EXPECT_EQ(seen.strikes[1].result, looks ? outcome::masked : outcome::material);
  }
  scripted_striker::looks_again = false;
}

TEST(Campaign, StopsAProcessThatAlwaysEnds) {
  scripted_striker::script = {order::crash};
  plan wanted;
  wanted.strikes = 100;
  wanted.most_restarts = 5;
  const auto seen = campaign<scripted_striker>("simple", std::make_unique<simple_subject>(), {}, wanted).run();
  EXPECT_NE(seen.stopped, "");
  EXPECT_EQ(seen.strikes.size(), 6U);
}

}  // namespace
}  // namespace ballast::strike
