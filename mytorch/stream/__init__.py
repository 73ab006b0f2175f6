"""The instruction stream: every operation of a program as data, and what can be seen in it."""

from .flops import flops
from .instruction import KINDS, PHASES, Instruction, Operand, kind_of
from .publishing import publish, report, unpublish
from .recorder import Recorder, Sink
from .recording import Recording, is_recording, record, start, stop
