# SPDX-License-Identifier: MIT
"""Runs a notebook from beginning to end and looks at what it shows. Usage: run_notebook.py NOTEBOOK
quickstart.ipynb must show the loss, a sample and a pattern; an error of a cell ends with the cell's text."""
import os
import sys

import nbformat
from nbclient import NotebookClient

path = sys.argv[1]
notebook = nbformat.read(path, as_version=4)
if any(cell.get("outputs") for cell in notebook.cells):
    sys.exit(f"{path}: it is stored with outputs: clear them")
NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": os.path.dirname(path)}}).execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
pictures = sum("image/png" in output.get("data", {}) for output in outputs)
text = "".join(output.get("text", "") for output in outputs)
print(text)
_, sampled, sample = text.partition("last weights of step 60")
if pictures != 2 or not sampled or len(sample) < 200:
    sys.exit(f"{path}: expected 2 pictures and a sample of 200 bytes of step 60, found {pictures} and {text!r}")
