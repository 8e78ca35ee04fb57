// Where in the source an instruction of this program or of a library is.
// Layer: test program. By addr2line of binutils.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ballast::strike {

// An instruction, independent of where its module was loaded.
struct code_address {
  std::string module;  // the file; empty: none that is known
  std::uint64_t offset = 0;
  auto operator<=>(const code_address&) const = default;
};

// `address` in this process, or in a fork of it: the modules lie at the same places.
code_address code_at(std::uint64_t address);

// "function (file:line) < the function that it is inlined in (file:line)", at most four of them, without those of system headers; without
// debug information the function only, and else module and offset.
std::map<code_address, std::string> source_places(const std::vector<code_address>& addresses);

}  // namespace ballast::strike
