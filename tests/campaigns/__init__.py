"""
Campaigns: random cases without end, seconds of them in the ordinary suite and hours by hand.

    python -m tests.campaigns files --minutes 30 --seed 7     # until the time is over
    python -m tests.campaigns files --seed 7 --only 1234      # one case again

A campaign is a module with

    draw(random)         a case: a tuple of plain values that begins with the case's kind
    check(folder, *case) raises if something is wrong; an empty folder is there for its files
    DEADLINE             seconds after which a case counts as hanging
    TRIES                how many cases the ordinary suite takes
    KNOWN                {pattern of a find: why it is not mended yet}, to be emptied

Case number N of a seed is the same on every machine, whichever cases ran before it.
"""

NAMES = ("files", "ranks", "kills", "soak", "programs")
