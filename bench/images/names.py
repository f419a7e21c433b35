"""What differs between two clusters that are asked for the same: ids, times, addresses."""

import re


class Names:
    """Ids and the like, by the order in which they were seen."""

    PATTERNS = [(kind, re.compile(pattern)) for kind, pattern in (
        ("TIME", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+0000)?"),
        # What a peer needs to know, in base64.
        ("TOKEN", r"\beyJ[A-Za-z0-9+/=]{100,}"),
        ("UUID", r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
        ("ADDR", r"(v[12]:)?127\.0\.0\.1:\d+(/\d+)?"),
        ("POOL", r"(?<=rbd_data\.)\d{1,4}(?=\.)|(?<=journal_data\.)\d{1,4}(?=\.)"
                 r'|(?<="pool_id":)\d+'),
        ("CLIENT", r"client\.\d+"),
        ("COOKIE", r"\bauto \d+"),
        # Of an image. One without a letter only where nothing else can stand.
        ("ID", r"(?<![0-9a-z:])(?=[0-9]*[a-f])[0-9a-f]{9,20}(?![0-9a-z])"
               r"|(?:(?<=_data\.)|(?<=POOL\.)|(?<=header\.)|(?<=id: )|(?<=<id>))[0-9]{9,20}"
               r'|(?<="id":")[0-9]{9,20}'),
    )]

    def __init__(self):
        self.seen = {}

    def of(self, kind, value):
        those = self.seen.setdefault(kind, {})
        return those.setdefault(value, f"{kind}{len(those)}")

    def text(self, text):
        for kind, pattern in self.PATTERNS:
            replace = (lambda m: kind) if kind in ("TIME", "TOKEN", "ADDR", "COOKIE", "POOL") \
                else (lambda m: self.of(kind, m.group()))
            text = pattern.sub(replace, text)
        return text
