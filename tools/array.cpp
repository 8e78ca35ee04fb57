// See array.hpp.
#include "array.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ballast/error.hpp>

#include "bytes.hpp"
#include "csv.hpp"
#include "npy.hpp"
#include "terminal.hpp"

namespace ballast::tools {
namespace {

template <class T>
bool is_finite(T value) {
  return std::isfinite(value);
}
template <class T>
bool is_finite(std::complex<T> value) {
  return std::isfinite(value.real()) && std::isfinite(value.imag());
}

// Converts numbers, and counts those that change into 0 or Inf.
struct converter {
  std::int64_t vanished = 0;
  std::optional<double> exceeded;

  template <class To, class From>
  To real(From value) {
    const To made = static_cast<To>(value);
    if constexpr (sizeof(To) < sizeof(From)) {
      if (!std::isfinite(made) && std::isfinite(value) && !exceeded) exceeded = value;
      if (made == 0 && value != 0) ++vanished;
    }
    return made;
  }
  template <class To, class From>
  To number(From value) {
    if constexpr (std::is_arithmetic_v<To>) {
      return real<To>(value);
    } else if constexpr (std::is_arithmetic_v<From>) {
      return To(real<typename To::value_type>(value), 0);
    } else {
      using part = typename To::value_type;
      const part first = real<part>(value.real());
      return To(first, real<part>(value.imag()));
    }
  }
};

std::string read_text(byte_source& in, std::string_view start) {
  std::string text(start);
  std::size_t block = in.left() ? *in.left() + 1 : 1 << 16;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + block);
    const std::size_t got = in.read(text.data() + before, block);
    text.resize(before + got);
    // Text has no zero byte, so the rest of such a stream, which may be endless, is not read.
    if (got < block || std::memchr(text.data() + before, 0, got) != nullptr) return text;
    block = std::min<std::size_t>(block * 2, 1 << 26);
  }
}

void require_default(const std::filesystem::path& file, const table_options& options) {
  const char* const given = options.header != header_rule::automatic ? "--header"
                            : options.missing != missing_rule::error ? "--missing"
                            : options.skip != 0                      ? "--skip"
                            : !options.columns.empty()               ? options.columns_option.c_str()
                                                                     : nullptr;
  if (given != nullptr) refuse_file(file, fmt::format("{}: expected a table of text, .csv or .tsv, got .npy", given));
}

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> axis_part::ranges(std::int64_t size) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> made;
  const auto add = [&](std::int64_t first, std::int64_t end) {
    if (first < end) made.emplace_back(first, end);
  };
  if (block == k_even) {
    const auto begin = [&](std::int64_t of) { return static_cast<std::int64_t>(static_cast<__int128>(size) * of / parts); };
    add(begin(part), begin(part + 1));
    return made;
  }
  const std::int64_t width = block == k_one_block ? std::max<std::int64_t>(1, size / parts + (size % parts > 0 ? 1 : 0)) : block;
  const std::int64_t blocks = size / width + (size % width > 0 ? 1 : 0);
  for (std::int64_t b = part; b < blocks; b += parts) add(b * width, b * width + std::min(width, size - b * width));
  return made;
}

std::int64_t length_of(const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  std::int64_t made = 0;
  for (const auto& [first, end] : ranges) made += end - first;
  return made;
}

std::int64_t array::size() const {
  std::int64_t all = 1;
  for (const auto each : shape) {
    if (__builtin_mul_overflow(all, each, &all)) return -1;
  }
  return all;
}

std::vector<std::int64_t> array::strides() const {
  std::vector<std::int64_t> made(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t axis = fortran ? i : shape.size() - 1 - i;
    made[axis] = stride;
    stride *= shape[axis];
  }
  return made;
}

template <class T>
std::vector<T> array::as() && {
  converter change;
  std::vector<T> made = std::visit(
      [&](auto&& held) -> std::vector<T> {
        using value_type = typename std::decay_t<decltype(held)>::value_type;
        if constexpr (std::is_same_v<value_type, T>) {
          return std::forward<decltype(held)>(held);
        } else if constexpr (std::is_arithmetic_v<T> && !std::is_arithmetic_v<value_type>) {
          throw invalid_argument_error("expected real values, got complex ones");
        } else {
          std::vector<T> changed(held.size());
          std::ranges::transform(held, changed.begin(), [&](const value_type& each) { return change.number<T>(each); });
          return changed;
        }
      },
      std::move(values));
  if (change.exceeded)
    throw invalid_argument_error(
        fmt::format("{}--precision f32: expected values of at most 3.4e38, got {}", facts ? facts->file + ": " : "", *change.exceeded));
  if (facts) {
    facts->not_finite = not_finite<T>(made);
    if (change.vanished > 0) facts->notes.push_back(fmt::format("{} values are below the range of f32 and became 0", change.vanished));
  }
  return made;
}

