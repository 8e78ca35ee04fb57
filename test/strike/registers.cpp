// Registers of a stopped thread by PTRACE_GETREGS and PTRACE_GETREGSET.
#include "registers.hpp"

#include <cpuid.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace ballast::strike {
namespace {

// State components of XSAVE: their numbers in XCR0, and where CPUID says that each lies.
constexpr int k_sse = 1, k_upper_ymm = 2, k_masks = 5, k_upper_zmm = 6, k_high_zmm = 7;
constexpr std::size_t k_xmm_offset = 160;      // in the legacy area
constexpr std::size_t k_present_offset = 512;  // XSTATE_BV
constexpr std::size_t k_most = 16384;

struct layout {
  std::uint64_t enabled = 0;
  std::array<std::size_t, 64> offset{}, size{};
};

const layout& areas() {
  static const layout found = [] {
    layout made;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(0xD, 0, &a, &b, &c, &d) == 0) return made;
    made.enabled = (std::uint64_t{d} << 32U) | a;
    for (unsigned i = 2; i < 63; ++i) {
      if (__get_cpuid_count(0xD, i, &a, &b, &c, &d) == 0) break;
      made.size[i] = a;
      made.offset[i] = b;
    }
    return made;
  }();
  return found;
}

bool has(int component) { return ((areas().enabled >> static_cast<unsigned>(component)) & 1U) != 0; }

[[noreturn]] void refused(const char* what) { throw std::runtime_error(std::string(what) + ": " + std::strerror(errno)); }

constexpr const char* k_general_names[] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp",
                                           "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

unsigned long long& general(user_regs_struct& all, int index) {
  unsigned long long* const places[] = {&all.rax, &all.rbx, &all.rcx, &all.rdx, &all.rsi, &all.rdi, &all.rbp, &all.rsp,
                                        &all.r8,  &all.r9,  &all.r10, &all.r11, &all.r12, &all.r13, &all.r14, &all.r15};
  return *places[index];
}

// The component that holds a bit of a vector or mask register, and the bit's place in its area.
struct stored {
  int component = 0;
  std::size_t bit = 0;
};
stored stored_at(const register_bit& place) {
  const auto index = static_cast<std::size_t>(place.index), bit = static_cast<std::size_t>(place.bit);
  if (place.kind == register_kind::mask) return {k_masks, index * 64 + bit};
  if (place.index >= 16) return {k_high_zmm, (index - 16) * 512 + bit};
  if (place.bit < 128) return {k_sse, index * 128 + bit};
  if (place.bit < 256) return {k_upper_ymm, index * 128 + bit - 128};
  return {k_upper_zmm, index * 256 + bit - 256};
}

std::uint64_t word(const std::vector<unsigned char>& state, std::size_t at) {
  std::uint64_t made = 0;
  std::memcpy(&made, state.data() + at, sizeof made);
  return made;
}

// Whether the vector register holds an integer or an address: 64 bits and zeros above, as a move from a general register leaves them, that
// are a small integer or, read as a double, subnormal.
bool holds_integer(const std::vector<unsigned char>& state, int index, std::uint64_t present) {
  const int bits = registers().vector_bits;
  for (int bit = 64; bit < bits; bit += 64) {
    const auto [component, at] = stored_at({register_kind::vector, index, bit});
    const bool there = component == k_sse || ((present >> static_cast<unsigned>(component)) & 1U) != 0;
    const std::size_t begin = component == k_sse ? k_xmm_offset : areas().offset[static_cast<std::size_t>(component)];
    if (there && word(state, begin + at / 8) != 0) return false;
  }
  const auto [component, at] = stored_at({register_kind::vector, index, 0});
  const std::size_t begin = component == k_sse ? k_xmm_offset : areas().offset[static_cast<std::size_t>(component)];
  const std::uint64_t value = word(state, begin + at / 8);
  const bool two_words = (value >> 32U) != 0;
  return two_words ? value < (1ULL << 52U) : value != 0 && value < (1ULL << 23U);
}

}  // namespace

const register_set& registers() {
  static const register_set found = [] {
    register_set made;
    if (has(k_upper_ymm)) made.vector_bits = 256;
    if (has(k_masks) && has(k_upper_zmm) && has(k_high_zmm)) {
      made.vectors = 32;
      made.vector_bits = 512;
      made.masks = 8;
      made.mask_bits = 64;
    }
    return made;
  }();
  return found;
}

std::string name_of(const register_bit& place) {
  const std::string number = std::to_string(place.index);
  const std::string bit = " bit " + std::to_string(place.bit);
  if (place.kind == register_kind::general) return k_general_names[place.index] + bit;
  if (place.kind == register_kind::mask) return "k" + number + bit;
  return (registers().vector_bits == 512 ? "zmm" : registers().vector_bits == 256 ? "ymm" : "xmm") + number + bit;
}

position position_of(pid_t thread) {
  user_regs_struct all{};
  if (ptrace(PTRACE_GETREGS, thread, nullptr, &all) != 0) refused("PTRACE_GETREGS");
  return {all.rip, static_cast<long long>(all.orig_rax) >= 0};
}

bool flip(pid_t thread, const register_bit& place) {
  if (place.kind == register_kind::general) {
    user_regs_struct all{};
    if (ptrace(PTRACE_GETREGS, thread, nullptr, &all) != 0) refused("PTRACE_GETREGS");
    general(all, place.index) ^= 1ULL << static_cast<unsigned>(place.bit);
    if (ptrace(PTRACE_SETREGS, thread, nullptr, &all) != 0) refused("PTRACE_SETREGS");
    return true;
  }
  std::vector<unsigned char> state(k_most);
  iovec window{state.data(), state.size()};
  if (ptrace(PTRACE_GETREGSET, thread, NT_X86_XSTATE, &window) != 0) refused("PTRACE_GETREGSET");
  const auto [component, bit] = stored_at(place);
  const auto number = static_cast<std::size_t>(component);
  const std::size_t begin = component == k_sse ? k_xmm_offset : areas().offset[number];
  if (begin + bit / 8 >= window.iov_len) throw std::runtime_error("PTRACE_GETREGSET: the register is not in what the kernel gives");
  std::uint64_t present = 0;
  std::memcpy(&present, state.data() + k_present_offset, sizeof present);
  if (component != k_sse && ((present >> number) & 1U) == 0)  // in its initial state: all zero, whatever the area holds
    std::fill_n(state.begin() + static_cast<std::ptrdiff_t>(begin), areas().size[number], static_cast<unsigned char>(0));
  present |= 1ULL << number;
  std::memcpy(state.data() + k_present_offset, &present, sizeof present);
  const bool whole = place.kind == register_kind::vector && place.bit < 64 && holds_integer(state, place.index, present);
  state[begin + bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
  if (ptrace(PTRACE_SETREGSET, thread, NT_X86_XSTATE, &window) != 0) refused("PTRACE_SETREGSET");
  return whole;
}

}  // namespace ballast::strike
