// The supervisor of strikes: a struck process that crashes, hangs, throws or damages a later call is counted as such and replaced.
#include "campaign.hpp"

#include <gtest/gtest.h>

#include <unistd.h>
#include <csignal>

namespace ballast::strike {
namespace {

enum class order { nothing, wrong, tiny, crash, hang, fail, later, detected };
order now_ordered = order::nothing;  // the effect of the next strike
bool damaged = false;

// The result of its call is one number, 1.
class simple_subject final : public subject {
 public:
  void prepare(const execution&) override {}
  void reset() override {}
  report run(const call&) override {
    report said;
    value_ = damaged ? 5 : 1;
    switch (now_ordered) {
      case order::wrong: value_ = 2; break;
      case order::tiny: value_ = 1.25; break;
      case order::crash: raise(SIGKILL); break;
      case order::hang: pause(); break;
      case order::fail: throw error("failed");
      case order::later: damaged = true; break;
      case order::detected: said.detected = 1; break;
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
  scripted_striker(shared& of, const execution&) : shared_(of) {}
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
  static bool changes(const shot&) { return true; }
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
