"""Starts a script as two ranks that meet in a file: what torchrun does, without the seconds that it takes to start.

``dist.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=2)``
"""

import os
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    python = os.environ.get("PYTHON_EXEC", sys.executable)  # as with torchrun
    with tempfile.TemporaryDirectory() as folder:
        common = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MEETING": f"file://{folder}/meeting"}
        ranks = [
            subprocess.Popen([python, *sys.argv[1:]], env={**common, "RANK": rank, "LOCAL_RANK": rank})
            for rank in ("0", "1")
        ]
        codes = [rank.wait() for rank in ranks]
    sys.exit(max(codes, key=abs))
