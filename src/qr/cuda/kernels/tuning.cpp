// Reads and writes the lines of QR's tuning table. See tuning.hpp.
#include "qr/cuda/kernels/tuning.hpp"

#include <algorithm>
#include <istream>
#include <iterator>
#include <ostream>
#include <string>

namespace ballast::qr::cuda {

namespace {

using ballast::cuda::unknown_tuning;

struct choice_row {
  std::string_view name;
  int numbers;
  std::int64_t least;  // the least value of each number
};
constexpr choice_row k_choices[k_tuned_count] = {{"scan", 2, 1},      {"chunk_rows", 1, 1}, {"team_rows", k_cluster_count, 0},
                                                 {"tall_rows", 1, 1}, {"one_panel", 1, 2},  {"panel_steps", 3, 2}};
static_assert(k_cluster_count <= choice_form::k_most_numbers);

constexpr int k_measured_major = 9;  // the architecture of the built-in entries

const choice_row& row_of(tuned what) { return k_choices[static_cast<int>(what)]; }

}  // namespace

void choice_form::read(std::istream& words, key& at, value& chosen) {
  std::string architecture, precision, name;
  words >> architecture >> precision >> name;
  at.major = ballast::cuda::read_architecture(architecture) / 10;
  if (precision != "f32" && precision != "f64") throw unknown_tuning("f32 or f64");
  at.wide = precision == "f64";
  const auto* const found = std::ranges::find(k_choices, std::string_view(name), &choice_row::name);
  if (found == std::end(k_choices)) throw unknown_tuning("scan, chunk_rows, team_rows, tall_rows, one_panel or panel_steps");
  at.what = static_cast<tuned>(found - std::begin(k_choices));
  for (int i = 0; i < found->numbers; ++i) {
    std::int64_t& number = chosen.numbers[static_cast<std::size_t>(i)];
    if (!(words >> number) || number < found->least ||
        (at.what != tuned::scan && i > 0 && number < chosen.numbers[static_cast<std::size_t>(i) - 1]))
      throw unknown_tuning(std::to_string(found->numbers) + " numbers, the smallest first");
  }
  if (!(words >> chosen.gain)) throw unknown_tuning("a gain");
}

void choice_form::write(std::ostream& to, const key& at, const value& chosen) {
  const choice_row& row = row_of(at.what);
  to << "sm_" << at.major << "0 " << (at.wide ? "f64 " : "f32 ") << row.name;
  for (int i = 0; i < row.numbers; ++i) to << ' ' << chosen.numbers[static_cast<std::size_t>(i)];
  to << ' ' << chosen.gain;
}

const choice_table& choice_table::active() {
  static const choice_table table(installed());
  return table;
}

launch_choices choice_table::choices_for(int major, bool wide) const {
  const auto numbers = [&](tuned what) {
    auto found = find({major, wide, what});
    if (!found) found = find({k_measured_major, wide, what});
    return found ? found->numbers : choice_form::value{}.numbers;
  };
  launch_choices made;
  made.scan_rows = numbers(tuned::scan)[0], made.scan_blocks = numbers(tuned::scan)[1];
  made.chunk_rows = numbers(tuned::chunk_rows)[0];
  std::ranges::copy(numbers(tuned::team_rows), std::begin(made.team_rows));
  made.tall_rows = numbers(tuned::tall_rows)[0];
  made.one_panel = numbers(tuned::one_panel)[0];
  const auto steps = numbers(tuned::panel_steps);
  made.medium_steps = steps[0], made.wide_tall_steps = steps[1], made.wide_steps = steps[2];
  return made;
}

}  // namespace ballast::qr::cuda
