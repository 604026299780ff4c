"""A compiled model under autocast. Prints in which dtype its products run.

With --old-key torch's compile cache leaves the autocast dtype out of its key, as before pytorch pull request 181564.
"""

import argparse
import sys

import torch
import torch._inductor.config
from common import make_model

parser = argparse.ArgumentParser()
parser.add_argument("dtype", choices=("bfloat16", "float16"))
parser.add_argument("--old-key", action="store_true")
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

if args.old_key:
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails as Details

    record = Details._record_runtime_state

    def record_without_dtype(self, gm):
        record(self, gm)
        self.disable_amp = bool(self.__dict__.pop("autocast_state"))

    Details._record_runtime_state = record_without_dtype

model = make_model()
torch._inductor.config.fallback_by_default = True  # no C++ compiler: it takes half a minute
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(4, 8)
for step in range(args.steps):
    with torch.autocast("cpu", dtype=getattr(torch, args.dtype)):
        outputs = compiled(inputs)
    if step == 0:
        print("products in", str(outputs.dtype).removeprefix("torch."), file=sys.stderr, flush=True)
    outputs.float().square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
