#!/usr/bin/env python3
"""Writes the King James Bible as plain text, from Debian's package bible-kjv (the program `bible`, version 4.38).

    apt-get install bible-kjv && python3 corpus.py OUT_DIR

Writes OUT_DIR/train.txt and OUT_DIR/heldout.txt. A chapter is a heading, an empty line and one verse a line:

    Psalms 23

    1 The LORD is my shepherd; I shall not want.

Chapters are separated by a line that holds a single form feed; the tokenizer step puts the end-of-text token there.
Every 50th chapter of the whole Bible is held out.
"""
import hashlib
import pathlib
import re
import subprocess
import sys

BOOKS = """Genesis|Exodus|Leviticus|Numbers|Deuteronomy|Joshua|Judges|Ruth|1 Samuel|2 Samuel|1 Kings|2 Kings|1 Chronicles|
2 Chronicles|Ezra|Nehemiah|Esther|Job|Psalms|Proverbs|Ecclesiastes|Song of Solomon|Isaiah|Jeremiah|Lamentations|Ezekiel|
Daniel|Hosea|Joel|Amos|Obadiah|Jonah|Micah|Nahum|Habakkuk|Zephaniah|Haggai|Zechariah|Malachi|Matthew|Mark|Luke|John|Acts|
Romans|1 Corinthians|2 Corinthians|Galatians|Ephesians|Philippians|Colossians|1 Thessalonians|2 Thessalonians|1 Timothy|
2 Timothy|Titus|Philemon|Hebrews|James|1 Peter|2 Peter|1 John|2 John|3 John|Jude|Revelation""".replace("\n", "").split("|")
HOLD_OUT_EVERY = 50
SEPARATOR = "\f\n"
# Of all chapters joined by SEPARATOR: says whether another machine extracted the same text.
SHA256 = "d77486ab678da1769af699cbdbe6c08eb9135dae882c52260586b34132238fad"


def chapters():
    raw = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    out, book, seen = [], -1, None
    for line in raw.stdout.splitlines():
        abbreviation, chapter, verse, text = re.fullmatch(r"(\d?[A-Za-z]+)(\d+):(\d+) (.*)", line).groups()
        if abbreviation != seen:  # the program's abbreviations are its own; the order of the books is not
            book, seen = book + 1, abbreviation
        if verse == "1":
            out.append(f"{BOOKS[book]} {chapter}\n\n")
        out[-1] += f"{verse} {' '.join(text.split())}\n"
    return out


def main():
    out_dir = pathlib.Path(sys.argv[1])
    out_dir.mkdir(parents=True, exist_ok=True)
    every = chapters()
    digest = hashlib.sha256(SEPARATOR.join(every).encode()).hexdigest()
    if digest != SHA256:
        sys.exit(f"the text differs from the one that the checkpoint was trained on: sha256 {digest}, expected {SHA256}")
    held_out = every[HOLD_OUT_EVERY - 1 :: HOLD_OUT_EVERY]
    train = [c for i, c in enumerate(every) if i % HOLD_OUT_EVERY != HOLD_OUT_EVERY - 1]
    for name, part in (("train", train), ("heldout", held_out)):
        text = SEPARATOR.join(part)
        (out_dir / f"{name}.txt").write_text(text)
        print(f"{name}.txt: {len(part)} chapters, {len(text)} bytes")


if __name__ == "__main__":
    main()
