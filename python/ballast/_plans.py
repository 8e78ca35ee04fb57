"""A cache of plans for all threads, bounded in entries and in the numbers that its plans describe."""

import threading
from collections import OrderedDict

MOST_PLANS = 256
MOST_ELEMENTS = 1 << 26  # the sum over plans of the elements of one signal or matrix: tables grow with it


class PlanCache:
    """Plans by key; the least recently used goes first."""

    def __init__(self, most_plans=MOST_PLANS, most_elements=MOST_ELEMENTS):
        self.most_plans = most_plans
        self.most_elements = most_elements
        self.hits = self.misses = 0
        self._elements = 0
        self._plans = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self):
        return len(self._plans)

    def get(self, key, elements, make):
        """The plan of `key`, which `make(*key)` makes where it is missing. Two threads may make the same plan; one is kept."""
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
                self.hits += 1
                return found[0]
            self.misses += 1
        made = make(*key)
        with self._lock:
            if key not in self._plans:
                self._plans[key] = (made, elements)
                self._elements += elements
                while self._plans and (len(self._plans) > self.most_plans or self._elements > self.most_elements):
                    _, (_, gone) = self._plans.popitem(last=False)
                    self._elements -= gone
        return made

    def clear(self):
        with self._lock:
            self._plans.clear()
            self._elements = 0
