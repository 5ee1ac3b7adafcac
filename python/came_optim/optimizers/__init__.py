"""The optimizers, one file each."""

from .adafactor import Adafactor
from .adam import Adam, AdamW
from .came import CAME
from .lamb import LAMB
from .sm3 import SM3

__all__ = ["CAME", "Adafactor", "Adam", "AdamW", "LAMB", "SM3", "BY_NAME"]

# By libcame's name, in its order.
BY_NAME = {cls.algorithm: cls for cls in (CAME, Adafactor, Adam, AdamW, LAMB, SM3)}
