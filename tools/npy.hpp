// Reads and writes NumPy's files, .npy.
// Layer: tools.
// Source: NEP 1, "A simple file format for NumPy arrays"; formats 1.0 to 3.0.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "array.hpp"
#include "bytes.hpp"

namespace ballast::tools {

// The first bytes of each .npy file.
inline constexpr std::string_view k_npy_signature = "\x93NUMPY";

// Reads a .npy file in either byte order, whose first bytes `start` were read from `in` already. The header is compared with the size of
// the file, if that is known, before memory is allocated. It reads only one part if the size of the file is known, and then facts->shape is
// that of the whole array; otherwise it is empty, and the whole array is read.
//   f2, f4, c8              become float or complex float
//   f8, c16, b1, i1 to i8, u1 to u8   become double or complex double; a 64-bit integer is rounded if it has more than 53 bits
// Throws invalid_argument_error with the file and the expected and the actual text.
array read_npy(const std::filesystem::path& file, std::string_view start, byte_source& in, const array_part& part = {});

// Passes the bytes of a little-endian .npy file to `put`.
void write_npy(const array& value, const std::function<void(std::string_view)>& put);

}  // namespace ballast::tools
