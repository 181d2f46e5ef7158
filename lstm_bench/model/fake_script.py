"""The script of a fake implementation in a grid file.

    implementations: [fake, fake-slow, fake-crash]
    fake:
      fake-slow: {call_s: 0.002, noise: 0.01}
      fake-crash: {fault: segfault, when: measure, after: 2, hidden: 64}

By default the answer is right and the clock is virtual: a call "takes" `call_s` and no time.
"""

from __future__ import annotations

from typing import Any

#: The keys of a script, with their defaults.
SCRIPT: dict[str, Any] = {
    "call_s": 0.001,  # the time of a call
    "first_call_s": None,  # the first call, if it differs
    "build_s": 0.0,  # building takes so long, asleep
    "noise": 0.0,  # relative standard deviation from call to call
    "drift": 0.0,  # relative change per call
    "copy_offset": 0.0,  # relative difference between an implementation and its A/A control
    "real": False,  # spend the time for real, on a core, instead of on a virtual clock
    "switches": 0,  # involuntary context switches per call that the virtual clock reports
    "cpu": 1.0,  # CPU time over wall time that it reports
    "fault": None,  # one of FAULTS
    "when": "build",  # one of MOMENTS
    "after": 0,  # good blocks before a fault in `measure`
    "hidden": None,  # the only hidden size with the fault
    "profile": None,  # one of PROFILES, if profiling is to fail
    "process": "",  # the name of a worker process of its own
    "precision": "fp32",  # gives the tolerance of the answer
}
WRONG_ANSWERS = ("swap-gates", "drop-bias", "transpose", "nan", "infinite", "wrong-shape")
FAULTS = (
    *WRONG_ANSWERS,
    *("segfault", "exit", "kill", "hang", "stubborn-hang", "error", "oom", "unsupported"),
    *("garbage", "close-pipe", "out-of-order", "no-proper-reply", "huge-reply", "eat-memory"),
    "chatter",
)
MOMENTS = ("build", "first-call", "measure", "release")
#: Some records are missing, the profiler raises, there is none, it hangs, it spoils the answer, it
#: takes the process down.
PROFILES = ("lost", "crash", "none", "hang", "spoil", "die")
