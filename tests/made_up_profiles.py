"""The old name of `builders`."""

from builders import *  # noqa: F403
from builders import profiled as run_of  # noqa: F401
