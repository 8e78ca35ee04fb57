// Kernels that can be struck: rewrites PTX such that after every instruction that writes data, one bit of it flips if this thread is the
// chosen one and has reached the chosen count of such instructions, or of the executions of one of them. Knows PTX, but nothing of the
// library's kernels or sites.
// Layer: test program.
// Source: NVIDIA, Parallel Thread Execution ISA 9.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::gpu_check {

// The contents of the variable k_strike_variable of a struck module. A kernel reads the order when it starts, and writes the answer when it
// ends.
//   strike   the chosen thread counts the instructions at struck sites that it executes, or those at one site; the target's result changes
//   count    a strike without target: the answer is the number that the chosen thread has executed
//   find     every thread counts; of those that have executed the site, one is answered, which the key selects among them
struct strike_control {
  // The order.
  std::uint64_t thread = ~std::uint64_t{0};  // block · threads of a block + thread; all ones: no thread
  std::uint32_t target = 0;                  // index of the struck instruction, from 1; 0: none
  std::uint32_t mask_32 = 0;                 // bits that flip in a register of 32 bits
  std::uint64_t mask_64 = 0;                 // bits that flip in a register of 64 bits
  std::uint32_t wanted = 0;                  // the only site that counts, from 1; 0: all
  std::uint32_t key = 0;                     // find: any number below 2³², which selects the thread; 0: do not find
  // The answer.
  std::uint32_t executed = 0;  // number of executed instructions that count
  std::uint32_t site = 0;      // site of the strike, from 1; 0: there was none
  std::uint64_t found = 0;  // find: (thread ^ key) · 2²⁴ + the number of executions, at most 2²⁴ − 1; 0: no thread has executed the site

  std::uint64_t found_thread() const { return (found >> 24) ^ key; }
  std::uint32_t found_executions() const { return static_cast<std::uint32_t>(found & 0xffffff); }
};
inline constexpr const char* k_strike_variable = "ballast_strike";

struct struck_ptx {
  std::string text;
  std::vector<std::string> sites;  // each: the instruction, a tab, and its source lines if `ptx` has them: "file:line < file:line"
  bool has_numbers = false;        // some instruction has a floating-point type
};

// Struck are data: numbers, that is values that instructions of floating-point type read and write, and values that are moved, loaded,
// exchanged or packed to become one; and integers that never become part of an address or decide a branch: labels, exponents, sums in
// fixed point, hashes. Addresses, counters and predicates are not struck. Throws std::runtime_error unless the text is PTX of one kernel.
struck_ptx with_strikes(std::string_view ptx);

}  // namespace ballast::gpu_check
