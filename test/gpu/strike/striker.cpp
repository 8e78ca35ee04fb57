// Draws strikes at a GPU's kernels, and reads where they hit. See striker.hpp.
#include "strike/striker.hpp"

#include <algorithm>
#include <cstring>

#include <ballast/error.hpp>

#include "../../../bench/gpu.hpp"
#include "support/fft_data.hpp"

namespace ballast::gpu_check {
namespace {

constexpr std::size_t k_most_counts = 400;  // calls that count instructions, if there are many launches
constexpr std::size_t k_threads_counted = 8;
constexpr int k_attempts = 40;  // to find a site that some thread executes

std::uint64_t below(std::mt19937_64& random, std::uint64_t count) {
  return std::uniform_int_distribution<std::uint64_t>(0, count - 1)(random);
}

}  // namespace

gpu_striker::gpu_striker(shared& of, const execution&) : shared_(of) {
  (void)bench::gpu::open();
  on_ = std::make_unique<struck_device>(wanted.kernels());
  current_ = std::make_unique<test::current_device_guard>(on_->device());
}

call gpu_striker::how() const { return test::quiet_call(bench::gpu::stream()); }

std::uint64_t gpu_striker::thread_of(std::mt19937_64& random, std::size_t launch) const {
  return below(random, static_cast<std::uint64_t>(launches_[launch].blocks) * launches_[launch].threads);
}

// Makes a call with an order that changes nothing.
std::optional<strike_control> gpu_striker::asked(std::size_t launch, const strike_control& order) {
  on_->arm(launch, order);
  call_();
  bench::gpu::synchronize();
  const auto got = on_->answer();
  on_->disarm();
  return got;
}

void gpu_striker::ready(const std::function<void()>& call) {
  call_ = call;
  on_->disarm();
  call_();
  bench::gpu::synchronize();
  launches_ = on_->launches();
  if (launches_.empty()) throw error("no launch of a kernel that can be struck was seen");
  std::mt19937_64 random(1);
  const std::size_t threads = std::clamp<std::size_t>(k_most_counts / launches_.size(), 2, k_threads_counted);
  std::vector<double> weights;
  launches_of_.resize(on_->kernels().size());
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    launches_of_[launches_[i].kernel].push_back(i);
    std::uint32_t most = 0;
    for (std::size_t k = 0; k < threads; ++k) {
      strike_control order;
      order.thread = k == 0 ? 0 : thread_of(random, i);  // the first thread often does what others do not
      if (const auto got = asked(i, order)) most = std::max(most, got->executed);
    }
    longest_.push_back(most);
    weights.push_back(static_cast<double>(most) * static_cast<double>(launches_[i].blocks) * launches_[i].threads);
  }
  if (std::ranges::all_of(longest_, [](std::uint32_t each) { return each == 0; })) throw error("no thread counted an instruction");
  launch_of_ = std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
  for (std::size_t k = 0; k < launches_of_.size(); ++k) {
    if (launches_of_[k].empty()) continue;
    for (std::size_t s = 1; s <= on_->kernels()[k].sites.size(); ++s) sites_.push_back({k, static_cast<std::uint32_t>(s)});
  }
}

std::string gpu_striker::note() const {
  std::string made;
  for (const std::string& each : on_->others()) made += (made.empty() ? "" : "; ") + each;
  return made;
}

// Three of four strikes hit the exponent, the sign or the six upper bits of the mantissa; the others hit any bit.
void gpu_striker::draw_bit(std::mt19937_64& random, strike_control& order) const {
  const bool large = below(random, 4) != 0;
  const int bit = large ? 17 + static_cast<int>(below(random, 15)) : static_cast<int>(below(random, 32));
  order.mask_32 = std::uint32_t{1} << bit;
  const int wide = large ? 46 + static_cast<int>(below(random, 18)) : static_cast<int>(below(random, 64));
  // A register of 64 bits holds a double, or in single precision often two adjacent numbers.
  const bool pair = wanted.small && below(random, 2) == 0;
  order.mask_64 = pair ? static_cast<std::uint64_t>(order.mask_32) << (below(random, 2) * 32) : std::uint64_t{1} << wide;
}

// Draws a site and finds a thread that executes it. Returns false if none was found in some attempts. Forgets sites that no launch
// executes.
bool gpu_striker::draw_site(std::mt19937_64& random, shot& one) {
  if (again_) {
    one = *again_;
    again_.reset();
    return true;
  }
  for (int attempt = 0; attempt < k_attempts && !sites_.empty(); ++attempt) {
    const std::size_t which = below(random, sites_.size());
    const site_at at = sites_[which];
    std::vector<std::size_t> launches = launches_of_[at.kernel];
    std::ranges::shuffle(launches, random);
    if (launches.size() > 3) launches.resize(3);
    for (const std::size_t launch : launches) {
      strike_control order;
      order.wanted = at.site;
      order.key = 1 + static_cast<std::uint32_t>(below(random, 0xffffffff));
      const auto got = asked(launch, order);
      if (!got || got->found == 0) continue;
      one.drawn = way::instructions;
      one.launch = static_cast<std::uint32_t>(launch);
      one.order.thread = got->found_thread();
      one.order.wanted = at.site;
      one.order.executed = got->found_executions();
      again_ = one;
      return true;
    }
    if (launches.size() == launches_of_[at.kernel].size()) {
      sites_[which] = sites_.back();
      sites_.pop_back();
    }
  }
  return false;
}

gpu_striker::shot gpu_striker::draw(std::mt19937_64& random, double) {
  shot one;
  executed_next_ = !executed_next_;
  if (!executed_next_ && draw_site(random, one)) {
    one.order.target = 1 + static_cast<std::uint32_t>(below(random, one.order.executed));
    one.order.executed = 0;
  } else {
    const std::size_t launch = launch_of_(random);
    one.launch = static_cast<std::uint32_t>(launch);
    one.order.thread = thread_of(random, launch);
    one.order.target = 1 + static_cast<std::uint32_t>(below(random, longest_[launch]));
  }
  draw_bit(random, one.order);
  return one;
}

// Until the end of the call is seen, the strike counts as one that happened: if it hangs, or the device fails, there is no answer.
void gpu_striker::arm(const shot& one) {
  armed_ = one.launch;
  const struck_kernel& kernel = on_->kernels()[launches_[armed_].kernel];
  strike::put(shared_.place, short_name(kernel) + ": " + (one.order.wanted > 0 ? kernel.sites[one.order.wanted - 1] : "?"));
  shared_.landed = true;
  striking_ = true;
  on_->arm(one.launch, one.order);
}

bool gpu_striker::leave() {
  bench::gpu::synchronize();
  if (!striking_) return false;
  striking_ = false;
  const auto answer = on_->answer();
  on_->disarm();
  shared_.landed = answer && answer->site != 0;
  if (!shared_.landed) return false;
  const struck_kernel& kernel = on_->kernels()[launches_[armed_].kernel];
  strike::put(shared_.place, short_name(kernel) + ": " + kernel.sites[answer->site - 1]);
  return true;
}

void gpu_striker::complete(const shared& of, shot& one) { std::memcpy(one.place, of.place, k_place); }

}  // namespace ballast::gpu_check
