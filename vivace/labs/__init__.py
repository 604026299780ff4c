"""The course's practical work. Each lab is one file, ``sources/NAME.py``; everything else is made from it.

``vivace lab run NAME`` executes the file, ``vivace lab show NAME`` prints it as a page, and ``python tools/labs.py``
writes ``docs/labs/NAME.md`` and ``NAME.ipynb``. To add a lab, write ``sources/NAME.py``:

    # /// lab
    # day = 1
    # order = 3                                   # its place in the day
    # title = "mixed precision"
    # goal = "What the reader does and learns, in two lines."
    # predict = "What the reader writes down before running it."
    # compare = "What to compare with that prediction, said after the run."
    # see = "What the table shows, and why."
    # hardware = "What changes on other hardware."
    # about_s = 10                                # of the small form on two CPU cores
    # ///

    # %% [markdown]
    # Text of the page.

    # %%
    from vivace.labs import Table, is_small

    table = Table("batch", "step_ms")
    for batch in (8, 16) if is_small() else (8, 16, 32, 64, 128):
        table.add(batch, measure(batch))
    table.show()
    table.picture(x="batch", y=["step_ms"])

Then run ``python tools/labs.py`` and check the table in ``tests/labs``. ``header.py`` has all fields. The small form
takes at most 60 s on two CPU cores. Figures come from the run: a lab never prints one that it did not measure.
"""

from vivace.labs.bench import Table, is_small, save

__all__ = ["Table", "is_small", "save"]
