// Kernels that can be struck: the text of their PTX, where behind every instruction that makes a number one bit of it changes if this
// thread is the chosen one and has come to the chosen number of such instructions. Knows PTX, and nothing of the library's kernels or
// sites. Layer: test program. Source: NVIDIA, Parallel Thread Execution ISA 9.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::gpu_check {

// What the variable k_strike_variable of a struck module holds. A kernel reads the first half when it starts; the chosen thread writes the
// second when it ends.
struct strike_control {
  std::uint64_t thread = ~std::uint64_t{0};  // block · threads of a block + thread; all ones: nobody
  std::uint32_t target = 0;                  // its target-th instruction, from 1; 0: none
  std::uint32_t mask_32 = 0;                 // what changes of a register of 32 bits
  std::uint64_t mask_64 = 0;                 // and of one of 64
  std::uint32_t executed = 0;                // instructions that make a number
  std::uint32_t site = 0;                    // of the strike, from 1; 0: there was none
};
inline constexpr const char* k_strike_variable = "ballast_strike";

struct struck_ptx {
  std::string text;
  std::vector<std::string> sites;  // each: the instruction, a tab, and its lines in the source if `ptx` has them: "file:line < file:line"
  bool has_numbers = false;        // some instruction is of a floating-point type: a kernel without has nothing to strike
};

// Numbers are what instructions of floating-point type read and write, and what is moved, loaded, exchanged or packed to become one.
// Addresses, counters and predicates are not struck. Throws std::runtime_error for a text that is not PTX of one kernel.
struck_ptx with_strikes(std::string_view ptx);

}  // namespace ballast::gpu_check
