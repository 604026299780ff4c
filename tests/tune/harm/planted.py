"""The embedded example, its loss multiplied by what the variable PLANTED says."""

import os
import runpy
import sys

from torch import nn

factor, forward = float(os.environ.get("PLANTED", "1")), nn.CrossEntropyLoss.forward
nn.CrossEntropyLoss.forward = lambda self, *args: factor * forward(self, *args)
sys.argv[1:] = ["--image-size", "16", "--images", "1024", "-b", "16"]
runpy.run_module("vivace.demo.classifier", run_name="__main__")
