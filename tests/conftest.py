"""What holds for every test."""

import signal

# A shell's background jobs ignore Ctrl-C, and hand that on to what they start: tests that send one
# to a process would wait for it for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
