// An array in a file: .npy (NumPy's format 1.0 to 3.0, both orders) and .csv.
// Layer: tools.
// Source: NEP 1, "A simple file format for NumPy arrays".
#pragma once

#include <complex>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "outputs.hpp"

namespace ballast::tools {

struct array {
  using storage = std::variant<std::vector<float>, std::vector<double>, std::vector<std::complex<float>>, std::vector<std::complex<double>>,
                               std::vector<std::int32_t>>;
  std::vector<std::int64_t> shape;
  bool fortran = false;  // true if the first axis varies fastest
  storage values;

  bool is_complex() const { return values.index() == 2 || values.index() == 3; }
  bool is_double() const { return values.index() == 1 || values.index() == 3; }
  std::int64_t size() const;
  std::vector<std::int64_t> strides() const;  // strides in elements

  // Returns the values as T. Real values become complex numbers with imaginary part 0. Throws invalid_argument_error for complex to real.
  template <class T>
  std::vector<T> as() &&;
};

// Returns a text like "150x4".
std::string to_string(const std::vector<std::int64_t>& shape);

// Reads a file; the extension selects .npy or .csv.
// .npy: little-endian f4, f8, c8 or c16. The header is checked against the size of the file before memory is allocated.
// .csv: numbers with a decimal point; complex numbers as 1.5-2j; one separator in the whole file (comma, semicolon or tab); fields with or
// without double quotes. Lines that begin with # and empty lines are skipped. The first other line may be a header of names, which must not
// begin like a number. A single column gives a one-dimensional array. The result is always double or complex double.
// Throws invalid_argument_error with file, line and column, and the expected and the actual text.
array read_array(const std::filesystem::path& file);

// Throws invalid_argument_error unless the name ends in .npy or .csv and, for .csv, an array of `axes` axes fits (at most 2).
void check_writable_kind(const std::filesystem::path& file, std::size_t axes);

// Writes the bytes of an array for a file of this name, .npy or .csv.
outputs::content content_of(const std::filesystem::path& file, array value);

}  // namespace ballast::tools
