// The stage `strike` of every algorithm: a campaign at each subject, with and without protection, and rows of what became of it.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include <ballast/error.hpp>

#include "../../strike/campaign.hpp"
#include "algorithm.hpp"
#include "cuda/system/installation.hpp"
#include "output.hpp"
#include "strike/kernels.hpp"
#include "strike/striker.hpp"
#include "support/bound.hpp"

namespace ballast::gpu_check {
namespace {

namespace fs = std::filesystem;
using strike::k_outcomes;
using strike::outcome;

constexpr double k_patience = 20;         // seconds; a first call loads its kernels
constexpr int k_most_restarts = 60;       // processes that are started for a subject after the first; each takes some seconds
constexpr std::size_t k_places = 40;      // rows of places, the most frequent first
constexpr double k_shown = 0.25;          // floors of a hit below the floor that has a row of its own
constexpr std::size_t k_most_hits = 400;  // rows of single hits

// Strikes nothing: for the stage itself, where there is no GPU.
class idle_striker {
 public:
  struct shot {
    gpu_striker::way drawn{};
    char place[1] = {};
  };
  struct shared {
    std::atomic<bool> landed{false};
  };
  idle_striker(shared& of, const execution&) : shared_(of) {}
  static call how() { return {.throw_on_uncorrectable = false}; }
  void ready(const std::function<void()>& call) { call(); }
  static std::string note() { return {}; }
  static shot draw(std::mt19937_64&, double) { return {}; }
  void arm(const shot&) { shared_.landed = true; }
  void enter() {}
  bool leave() { return shared_.landed; }
  static void complete(const shared&, shot&) {}
  static bool possible(const shot& one) { return one.drawn <= gpu_striker::way::instructions && one.place[0] == '\0'; }
  static bool changes(const shot&) { return false; }
  static bool may_write_elsewhere(const shot&) { return false; }
  static bool fresh_after(const shot&, outcome) { return true; }

 private:
  shared& shared_;
};

constexpr const char* key_of(outcome value) {
  constexpr const char* names[k_outcomes] = {"masked",  "repaired", "wrong",    "uncorrectable", "failed",
                                             "crashed", "hung",     "rounding", "below_floor",   "material"};
  return names[static_cast<std::size_t>(value)];
}

struct place_counts {
  std::array<std::int64_t, k_outcomes> of{};
  double most = 0;
  std::int64_t bad() const {
    std::int64_t sum = 0;
    for (const outcome each :
         {outcome::material, outcome::wrongly_repaired, outcome::uncorrectable, outcome::failed, outcome::crashed, outcome::hung})
      sum += of[static_cast<std::size_t>(each)];
    return sum;
  }
};

template <class Shot>
void print_hits(const std::string& name, const std::vector<strike::entry<Shot>>& strikes) {
  std::map<std::string, place_counts> places;
  std::size_t hits = 0;
  for (const auto& each : strikes) {
    place_counts& to = places[each.shot.place];
    ++to.of[static_cast<std::size_t>(each.result)];
    const bool silent = each.result == outcome::below_floor || each.result == outcome::material;
    if (silent) to.most = std::max(to.most, each.change.floors);
    const bool calm = each.result == outcome::masked || each.result == outcome::repaired || each.result == outcome::rounding;
    if (calm || (each.result == outcome::below_floor && each.change.floors < k_shown) || ++hits > k_most_hits) continue;
    row line("strike hit");
    line.add("token", name).add("outcome", key_of(each.result)).add("floors", each.change.floors).add("roundings", each.change.roundings);
    if constexpr (std::is_same_v<Shot, gpu_striker::shot>)
      line.add("launch", each.shot.launch)
          .add("thread", each.shot.order.thread)
          .add("bits_32", each.shot.order.mask_32)
          .add("bits_64", each.shot.order.mask_64);
    line.add("drawn", each.shot.drawn == gpu_striker::way::executed ? "executed" : "instructions").add("site", each.shot.place).print();
  }
  std::vector<std::pair<std::string, place_counts>> order(places.begin(), places.end());
  std::erase_if(order, [](const auto& each) { return each.second.bad() == 0; });
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second.bad() > b.second.bad(); });
  for (std::size_t i = 0; i < std::min(order.size(), k_places); ++i) {
    row line("strike place");
    line.add("token", name);
    for (int k = 0; k < k_outcomes; ++k) line.add(key_of(static_cast<outcome>(k)), order[i].second.of[static_cast<std::size_t>(k)]);
    line.add("floors", order[i].second.most).add("site", order[i].first).print();
  }
}

