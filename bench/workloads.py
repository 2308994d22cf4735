# SPDX-License-Identifier: MIT
"""What can be measured: the workloads, what each stands beside, and rows of them."""
import dataclasses

FEW, MILLION = 1000, 10**6  # in cache, and out of it, or near
LIMIT_MAX = 2**28  # STINT_LIMIT_MAX


@dataclasses.dataclass(frozen=True)
class Path:
    """How a decision differs from a plain take, beside which it is measured: by turns, in a table
    of its own."""
    cost: int = 1
    asks: str = ""  # "peek", "charge" or "reserve": a flag of the request
    own_limit: bool = False  # the request's limit is one below the policy's
    policy: str = ""  # options in stint's notation
    window: str = "366d"
    roll_over: bool = False  # the policy's capacity is one above its limit
    bucket: bool = False  # the policy is a token bucket; `still`: nothing comes back to it
    # Of several parts, what each second one's policy is: "bucket", or options in stint's notation.
    # Beside takes by the same policies. The last part has the cost, the others 1.
    second: str = ""
    used_up: bool = False  # every key is at its limit before the time is taken, and is refused
    still: bool = False  # the limiter's clock stands still, but costs what it always does
    stripes: int = 1
    parts: int = 1  # requests that are decided together
    slots: int = 1  # that a key has, one of its override's among them
    each_key: bool = False  # each part has its own key; else the same, by a policy of its own
    windows: int = 1  # in which each key is asked for before the time is taken
    leaves_nothing: bool = False  # what is used is the same after it
    before: str | None = None  # asks for each key before the time is taken; None: what is timed


@dataclasses.dataclass(frozen=True)
class Kind:
    """A workload. Functions are called as in timed.c."""
    help: str
    run: str = "take"
    reference: str = "clock+hash+add"  # a function; or what `beside` measures
    beside: str | None = None  # what it stands beside, in processes of its own
    used_up: bool = False  # every key is at its limit before the first repeat
    windows: bool = False  # every epoch is a window of its own
    each_once: bool = False  # every key once per pass, and every pass is an epoch
    new_keys: bool = False  # every pass has keys of its own
    new_table: bool = False  # every pass has a table of its own
    is_path: bool = False
    path: Path = Path()

    @property
    def uniform_only(self):
        return self.windows or self.is_path


def path(help, run="take", beside="take", reference="plain take", **about):
    return Kind(help, run, reference, beside, is_path=True, path=Path(**about))


def path_all(help, parts, **about):
    """stint_decide_all."""
    return path(help, "all", "as many takes", "as many takes", parts=parts, **about)


