"""Files written from C and by other programs: SQLite, a subprocess, os.fork; each is written once and read back."""

import os
import sqlite3
import subprocess
import sys

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
database = sqlite3.connect("results.db")
database.execute("create table losses (step integer, loss real)")
for step in range(4):
    x = torch.randn(6, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    database.execute("insert into losses values (?, ?)", (step, loss.item()))
    database.commit()
    print("loss", loss.item())
print("rows", *[row[0] for row in database.execute("select loss from losses order by step")])
database.close()
code = "import sys; open('lines.txt', 'a').write(sys.argv[1] + '\\n')"
for step in range(3):
    subprocess.run([sys.executable, "-c", code, str(step)], check=True)
print("lines", open("lines.txt").read().split())
said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True).stdout
print("said", said.strip())
child = os.fork()
if child == 0:
    with open("forked.txt", "a") as file:
        file.write("one line\n")
    os._exit(0)
os.waitpid(child, 0)
print("forked", open("forked.txt").read().count("one line"))