template std::vector<float> array::as<float>() &&;
template std::vector<double> array::as<double>() &&;
template std::vector<std::complex<float>> array::as<std::complex<float>>() &&;
template std::vector<std::complex<double>> array::as<std::complex<double>>() &&;

std::string to_string(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

template <class T>
std::int64_t not_finite(std::span<const T> values) {
  return std::ranges::count_if(values, [](const T& each) { return !is_finite(each); });
}

template std::int64_t not_finite(std::span<const float>);
template std::int64_t not_finite(std::span<const double>);
template std::int64_t not_finite(std::span<const std::complex<float>>);
template std::int64_t not_finite(std::span<const std::complex<double>>);

void leave_out_rows(array& from, const std::vector<std::int64_t>& rows) {
  if (rows.empty() || from.shape.empty() || from.shape.size() > 2) return;
  const std::int64_t before = from.shape[0], columns = from.shape.size() == 2 ? from.shape[1] : 1;
  const auto strides = from.strides();
  const std::int64_t row = strides[0], column = from.shape.size() == 2 ? strides[1] : 1;
  from.shape[0] = before - static_cast<std::int64_t>(rows.size());
  from.fortran = false;
  std::visit(
      [&](auto& held) {
        std::decay_t<decltype(held)> kept;
        kept.reserve(static_cast<std::size_t>(from.size()));
        for (std::int64_t i = 0; i < before; ++i) {
          if (std::ranges::binary_search(rows, i)) continue;
          for (std::int64_t j = 0; j < columns; ++j) kept.push_back(held[static_cast<std::size_t>(i * row + j * column)]);
        }
        held = std::move(kept);
      },
      from.values);
}

std::optional<file_format> format_of(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  std::ranges::transform(ending, ending.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (ending == ".npy") return file_format::npy;
  if (ending == ".csv") return file_format::csv;
  if (ending == ".tsv") return file_format::tsv;
  return std::nullopt;
}

namespace {

// Leaves out the rows and columns of the other parts.
void keep_part(array& from, const array_part& part) {
  if (from.shape.empty() || from.shape.size() > 2) return;
  const std::int64_t columns = from.shape.size() == 2 ? from.shape[1] : 1, along = from.shape.size() == 2 ? from.strides()[1] : 0;
  const std::int64_t down = from.strides()[0];
  const auto rows_kept = part.rows.ranges(from.shape[0]), columns_kept = part.columns.ranges(columns);
  std::visit(
      [&](auto& held) {
        std::decay_t<decltype(held)> kept;
        for (const auto& [first, end] : rows_kept) {
          for (std::int64_t i = first; i < end; ++i)
            for (const auto& [left, right] : columns_kept)
              for (std::int64_t j = left; j < right; ++j) kept.push_back(held[static_cast<std::size_t>(i * down + j * along)]);
        }
        held = std::move(kept);
      },
      from.values);
  from.shape[0] = length_of(rows_kept);
  if (part.of_matrix) from.shape = {from.shape[0], length_of(columns_kept)};
  from.fortran = false;
}

}  // namespace

array read_array(const std::filesystem::path& file, const table_options& options, const array_part& part) {
  std::optional<file_format> format = format_of(file);
  std::error_code none;
  const auto kind = std::filesystem::status(file, none).type();
  // Before it is opened: a FIFO would wait for its writer.
  if (!format && file.has_extension() && kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::directory)
    refuse_file(file, fmt::format("expected a name that ends in .npy, .csv or .tsv, got \"{}\"", printable(file.filename())));
  file_bytes in(file);
  std::string start(10, '\0');
  start.resize(in.read(start.data(), start.size()));
  if (!format) format = start.starts_with(k_npy_signature) ? file_format::npy : file_format::csv;
  array made;
  if (format == file_format::npy) {
    made = read_npy(file, start, in, part);
    require_default(file, options);
  } else {
    made = parse_csv(file, read_text(in, start), format == file_format::tsv ? k_tsv_separators : k_csv_separators, options);
  }
  made.facts->file = file == "-" ? "standard input" : printable(file);
  if (made.facts->shape.empty()) {  // the whole array was read
    made.facts->shape = made.shape;
    if (!part.is_whole()) keep_part(made, part);
  }
  return made;
}

void check_writable_kind(const std::filesystem::path& file, std::size_t axes) {
  const auto format = format_of(file);
  if (!format) refuse_file(file, fmt::format("expected a name that ends in .npy, .csv or .tsv, got \"{}\"", printable(file.filename())));
  if (format != file_format::npy && axes > 2)
    refuse_file(file, fmt::format("expected an array of at most 2 axes, or .npy, got {} axes", axes));
}

outputs::content content_of(const std::filesystem::path& file, array value) {
  const file_format format = format_of(file).value_or(file_format::npy);
  return [format, value = std::move(value)](const auto& put) {
    if (format == file_format::npy) return write_npy(value, put);
    write_csv(value, format == file_format::tsv ? '\t' : ',', put);
  };
}

}  // namespace ballast::tools
