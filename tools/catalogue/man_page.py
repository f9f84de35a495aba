"""Makes a man page of a program's own --help: man_page.py TEMPLATE OUTPUT PROGRAM.

The template is roff. @OPTIONS@ becomes the options of the program, @COMMANDS@ a section for each of its commands with
options, examples; so a page never says other than the program does.
"""

import pathlib
import re
import subprocess
import sys

COLUMN = 30  # where CLI11 begins the help text of an option


def roff(text):
    """Text as it is: no request, no escape, and hyphens that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return "\\&" + text if text[:1] in (".", "'") else text


def help_of(program, *command):
    done = subprocess.run([program, *command, "--help"], text=True, capture_output=True, check=False)
    if done.returncode != 0 or not done.stdout:
        sys.exit(f"{program} {' '.join(command)} --help ended with {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def entries(lines):
    """(left, text) of each entry of a block; where the left side is long its text is on the next line."""
    out = []
    for line, following in zip(lines, [*lines[1:], ""]):
        if line.startswith(" " * COLUMN):
            left, text = out[-1]
            out[-1] = (left, f"{text} {line.strip()}".strip())
        elif following.startswith(" " * COLUMN):
            out.append((line.strip(), ""))
        else:
            out.append((line[:COLUMN].strip(), line[COLUMN:].strip()))
    return out


def blocks(lines):
    """Title -> lines, for each "Title:" and what is indented below it; the rest is the footer."""
    out, footer, title = {}, [], None
    for line in lines:
        # Only blocks of options and commands: examples are indented as well.
        if re.match(r"^[A-Z][A-Za-z ]*:$", line) and line != "Examples:" and not footer:
            title = line[:-1]
            out[title] = []
        elif title and line.startswith("  "):
            out[title].append(line)
        elif line and title:
            footer.append(line)
            title = None
        elif footer:
            footer.append(line)
    return out, footer


def option(left, text):
    """One .TP entry: names and value in front, what CLI11 says of the value as a sentence behind."""
    notes = []
    for pattern, note in ((r" Excludes: (.+)$", "Not with {}."), (r" Needs: (.+)$", "Only with {}."),
                          (r" \(Env:([A-Z_]+)\)", "Also by the environment variable {}."), (r" (?:REQUIRED)", None),
                          (r"=(\S+)$", "Default {}."), (r":\S+ in \[(\S+ - \S+)\]", "From {}.")):
        found = re.search(pattern, left)
        if found:
            left = left[:found.start()] + left[found.end():]
            if note:
                notes.append(note.format(found.group(1).replace(" - ", " to ")))
    choice = re.search(r" \S+:\{([^}]*)\}", left)
    if choice:
        left = left[:choice.start()] + " " + choice.group(1).replace(",", "|")
    left = re.sub(r"\(1x\)|\(\d+ x\)", "", left)
    names, _, value = left.partition(" ")
    head = ", ".join(f"\\fB{roff(name)}\\fR" for name in names.split(","))
    if value:
        head += f" \\fI{roff(value)}\\fR"
    text = text if not text or text.endswith(".") else text + "."
    return [".TP", head, roff(" ".join([text, *reversed(notes)]).strip())]


def options(lines, level):
    found, _ = blocks(lines)
    out = []
    for title, body in found.items():
        if title == "Subcommands":
            continue
        if title not in ("Options", "Positionals"):
            out += [".PP", f"{roff(title)}:"] if level == "SS" else [f".SS {roff(title)}"]
        for left, text in entries(body):
            if level == "SH" or not left.startswith("-h,"):
                out += option(left, text)
    return out


def examples(lines):
    _, footer = blocks(lines)
    if "Examples:" not in footer:
        return []
    body = footer[footer.index("Examples:") + 1:]
    body = body[:body.index("")] if "" in body else [line for line in body if line.startswith("  ")]
    return [".PP", ".EX", *(roff(line.rstrip()) for line in body), ".EE"]


def commands(program):
    found, _ = blocks(help_of(program))
    out = []
    for name, text in entries(found["Subcommands"]):
        lines = help_of(program, name)
        usage = next(line for line in lines if line.startswith("Usage:")).removeprefix("Usage:").strip()
        out += [f".SS weft {roff(name)}", f"\\fBweft {roff(re.sub('[(][^)]*x[)]', '', usage.removeprefix('weft ')))}\\fR",
                ".PP", roff(f"{text[0].upper()}{text[1:]}."), *options(lines, "SS"), *examples(lines)]
    return out


def main():
    template, output, program = sys.argv[1:]
    page = []
    for line in pathlib.Path(template).read_text().splitlines():
        if line == "@OPTIONS@":
            page += options(help_of(program), "SH")
        elif line == "@COMMANDS@":
            page += commands(program)
        else:
            page.append(line)
    pathlib.Path(output).write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
