// Strikes at data of a GPU's kernels: the Striker of a campaign (strike/campaign.hpp) on the cuda backend.
// Layer: test program.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ballast/execution.hpp>

#include "../../strike/outcome.hpp"
#include "strike/kernels.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {

// The subject, as far as a gpu_striker must know it.
struct struck_subject {
  std::function<std::vector<struck_kernel>()> kernels;  // makes its kernels
  bool small = false;                                   // its numbers have 32 bits
};

class gpu_striker {
 public:
  // How the instruction is drawn. executed: weighted by execution; of one launch of the call, one thread of its grid, one of the
  // instructions that this thread executes, loops counted through. instructions: uniformly over the instructions of the kernels that the
  // call launches; then one launch that executes it, one of the threads that do, and one of its executions.
  enum class way : std::uint8_t { executed, instructions };
  static constexpr std::size_t k_place = 384;

  struct shot {
    way drawn = way::executed;
    std::uint32_t launch = 0;
    strike_control order;
    char place[k_place] = {};  // the kernel, a colon, the instruction, a tab, its lines
  };
  struct shared {
    std::atomic<bool> landed{false};
    char place[k_place] = {};
  };
  // Set before the first campaign.
  static inline struck_subject wanted = {};

  gpu_striker(shared& of, const execution&);
  call how() const;
  void ready(const std::function<void()>& call);
  std::string note() const;  // the loaded kernels that cannot be struck
  shot draw(std::mt19937_64& random, double seconds);
  void arm(const shot& one);
  void enter() {}
  bool leave();
  static void complete(const shared& of, shot& one);
  static bool possible(const shot& one) { return one.drawn <= way::instructions && strike::has_end(one.place); }
  static bool changes(const shot&) { return true; }
  static bool may_write_elsewhere(const shot&) { return false; }
  // After an exception the device may be unusable.
  static bool fresh_after(const shot&, strike::outcome result) { return result != strike::outcome::failed; }

 private:
  struct site_at {
    std::size_t kernel;
    std::uint32_t site;
  };
  std::uint64_t thread_of(std::mt19937_64& random, std::size_t launch) const;
  std::optional<strike_control> asked(std::size_t launch, const strike_control& order);
  void draw_bit(std::mt19937_64& random, strike_control& order) const;
  bool draw_site(std::mt19937_64& random, shot& one);

  shared& shared_;
  std::unique_ptr<struck_device> on_;
  std::unique_ptr<test::current_device_guard> current_;
  std::function<void()> call_;
  std::vector<launch_seen> launches_;
  std::discrete_distribution<std::size_t> launch_of_;
  std::vector<std::uint32_t> longest_;                 // instructions of a thread, by launch
  std::vector<site_at> sites_;                         // the sites of all launched kernels, without those that no launch executes
  std::vector<std::vector<std::size_t>> launches_of_;  // by kernel
  std::optional<shot> again_;                          // a drawn site whose threads are known
  std::size_t armed_ = 0;                              // the launch
  bool executed_next_ = false;
  bool striking_ = false;  // the call has a strike
};

}  // namespace ballast::gpu_check
