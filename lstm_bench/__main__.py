"""`python -m lstm_bench` is `lstm-bench`."""

from lstm_bench.cli import main

main()
