"""Compares the symbols of a shared library with the committed list, and its ABI with the committed baseline.

Usage: abi_test.py LIBRARY FOLDER [--names PATTERN] [--types LIBRARY] [--update]
FOLDER has symbols.txt (demangled, sorted) and, written by abidw, ballast.abi. --update rewrites both. With --names the list has the version
of each symbol, and each line must match PATTERN; without, it must name namespace ballast. With --types the baseline is that of another library,
which has the same functions with debug information.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys


def symbols(library, versions):
    out = subprocess.run(["nm", "-DC", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = {line.split(" ", 2)[2] for line in out.splitlines() if " A " not in line}
    return sorted(names if versions else {name.split("@@")[0] for name in names})


def differences(have, want):
    return [f"+ {each}" for each in have if each not in want] + [f"- {each}" for each in want if each not in have]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--names")
    parser.add_argument("--types")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    library, folder, typed = given.library, given.folder, given.types or given.library
    names, baseline = folder / "symbols.txt", folder / "ballast.abi"
    have = symbols(library, given.names is not None)
    if symbols(typed, True) != symbols(library, True):
        print("the library with types has other functions")
        return 1
    if given.update:
        names.write_text("\n".join(have) + "\n")
        subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", baseline, typed], check=True)
        baseline.write_text(re.sub(r" path='[^']*/", " path='", baseline.read_text()))
        return 0
    want = names.read_text().splitlines()
    wrong = differences(have, want)
    pattern = re.compile(given.names or ".*ballast::.*")
    outside = [each for each in have if not pattern.fullmatch(each)]
    for each in wrong + [f"not a name of this library: {each}" for each in outside]:
        print(each)
    if not differences(have[1:], have):
        print("self-test: a symbol that is missing was not seen")
        return 1
    if shutil.which("abidiff") is None:
        print("abidiff (abigail-tools) is not installed: only the list of symbols was compared")
    else:
        found = subprocess.run(["abidiff", baseline, typed], capture_output=True, text=True)
        if found.returncode != 0:
            print(found.stdout)
            wrong.append("abidiff")
    if wrong or outside:
        print(f"If the change is meant: python3 {sys.argv[0]} {library} {folder} --update, and say so in CHANGELOG.md.")
    return 1 if wrong or outside else 0


if __name__ == "__main__":
    sys.exit(main())
