// Rewrites PTX line by line: the compiler writes one instruction per line.
#include "strike/ptx.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>

namespace ballast::gpu_check {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Returns whether the line marks a source line. ".local" does not.
bool is_mark(std::string_view line) {
  line = trimmed(line);
  return line.starts_with(".loc\t") || line.starts_with(".loc ");
}

bool is_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

// Returns the registers that a text names, without special ones such as %tid.x, which are no operands of the relevant instructions.
std::vector<std::string> registers_in(std::string_view text) {
  std::vector<std::string> made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') continue;
    std::size_t end = i + 1;
    while (end < text.size() && is_name(text[end])) ++end;
    made.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return made;
}

struct instruction {
  std::string guard;                  // the register of "@%p1" or "@!%p1"; empty: none
  std::string opcode;                 // "fma.rn.f32"
  std::vector<std::string> operands;  // "%r1", "{%r1, %r2}", "[%rd3+8]"
};

// Returns nullopt if the line is not a single instruction.
std::optional<instruction> parsed(std::string_view line) {
  if (const auto comment = line.find("//"); comment != std::string_view::npos) line = line.substr(0, comment);
  line = trimmed(line);
  if (line.empty() || line.back() != ';' || std::ranges::count(line, ';') != 1) return std::nullopt;
  line.remove_suffix(1);
  instruction made;
  if (line.front() == '@') {
    const auto end = std::min(line.find_first_of(" \t"), line.size());
    made.guard = line.substr(line.find('%') == std::string_view::npos ? 1 : line.find('%'), end - std::min(end, line.find('%')));
    line = trimmed(line.substr(end));
  }
  if (line.empty() || line.front() < 'a' || line.front() > 'z') return std::nullopt;
  const auto end = std::min(line.find_first_of(" \t"), line.size());
  made.opcode = line.substr(0, end);
  line = trimmed(line.substr(end));
  int depth = 0;
  std::string operand;
  for (const char c : line) {
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) {
      made.operands.emplace_back(trimmed(operand));
      operand.clear();
    } else {
      operand += c;
    }
  }
  if (!trimmed(operand).empty()) made.operands.emplace_back(trimmed(operand));
  return made;
}

std::string base_of(const std::string& opcode) { return opcode.substr(0, opcode.find('.')); }

// Returns whether the first operand of the instruction is no register that it writes.
bool writes_nothing(const std::string& base) {
  static const std::set<std::string> names = {
      "st",      "bra",           "brx",       "bar",       "barrier",        "membar", "fence",      "ret",      "exit",
      "trap",    "red",           "cp",        "call",      "prefetch",       "wgmma",  "mbarrier",   "stmatrix", "nanosleep",
      "discard", "applypriority", "tensormap", "prefetchu", "griddepcontrol", "setp",   "setmaxnreg", "brkpt"};
  return names.contains(base);
}

bool is_address(const std::string& operand) { return !operand.empty() && operand.front() == '['; }

// Returns whether the operand is a name, not a register, a number or a list.
bool names_variable(const std::string& operand) {
  return !operand.empty() &&
         (std::isalpha(static_cast<unsigned char>(operand.front())) != 0 || operand.front() == '_' || operand.front() == '$');
}

bool has_float_type(const std::string& opcode) {
  return opcode.find(".f32") != std::string::npos || opcode.find(".f64") != std::string::npos;
}

// Returns whether the instruction moves bits: its input is a number if and only if its output is one.
bool is_move(const instruction& one) {
  const std::string base = base_of(one.opcode);
  if (base == "mov" || base == "shfl" || base == "selp") return true;
  // A change of sign.
  return base == "xor" && one.operands.size() == 3 && one.operands[2].front() != '%';
}

class analysis {
 public:
  // First reads widths from declarations, then marks registers that hold numbers, until no more are found.
  explicit analysis(const std::vector<std::string>& body) {
    std::vector<instruction> all;
    for (const std::string& line : body) {
      declare(line);
      if (auto one = parsed(line)) all.push_back(std::move(*one));
    }
    for (const instruction& one : all) seed(one);
    for (bool more = true; more;) {
      const std::size_t before = numbers_.size();
      for (const instruction& one : all) {
        if (is_move(one)) spread(one);
      }
      more = numbers_.size() != before;
    }
    find_control(all);
    for (const instruction& one : all) add_integers(one);
  }

