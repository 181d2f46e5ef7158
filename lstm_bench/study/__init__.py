"""The study of the runs that ship with the project: `make study` writes docs/study.md.

One file per section, each a pure function of the runs; `page` puts them in order. No number and
no conclusion is typed: words such as "holds" are chosen by `rules`.
"""
