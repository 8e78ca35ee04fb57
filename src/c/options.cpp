// Options by name: one table says which there are, of which type, and where they are kept.
// Layer: interface.
#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "c/handles.hpp"
#include "core/format.hpp"

namespace ballast::c {

std::string_view name_of(algorithm which) {
  constexpr std::string_view names[] = {"fft", "kmeans", "qr"};
  return names[static_cast<std::size_t>(which)];
}

const ballast_options& options_for(const ballast_options* given, algorithm which) {
  const ballast_options& found = needed(given, "options");
  if (found.which != which)
    throw invalid_argument_error(fmt::format("options: expected options of {}, got those of {}", name_of(which), name_of(found.which)));
  return found;
}

execution where_of(const ballast_options& with) {
  execution made = with.where;
  if (with.devices.empty()) return made;
  if (made.group) throw invalid_argument_error("devices: expected none beside a group of ranks, got a list");
  std::vector<int> numbers;
  for (const std::int64_t each : with.devices) {
    if (each < 0 || each > std::numeric_limits<int>::max())
      throw invalid_argument_error(fmt::format("devices: expected numbers of devices, got {}", each));
    numbers.push_back(static_cast<int>(each));
  }
  made.group = group::devices(std::move(numbers));
  return made;
}

namespace {

// The kinds of options. Each has the place of its value in the options.
template <class T>
using place = T& (*)(ballast_options&);
// A number of an enumeration, which the caller writes as one of `names`.
struct choice {
  std::span<const std::string_view> names;
  std::size_t (*get)(ballast_options&);
  void (*set)(ballast_options&, std::size_t);
};
using any_place = std::variant<place<std::int64_t>, place<int>, place<std::uint64_t>, place<bool>, place<double>,
                               place<std::vector<std::int64_t>>, place<std::string>, choice>;

constexpr unsigned k_fft = 1, k_kmeans = 2, k_qr = 4, k_all = 7;

struct row {
  std::string_view name;
  unsigned algorithms;
  any_place at;
};

template <auto At>
constexpr choice choice_of(std::span<const std::string_view> names) {
  return {names, [](ballast_options& of) { return static_cast<std::size_t>(At(of)); },
          [](ballast_options& of, std::size_t value) {
            auto& target = At(of);
            target = static_cast<std::remove_reference_t<decltype(target)>>(value);
          }};
}

// The names of enumerators in their order.
constexpr std::string_view k_precisions[] = {"f32", "f64"};
constexpr std::string_view k_backends[] = {"auto", "reference", "cpu", "cuda"};
constexpr std::string_view k_protections[] = {"off", "detect", "correct", "final_only"};
constexpr std::string_view k_kinds[] = {"c2c", "r2c", "c2r", "r2r"};
constexpr std::string_view k_norms[] = {"backward", "ortho", "forward"};
constexpr std::string_view k_kernels[] = {"own", "fallback_at_first"};
constexpr std::string_view k_storages[] = {"dense", "csr", "f16", "bf16"};
constexpr std::string_view k_inits[] = {"k-means++", "random", "given", "k-means||"};

#define BALLAST_AT(MEMBER) \
  [](ballast_options & of) -> auto& { return of.MEMBER; }
#define BALLAST_PLACE(TYPE, MEMBER) place<TYPE>(BALLAST_AT(MEMBER))
constexpr row k_rows[] = {
    {"precision", k_fft, choice_of<BALLAST_AT(fft.precision)>(k_precisions)},
    {"precision", k_kmeans, choice_of<BALLAST_AT(kmeans.precision)>(k_precisions)},
    {"precision", k_qr, choice_of<BALLAST_AT(qr.precision)>(k_precisions)},
    {"batch", k_fft, BALLAST_PLACE(std::int64_t, fft.batch)},
    {"batch", k_kmeans, BALLAST_PLACE(std::int64_t, kmeans.batch)},
    {"batch", k_qr, BALLAST_PLACE(std::int64_t, qr.batch)},
    {"kind", k_fft, choice_of<BALLAST_AT(fft.kind)>(k_kinds)},
    {"shape", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, fft.shape)},
    {"axes", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, axes)},
    {"real_kinds", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, real_kinds)},
    {"loop_counts", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, loop_counts)},
    {"loop_inputs", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, loop_inputs)},
    {"loop_outputs", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, loop_outputs)},
    {"split", k_fft, BALLAST_PLACE(bool, fft.split)},
    {"norm", k_fft, choice_of<BALLAST_AT(fft.norm)>(k_norms)},
    {"input_strides", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, fft.input.strides)},
    {"input_distance", k_fft, BALLAST_PLACE(std::int64_t, fft.input.distance)},
    {"output_strides", k_fft, BALLAST_PLACE(std::vector<std::int64_t>, fft.output.strides)},
    {"output_distance", k_fft, BALLAST_PLACE(std::int64_t, fft.output.distance)},
    {"kernels", k_fft, choice_of<BALLAST_AT(fft_wanted.kernels)>(k_kernels)},
    {"points", k_kmeans, BALLAST_PLACE(std::int64_t, kmeans.points)},
    {"features", k_kmeans, BALLAST_PLACE(std::int64_t, kmeans.features)},
    {"clusters", k_kmeans, BALLAST_PLACE(std::int64_t, kmeans.clusters)},
    {"storage", k_kmeans, choice_of<BALLAST_AT(kmeans.storage)>(k_storages)},
    {"init", k_kmeans, choice_of<BALLAST_AT(kmeans_wanted.init)>(k_inits)},
    {"n_init", k_kmeans, BALLAST_PLACE(int, kmeans_wanted.n_init)},
    {"max_iter", k_kmeans, BALLAST_PLACE(int, kmeans_wanted.max_iter)},
    {"tol", k_kmeans, BALLAST_PLACE(double, kmeans_wanted.tol)},
    {"seed", k_kmeans, BALLAST_PLACE(std::uint64_t, kmeans_wanted.seed)},
    {"oversampling", k_kmeans, BALLAST_PLACE(double, kmeans_wanted.oversampling)},
    {"rounds", k_kmeans, BALLAST_PLACE(int, kmeans_wanted.rounds)},
    {"rows", k_qr, BALLAST_PLACE(std::int64_t, qr.rows)},
    {"columns", k_qr, BALLAST_PLACE(std::int64_t, qr.columns)},
    {"complex", k_qr, BALLAST_PLACE(bool, qr.complex)},
    {"full_rank", k_qr, BALLAST_PLACE(bool, qr_wanted.full_rank)},
    {"tf32x3", k_qr, BALLAST_PLACE(bool, qr_wanted.tf32x3)},
    {"backend", k_all, choice_of<BALLAST_AT(where.backend)>(k_backends)},
    {"device", k_all, BALLAST_PLACE(int, where.device)},
    {"devices", k_all, BALLAST_PLACE(std::vector<std::int64_t>, devices)},
    {"threads", k_all, BALLAST_PLACE(int, where.threads)},
    {"protection", k_all, choice_of<BALLAST_AT(where.protection)>(k_protections)},
    {"sampled", k_all, BALLAST_PLACE(int, where.sampled)},
    {"scheme", k_all, BALLAST_PLACE(std::string, where.scheme)},
};
#undef BALLAST_PLACE
#undef BALLAST_AT