  // Returns whether the register is struck.
  bool is_data(const std::string& name) const { return is_number(name) || integers_.contains(name); }
  bool is_number(const std::string& name) const { return numbers_.contains(name); }

  // Returns the bits of a register; 0 if unknown.
  int width(const std::string& name) const {
    if (const auto at = widths_.find(name); at != widths_.end()) return at->second;
    std::string prefix = name;  // "%f" of "%f12", as ".reg .f32 %f<39>" declares it
    while (!prefix.empty() && prefix.back() >= '0' && prefix.back() <= '9') prefix.pop_back();
    const auto at = widths_.find(prefix + "<");
    return at == widths_.end() ? 0 : at->second;
  }

 private:
  void declare(std::string_view line) {
    line = trimmed(line);
    if (!line.starts_with(".reg")) return;
    const auto dot = line.find('.', 4);
    if (dot == std::string_view::npos) return;
    const auto end = line.find_first_of(" \t", dot);
    if (end == std::string_view::npos) return;
    const std::string_view type = line.substr(dot + 2, end - dot - 2);  // "32" of ".f32"
    int bits = 0;
    std::from_chars(type.data(), type.data() + type.size(), bits);
    std::string_view names = line.substr(end);
    for (std::size_t i = 0; i < names.size();) {
      std::size_t stop = std::min(names.find_first_of(",;", i), names.size());
      const std::string_view name = trimmed(names.substr(i, stop - i));
      if (const auto range = name.find('<'); range != std::string_view::npos) {
        widths_[std::string(name.substr(0, range)) + "<"] = bits;
      } else if (!name.empty()) {
        widths_[std::string(name)] = bits;
      }
      i = stop + 1;
    }
  }

  void add(const std::string& operand) {
    if (is_address(operand)) return;
    for (std::string& name : registers_in(operand)) {
      if (width(name) >= 32) numbers_.insert(std::move(name));
    }
  }

  void seed(const instruction& one) {
    const std::string base = base_of(one.opcode);
    if (!has_float_type(one.opcode) || one.operands.empty()) return;
    if (base == "cvt") {  // types of the result and of the operand
      const auto last = one.opcode.rfind('.');
      const auto first = one.opcode.rfind('.', last - 1);
      if (one.opcode.compare(first, 2, ".f") == 0) add(one.operands[0]);
      if (one.opcode.compare(last, 2, ".f") == 0 && one.operands.size() > 1) add(one.operands[1]);
      return;
    }
    const bool compares = base == "setp" || base == "testp" || base == "set";
    for (std::size_t i = compares ? 1 : 0; i < one.operands.size(); ++i) add(one.operands[i]);
  }

  void spread(const instruction& one) {
    const std::size_t values = base_of(one.opcode) == "selp" ? 3 : base_of(one.opcode) == "shfl" ? 2 : one.operands.size();
    const std::size_t last = std::min(values, one.operands.size());
    bool found = false;
    for (std::size_t i = 0; i < last; ++i) {
      for (const std::string& name : registers_in(one.operands[i])) found = found || is_number(name);
    }
    if (!found) return;
    for (std::size_t i = 0; i < last; ++i) add(one.operands[i].substr(0, one.operands[i].find('|')));
  }

  // Returns the registers that an instruction writes: those of the first operand, "%r1|%p1" and "{%r1, %r2}" included.
  static std::vector<std::string> written(const instruction& one) {
    const std::string base = base_of(one.opcode);
    if (one.operands.empty() || is_address(one.operands[0])) return {};
    if (writes_nothing(base) && base != "setp") return {};
    return registers_in(one.operands[0]);
  }

