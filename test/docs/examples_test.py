#!/usr/bin/env python3
"""Checks what documents refer to: examples, files, links and headings.

Usage: examples_test.py ROOT [--update]
- A block that begins with ```cpp file=NAME or ```c file=NAME in a document equals the file NAME. --update copies the files into the blocks first.
- Every relative link resolves, and so does its #heading.
- Every path in `code` exists: paths that begin with a folder of the project, and single names of sources (line.cuh).
docs/benchmarks and docs/notebook are records of their time: only links are checked there.
Exit status: 0 if all is well, 1 otherwise.
"""

import re
import sys
from pathlib import Path

FOLDERS = "bench|cmake|docs|examples|include|scripts|src|test|tools"
SOURCES = "cpp|cuh|hpp|inc|py|md|cmake"
RECORDS = ("docs/benchmarks/", "docs/notebook/")
LEFT_OUT = {".git", "build", ".cache"}


def files_of(root):
    found = set()
    for path in root.rglob("*"):
        name = path.relative_to(root)
        if not LEFT_OUT.intersection(name.parts) and path.is_file():
            found.add(name.as_posix())
    return found


def folders_of(files):
    return {parent.as_posix() for name in files for parent in Path(name).parents}


def lines_outside_of_fences(text):
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


def headings_of(text):
    """The anchors that GitHub gives to the headings."""
    found = set()
    for _, line in lines_outside_of_fences(text):
        heading = re.match(r"#+ +(.*)", line)
        if heading:
            words = re.sub(r"[^\w\s-]", "", heading.group(1).strip().lower())
            found.add(words.replace(" ", "-"))
    return found


BLOCK = re.compile(r"^```(cpp|c) file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def wrong_blocks(root, text):
    for block in BLOCK.finditer(text):
        source = root / block.group(2)
        if not source.is_file():
            yield f"{block.group(2)}: no such file"
        elif source.read_text() != block.group(3):
            yield f"the block differs from {block.group(2)}: run test/docs/examples_test.py . --update"


def updated(root, text):
    return BLOCK.sub(lambda block: f"```{block.group(1)} file={block.group(2)}\n{(root / block.group(2)).read_text()}```", text)


def wrong_links(root, name, text):
    for number, line in lines_outside_of_fences(text):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, heading = target.partition("#")
            file = (root / name).parent / path if path else root / name
            if not file.exists():
                yield f"{number}: {target}: no such file"
            elif heading and file.suffix == ".md" and heading not in headings_of(file.read_text()):
                yield f"{number}: {target}: no such heading"


def wrong_paths(files, text):
    folders = folders_of(files)
    bare = {Path(name).name for name in files}
    for number, line in lines_outside_of_fences(text):
        for code in re.findall(r"`([^`]+)`", line):
            for word in code.split():
                word = word.rstrip("/,;:")
                if re.fullmatch(rf"(?:{FOLDERS})/[\w./-]+", word):
                    if word not in files and word not in folders:
                        yield f"{number}: `{word}`: no such file or folder"
                elif re.fullmatch(rf"\w[\w-]*\.(?:{SOURCES})", word) and word not in bare:
                    yield f"{number}: `{word}`: no source has this name"
                elif re.fullmatch(rf"\w[\w/-]*/[\w-]+\.(?:{SOURCES})", word) and not any(f"/{each}".endswith(f"/{word}") for each in files):
                    yield f"{number}: `{word}`: no source has this name"


def self_test(root, files):
    """The checks find what is wrong."""
    return (
        list(wrong_paths(files, "`src/no/such.cpp` and `no_such.cuh`"))
        and list(wrong_links(root, "README.md", "[x](docs/no-such.md) [y](README.md#no-such-heading)"))
        and list(wrong_blocks(root, "```cpp file=examples/fft.cpp\nint x;\n```\n"))
    )


def main():
    root = Path(sys.argv[1])
    files = files_of(root)
    wrong = []
    blocks = 0
    documents = sorted(name for name in files if name.endswith(".md") and (name.startswith("docs/") or "/" not in name))
    for name in documents:
        text = (root / name).read_text()
        if "--update" in sys.argv[2:] and updated(root, text) != text:
            text = updated(root, text)
            (root / name).write_text(text)
        blocks += len(BLOCK.findall(text))
        found = [*wrong_blocks(root, text), *wrong_links(root, name, text)]
        if not name.startswith(RECORDS):
            found += wrong_paths(files, text)
        wrong += [f"{name}: {each}" for each in found]
    for each in wrong:
        print(each)
    print(f"{len(documents)} documents, {blocks} examples, {len(wrong)} errors")
    if blocks < 3 or not self_test(root, files):
        print("the test itself finds too little")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
