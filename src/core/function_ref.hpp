// A non-owning reference to a callable. Loop bodies are passed as one, without allocation.
// Layer: foundation.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace ballast::core {

template <class Signature>
class function_ref;

template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, function_ref>)
      function_ref(Callable&& callable)  // NOLINT(bugprone-forwarding-reference-overload): clang-tidy 14 overlooks the constraint
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace ballast::core
