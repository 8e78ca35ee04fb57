// The registers of an interrupted thread that a strike can change: general, vector (xmm, ymm and zmm are parts of one) and mask registers.
// Layer: test program. x86-64 under Linux: what a signal's handler finds; the layout is that of XSAVE (Intel's manual, volume 1, chapter
// 13).
#pragma once

#include <cstdint>
#include <string>

namespace ballast::strike {

enum class register_kind : std::uint8_t { vector, mask, general };

// One bit of one register. `bit` counts from the lowest of the whole register.
struct register_bit {
  register_kind kind = register_kind::vector;
  int index = 0;
  int bit = 0;
};

// What this processor and kernel keep for a thread.
struct register_set {
  int vectors = 16;  // xmm0 …, ymm0 … or zmm0 …
  int vector_bits = 128;
  int masks = 0;  // k0 …
  int mask_bits = 0;
  int generals = 16;  // rax … r15
};

const register_set& registers();

std::string name_of(const register_bit& place);  // "zmm5 bit 30", "r12 bit 3"

// Changes the bit in `context`, the third argument of a signal's handler: the thread goes on with it. True if it belongs to an address or
// an integer: a general register, or a vector register whose lowest 64 bits alone are not zero and make no number of the arithmetic, where
// compilers keep general registers that they have no room for. May be called by a handler.
bool flip(void* context, const register_bit& place);

// Whether all of a vector register is zero in `context`: then its bits do not say whether it is a number or an integer.
bool is_zero(void* context, int index);

}  // namespace ballast::strike
