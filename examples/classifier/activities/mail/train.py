"""The activity mail.train: learns from letters what each kind of letter speaks of, and keeps that in the session."""

import math
import os
import re
from collections import Counter

LETTERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_letters.txt")


def words(text):
    return re.findall(r"[a-z]{3,}", text.lower())


class Bayes:
    """A naive Bayes classifier over words: small, and a model all the same."""

    def __init__(self, letters):
        self.count = Counter()
        self.said = {}
        for line in letters:
            label, _, text = line.partition(": ")
            self.count[label] += 1
            self.said.setdefault(label, Counter()).update(words(text))
        self.known = len(set().union(*self.said.values()))

    def label(self, text):
        def score(label):
            said = self.said[label]
            total = sum(said.values()) + self.known
            return math.log(self.count[label]) + sum(math.log((said[w] + 1) / total) for w in words(text))

        return max(sorted(self.count), key=score)


def main(_, ctx):
    with open(LETTERS, encoding="utf-8") as letters:
        ctx.session.state.model = Bayes(letters.read().splitlines())
    ctx.session.state.process = os.getpid()
    return ctx.session.state.process
