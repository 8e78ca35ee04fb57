// Strikes at registers of the processor: the Striker of a campaign for backends of the host.
// Layer: test program. x86-64 under Linux.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include <ballast/execution.hpp>

#include "interrupt.hpp"
#include "outcome.hpp"
#include "registers.hpp"

namespace ballast::strike {

// The struck bits. numbers: exponent, sign or one of the six upper mantissa bits of a number in a vector register. bits: any bit of a
// vector register. masks: any bit of a mask register. general: any bit of a general register, or of a general register that the compiler
// has moved to a vector register: addresses and counters, which no checksum covers. none: the thread is interrupted without a change, which
// must have no effect.
enum class target : std::uint8_t { numbers, bits, masks, general, none };
inline constexpr int k_targets = 5;
std::string_view to_string(target value);

class processor_striker {
 public:
  struct shot {
    target what = target::numbers;
    register_bit where;
    moment when;
    std::uint64_t address = 0;  // the next instruction at the time of the strike
    std::uint64_t caller = 0;   // the caller in this program, if the instruction is in a system library; 0: it is not
  };
  using shared = hit;

  // Numbers have 32 bits if `small`, which applies to all strikers.
  static inline bool small = false;

  processor_striker(hit& of, const execution&) : clock_(of) {}
  static call how() { return {.throw_on_uncorrectable = false}; }
  void ready(const std::function<void()>&) {}
  static std::string note() { return {}; }
  shot draw(std::mt19937_64& random, double seconds) const;
  void arm(const shot& one) { clock_.arm(one.what == target::none ? std::nullopt : std::optional(one.where), one.when); }
  void enter() { clock_.enter(); }
  bool leave() { return clock_.leave(); }
  static void complete(const hit& of, shot& one) {
    one.address = of.address;
    one.caller = of.caller;
    if (of.integer) one.what = target::general;
  }
  static bool possible(const shot& one);
  static bool changes(const shot& one) { return one.what != target::none; }
  static bool may_write_elsewhere(const shot& one) { return one.what == target::general; }
  // If a wrong address has caused a write elsewhere, the process may not be struck again: that must not be counted twice.
  static bool fresh_after(const shot& one, outcome result) {
    return (result == outcome::masked || result == outcome::repaired || result == outcome::rounding) &&
           !(one.what == target::general && result != outcome::masked);
  }

 private:
  interrupter clock_;
};

}  // namespace ballast::strike
