"""What the kernel says of a thread's scheduling, and what makes it say something else (Linux's sched_getattr(2))."""

import ctypes
import platform
import struct
import sys
import threading

NUMBERS = {"x86_64": (315, 314), "aarch64": (275, 274)}.get(platform.machine(), ())
PR_GET_SECCOMP = 21
BATCH, RESET_ON_FORK = 3, 1
LOOPS = 100_000  # nanoseconds: what the loop sets, the least that the kernel takes

# With the GIL kept: whoever gives it up to look would see another moment.
libc = ctypes.PyDLL(None, use_errno=True)


def call(number, thread, data, *more):
    if libc.syscall(number, thread, ctypes.byref(data), *more):
        raise OSError(ctypes.get_errno(), "sched_attr")


def attributes(thread=0):
    """Policy, flags, nice and the slice in nanoseconds, 0 on kernels that keep none for each thread."""
    data = ctypes.create_string_buffer(48)
    call(NUMBERS[0], thread, data, 48, 0)
    _, policy, flags, nice, _, runtime, _, _ = struct.unpack("IIQiIQQQ", data.raw[:48])
    return policy, flags, nice, runtime


def slice_of(thread=0):
    return attributes(thread)[3]


def set_slice(nanoseconds, thread=0):
    """Zero is the kernel's own."""
    policy, flags, nice, _ = attributes(thread)
    data = ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, policy, flags, nice, 0, nanoseconds, 0, 0), 48)
    call(NUMBERS[1], thread, data, 0)


def why_not():
    """Why there are no slices to look at, or an empty string."""
    if sys.platform != "linux" or not NUMBERS:
        return "the numbers of Linux's calls are not known here"
    if libc.prctl(PR_GET_SECCOMP):
        return "beside a filter of system calls the loop leaves its slice alone"
    found = []

    def look():
        before = slice_of()
        set_slice(LOOPS)
        found.append(before > 0 and slice_of() == LOOPS)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return "" if found == [True] else "this kernel has no slice for each thread (Linux 6.12)"
