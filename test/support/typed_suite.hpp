// Typed test suites whose types a program's filter chooses: TYPED_SUITE(suite, types, names) in place of TYPED_TEST_SUITE. A type whose
// tests would all be filtered out at run time is not compiled. The filter is the one that CTest hands to the program, BALLAST_TEST_FILTER
// (ballast_test in test/CMakeLists.txt); without it every type is compiled.
// Layer: test harness.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <gtest/gtest.h>

#include <ballast/types.hpp>

namespace ballast::test {

// Returns the name of a type of numbers, for instance "f32" or "c128"; with `which`, after that of a backend: "cpu_f32".
template <class T>
constexpr const char* name_of_numbers() {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
    return sizeof(T) == 8 ? "c64" : "c128";
  else
    return sizeof(T) == 4 ? "f32" : "f64";
}
template <class T>
constexpr const char* name_of_numbers(backend which) {
  constexpr bool complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
  constexpr int number = (complex ? 2 : 0) + (sizeof(T) == (complex ? 8 : 4) ? 0 : 1);
  constexpr const char* reference[] = {"reference_f32", "reference_f64", "reference_c64", "reference_c128"};
  constexpr const char* cpu[] = {"cpu_f32", "cpu_f64", "cpu_c64", "cpu_c128"};
  constexpr const char* cuda[] = {"cuda_f32", "cuda_f64", "cuda_c64", "cuda_c128"};
  return which == backend::reference ? reference[number] : which == backend::cpu ? cpu[number] : cuda[number];
}
// The names of a suite whose types are numbers, or settings of which only `real`, the type of numbers, tells them apart.
struct number_names {
  template <class T>
  static constexpr const char* GetName(int) {
    if constexpr (requires { typename T::real; })
      return name_of_numbers<typename T::real>();
    else
      return name_of_numbers<T>();
  }
};
// The names of a suite whose types are settings: numbers `real` on the backend `which`.
struct setting_names {
  template <class Setting>
  static constexpr const char* GetName(int) {
    return name_of_numbers<typename Setting::real>(Setting::which);
  }
};

// Returns whether `pattern`, in which * stands for any text, matches the name of a test that begins with `start`. The name of a test of a
// typed suite, suite/type.test, has one / and one dot: a * does not stand for one that the pattern still names.
constexpr bool matches_some(std::string_view pattern, std::string_view start) {
  if (start.empty()) return true;
  if (pattern.empty()) return false;
  const std::string_view rest = pattern.substr(1);
  if (pattern[0] != '*') return pattern[0] == start[0] && matches_some(rest, start.substr(1));
  const bool named = (start[0] == '/' || start[0] == '.') && rest.find(start[0]) != std::string_view::npos;
  return matches_some(rest, start) || (!named && matches_some(pattern, start.substr(1)));
}
// Returns whether it matches all names that begin with `start`.
constexpr bool matches_all(std::string_view pattern, std::string_view start) {
  if (pattern == "*") return true;
  if (pattern.empty() || start.empty()) return false;
  if (pattern[0] == '*') return matches_all(pattern.substr(1), start) || matches_all(pattern, start.substr(1));
  return pattern[0] == start[0] && matches_all(pattern.substr(1), start.substr(1));
}

// Returns whether `matches` holds for one of the patterns, which colons separate, and `start`.
constexpr bool any_of(std::string_view patterns, std::string_view start, bool (*matches)(std::string_view, std::string_view)) {
  while (!patterns.empty()) {
    const std::size_t end = std::min(patterns.find(':'), patterns.size());
    if (end > 0 && matches(patterns.substr(0, end), start)) return true;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

// Returns whether GoogleTest's filter `filter` ("patterns-patterns of what is left out") may let a test run whose name begins with `start`.
constexpr bool may_run(std::string_view filter, std::string_view start) {
  const std::size_t minus = std::min(filter.find('-'), filter.size());
  const std::string_view only = filter.substr(0, minus), without = filter.substr(std::min(minus + 1, filter.size()));
  return (only.empty() || any_of(only, start, matches_some)) && !any_of(without, start, matches_all);
}

#if defined(BALLAST_TEST_FILTER)
inline constexpr std::string_view k_filter = BALLAST_TEST_FILTER;
#else
inline constexpr std::string_view k_filter;
#endif

// The name of a suite as an argument of a template.
template <std::size_t Size>
struct suite_name {
  char text[Size] = {};
  // NOLINTNEXTLINE(google-explicit-constructor): from a literal
  consteval suite_name(const char (&literal)[Size]) { std::copy_n(literal, Size, text); }
};

// Returns whether a test of this suite and type may run.
template <suite_name Suite, class Names, class T>
consteval bool type_may_run() {
  char start[64] = {};
  std::size_t size = 0;
  const auto append = [&](std::string_view part) {
    for (const char each : part) start[size++] = each;
  };
  append(Suite.text);
  append("/");
  append(Names::template GetName<T>(0));
  append(".");
  return may_run(k_filter, std::string_view(start, size));
}

template <suite_name Suite, class Names, class Types>
struct chosen_types;
template <suite_name Suite, class Names, class First, class... Others>
struct chosen_types<Suite, Names, testing::Types<First, Others...>> {
 private:
  template <class T>
  using if_chosen = std::conditional_t<type_may_run<Suite, Names, T>(), std::tuple<std::type_identity<T>>, std::tuple<>>;
  template <class... Ts>
  static auto types_of(std::tuple<std::type_identity<Ts>...>) {
    if constexpr (sizeof...(Ts) > 0)
      return std::type_identity<testing::Types<Ts...>>{};
    else
      return std::type_identity<testing::Types<First>>{};  // GoogleTest takes no empty list
  }

 public:
  using type = typename decltype(types_of(std::tuple_cat(if_chosen<First>{}, if_chosen<Others>{}...)))::type;
};

}  // namespace ballast::test

#define TYPED_SUITE(suite, types, names)                                                           \
  using suite##_chosen_types = typename ::ballast::test::chosen_types<#suite, names, types>::type; \
  TYPED_TEST_SUITE(suite, suite##_chosen_types, names)