// Returns the number of failed checks.
template <class Striker>
int strike_subject(const std::string& name, protection guard, std::int64_t strikes, std::uint64_t seed, double seconds) {
  const bool off = guard == protection::off, idle = std::is_same_v<Striker, idle_striker>;
  strike::plan plan;
  plan.strikes = strikes;
  plan.seed = seed;
  plan.seconds = seconds;
  plan.progress = true;
  plan.patience = k_patience;
  plan.most_restarts = k_most_restarts;
  row line("strike");
  line.add("token", name).add("protection", to_string(guard));
  strike::record<typename Striker::shot> seen;
  try {
    auto struck = strike::make_subject(name, tested);
    gpu_striker::wanted.small = struck->number_bits() == 32;
    seen = strike::campaign<Striker>(name, std::move(struck), {.backend = tested, .protection = guard}, plan).run();
  } catch (const std::exception& e) {
    line.add("pass", false).add("wrong", e.what()).print();
    return 1;
  }
  strike::tally all;
  std::array<std::int64_t, 2> silent{}, drawn{};
  std::set<std::string> places;
  double most = 0;
  for (const auto& each : seen.strikes) {
    all.add(each.result);
    const auto way = static_cast<std::size_t>(each.shot.drawn);
    ++drawn[way];
    places.insert(each.shot.place);
    if (each.result != outcome::material) continue;
    ++silent[way];
    most = std::max(most, each.change.floors);
  }
  line.add("strikes", all.strikes).add("missed", seen.missed);
  for (int i = 0; i < k_outcomes; ++i) line.add(key_of(static_cast<outcome>(i)), all.outcomes[static_cast<std::size_t>(i)]);
  line.add("bound_99", test::bound_99(all.of(outcome::material), all.strikes)).add("most_floors", most);
  line.add("executed", drawn[0]).add("executed_material", silent[0]).add("instructions", drawn[1]).add("instructions_material", silent[1]);
  line.add("places", places.size())
      .add("clean_error", seen.clean_error)
      .add("processes", seen.processes)
      .add("damaged", seen.damaged)
      .add("call_ms", 1e3 * seen.call_seconds);
  line.add("seconds", seen.seconds);
  if (!seen.note.empty()) line.add("not_struck", seen.note);
  if (!seen.stopped.empty()) line.add("stopped", seen.stopped);
  const std::int64_t bad = all.of(outcome::material) + all.of(outcome::wrongly_repaired) + all.of(outcome::uncorrectable) +
                           all.of(outcome::failed) + all.of(outcome::crashed) + all.of(outcome::hung);
  // Without protection strikes must reach the output, otherwise nothing was struck.
  const bool pass = all.strikes > 0 && seen.stopped.empty() && (idle || (off ? all.of(outcome::material) > 0 : bad == 0));
  line.add("pass", pass).print();
  if (!off) print_hits(name, seen.strikes);
  if (all.strikes < strikes) row("skipped").add("stage", "strike").add("token", name).add("cases", strikes - all.strikes).print();
  return pass ? 0 : 1;
}

// Finds the kernels of a subject in the bundle, or in one that an earlier process of this run has made; else compiles them, on all cores.
std::vector<struck_kernel> kernels_for(const algorithm& of, const std::string& name, const fs::path& made_before) {
  const cuda::capabilities about = cuda::current_device()->about();
  const std::string architecture = cuda::runnable_architectures(about.major, about.minor).front();
  const cuda::bundle bundled(cuda::bundle_file().file), before(made_before);
  const auto requests = strike_requests(of, {name}, about);
  std::vector<std::optional<struck_kernel>> found(requests.size());
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    found[i] = find_struck_kernel(bundled, requests[i], architecture);
    if (!found[i]) found[i] = find_struck_kernel(before, requests[i], architecture);
    if (!found[i]) missing.push_back(i);
  }
  std::atomic<std::size_t> next{0};
  std::exception_ptr failed;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::min<std::size_t>(missing.size(), std::max(1u, std::thread::hardware_concurrency())); ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < missing.size(); i = next++) {
          try {
            found[missing[i]] = make_struck_kernel(requests[missing[i]], architecture, !assembler().empty());
          } catch (const unsupported_error&) {
            // Without a compiler the kernel is left out. If a call loads it, it runs as it is, and the row names it.
          } catch (...) {
            const std::lock_guard lock(mutex);
            failed = std::current_exception();
          }
        }
      });
    }
  }
  if (failed) std::rethrow_exception(failed);
  std::vector<struck_kernel> made;
  std::vector<cuda::image> entries;
  for (std::optional<struck_kernel>& each : found) {
    if (!each) continue;
    for (cuda::image& one : entries_of(*each)) entries.push_back(std::move(one));
    made.push_back(std::move(*each));
  }
  if (!missing.empty()) cuda::write_bundle(made_before, entries);
  return made;
}

}  // namespace

std::vector<std::string> in_both_precisions(std::initializer_list<std::string_view> subjects, bool quick) {
  std::vector<std::string> made;
  for (const char* type : {"f32", "f64"}) {
    for (std::string each : std::vector<std::string>(subjects.begin(), subjects.end())) {
      each.replace(each.find('%'), 1, type);
      made.push_back(each);
    }
  }
  if (quick) made.resize(1);
  return made;
}

int strike(const algorithm& of, const settings& wanted, const time_limit& limit) {
  const std::vector<std::string> names = wanted.tokens.empty() ? of.strike_set(wanted.quick) : wanted.tokens;
  const scratch_folder folder;
  int failed = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    gpu_striker::wanted.kernels = [&of, &name, made = folder / (std::to_string(i) + ".bundle")] { return kernels_for(of, name, made); };
    for (const protection guard : {protection::correct, protection::off}) {
      const bool off = guard == protection::off;
      const double left = limit.left() / static_cast<double>(names.size() - i);
      if (left < 1) {
        row("skipped").add("stage", "strike").add("token", name).add("cases", wanted.strikes).print();
        continue;
      }
      const std::int64_t strikes = off ? std::max<std::int64_t>(wanted.strikes / 40, 1) : wanted.strikes;
      failed += tested == backend::cuda ? strike_subject<gpu_striker>(name, guard, strikes, wanted.seed, left * (off ? 1 : 0.9))
                                        : strike_subject<idle_striker>(name, guard, strikes, wanted.seed, left * (off ? 1 : 0.9));
    }
  }
  return failed;
}

}  // namespace ballast::gpu_check