unsigned bit_of(algorithm which) { return 1u << static_cast<unsigned>(which); }

// The row of a name. Throws with the names that there are.
const row& row_of(const ballast_options& of, const char* given) {
  const std::string_view name = text(given, "name");
  for (const row& each : k_rows) {
    if ((each.algorithms & bit_of(of.which)) != 0 && each.name == name) return each;
  }
  std::vector<std::string_view> known;
  for (const row& each : k_rows) {
    if ((each.algorithms & bit_of(of.which)) != 0) known.push_back(each.name);
  }
  throw invalid_argument_error(
      fmt::format("options of {}: expected one of {}, got \"{}\"", name_of(of.which), core::join(known, ", "), name));
}

// The type of a row as the functions call it.
std::string_view type_of(const any_place& at) {
  constexpr std::string_view names[] = {"an integer", "an integer", "an integer", "an integer", "a number", "integers", "a text", "a text"};
  static_assert(std::size(names) == std::variant_size_v<any_place>);
  return names[at.index()];
}

[[noreturn]] void refuse_type(const row& which, std::string_view got) {
  throw invalid_argument_error(fmt::format("{}: expected {}, got {}", which.name, type_of(which.at), got));
}

template <class T>
const place<T>* as(const row& which) {
  return std::get_if<place<T>>(&which.at);
}