  // Marks registers that become part of an address, decide a branch, or say how threads are exchanged and shared memory is laid out; and
  // everything that they follow from. Numbers are followed no further: what a comparison or conversion of numbers decides is their matter.
  void find_control(const std::vector<instruction>& all) {
    const auto mark = [&](const std::string& operand) {
      for (std::string& name : registers_in(operand)) {
        if (!is_number(name)) control_.insert(std::move(name));
      }
    };
    for (const instruction& one : all) {
      const std::string base = base_of(one.opcode);
      for (const std::string& operand : one.operands) {
        if (is_address(operand)) mark(operand);
      }
      if (base == "bra" || base == "brx" || base == "ret" || base == "exit") control_.insert(one.guard);
      if (base == "bar" || base == "barrier" || base == "mbarrier" || base == "call" || base == "wgmma" || base == "cp" ||
          base == "nanosleep" || base == "setmaxnreg" || base == "fence" || base == "ldmatrix" || base == "stmatrix") {
        for (const std::string& operand : one.operands) mark(operand);
      }
      if (base == "shfl") {
        for (std::size_t i = 2; i < one.operands.size(); ++i) mark(one.operands[i]);
      }
      if (base == "createpolicy") mark(one.operands[0]);  // a cache policy of loads and stores
      if (base == "vote" || base == "match" || base == "redux" || base == "elect") mark(one.operands.back());
    }
    for (bool more = true; more;) {
      const std::size_t before = control_.size();
      for (const instruction& one : all) {
        const std::vector<std::string> to = written(one);
        if (std::ranges::none_of(to, [&](const std::string& name) { return control_.contains(name); })) continue;
        if (!one.guard.empty()) control_.insert(one.guard);
        for (std::size_t i = 1; i < one.operands.size(); ++i) mark(one.operands[i]);
      }
      more = control_.size() != before;
    }
  }

  // Adds what instructions of integers write, unless it controls something. Special registers (%tid) are moved for addresses only, and the
  // name of a variable stands for its address.
  void add_integers(const instruction& one) {
    const std::string base = base_of(one.opcode);
    if (base == "mov" && one.operands.size() == 2 && names_variable(one.operands[1])) return;
    if (base == "setp" || one.opcode.find(".param") != std::string::npos || one.opcode.find(".pred") != std::string::npos) return;
    for (const std::string& name : written(one)) {
      if (width(name) >= 32 && !is_number(name) && !control_.contains(name)) integers_.insert(name);
    }
  }

  std::map<std::string, int> widths_;
  std::set<std::string> numbers_, control_, integers_;
};

// The source lines: ".loc file line column[, function_name …, inlined_at file line column]" with ".file number "name"".
class source_lines {
 public:
  void take_files(const std::vector<std::string>& lines) {
    for (const std::string& each : lines) {
      std::string_view line = trimmed(each);
      if (!line.starts_with(".file")) continue;
      line = trimmed(line.substr(5));
      const auto open = line.find('"'), close = line.find('"', open + 1);
      if (open == std::string_view::npos || close == std::string_view::npos) continue;
      std::string_view name = line.substr(open + 1, close - open - 1);
      name = name.substr(name.rfind('/') + 1);
      files_[number(line)] = name;
    }
  }

  void take(std::string_view line) {
    if (!is_mark(line)) return;
    line = trimmed(line);
    now_ = read(line.substr(4));
    const auto inlined = line.find("inlined_at");
    if (inlined == std::string_view::npos) {
      callers_.erase(now_);
    } else {
      callers_[now_] = read(line.substr(inlined + 10));
    }
  }

  std::string text() const {
    std::string made;
    spot at = now_;
    for (int depth = 0; depth < 24; ++depth) {
      const auto file = files_.find(std::get<0>(at));
      if (file == files_.end()) break;
      if (file->second != "unroll.cuh") {  // steps of unrolled loops
        made += made.empty() ? "" : " < ";
        made += file->second + ":" + std::to_string(std::get<1>(at));
      }
      const auto caller = callers_.find(at);
      if (caller == callers_.end()) break;
      at = caller->second;
    }
    return made;
  }

 private:
  using spot = std::tuple<int, int, int>;
  static int number(std::string_view& text) {
    text = trimmed(text);
    int value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  }
  static int number(std::string_view&& text) { return number(text); }
  static spot read(std::string_view text) {
    const int file = number(text), line = number(text), column = number(text);
    return {file, line, column};
  }
  std::map<int, std::string> files_;
  std::map<spot, spot> callers_;
  spot now_{};
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> made;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    made.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return made;
}

