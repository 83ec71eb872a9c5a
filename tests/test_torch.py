"""From a module of PyTorch to a graph, through torch-mlir. `make test-frameworks` has both."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import hlo2graph
from hlo2graph.importers import to_hlo
from tests.needs import needs

pytestmark = [pytest.mark.frameworks, needs("torch"), needs("torch_mlir")]

EXPORT = """\
import sys
import warnings

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch_mlir import fx

warnings.simplefilter("ignore")
folder = sys.argv[1]
torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(1, 2, 3, padding=1)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        y = self.norm(torch.nn.functional.gelu(self.up(self.conv(x[:, None, :]).mean(1))))
        return torch.softmax(self.down(y), -1)


class OfWeights(torch.nn.Module):
    '''The model as a function of its weights, which are then parameters of the program.'''

    def __init__(self, model):
        super().__init__()
        self.call = lambda weights, x: torch.func.functional_call(model, weights, (x,))

    def forward(self, weights, x):
        return self.call(weights, x)


model, x = Model().eval(), torch.randn(3, 8)
weights = {name: value.detach() for name, value in model.state_dict().items()}
with open(f"{folder}/closed.mlir", "w") as file:
    file.write(str(fx.export_and_import(model, x, output_type="stablehlo")))
with open(f"{folder}/open.mlir", "w") as file:
    file.write(str(fx.export_and_import(OfWeights(model), weights, x, output_type="stablehlo")))
leaves = [value.numpy() for value in tree_leaves((weights, x))]
np.savez(f"{folder}/open.npz", **{f"arg{k}": leaf for k, leaf in enumerate(leaves)})
np.savez(f"{folder}/closed.npz", arg0=x.numpy())
np.save(f"{folder}/want.npy", model(x).detach().numpy())
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    (folder / "export.py").write_text(EXPORT)
    command = [sys.executable, folder / "export.py", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("form", "inputs"), [("closed", 1), ("open", 9)])
def test_a_module_becomes_a_graph(cli, exported, form, inputs, tmp_path):
    model, results = exported / f"{form}.mlir", tmp_path / "y.npz"
    given = ("--inputs", exported / f"{form}.npz", "--save-outputs", results)
    code, out, _ = cli("run", model, *given, "--duration", "0")
    assert code == 0
    assert "inputs given" in out
    with np.load(results) as found:
        np.testing.assert_allclose(found["out0"], np.load(exported / "want.npy"), rtol=1e-5)
    code, out, _ = cli("import", model)
    assert len(hlo2graph.compile(out, backend="host").inputs) == inputs
    assert cli("kernels", model)[0] == 0


def test_tensors_in_and_out(exported):
    import torch

    text = to_hlo((exported / "closed.mlir").read_bytes()).text
    executable = hlo2graph.compile(text, backend="host")
    with np.load(exported / "closed.npz") as given:
        (found,) = executable(torch.from_dlpack(given["arg0"]))
    tensor = torch.from_dlpack(found)
    assert tensor.data_ptr() == found.ctypes.data
    np.testing.assert_allclose(tensor.numpy(), np.load(exported / "want.npy"), rtol=1e-5)
