// Finds the source location of an instruction of this program or of a library.
// Layer: test program. Uses addr2line of binutils.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ballast::strike {

// The address of an instruction, independent of the load address of its module.
struct code_address {
  std::string module;  // the file; empty: unknown
  std::uint64_t offset = 0;
  auto operator<=>(const code_address&) const = default;
};

// Converts an address in this process, or in a fork of it, which has its modules at the same addresses.
code_address code_at(std::uint64_t address);

// Returns texts like "function (file:line) < the function that it is inlined in (file:line)", with at most four functions, without those of
// system headers. Without debug information the text is the function only, or module and offset.
std::map<code_address, std::string> source_locations(const std::vector<code_address>& addresses);

}  // namespace ballast::strike
