"""An OSProfiler driver that writes notifications into shared memory, for a Throughline agent to store.

Importing this imports nothing else: the package's .pth file does so at each start of the interpreter.
"""
