"""The profiler, as torch.profiler: where the time, the FLOPs and the memory of a program go."""

from .averages import EventList, FunctionEventAvg
from .events import FunctionEvent
from .profile import (
    ProfilerActivity,
    profile,
    record_function,
    supported_activities,
    tensorboard_trace_handler,
)
from .schedule import ProfilerAction, schedule