// Reading does not change the options; the places are those of writing.
ballast_options& changeable(const ballast_options& of) { return const_cast<ballast_options&>(of); }

void set_integer(ballast_options& to, const row& which, std::int64_t value) {
  if (const auto* const at = as<std::int64_t>(which)) {
    (*at)(to) = value;
  } else if (const auto* const small = as<int>(which)) {
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
      throw invalid_argument_error(fmt::format("{}: expected a number of 32 bits, got {}", which.name, value));
    (*small)(to) = static_cast<int>(value);
  } else if (const auto* const bits = as<std::uint64_t>(which)) {
    (*bits)(to) = static_cast<std::uint64_t>(value);
  } else if (const auto* const flag = as<bool>(which)) {
    if (value != 0 && value != 1) throw invalid_argument_error(fmt::format("{}: expected 0 or 1, got {}", which.name, value));
    (*flag)(to) = value == 1;
  } else {
    refuse_type(which, "an integer");
  }
}

std::int64_t get_integer(const ballast_options& given, const row& which) {
  ballast_options& of = changeable(given);
  if (const auto* const at = as<std::int64_t>(which)) return (*at)(of);
  if (const auto* const small = as<int>(which)) return (*small)(of);
  if (const auto* const bits = as<std::uint64_t>(which)) return static_cast<std::int64_t>((*bits)(of));
  if (const auto* const flag = as<bool>(which)) return (*flag)(of) ? 1 : 0;
  refuse_type(which, "an integer");
}

void set_text(ballast_options& to, const row& which, std::string_view value) {
  if (const auto* const at = as<std::string>(which)) {
    (*at)(to) = value;
  } else if (const auto* const one = std::get_if<choice>(&which.at)) {
    const auto found = std::ranges::find(one->names, value);
    if (found == one->names.end())
      throw invalid_argument_error(fmt::format("{}: expected one of {}, got \"{}\"", which.name, core::join(one->names, ", "), value));
    one->set(to, static_cast<std::size_t>(found - one->names.begin()));
  } else {
    refuse_type(which, "a text");
  }
}

// The names are literals.
const char* get_text(const ballast_options& given, const row& which) {
  ballast_options& of = changeable(given);
  if (const auto* const at = as<std::string>(which)) return (*at)(of).c_str();
  if (const auto* const one = std::get_if<choice>(&which.at)) return one->names[one->get(of)].data();
  refuse_type(which, "a text");
}

algorithm algorithm_named(std::string_view name) {
  for (const algorithm each : {algorithm::fft, algorithm::kmeans, algorithm::qr}) {
    if (name_of(each) == name) return each;
  }
  throw invalid_argument_error(fmt::format("algorithm: expected fft, kmeans or qr, got \"{}\"", name));
}

}  // namespace

}  // namespace ballast::c

using namespace ballast::c;

int32_t ballast_options_create(const char* algorithm, ballast_options** options, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(options, "options") = nullptr;
    *options = new ballast_options(algorithm_named(text(algorithm, "algorithm")));
  });
}

int32_t ballast_options_copy(const ballast_options* from, ballast_options** options, ballast_error* error) {
  return guarded(error, [&](frame&) {
    output(options, "options") = nullptr;
    *options = new ballast_options(needed(from, "from"));
  });
}