// Registers of the strike code. The chosen thread, or every thread that looks for a site, counts; all others compare with 0, which no count
// reaches. %strike_only is all ones if one site counts.
constexpr const char* k_begin =
    "\t.reg .pred \t%strike_here, %strike_now;\n"
    "\t.reg .b32 \t%strike_count, %strike_target, %strike_mask, %strike_site, %strike_wanted, %strike_only, %strike_key, %strike_a, "
    "%strike_b;\n"
    "\t.reg .b64 \t%strike_wide, %strike_at, %strike_self, %strike_thread, %strike_many;\n"
    "\tmov.u32 \t%strike_a, %ctaid.x;\n"
    "\tmov.u32 \t%strike_b, %ntid.x;\n"
    "\tmul.wide.u32 \t%strike_self, %strike_a, %strike_b;\n"
    "\tmov.u32 \t%strike_a, %tid.x;\n"
    "\tcvt.u64.u32 \t%strike_thread, %strike_a;\n"
    "\tadd.u64 \t%strike_self, %strike_self, %strike_thread;\n"
    "\tmov.u64 \t%strike_at, ballast_strike;\n"
    "\tld.volatile.global.u64 \t%strike_thread, [%strike_at];\n"
    "\tld.volatile.global.u32 \t%strike_target, [%strike_at+8];\n"
    "\tld.volatile.global.u32 \t%strike_mask, [%strike_at+12];\n"
    "\tld.volatile.global.u64 \t%strike_wide, [%strike_at+16];\n"
    "\tld.volatile.global.u32 \t%strike_wanted, [%strike_at+24];\n"
    "\tld.volatile.global.u32 \t%strike_key, [%strike_at+28];\n"
    "\tsetp.eq.u64 \t%strike_here, %strike_thread, %strike_self;\n"
    "\tselp.b32 \t%strike_target, %strike_target, 0, %strike_here;\n"
    "\tsetp.ne.u32 \t%strike_now, %strike_wanted, 0;\n"
    "\tselp.b32 \t%strike_only, -1, 0, %strike_now;\n"
    "\tmov.u32 \t%strike_count, 0;\n"
    "\tmov.u32 \t%strike_site, 0;\n";
// After an instruction. Lookup table 0x28 of lop3 is (a ^ b) & c.
constexpr const char* k_count =
    "\tlop3.b32 \t%strike_a, %strike_wanted, SITE, %strike_only, 0x28;\n"
    "\tsetp.eq.u32 \t%strike_now, %strike_a, 0;\n"
    "\t@%strike_now add.u32 \t%strike_count, %strike_count, 1;\n"
    "\tsetp.eq.and.u32 \t%strike_now, %strike_count, %strike_target, %strike_now;\n"
    "\t@%strike_now mov.u32 \t%strike_site, SITE;\n"
    "\t@%strike_now xor.b";
// Before a return, which a predicate may keep from being taken: registers of the order stay as they are.
constexpr const char* k_end =
    "\t@%strike_here st.volatile.global.u32 \t[%strike_at+32], %strike_count;\n"
    "\t@%strike_here st.volatile.global.u32 \t[%strike_at+36], %strike_site;\n"
    "\tsetp.ne.u32 \t%strike_now, %strike_key, 0;\n"
    "\tsetp.ne.and.u32 \t%strike_now, %strike_count, 0, %strike_now;\n"
    "\tcvt.u64.u32 \t%strike_thread, %strike_key;\n"
    "\txor.b64 \t%strike_thread, %strike_thread, %strike_self;\n"
    "\tshl.b64 \t%strike_thread, %strike_thread, 24;\n"
    "\tmin.u32 \t%strike_a, %strike_count, 16777215;\n"
    "\tcvt.u64.u32 \t%strike_many, %strike_a;\n"
    "\tor.b64 \t%strike_thread, %strike_thread, %strike_many;\n"
    "\t@%strike_now red.global.max.u64 \t[%strike_at+40], %strike_thread;\n";
