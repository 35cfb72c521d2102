# Parses, sorts and walks a tree so many times, and prints the CPU time that this took, in nanoseconds.
import json
import random
import sys
import time


class Tree:
    def __init__(self, key):
        self.key, self.left, self.right = key, None, None

    def insert(self, key):
        side = "left" if key < self.key else "right"
        below = getattr(self, side)
        if below is None:
            setattr(self, side, Tree(key))
        else:
            below.insert(key)

    def walk(self):
        if self.left:
            yield from self.left.walk()
        yield self.key
        if self.right:
            yield from self.right.walk()


def work(source):
    text = json.dumps({str(i): source.random() for i in range(500)})
    keys = sorted(json.loads(text).values(), reverse=True)
    tree = Tree(0.5)
    source.shuffle(keys)
    for key in keys:
        tree.insert(key)
    return sum(tree.walk())


source = random.Random(7)
for _ in range(int(sys.argv[1])):
    work(source)
print(time.process_time_ns())
