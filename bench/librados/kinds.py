"""Differences between the answers of two clusters: each kind is shown once, with what led to it."""

# How much of an answer is shown.
SHOWN = 400


def short(answer):
    text = repr(answer)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


class Kinds:
    def __init__(self, what):
        self.what = what
        self.asked = 0
        self.kinds = {}

    def same(self, kind, history, ours, theirs):
        """Whether two answers are the same; if not, keeps how it came to it."""
        self.asked += 1
        if ours == theirs:
            return True
        example = [*history, f"  ours:   {short(ours)}", f"  theirs: {short(theirs)}"]
        self.kinds.setdefault(kind, []).append(example)
        return False

    def show(self):
        """Prints what there is; whether there was no difference."""
        for kind, examples in sorted(self.kinds.items()):
            # The shortest says most.
            print(f"== {len(examples)} times: {kind}")
            print("\n".join(min(examples, key=len)), end="\n\n")
        print(f"{self.what}: {self.asked} answers compared, {len(self.kinds)} kinds of differences",
              flush=True)
        return not self.kinds
