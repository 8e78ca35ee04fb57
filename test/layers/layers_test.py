"""Reads every #include of the project and fails where one points up, or sideways, in the table of docs/design/layers.md.

Usage: layers_test.py ROOT
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| *(\d+) *\| *((?:`[^`]+`(?:, *)?)+) *\|")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


def levels_of(document):
    """{folder: (level, folder)} from the table's rows: | level | `folder`, `folder` | … |, the lowest level first."""
    found = {}
    for line in document.read_text().splitlines():
        row = ROW.match(line)
        if row:
            for folder in re.findall(r"`([^`]+)`", row.group(2)):
                found[folder] = int(row.group(1))
    return found


def folder_of(path, levels):
    """The longest folder of the table that holds `path`, or None."""
    fits = [folder for folder in levels if path == folder or path.startswith(folder + "/")]
    return max(fits, key=len, default=None)


def resolve(root, includer, name):
    """The project's file that `includer` means by `name`, relative to root; None for a header of somebody else."""
    for base in ("src", "include", "test", "tools", "bench", str(pathlib.PurePath(includer).parent)):
        candidate = pathlib.PurePath(base, name)
        if (root / candidate).is_file():
            return str(candidate)
    return None


def arrows_up(root, levels, files):
    """What is wrong, as sentences."""
    wrong = []
    for path in files:
        here = folder_of(path, levels)
        if here is None:
            wrong.append(f"{path}: no row of the table has its folder")
            continue
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            target = resolve(root, path, found.group(1)) if found else None
            there = folder_of(target, levels) if target else None
            if there is None or there == here:
                continue
            if levels[there] > levels[here]:
                wrong.append(f"{path}:{number}: {here} (level {levels[here]}) includes {target} of level {levels[there]}")
            elif levels[there] == levels[here]:
                wrong.append(f"{path}:{number}: {here} includes {target} of its own level")
    return wrong


def self_test(root, levels, files):
    """With the table upside down the same reading must find arrows: the test can fail."""
    highest = max(levels.values())
    turned = {folder: highest - level for folder, level in levels.items()}
    return len(arrows_up(root, turned, files)) > 0


def main():
    root = pathlib.Path(sys.argv[1])
    levels = levels_of(root / "docs/design/layers.md")
    files = sorted(
        str(path.relative_to(root))
        for folder in ("include", "src", "tools", "bench")
        for path in (root / folder).rglob("*")
        if path.suffix in (".hpp", ".cpp", ".cuh")
    )
    wrong = arrows_up(root, levels, files)
    for each in wrong:
        print(each)
    if not self_test(root, levels, files):
        print("the table turned upside down has no arrow up either: nothing was read")
        return 1
    print(f"{len(files)} files, {len(levels)} folders, {len(wrong)} arrows up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
