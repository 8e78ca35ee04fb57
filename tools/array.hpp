// An array of numbers, and the files that hold one: .npy (npy.hpp), .csv and .tsv (csv.hpp).
// Layer: tools.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "outputs.hpp"

namespace ballast::tools {

struct table_options;

// The facts about an input file, beside its numbers.
struct input_facts {
  std::string file;                 // as it is printed
  std::vector<std::int64_t> shape;  // the array's
  bool table = false;               // true for text; the fields up to `notes` are those of a table
  bool has_header = false;
  std::vector<std::string> header;  // names of the chosen columns, as they are printed
  std::int64_t comment_lines = 0, blank_lines = 0, skipped_lines = 0;
  // The rows that were left out: their lines in the file, and their numbers among all rows.
  std::vector<std::int64_t> dropped_lines, dropped_rows;
  std::vector<std::int64_t> row_lines;  // the line of each row, if rows may be left out
  std::vector<std::string> notes;
  std::int64_t not_finite = 0;  // values that are NaN or Inf; counted by array::as
};

// One part of the indices of an axis that is divided into `parts`: by `block` indices in turn, as in ScaLAPACK's layout.
struct axis_part {
  static constexpr std::int64_t k_even = 0;        // one range each, as even as can be
  static constexpr std::int64_t k_one_block = -1;  // blocks as wide as the largest of an even division: one each, or none
  std::int64_t part = 0, parts = 1, block = k_even;
  // Returns the ranges of the part, ascending: the first index, and the one after the last.
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges(std::int64_t size) const;
};

// Returns the number of indices in all ranges.
std::int64_t length_of(const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges);

// The part of an array that is read: some of its rows, the first axis. `of_matrix`: and some of its columns; the array is a matrix then,
// and one with a single axis has one column.
struct array_part {
  axis_part rows, columns = {};
  bool of_matrix = false;
  bool is_whole() const { return !of_matrix && rows.parts == 1; }
};

struct array {
  using storage = std::variant<std::vector<float>, std::vector<double>, std::vector<std::complex<float>>, std::vector<std::complex<double>>,
                               std::vector<std::int32_t>>;
  std::vector<std::int64_t> shape;
  bool fortran = false;  // true if the first axis varies fastest
  storage values;
  std::shared_ptr<input_facts> facts = nullptr;  // set if the array was read from a file

  bool is_complex() const { return values.index() == 2 || values.index() == 3; }
  bool is_double() const { return values.index() == 1 || values.index() == 3; }
  std::int64_t size() const;                  // −1 if it exceeds 64 bits
  std::vector<std::int64_t> strides() const;  // strides in elements

  // Returns the values as T. Real values become complex numbers with imaginary part 0. Throws invalid_argument_error for complex to real,
  // and for a finite value that exceeds float. Notes in `facts` how many values became 0.
  template <class T>
  std::vector<T> as() &&;
};

// Returns a text like "150x4".
std::string to_string(const std::vector<std::int64_t>& shape);

// Returns the number of values that are NaN or Inf.
template <class T>
std::int64_t not_finite(std::span<const T> values);

// Leaves out rows of an array with one or two axes. `rows` is sorted.
void leave_out_rows(array& from, const std::vector<std::int64_t>& rows);

enum class file_format { npy, csv, tsv };

// Returns the format that the ending of the name says, in capitals or not: .npy, .csv or .tsv.
std::optional<file_format> format_of(const std::filesystem::path& file);

// Reads a file; "-" is standard input. A file whose name has no ending (/dev/stdin) is .npy if it begins like one, and .csv otherwise.
// `options` are those of tables; for a .npy file they must have their defaults. Returns one part; `facts` are of the whole file. Throws
// invalid_argument_error.
array read_array(const std::filesystem::path& file, const table_options& options, const array_part& part = {});

// Throws invalid_argument_error unless an array of `axes` axes can be written to a file of this name: at most 2 axes fit into a table.
void check_writable_kind(const std::filesystem::path& file, std::size_t axes);

// Writes the bytes of an array for a file of this name.
outputs::content content_of(const std::filesystem::path& file, array value);

}  // namespace ballast::tools
