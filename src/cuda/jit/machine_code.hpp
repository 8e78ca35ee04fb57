// Counts the load instructions in the machine code of a kernel. An assembler merges loads of one address without a word, also those that
// protection makes twice on purpose; a count shows it.
// Layer: foundation.
// Source: the 128-bit instructions of compute capability 7.0 to 10.0, as nvdisasm prints them.
#pragma once

#include <optional>
#include <string_view>

namespace ballast::cuda {

// The numbers of instructions, not of executions.
struct load_counts {
  int global = 0;    // from global memory, all kinds
  int streamed = 0;  // from global memory, evicted from L1 first (L1::evict_first)
  int shared = 0;    // from shared memory

  bool operator==(const load_counts&) const = default;
};

// Returns the counts of function `name` of a cubin; nothing if `code` is not a cubin with such a function.
std::optional<load_counts> count_loads(std::string_view code, std::string_view name);

}  // namespace ballast::cuda
