"""What may differ, and why."""


def differs(call, ours, theirs):
    """Whether this difference is one of those."""
    return False


def tool_differs(words, ours, theirs):
    return False
