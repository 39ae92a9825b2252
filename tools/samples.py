#!/usr/bin/env python3
"""Draw random texts of the repository for a review of their wording.

    tools/samples.py [--seed N] [--count N] > samples.md

The same seed draws the same texts from the same commit. A reader who knows durable workflows, PostgreSQL and Linux, but
not this code, grades each text: 1 = understood at first read, 2 = understood after some thought, 3 = not understood
without the code. The target is at least 92 % of grade 1 and at most 2 % of grade 3.
"""

import argparse
import random
import re
import subprocess
import sys

# Of 250 texts: comments 36 %, paragraphs of documents 16 %, errors, log lines and names 12 % each, help texts and commit
# titles 6 % each.
SHARES = {
    "comment": 36, "paragraph": 16, "error": 12, "log line": 12, "name": 12, "help": 6, "commit title": 6,
}


def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout


def tracked(*patterns):
    for path in git("ls-files", "--", *patterns).splitlines():
        if "/testdata/" in path or "/node_modules/" in path:
            continue
        with open(path, encoding="utf-8") as file:
            yield path, file.read()


def literals(text):
    """Join the Go string literals of an expression, with … for everything in between."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|`([^`]*)`', text)
    return " … ".join(a or b for a, b in found).strip()


def comments(path, code):
    block, first = [], 0
    lines = code.splitlines()
    for number, line in enumerate(lines + [""], 1):
        match = re.match(r"\s*//\s?(.*)", line)
        if match and not re.match(r"\s*//(go:|nolint|#)", line):
            if not block:
                first = number
            block.append(match[1])
            continue
        if block:
            following = line.strip()[:100]
            yield f"{path}:{first}", " ".join(block) + (f"\n\n      {following}" if following else "")
        block = []


def go_texts():
    found = {kind: [] for kind in ("comment", "error", "log line", "name", "help")}
    for path, code in tracked("*.go"):
        found["comment"] += comments(path, code)
        if path.endswith("_test.go"):
            continue
        for match in re.finditer(r"(?:errors\.New|fmt\.Errorf|\.Refuse|protocol\.Invalid)\(((?:[^()]|\([^()]*\))*)\)", code):
            text = literals(match[1])
            if len(re.findall(r"(?<!%)\b[a-z]{2,}", text)) >= 3:  # more than the place of a wrapped error
                found["error"].append((path, text))
        for match in re.finditer(r"\.(Info|Warn|Error|Debug)\(\)((?:[^;{}]|\n)*?)\.\s*Msgf?\(((?:[^()]|\([^()]*\))*)\)", code):
            keys = re.findall(r'\.\s*(?:Str|Int64?|Err|Dur|Float64|Time|Bool|Strs)\("?(\w*)', match[2])
            if text := literals(match[3]):
                found["log line"].append((path, f'{match[1].lower()} "{text}" {" ".join(k for k in keys if k)}'))
        for match in re.finditer(r"(?m)^func (\([^)]*\) )?(\w+)\([^\n]*", code):
            found["name"].append((path, match[0].rstrip(" {")))
        for match in re.finditer(r"(?:Short|help):\s*((?:\"(?:[^\"\\]|\\.)*\"\s*\+?\s*)+)", code):
            if text := literals(match[1]):
                found["help"].append((path, text))
    return found


def paragraphs():
    for path, page in tracked("*.md"):
        page = re.sub(r"(?ms)^\s*```.*?^\s*```[^\n]*$", "", page)
        for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", page):
            block = " ".join(block.split())
            if len(block.split()) >= 6 and not block.startswith(("|", "#", "<")):
                yield path, block


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=250)
    args = parser.parse_args()
    found = go_texts()
    found["paragraph"] = list(paragraphs())
    found["commit title"] = [("", title) for title in git("log", "-300", "--format=%s").splitlines()]
    choice = random.Random(args.seed)
    number = 0
    for kind, share in SHARES.items():
        wanted = round(args.count * share / 100)
        if len(found[kind]) < wanted:
            sys.exit(f"only {len(found[kind])} texts of kind {kind}, {wanted} wanted")
        print(f"\n## {kind}: {wanted} of {len(found[kind])}\n")
        for path, text in choice.sample(sorted(found[kind]), wanted):
            number += 1
            print(f"{number}. {path} {text}".replace("  ", " ") if path else f"{number}. {text}")


if __name__ == "__main__":
    main()
