"""The study of the runs that ship with the project; not installed.

`make study` computes numbers, tables and figures from `results/` and fills them into the pages that
people write: `study/study.md` becomes `docs/study.md`, `study/readme.md` the README.
"""
