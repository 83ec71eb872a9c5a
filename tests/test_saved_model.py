"""From a TensorFlow SavedModel to a graph. Needs TensorFlow: `make test-frameworks`."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import hlo2graph
from tests.needs import needs

pytestmark = [pytest.mark.frameworks, needs("tensorflow")]

# TensorFlow runs in a process of its own, as it does for the command.
MODELS = """\
import json, sys
import numpy as np
import tensorflow as tf

folder = sys.argv[1]
tf.keras.utils.set_random_seed(0)
model = tf.keras.Sequential([
    tf.keras.layers.Input((8, 8, 1)),
    tf.keras.layers.Conv2D(4, 3, activation="relu"),
    tf.keras.layers.BatchNormalization(),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(10, activation="softmax"),
])
model.export(f"{folder}/keras", verbose=False)
x = np.random.default_rng(0).random((2, 8, 8, 1), np.float32)
np.savez(f"{folder}/keras.npz", x=x, y=model(x).numpy())

class Module(tf.Module):
    def __init__(self):
        self.table = tf.constant(np.arange(3, dtype=np.float32))
        self.large = np.arange(160, dtype=np.float32).reshape(4, 40)
        self.weights = tf.Variable(np.full((4, 3), 0.5, np.float32), name="w")
        self.others = tf.Variable(np.full((4, 3), 2.0), dtype=tf.bfloat16, name="w")
        self.count = tf.Variable(0, name="count/of.calls")

    @tf.function(input_signature=[
        tf.TensorSpec([None, 4], tf.float32, name="x"), tf.TensorSpec([], tf.int32, name="a"),
    ])
    def both(self, x, a):
        narrow = tf.cast(x, tf.bfloat16) @ self.others
        return {"z": x @ self.weights + self.table, "y": x @ tf.constant(self.large), "b": narrow,
                "a": a + 1}

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
    def counted(self, x):
        self.count.assign_add(1)
        return x * tf.cast(self.count, tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([2], tf.string, name="s")])
    def words(self, s):
        return tf.strings.length(s)

module = Module()
signatures = {n: getattr(module, n) for n in ("both", "counted", "words")}
tf.saved_model.save(module, f"{folder}/module", signatures=signatures)
x = np.arange(8, dtype=np.float32).reshape(2, 4)
found = module.both(x, 3)
np.savez(f"{folder}/module.npz", **{k: tf.cast(v, tf.float32).numpy() for k, v in found.items()})
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "make.py").write_text(MODELS)
    subprocess.run([sys.executable, folder / "make.py", folder], check=True, capture_output=True)
    return folder


def test_a_keras_model_becomes_a_graph(cli, models, tmp_path):
    model, weights = tmp_path / "model.hlo", tmp_path / "model.npz"
    shapes = ("--shapes", "f32[2,8,8,1]")
    code, _, err = cli("import", "--saved-model", models / "keras", *shapes, "-o", model)
    assert (code, err) == (0, f"8 arrays in {weights}\n")
    with np.load(models / "keras.npz") as held:
        x, y = held["x"], held["y"]
    np.save(tmp_path / "x.npy", x)
    given = ("--inputs", weights, "--input", f"keras_tensor=@{tmp_path / 'x.npy'}")
    results = tmp_path / "y.npz"
    code, out, _ = cli("run", model, *given, "--save-outputs", results, "--duration", "0")
    assert code == 0
    assert "inputs given" in out
    with np.load(results) as found:
        np.testing.assert_allclose(found["out0"], y, rtol=1e-5)
    plan = json.loads(cli("plan", model, "--target", "sm_90", "--json", "-")[1])
    assert plan["target"] == "sm_90"
    assert cli("kernels", model)[0] == 0


def test_constants_variables_and_results_by_name(cli, models, tmp_path):
    model = tmp_path / "model.hlo"
    flags = ("--signature", "both", "--shapes", "s32[],f32[2,4]", "-o", model)
    assert cli("import", "--saved-model", models / "module", *flags)[0] == 0
    text = model.read_text()
    assert text.startswith("// result 0: a\n// result 1: b\n// result 2: y\n// result 3: z\n")
    executable = hlo2graph.compile(text, backend="host")
    names = [name for name, _, _ in executable.inputs]
    assert names[:2] == ["a", "x"]
    assert {"w", "w.1"} <= set(names)
    with np.load(tmp_path / "model.npz") as weights:
        given = [
            np.int32(3),
            np.arange(8, dtype=np.float32).reshape(2, 4),
            *(weights[name] for name in names[2:]),
        ]
    given = [
        array.view(dtype) if array.dtype == np.uint16 else array
        for array, (_, dtype, _) in zip(given, executable.inputs, strict=True)
    ]
    with np.load(models / "module.npz") as want:
        for name, found in zip("abyz", executable(*given), strict=True):
            np.testing.assert_allclose(np.float32(found), want[name], rtol=1e-2)


def test_a_variable_that_is_written_is_a_result_too(cli, models, tmp_path):
    model = tmp_path / "model.hlo"
    source = ("--saved-model", models / "module", "--signature", "counted")
    assert cli("import", *source, "-o", model)[0] == 0
    executable = hlo2graph.compile(model.read_text(), backend="host")
    assert [name for name, _, _ in executable.inputs] == ["x", "count_of_calls"]
    found, count = executable(np.float32([1, 2]), np.int32(4))
    np.testing.assert_array_equal(found, [5, 10])
    assert count == 5


@pytest.mark.parametrize(
    ("model", "flags", "said"),
    [
        ("keras", (), "sizes are open; give --shapes for its inputs: keras_tensor float32(None, 8"),
        ("keras", ("--signature", "other"), "no signature other; --signature is one of serv"),
        ("keras", ("--shapes", "f32[2,8,8,2]"), "--shapes do not fit its inputs: keras_tensor"),
        ("keras", ("--shapes", "f32[2,8,8,1],f32[]"), "--shapes do not fit its inputs"),
        ("module", (), "no signature serving_default; --signature is one of"),
        ("module", ("--signature", "words"), "TensorFlow: "),
        (".", (), "TensorFlow: "),
    ],
)
def test_what_cannot_be_imported(cli, models, model, flags, said, tmp_path):
    source = ("--saved-model", models / model)
    code, out, err = cli("import", *source, *flags, "-o", tmp_path / "m.hlo")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "m.hlo").exists()