void ballast_options_destroy(ballast_options* options) { destroy(options); }

int32_t ballast_options_set_integer(ballast_options* options, const char* name, int64_t value, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_options& to = needed(options, "options");
    set_integer(to, row_of(to, name), value);
  });
}

int32_t ballast_options_set_integers(ballast_options* options, const char* name, const int64_t* values, size_t count,
                                     ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_options& to = needed(options, "options");
    const row& which = row_of(to, name);
    const auto* const at = as<std::vector<std::int64_t>>(which);
    if (at == nullptr) refuse_type(which, "integers");
    if (count > 0) output(values, "values");
    // No option has more than a number for each axis.
    if (count > 64) throw ballast::invalid_argument_error(ballast::fmt::format("{}: expected at most 64 numbers, got {}", name, count));
    std::vector<std::int64_t> made;
    if (count > 0) made.assign(values, values + count);
    (*at)(to) = std::move(made);
  });
}

int32_t ballast_options_set_number(ballast_options* options, const char* name, double value, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_options& to = needed(options, "options");
    const row& which = row_of(to, name);
    const auto* const at = as<double>(which);
    if (at == nullptr) refuse_type(which, "a number");
    (*at)(to) = value;
  });
}

int32_t ballast_options_set_text(ballast_options* options, const char* name, const char* value, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_options& to = needed(options, "options");
    const row& which = row_of(to, name);
    set_text(to, which, text(value, "value"));
  });
}

int32_t ballast_options_set_problem(ballast_options* options, const char* token, int32_t* direction, ballast_error* error) {
  return guarded(error, [&](frame&) {
    ballast_options& to = needed(options, "options");
    const std::string_view given = text(token, "token");
    std::int32_t way = BALLAST_FORWARD;
    switch (to.which) {
      case algorithm::fft: {
        ballast::fft::token found = ballast::fft::parse_token(given);
        to.fft.kind = found.problem.kind;
        to.fft.precision = found.problem.precision;
        to.fft.shape = std::move(found.problem.shape);
        to.fft.batch = found.problem.batch;
        to.real_kinds.clear();
        for (const ballast::fft::real_kind each : found.problem.real_kinds) to.real_kinds.push_back(static_cast<std::int64_t>(each));
        way = static_cast<std::int32_t>(found.direction);
        break;
      }
      case algorithm::kmeans: to.kmeans = ballast::kmeans::parse_token(given); break;
      case algorithm::qr: to.qr = ballast::qr::parse_token(given); break;
    }
    if (direction != nullptr) *direction = way;
  });
}

int32_t ballast_options_get_integer(const ballast_options* options, const char* name, int64_t* value, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_options& of = needed(options, "options");
    output(value, "value") = get_integer(of, row_of(of, name));
  });
}

int32_t ballast_options_get_integers(const ballast_options* options, const char* name, int64_t* values, size_t room, size_t* count,
                                     ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_options& of = needed(options, "options");
    const row& which = row_of(of, name);
    const auto* const at = as<std::vector<std::int64_t>>(which);
    if (at == nullptr) refuse_type(which, "integers");
    const std::vector<std::int64_t>& found = (*at)(changeable(of));
    output(count, "count") = found.size();
    if (values != nullptr) std::copy_n(found.begin(), std::min(room, found.size()), values);
  });
}

int32_t ballast_options_get_number(const ballast_options* options, const char* name, double* value, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_options& of = needed(options, "options");
    const row& which = row_of(of, name);
    const auto* const at = as<double>(which);
    if (at == nullptr) refuse_type(which, "a number");
    output(value, "value") = (*at)(changeable(of));
  });
}

int32_t ballast_options_get_text(const ballast_options* options, const char* name, const char** value, ballast_error* error) {
  return guarded(error, [&](frame&) {
    const ballast_options& of = needed(options, "options");
    output(value, "value") = get_text(of, row_of(of, name));
  });
}
