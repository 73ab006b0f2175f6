"""The instruction stream: every operation of a program as data, and what can be seen in it."""

from ..aliases import lazily as _lazily
from ..backends.functions import KINDS, kind_of
from .flops import flops
from .instruction import PHASES, Instruction, Operand
from .publishing import publish, report, unpublish
from .recorder import Recorder, Sink
from .recording import Recording, is_recording, record, start, stop

__getattr__, __dir__ = _lazily(globals())
