"""Interchange: reading schedules from files of any dialect, judging them, and writing them for others."""

from .export import FORMATS, export
from .judgement import Judgement, verify_file
from .reader import DIALECTS, ReadSchedule, read_schedule

__all__ = ["DIALECTS", "FORMATS", "Judgement", "ReadSchedule", "export", "read_schedule", "verify_file"]
