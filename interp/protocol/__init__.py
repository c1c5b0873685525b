"""Models of other people's: the checks that come first, and regression prompts for models that read a vocabulary."""

from interp.protocol.check import ProtocolCheck, check_protocol
from interp.protocol.continuous import Continuous
from interp.protocol.plain import NotRebuilt, plain_forward
from interp.protocol.processed import signs_of_processing

__all__ = ["Continuous", "NotRebuilt", "ProtocolCheck", "check_protocol", "plain_forward", "signs_of_processing"]
