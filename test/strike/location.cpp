// Finds modules with dl_iterate_phdr, and source lines with addr2line, which is called once for each module.
#include "location.hpp"

#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <set>

#include <fmt/format.h>

namespace ballast::strike {
namespace {

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string quoted(const std::string& text) {
  std::string made = "'";
  for (const char c : text) made += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return made + "'";
}

// Shortens a function name: removes the arguments of functions and templates, and the namespaces that all functions share.
std::string shortened(std::string name) {
  for (const std::string_view part : {"(anonymous namespace)::", "ballast::"}) {
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part)) name.erase(at, part.size());
  }
  if (const auto at = name.find("N_"); at != std::string::npos) {  // the SIMD library's namespace for an instruction set
    if (const auto end = name.find("::", at); end != std::string::npos) name.erase(at, end + 2 - at);
  }
  std::string made;
  int depth = 0;
  for (const char c : name) {
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) made += c;
    if ((c == '>' || c == ')') && depth > 0) --depth;
  }
  if (const auto space = made.rfind(' '); space != std::string::npos && made.find("operator") == std::string::npos)
    made.erase(0, space + 1);  // removes the return type
  return made.empty() ? name : made;
}

}  // namespace

code_address code_at(std::uint64_t address) {
  struct search {
    std::uint64_t address;
    code_address found;
  } wanted{address, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& to = *static_cast<search*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          const std::uint64_t first = info->dlpi_addr + part.p_vaddr;
          if (part.p_type != PT_LOAD || to.address < first || to.address >= first + part.p_memsz) continue;
          std::string name = info->dlpi_name;
          if (name.empty()) {
            std::array<char, 4096> self{};
            const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
            if (length > 0) name.assign(self.data(), static_cast<std::size_t>(length));
          }
          to.found = {name, to.address - info->dlpi_addr};
          return 1;
        }
        return 0;
      },
      &wanted);
  return wanted.found;
}

std::map<code_address, std::string> source_locations(const std::vector<code_address>& addresses) {
  std::map<std::string, std::set<std::uint64_t>> modules;
  for (const code_address& each : addresses) modules[each.module].insert(each.offset);
  std::map<code_address, std::string> made;
  for (const auto& [module, offsets] : modules) {
    for (const std::uint64_t offset : offsets)
      made[{module, offset}] = fmt::format("{}+{:#x}", module.empty() ? "?" : base_name(module), offset);
    if (module.empty()) continue;
    std::string command = "addr2line -a -f -i -C -e " + quoted(module);
    for (const std::uint64_t offset : offsets) command += fmt::format(" {:#x}", offset);
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) continue;
    std::array<char, 65536> line{};
    std::vector<std::string> frames;  // the frames of one address: function, file:line, function of the caller, …
    std::uint64_t offset = 0;
    const auto finish = [&] {
      if (frames.size() < 2 || frames[0] == "??") return;
      // Skips frames of system headers (intrinsics, the SIMD library, the standard library): the library's own lines called them.
      std::string text;
      int shown = 0;
      for (std::size_t i = 0; i + 1 < frames.size() && shown < 4; i += 2) {
        const bool last = i + 3 >= frames.size();
        if (frames[i + 1].starts_with("/usr/") && !(last && shown == 0)) continue;
        std::string at = base_name(frames[i + 1]);
        if (const auto note = at.find(" ("); note != std::string::npos) at.resize(note);
        text += (shown++ == 0 ? "" : " < ") + shortened(frames[i]) + (at.starts_with("?") ? "" : " (" + at + ")");
      }
      made[{module, offset}] = text;
    };
    while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
      std::string text = line.data();
      while (!text.empty() && text.back() == '\n') text.pop_back();
      if (text.starts_with("0x")) {
        finish();
        frames.clear();
        offset = std::stoull(text, nullptr, 16);
      } else {
        frames.push_back(text);
      }
    }
    finish();
    pclose(pipe);
  }
  return made;
}

}  // namespace ballast::strike
