// Tuning tables: measured choices for an algorithm's kernels on an architecture, where they are faster than the algorithm's rules.
// One file holds the entries of all algorithms, one per line, with the algorithm's name first: "fft sm_90 f32 1024 … 1.08".
// Layer: foundation. `ballast tune` writes the file; each algorithm defines the meaning of its lines.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::cuda {

// A line of the file without its algorithm.
struct tuning_line {
  int number;  // counted from 1
  std::string algorithm;
  std::string text;
};

// Returns all lines except empty ones and comments, which begin with #. Lines that begin with an architecture have the older format without
// algorithm: they belong to the FFT.
std::vector<tuning_line> tuning_lines(std::string_view text);

// Returns the lines of `text` that belong to other algorithms, unchanged: the tuner of this algorithm keeps them when it writes the file.
std::string tuning_lines_of_others(std::string_view text, std::string_view algorithm);

// Returns a warning for each line of an algorithm that is not in `known`: this version skips it.
std::vector<std::string> tuning_warnings(std::string_view text, const std::vector<std::string_view>& known);

// Return the path of tuning.txt in the cache folder, which plans read (empty without a cache folder), and its content ("" if there is no
// file).
std::filesystem::path user_tuning_file();
std::string user_tuning();

// Thrown by an algorithm's reader; the message is the expected word or value.
class unknown_tuning : public std::runtime_error {
 public:
  explicit unknown_tuning(const std::string& expected) : std::runtime_error(expected) {}
};

// Returns 90 for "sm_90"; throws unknown_tuning if the word is not an architecture.
int read_architecture(const std::string& word);

// The entries of one algorithm. Form defines its lines:
//   struct form {
//     struct key { … };    // the ordered key of an entry: the major compute capability, precision, sizes, …
//     struct value { … };  // the tuned parameters, and their measured gain
//     static constexpr std::string_view algorithm = "kmeans", built_in = "kmeans sm_90 …\n…";
//     static void read(std::istream& words, key&, value&);  // throws unknown_tuning for unknown words
//     static void write(std::ostream&, const key&, const value&);
//   };
template <class Form>
class tuning_entries {
 public:
  using key = typename Form::key;
  using value = typename Form::value;

  // Parses the lines of this algorithm in `text`. A line that this version does not know, because another version wrote it, is skipped with
  // a warning.
  static tuning_entries parse(std::string_view text) {
    tuning_entries made;
    made.read(text);
    return made;
  }
  // Returns the built-in entries, overridden by those of the user's file.
  static tuning_entries installed() {
    tuning_entries made = parse(Form::built_in);
    made.read(user_tuning());
    return made;
  }

  // Returns every entry as a line, followed by the skipped lines, so that writing the file loses nothing.
  std::string to_text() const {
    std::ostringstream text;
    for (const auto& [k, v] : entries_) {
      text << Form::algorithm << ' ';
      Form::write(text, k, v);
      text << '\n';
    }
    for (const std::string& line : skipped_) text << Form::algorithm << ' ' << line << '\n';
    return text.str();
  }

  void set(const key& at, value chosen) { entries_.insert_or_assign(at, std::move(chosen)); }
  void remove(const key& at) { entries_.erase(at); }
  std::optional<value> find(const key& at) const {
    const auto found = entries_.find(at);
    return found == entries_.end() ? std::nullopt : std::optional<value>(found->second);
  }
  const std::map<key, value>& entries() const noexcept { return entries_; }

  // Returns one warning for each skipped line: "tuning table, line 3: expected …, got "…"; skipped".
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  void read(std::string_view text) {
    for (const tuning_line& line : tuning_lines(text)) {
      if (line.algorithm != Form::algorithm) continue;
      try {
        std::istringstream words(line.text);
        key at{};
        value chosen{};
        Form::read(words, at, chosen);
        set(at, std::move(chosen));
      } catch (const unknown_tuning& wrong) {
        skipped_.push_back(line.text);
        warnings_.push_back("tuning table, line " + std::to_string(line.number) + ": expected " + wrong.what() + ", got \"" + line.text +
                            "\"; skipped");
      }
    }
  }

  std::map<key, value> entries_;
  std::vector<std::string> skipped_, warnings_;
};

}  // namespace ballast::cuda
