// The registers of an interrupted thread that a strike can change: general, vector (xmm and ymm are parts of zmm) and mask registers.
// Layer: test program. x86-64 under Linux: accesses the context of a signal handler, whose layout is that of XSAVE (Intel's manual, volume
// 1, chapter 13).
#pragma once

#include <cstdint>
#include <string>

namespace ballast::strike {

enum class register_kind : std::uint8_t { vector, mask, general };

// One bit of one register. `bit` counts from the lowest bit of the whole register.
struct register_bit {
  register_kind kind = register_kind::vector;
  int index = 0;
  int bit = 0;
};

// The registers that this processor has and its kernel saves.
struct register_set {
  int vectors = 16;  // xmm0 …, ymm0 … or zmm0 …
  int vector_bits = 128;
  int masks = 0;  // k0 …
  int mask_bits = 0;
  int generals = 16;  // rax … r15
};

const register_set& registers();

std::string name_of(const register_bit& position);  // "zmm5 bit 30", "r12 bit 3"

// Flips the bit in `context`, the third argument of a signal handler; the thread continues with it. Returns true if the bit belongs to an
// address or an integer. That is a general register, or a vector register in which only the lowest 64 bits are not zero and are no ordinary
// floating-point number: compilers move general registers there if they need more. May be called by a signal handler.
bool flip(void* context, const register_bit& position);

// Returns whether a vector register is zero in `context`. Then its bits do not show whether it holds a number or an integer.
bool is_zero(void* context, int index);

}  // namespace ballast::strike
