// Finds the section of a function in a cubin, which is an ELF file of 64 bits, and reads the opcodes of its instructions.
#include "cuda/jit/machine_code.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <elf.h>

namespace ballast::cuda {

namespace {

// Returns the object at byte `at`; nothing if the text ends before.
template <class T>
std::optional<T> object_at(std::string_view code, std::uint64_t at) {
  if (at > code.size() || code.size() - at < sizeof(T)) return std::nullopt;
  T made;
  std::memcpy(&made, code.data() + at, sizeof(T));
  return made;
}

std::optional<std::string_view> part_of(std::string_view code, std::uint64_t at, std::uint64_t bytes) {
  if (at > code.size() || code.size() - at < bytes) return std::nullopt;
  return code.substr(at, bytes);
}

// Returns the instructions of function `name`.
std::optional<std::string_view> text_of(std::string_view code, std::string_view name) {
  const auto file = object_at<Elf64_Ehdr>(code, 0);
  if (!file || std::memcmp(file->e_ident, ELFMAG, SELFMAG) != 0 || file->e_ident[EI_CLASS] != ELFCLASS64) return std::nullopt;
  const auto section = [&](std::uint64_t number) { return object_at<Elf64_Shdr>(code, file->e_shoff + number * file->e_shentsize); };
  const auto names = section(file->e_shstrndx);
  const auto list = names ? part_of(code, names->sh_offset, names->sh_size) : std::nullopt;
  if (!list) return std::nullopt;
  const std::string wanted = ".text." + std::string(name);
  for (unsigned i = 0; i < file->e_shnum; ++i) {
    const auto each = section(i);
    if (!each || each->sh_name >= list->size()) return std::nullopt;
    const std::string_view rest = list->substr(each->sh_name);
    if (rest.substr(0, rest.find('\0')) == wanted) return part_of(code, each->sh_offset, each->sh_size);
  }
  return std::nullopt;
}

}  // namespace

std::optional<load_counts> count_loads(std::string_view code, std::string_view name) {
  const auto text = text_of(code, name);
  if (!text) return std::nullopt;
  struct instruction {
    std::uint64_t low, high;
  };
  // The low nine bits are the operation; the next three say where its operands are.
  constexpr std::uint64_t operation = 0x1ff, k_load_global = 0x181, k_load_shared = 0x184;
  // Bits 84 to 86: what L1 does with the line.
  constexpr int eviction = 20;
  constexpr std::uint64_t k_evict_first = 0;  // 1: no hint
  load_counts made;
  for (std::uint64_t at = 0; const auto each = object_at<instruction>(*text, at); at += sizeof(instruction)) {
    if ((each->low & operation) == k_load_global) {
      ++made.global;
      if ((each->high >> eviction & 7) == k_evict_first) ++made.streamed;
    }
    if ((each->low & operation) == k_load_shared) ++made.shared;
  }
  return made;
}

}  // namespace ballast::cuda
