"""What may differ, and why. What ends a client or a mgr of Ceph is not asked for in the first place
(history.py, catalogue.txt): the name of a snapshot that is not there, an interval of nothing.
"""

import re
import shlex

# Command lines of `rbd`, with which exit codes (ours, theirs) if not with any.
COMMAND_LINES = [
    (r"mirror snapshot schedule", None,
     "Loligo takes no mirror snapshots by a schedule, and says so"),
    (r"trash purge schedule (rm|remove)", (0, 2),
     "Ceph has nothing to remove in a pool that never had a schedule, and has in one that had"),
]
# What these print has an order that is Python's, and another one each time.
UNORDERED = r"trash purge schedule (ls|list)"


def differs(call, ours, theirs):
    """Whether a call of librbd may have these two answers."""
    if call["call"] != "mgr" or "value" not in ours or "value" not in theirs:
        return False
    # Loligo cannot tell an image that is not there from one that migrates under another name, and says
    # that it may be so.
    is_migration = "migration" in call["args"][0]["prefix"]
    return is_migration and ours["value"][0] == theirs["value"][0] < 0


def tool_differs(words, ours, theirs):
    """Whether a command line of `rbd` may have these two answers."""
    line, codes = shlex.join(words), (ours.get("code"), theirs.get("code"))
    if "hangs" in ours and "hangs" not in theirs:
        return False
    if re.match(UNORDERED, line) and codes == (0, 0):
        return sorted(ours["out"]) == sorted(theirs["out"])
    return any(re.match(pattern, line) and known in (None, codes)
               for pattern, known, _ in COMMAND_LINES)
