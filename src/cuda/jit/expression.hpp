// Writes kernels as C++ text: a policy as a struct with designated initialisers, and the template instantiation that a request names.
// Layer: foundation.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace ballast::cuda {

namespace detail {

inline std::string literal(bool value) { return value ? "true" : "false"; }
inline std::string literal(int value) { return std::to_string(value); }
template <class Value, std::size_t Count>
std::string literal(const Value (&values)[Count]) {
  std::string text = "{";
  for (const Value& each : values) text.append(text.size() > 1 ? "," : "").append(literal(each));
  return text + "}";
}

}  // namespace detail

// Writes a policy as an expression that every C++20 compiler reads, in the host's process and in the kernel's:
// "ns::policy{.wide=true,.length=64}". Members with their default value are omitted, so that the text is short and does not change when a
// policy gets a new member. A policy is an aggregate of bool, int, enumerations, nested policies, and arrays of these.
//
//   policy_text(value, "ballast::kmeans::cuda::tile_policy").add("wide", &tile_policy::wide).add("points", &tile_policy::points).text()
template <class Policy>
class policy_text {
 public:
  // `type`: the fully qualified name of Policy; "" inside an initialiser that already names it.
  policy_text(const Policy& value, std::string_view type) : value_(value), text_(type) { text_ += '{'; }

  // Adds a member. Members must be added in the order of their declaration.
  template <class Member>
  policy_text& add(std::string_view name, Member Policy::*member) {
    if (same(value_.*member, usual_.*member)) return *this;
    return append(name, detail::literal(value_.*member));
  }
  // Adds an enumeration, with the name of its type.
  template <class Member>
  requires std::is_enum_v<Member> policy_text& add(std::string_view name, Member Policy::*member, std::string_view type) {
    if (value_.*member == usual_.*member) return *this;
    std::string made(type);
    made.append(1, '(').append(std::to_string(static_cast<int>(value_.*member))).append(1, ')');
    return append(name, made);
  }
  // Adds an array of nested policies; write(element) returns the text of one element.
  template <class Element, std::size_t Count, class Write>
  policy_text& add(std::string_view name, Element (Policy::*member)[Count], Write&& write) {
    if (same(value_.*member, usual_.*member)) return *this;
    std::string made = "{";
    for (const Element& each : value_.*member) made.append(made.size() > 1 ? "," : "").append(write(each));
    return append(name, made + "}");
  }

  std::string text() const { return text_ + "}"; }

 private:
  template <class Value>
  static bool same(const Value& x, const Value& y) {
    return x == y;
  }
  template <class Value, std::size_t Count>
  static bool same(const Value (&x)[Count], const Value (&y)[Count]) {
    for (std::size_t i = 0; i < Count; ++i) {
      if (!(x[i] == y[i])) return false;
    }
    return true;
  }
  policy_text& append(std::string_view name, const std::string& value) {
    if (text_.back() != '{') text_ += ',';
    text_.append(1, '.').append(name).append(1, '=').append(value);
    return *this;
  }

  const Policy& value_;
  const Policy usual_{};
  std::string text_;
};

// Returns the instantiation of a template over policies and the injector, for example
// "ballast::kmeans::cuda::assign_kernel<policy,injector>". `instrumented`: the instantiation into which faults can be injected.
inline std::string kernel_expression(std::string_view kernel, std::initializer_list<std::string> policies, bool instrumented) {
  std::string text(kernel);
  text += '<';
  for (const std::string& each : policies) text += each + ',';
  return text + (instrumented ? "ballast::inject::device_injector>" : "ballast::inject::no_device_injector>");
}

}  // namespace ballast::cuda
