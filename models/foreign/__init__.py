"""Other people's models: which loader takes a file, and the model as one of ours with its provenance and parity."""

from models.foreign.contents import Contents, read_contents
from models.foreign.inspection import Inspection, inspect
from models.foreign.layouts import to_layout
from models.foreign.loading import FORMATS, find_format, load
from models.foreign.matrices import from_matrices
from models.foreign.merged import from_merged
from models.foreign.tokens import TokenForm
from models.foreign.value import Foreign, ForeignError, Parity

__all__ = [
    "FORMATS",
    "Contents",
    "Foreign",
    "ForeignError",
    "Inspection",
    "Parity",
    "TokenForm",
    "find_format",
    "from_matrices",
    "from_merged",
    "inspect",
    "load",
    "read_contents",
    "to_layout",
]
