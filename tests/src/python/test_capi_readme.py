# SPDX-License-Identifier: MIT
"""The commands of src/capi/README.md that compile its examples, on the library that the package loads."""
import os
import re
import subprocess

import pytest
from weft_attention import library

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
with open(os.path.join(ROOT, "src/capi/README.md")) as file:
    TEXT = file.read()
BLOCKS = [block.replace("\\\n", "").splitlines() for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S)]
COMPILE = {re.search(r"-o build/(\w+)", line).group(1): line for block in BLOCKS for line in block if line.startswith("cc ")}
NEEDS = {"example": "libweft_attention.so.1", "example_static": "libweft_attention.a",  # a wheel has neither
         "sampler_example": "libweft_sampler.so"}


def test_every_example_has_a_command():
    assert set(COMPILE) == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_the_command_compiles_the_example(name, tmp_path):
    folder = os.path.dirname(os.path.abspath(library.library()._name))
    if not os.path.exists(os.path.join(folder, NEEDS[name])):
        pytest.skip(f"no {NEEDS[name]} in {folder}")
    command = re.sub(r'"\$PWD/build/cpu/lib"|build/cpu/lib', folder, COMPILE[name])
    program = tmp_path / name
    done = subprocess.run(command.replace(f"build/{name}", str(program)), shell=True, cwd=ROOT, capture_output=True, text=True)
    if "cudart" in done.stderr or "undefined reference to `cuda" in done.stderr:
        pytest.skip("the static library was built with CUDA")
    assert done.returncode == 0 and not done.stderr, done.stderr
    ran = subprocess.run([program], capture_output=True, text=True)
    if name == "sampler_example":  # it wants a checkpoint and a text
        assert ran.returncode == 2 and "CHECKPOINT" in ran.stderr
    else:
        assert ran.returncode == 0 and re.search(r"It prints `(.*?)`", TEXT).group(1) == ran.stdout.strip()