KINDS = {
    "take": Kind("one request at a time; the limiter reads its clock"),
    "take-at": Kind("the same with `now` given", "take-at", "hash+add"),
    "batch": Kind("16 requests in one call", "batch", "hash+add"),
    "refuse": Kind("take, of keys that have used up their limit", used_up=True),
    "first-seen": Kind("take-at, of the last eighth of the keys that fill a new table", "take-at",
                       "present keys", "take-at", windows=True, each_once=True, new_keys=True,
                       new_table=True),
    "roll": Kind("take-at, of keys whose window is over", "take-at", "present keys", "take-at",
                 windows=True, each_once=True),
    "churn": Kind("take-at, of new keys in a table full of keys whose windows are over", "take-at",
                  "present keys", "take-at", windows=True, each_once=True, new_keys=True),
    "cost-5": path("take, of cost 5", "take-5", cost=5),
    "own-limit": path("take, by a limit of the request's own", "decide", own_limit=True),
    "roll-over": path("take, by a policy with a capacity above its limit", roll_over=True),
    "reservable": path("take, by a policy with max_reserved", policy="reserve=1"),
    "reserve": path("the same, with STINT_RESERVE", "decide", asks="reserve",
                    policy="reserve=1"),
    "shadow": path("take, by a policy that lets all through", policy="shadow"),
    "counted": path("take, by a policy that counts what it refuses", policy="count-refused"),
    "peek": path("a look", "decide", asks="peek", leaves_nothing=True, before="take"),
    "refund": path("take, and give back", "refund", leaves_nothing=True, before="take"),
    "smooth": path("take, by a sliding window", policy="smooth", still=True, windows=2),
    "in-flight": path("take, by a limit of what is held at once", policy="in-flight", still=True,
                      windows=2),
    "hold": path("the same, and give back", "refund", policy="in-flight", still=True, windows=2,
                 leaves_nothing=True, before="take"),
    "bucket": path("take, of a token bucket", bucket=True, still=True),
    "bucket-5": path("the same, of cost 5", "take-5", cost=5, bucket=True, still=True),
    "bucket-refused": path("take, of token buckets that are empty", bucket=True, still=True,
                           used_up=True, before="take"),
    "per-key": path("take, by windows of each key's own", policy="start=per-key", still=True),
    "first": path("take, by windows that begin with each key's first request", policy="start=first"),
    "calendar": path("take, by years of the calendar", window="year"),
    "striped": path("take, of keys in two stripes", stripes=2),
    "unlisted": path("take, by a policy with overrides, of keys that have none",
                     policy="overrides"),
    "overridden": path("take, of keys that have a limit of their own by an override",
                       policy="overrides", window="60d", slots=2, before="override-take"),
    "all-1": path_all("stint_decide_all of one request, `now` given", 1),
    "all-2": path_all("of a key by two policies", 2),
    "all-3": path_all("of a key by three policies", 3),
    "all-2-keys": path_all("of two keys by a policy", 2, each_key=True),
    "all-3-keys": path_all("of three keys by a policy", 3, each_key=True),
    "buckets": path_all("of a key by two token buckets", 2, bucket=True,
                        still=True),
    "mixed-2": path_all("of a key by a window and a token bucket", 2,
                        second="bucket", still=True),
    "mixed-3": path_all("of a key by two windows and a token bucket", 3,
                        second="bucket", still=True),
    "all-overridden": path_all("of a key by two windows, of which one has an override", 2,
                               second="overrides", window="60d", slots=2,
                               before="override-take"),
    "all-costs": path_all("of a key by two windows, of costs 1 and 5", 2, cost=5),
    "charge": path("a charge, which is never refused", "decide", asks="charge", before="take"),
}
PATHS = [name for name, kind in KINDS.items() if kind.is_path]
DISTRIBUTIONS = ["uniform", "zipf", "hot"]

def row_of(workload, distribution, keys, **more):
    """A row with all that is usual."""
    return {"workload": workload, "distribution": distribution, "keys": keys, "threads": 1,
            "key_length": 16, "load": 0.5, "stripes": KINDS[workload].path.stripes, **more}


def top_share(distribution, keys):
    """The part of all requests that the most wanted key gets."""
    if distribution != "zipf":
        return 1 if distribution == "hot" else 1 / keys
    # The first thousand terms: never less than the true share.
    return 1 / sum(rank ** -0.99 for rank in range(1, min(keys, 1000) + 1))


def zipf_period(keys):
    """Draws of a thread: long enough that they do not repeat within what a cache or a branch
    predictor remembers, and at most 16 MiB, read in order, so that they cost no misses."""
    period = 2**18
    while period < 2**22 and period < 4 * keys:
        period *= 2
    return period


def slots_half(row, keys, path):
    """max_entries of a table. A striped key may take a slot for each stripe, several parts take one
    each, and so does an override."""
    return max(1, int(keys * row["stripes"] * path.parts * path.slots / row["load"] * 0.5 + 0.5))


def memory_of(row):
    """Bytes that measuring the row takes."""
    kind, keys = KINDS[row["workload"]], row["keys"]
    table = slots_half(row, keys, kind.path) * 32 * (2 if kind.is_path else 1)
    drawn = row["threads"] * zipf_period(keys) * 4 if row["distribution"] == "zipf" else 0
    return 2 * table + keys * 4 + drawn + 2**26
