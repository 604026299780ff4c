"""``import idr_torch`` for the course's scripts, where IDRIS' own package is not installed: ``vivace.distributed``."""

import sys

from vivace import distributed

sys.modules[__name__] = distributed
