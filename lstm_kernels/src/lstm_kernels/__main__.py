"""`python -m lstm_kernels --cflags --libs`: what a C compiler needs for lstm_kernels.h."""

import sys

from lstm_kernels.native import PATH

FLAGS = {"--cflags": f"-I{PATH.parent}", "--libs": f"{PATH} -Wl,-rpath,{PATH.parent}"}

if __name__ == "__main__":
    asked = sys.argv[1:]
    if not asked or not set(asked) <= set(FLAGS):
        sys.exit(f"usage: python -m lstm_kernels {' '.join(f'[{flag}]' for flag in FLAGS)}")
    print(*(FLAGS[flag] for flag in asked))