constexpr const char* k_variable = ".visible .global .align 8 .b8 ballast_strike[48] = {255, 255, 255, 255, 255, 255, 255, 255};\n";

// Returns the code after an instruction that writes `name`.
std::string strike_code(const std::string& name, int width, std::size_t site) {
  std::string made = k_count;
  const std::string number = std::to_string(site);
  for (auto at = made.find("SITE"); at != std::string::npos; at = made.find("SITE", at)) made.replace(at, 4, number);
  return made + std::to_string(width) + " \t" + name + ", " + name + (width == 32 ? ", %strike_mask" : ", %strike_wide") + ";\n";
}

}  // namespace

struck_ptx with_strikes(std::string_view ptx) {
  const std::vector<std::string> lines = lines_of(ptx);
  const auto begins_entry = [](const std::string& line) { return line.starts_with(".") && line.find(".entry") != std::string::npos; };
  const auto entry = std::ranges::find_if(lines, begins_entry);
  if (entry == lines.end()) throw std::runtime_error("expected PTX with a kernel, got none");
  if (std::find_if(entry + 1, lines.end(), begins_entry) != lines.end())
    throw std::runtime_error("expected PTX with one kernel, got several");
  const auto open = std::find_if(entry, lines.end(), [](const std::string& line) { return trimmed(line) == "{"; });
  int depth = 0;  // braces of inline assembly can be at the beginning of a line
  const auto close = std::find_if(open, lines.end(), [&](const std::string& line) {
    const std::string code = line.substr(0, line.find("//"));
    depth += static_cast<int>(std::ranges::count(code, '{') - std::ranges::count(code, '}'));
    return depth == 0;
  });
  if (open == lines.end() || close == lines.end()) throw std::runtime_error("expected a kernel with a body in braces, got none");

  const std::vector<std::string> body(open + 1, close);
  const analysis known(body);
  source_lines source;
  source.take_files(lines);
  struck_ptx made;
  const auto add = [&](std::string_view line) {
    made.text += line;
    made.text += '\n';
  };
  for (auto line = lines.begin(); line != open; ++line) {
    // Drop directives that limit registers to fit several blocks: the strike code needs a few more.
    const std::string_view directive = trimmed(*line);
    if (is_mark(directive)) continue;
    if (line > entry && (directive.starts_with(".minnctapersm") || directive.starts_with(".maxnreg"))) continue;
    add(*line);
    if (directive.starts_with(".address_size")) made.text += k_variable;
  }
  add(*open);
  made.text += k_begin;
  int calls = 0;  // no code may be inserted into the sequence of a call
  for (const std::string& line : body) {
    source.take(line);
    if (is_mark(line)) continue;  // the sites contain them, and they make machine code large
    const auto one = parsed(line);
    made.has_numbers = made.has_numbers || (one && has_float_type(one->opcode));
    if (one && (base_of(one->opcode) == "ret" || base_of(one->opcode) == "exit")) made.text += k_end;
    add(line);
    if (line.find("// callseq") != std::string::npos) calls += trimmed(line).starts_with("{") ? 1 : -1;
    if (!one || calls > 0 || one->operands.empty() || writes_nothing(base_of(one->opcode)) || is_address(one->operands[0])) continue;
    std::string first = one->operands[0].substr(0, one->operands[0].find('|'));
    for (const std::string& name : registers_in(first)) {
      const int width = known.width(name);
      if (!known.is_data(name) || (width != 32 && width != 64)) continue;
      std::string site(trimmed(line));
      std::erase(site, '\t');
      site += '\t';
      site += source.text();
      made.sites.push_back(std::move(site));
      made.text += strike_code(name, width, made.sites.size());
    }
  }
  add(*close);
  // Functions that the kernel calls may follow it; they are not struck. The rest describes source lines.
  for (auto line = close + 1; line != lines.end(); ++line) {
    const std::string_view directive = trimmed(*line);
    if (directive.starts_with(".file") || directive.starts_with(".section")) break;
    if (!is_mark(directive)) add(*line);
  }
  return made;
}

}  // namespace ballast::gpu_check
