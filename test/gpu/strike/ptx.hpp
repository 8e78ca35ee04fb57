// Kernels that can be struck: rewrites PTX such that after every instruction that writes a number, one bit of it flips if this thread is
// the chosen one and has reached the chosen count of such instructions. Knows PTX, but nothing of the library's kernels or sites.
// Layer: test program. Source: NVIDIA, Parallel Thread Execution ISA 9.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::gpu_check {

// The contents of the variable k_strike_variable of a struck module. A kernel reads the first half when it starts; the chosen thread writes
// the second half when it ends.
struct strike_control {
  std::uint64_t thread = ~std::uint64_t{0};  // block · threads of a block + thread; all ones: no thread
  std::uint32_t target = 0;                  // index of the struck instruction, from 1; 0: none
  std::uint32_t mask_32 = 0;                 // bits that flip in a register of 32 bits
  std::uint64_t mask_64 = 0;                 // bits that flip in a register of 64 bits
  std::uint32_t executed = 0;                // number of executed instructions that write a number
  std::uint32_t site = 0;                    // site of the strike, from 1; 0: there was none
};
inline constexpr const char* k_strike_variable = "ballast_strike";

struct struck_ptx {
  std::string text;
  std::vector<std::string> sites;  // each: the instruction, a tab, and its source lines if `ptx` has them: "file:line < file:line"
  bool has_numbers = false;        // some instruction has a floating-point type; otherwise the kernel has nothing to strike
};

// Numbers are values that instructions of floating-point type read and write, and values that are moved, loaded, exchanged or packed to
// become one. Addresses, counters and predicates are not struck. Throws std::runtime_error unless the text is PTX of one kernel.
struck_ptx with_strikes(std::string_view ptx);

}  // namespace ballast::gpu_check
