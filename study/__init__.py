"""The study of the runs that ship with the project; not installed.

`make study` computes numbers, tables and figures from `results/` and fills them into the pages that
people write: `study/study.md` becomes `docs/study.md`, `study/readme_results.md` a section of the
README.
"""
