// Accesses the registers in a signal frame.
#include "registers.hpp"

#include <cpuid.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace ballast::strike {
namespace {

// The numbers of XSAVE's state components in XCR0. CPUID reports the offset of each.
constexpr int k_sse = 1, k_upper_ymm = 2, k_masks = 5, k_upper_zmm = 6, k_high_zmm = 7;
constexpr std::size_t k_xmm_offset = 160;      // in the legacy area
constexpr std::size_t k_present_offset = 512;  // XSTATE_BV
// The kernel writes FP_XSTATE_MAGIC1 and the total size into the bytes of the legacy area that are reserved for software.
constexpr std::size_t k_software_offset = 464;
constexpr std::uint32_t k_extended = 0x46505853;

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

constexpr const char* k_general_names[] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp",
                                           "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

constexpr int k_general_indices[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// The component that holds a bit of a vector or mask register, and the position of the bit in its area.
struct stored {
  int component = 0;
  std::size_t bit = 0;
};
stored stored_at(const register_bit& position) {
  const auto index = static_cast<std::size_t>(position.index), bit = static_cast<std::size_t>(position.bit);
  if (position.kind == register_kind::mask) return {k_masks, index * 64 + bit};
  if (position.index >= 16) return {k_high_zmm, (index - 16) * 512 + bit};
  if (position.bit < 128) return {k_sse, index * 128 + bit};
  if (position.bit < 256) return {k_upper_ymm, index * 128 + bit - 128};
  return {k_upper_zmm, index * 256 + bit - 256};
}

// The saved state of a thread, as a signal handler finds it.
class saved_state {
 public:
  explicit saved_state(void* context) : state_(reinterpret_cast<unsigned char*>(static_cast<ucontext_t*>(context)->uc_mcontext.fpregs)) {
    std::uint32_t magic = 0, size = 0;
    std::memcpy(&magic, state_ + k_software_offset, sizeof magic);
    std::memcpy(&size, state_ + k_software_offset + 16, sizeof size);
    size_ = magic == k_extended ? size : k_present_offset;
  }

  unsigned char* byte_of(const stored& position) { return state_ + begin(position.component) + position.bit / 8; }
  bool has(const stored& position) const { return begin(position.component) + position.bit / 8 < size_; }

  // Returns whether the component is not in its initial state. In its initial state it is zero, regardless of the content of its area.
  bool present(int component) const {
    return component == k_sse || size_ == k_present_offset || ((word_at(k_present_offset) >> static_cast<unsigned>(component)) & 1U) != 0;
  }
  void make_present(int component) {
    if (!present(component)) std::memset(state_ + begin(component), 0, areas().size[static_cast<std::size_t>(component)]);
    const std::uint64_t all = word_at(k_present_offset) | 1ULL << static_cast<unsigned>(component);
    std::memcpy(state_ + k_present_offset, &all, sizeof all);
  }
  std::uint64_t word(const stored& position) const {
    return present(position.component) ? word_at(begin(position.component) + position.bit / 8) : 0;
  }

 private:
  static std::size_t begin(int component) {
    return component == k_sse ? k_xmm_offset : areas().offset[static_cast<std::size_t>(component)];
  }
  std::uint64_t word_at(std::size_t at) const {
    std::uint64_t made = 0;
    std::memcpy(&made, state_ + at, sizeof made);
    return made;
  }
  unsigned char* state_;
  std::size_t size_ = 0;
};

// Returns whether the vector register holds an integer or an address. After a move from a general register all bits above the lowest 64 are
// zero; and the lowest 64, as a floating-point number, are subnormal or, for negative integers, NaN.
bool holds_integer(const saved_state& state, int index) {
  for (int bit = 64; bit < registers().vector_bits; bit += 64) {
    if (state.word(stored_at({register_kind::vector, index, bit})) != 0) return false;
  }
  const std::uint64_t value = state.word(stored_at({register_kind::vector, index, 0}));
  const bool two_words = (value >> 32U) != 0;
  return two_words ? value < (1ULL << 52U) || value > (0xfffULL << 52U)
                   : value != 0 && (value < (1ULL << 23U) || value > (0x1ffULL << 23U));
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

std::string name_of(const register_bit& position) {
  const std::string number = std::to_string(position.index);
  const std::string bit = " bit " + std::to_string(position.bit);
  if (position.kind == register_kind::general) return k_general_names[position.index] + bit;
  if (position.kind == register_kind::mask) return "k" + number + bit;
  return (registers().vector_bits == 512 ? "zmm" : registers().vector_bits == 256 ? "ymm" : "xmm") + number + bit;
}

bool is_zero(void* context, int index) {
  const saved_state all(context);
  for (int bit = 0; bit < registers().vector_bits; bit += 64) {
    if (all.word(stored_at({register_kind::vector, index, bit})) != 0) return false;
  }
  return true;
}

bool flip(void* context, const register_bit& position) {
  mcontext_t& saved = static_cast<ucontext_t*>(context)->uc_mcontext;
  if (position.kind == register_kind::general) {
    saved.gregs[k_general_indices[position.index]] ^= static_cast<greg_t>(1ULL << static_cast<unsigned>(position.bit));
    return true;
  }
  saved_state all(context);
  const stored at = stored_at(position);
  if (!all.has(at)) std::abort();  // registers() has reported that it exists
  const bool whole = position.kind == register_kind::vector && position.bit < 64 && holds_integer(all, position.index);
  all.make_present(at.component);
  *all.byte_of(at) ^= static_cast<unsigned char>(1U << (at.bit % 8));
  return whole;
}

}  // namespace ballast::strike
