"""Every refusal says what was got, what was expected, and what to change."""

import math
import re
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hiddenwidth as hw
from hiddenwidth import _record

KEY = jax.random.key(0)
X, Y = np.linspace(-1, 1, 6).reshape(3, 2), np.ones((3, 1))


def embed(inputs=X, targets=Y, **kwargs):
    return hw.Problem.embed(inputs, targets, **({"dim": 4, "key": KEY} | kwargs))


def sine(**kwargs):
    return hw.problems.sine(4, dim=4, key=KEY, **kwargs)


def grid(problem=None, scaling=None, **kwargs):
    return hw.sweep(problem or sine(), hw.TwoLayer(), scaling or hw.mlu(), **({"depths": [2], "widths": [1], "seeds": 2, "steps": 1, "key": KEY} | kwargs))


CASES = [
    (lambda: hw.TwoLayer("tan"), "activation='tan' is unknown; expected one of 'tanh', .* Did you mean 'tanh'"),
    (lambda: hw.TwoLayer("tanh", law="cauchy"), "law='cauchy' is unknown; expected one of 'gaussian', 'skewed'"),
    (lambda: hw.lazy(0.0), "alpha=0.0 is not possible; expected a finite number above 0"),
    (lambda: hw.mlu(-1.0), "^learning_rate=-1.0 is not possible; expected a finite number above 0"),
    (lambda: hw.mlu(1.0, learning_rate_v=math.nan), "^learning_rate_v=nan is not possible"),
    (lambda: embed(inputs=[["a", "b"]] * 3), "inputs holds list that is not numeric or is ragged; expected an array of numbers"),
    (lambda: embed(inputs=np.ones((0, 2)), targets=np.ones((0, 1))), r"inputs has shape \(0, 2\) and so holds no number"),
    (lambda: hw.problems.digits((3, 8, 8), key=KEY), "classes=.* expected at least two digits from 0 to 9, each named once"),
    (lambda: hw.problems.digits((1, 2, 3), loss="logistic", key=KEY), "loss='logistic' tells two classes apart and classes=.* names 3; use loss='softmax'"),
    (lambda: hw.problems.digits(limit=0, key=KEY), "limit=0 is not possible; expected a whole number of at least 2"),
    (lambda: hw.ensemble(sine(), hw.TwoLayer(), hw.mlu(), depth=64, width=64, seeds=1, steps=1, memory=1e5, key=KEY), "one network with depth=64 width=64 dim=4 needs .* GB and memory=0.0001 GB"),
    (lambda: hw.sweep(sine(), hw.TwoLayer(), hw.mlu(), depths=[64], widths=[64], seeds=1, steps=1, memory=1e5, key=KEY), "one network with depth=64 width=64 dim=4 needs"),
    (lambda: hw.ensemble(sine(), hw.TwoLayer(), hw.mlu(), depth=2, width=2, seeds=1, steps=1, dtype="int32", key=KEY), "dtype='int32' is not possible; expected float32 or float64"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(), hw.mlu(), steps=1, quadrature=hw.Sobol(4, 1), budget=False).hidden(1, 1.5), "s=1.5 is not a depth-time; expected a number between 0 and 1"),
    (lambda: hw.infinite_width(sine(), hw.TwoLayer(), hw.mlu(), depth=2, steps=2, quadrature=hw.Sobol(4, 1)).output(9), "step=9 is not in this solution; expected 0 to 2"),
    (lambda: hw.infinite_width(sine(), hw.TwoLayer("linear"), hw.mlu(1e8), depth=2, steps=20, quadrature=hw.Sobol(4, 1)), "the infinitely wide network of depth=2 left the finite numbers"),
    (lambda: embed(targets=np.ones((4, 1))), "inputs has 3 rows and targets has 4; expected one target row for each input row"),
    (lambda: embed(targets=np.ones(3)), r"targets has shape \(3,\); expected 2 axes. A single column is written targets\[:, None\]"),
    (lambda: embed(inputs=np.where(X > 0.9, np.nan, X)), r"inputs holds 1 values that are NaN or infinite, the first at index \(2, 1\)"),
    (lambda: embed(targets=Y * np.inf), "targets holds 3 values that are NaN or infinite"),
    (lambda: embed(dim=0), "dim=0 is not possible; expected a whole number of at least 1"),
    (lambda: embed(inputs=np.eye(3), dim=2), "dim=2 is too small for these data; expected at least 3: the inputs span 3 dimensions"),
    (lambda: embed(dim=2, embedding="orthogonal"), "expected at least 3: the inputs span 2 dimensions and orthogonal embeddings need 1 more"),
    (lambda: embed(key=None), "key=None but random embeddings need one; pass key=jax.random.key"),
    (lambda: embed(loss="hinge"), "loss='hinge' is unknown; expected one of 'squared', 'logistic', 'softmax'"),
    (lambda: embed(loss="logistic", targets=Y * 2), r"loss='logistic' expects targets of -1 and \+1"),
    (lambda: embed(loss="softmax", targets=Y * 2), "loss='softmax' expects one-hot targets"),
    (lambda: embed(embedding="sparse"), "embedding='sparse' is unknown"),
    (lambda: hw.problems.digits((3, 11), key=KEY), r"classes=\(3, 11\) is not possible; expected at least two digits from 0 to 9, each named once"),
    (lambda: hw.problems.digits((3, 8), components=100, dim=200, key=KEY), "components=100 is too many; these 357 images span"),
    (lambda: sine().with_dim(math.inf).space(), "dim=inf has no ambient state space"),
    (lambda: hw.Sobol(0), "log2_points=0 is not possible"),
    (lambda: hw.GaussHermite(30).points(hw.TwoLayer().laws(3), 0), r"GaussHermite\(order=30\) in 6 dimensions needs 30\*\*6 points; lower the order or use Sobol"),
    (lambda: hw.GaussHermite(4).points(hw.TwoLayer(law="skewed").laws(1), 0), "GaussHermite integrates Gaussian laws only; use Sobol for a skewed law"),
    (lambda: hw.ResNet.init(hw.TwoLayer(), hw.mlu(), depth=0, width=1, dim=4, key=KEY), "depth=0 is not possible"),
    (lambda: hw.ensemble(sine(), hw.TwoLayer(), hw.mlu(), depth=2, width=2, seeds=0, steps=1, key=KEY), "seeds=0 is not possible"),
    (lambda: hw.ensemble(sine(), hw.TwoLayer(), hw.mlu(), depth=4, width=2, seeds=2, steps=1, deepest=3, key=KEY), "deepest=3 is below depth=4; expected at least that"),
    (lambda: hw.sweep(sine(), hw.TwoLayer(), hw.mlu(), depths=[], widths=[1], seeds=2, steps=1, key=KEY), r"depths=\[\] and widths=\[1\]: expected at least one"),
    (lambda: hw.sweep(sine(), hw.TwoLayer(), hw.mlu(), depths=[-4], widths=[1], seeds=2, steps=1, key=KEY), "depths=-4 is not possible"),
    (lambda: hw.sweep(sine(), hw.TwoLayer(), hw.mlu(), depths=[4], widths=[1, 2], seeds={1: 2}, steps=1, key=KEY), r"seeds has the widths \[1\] and the grid \[1, 2\]; expected a number for each"),
    (lambda: hw.sweep(sine(), hw.TwoLayer(), hw.mlu(), depths=[4], widths=[1], seeds={1: 0}, steps=1, key=KEY), r"seeds\[1\]=0 is not possible"),
    (lambda: grid(dims=[]), r"dims=\[\] is empty; expected at least one, or dims=None"),
    (lambda: grid(dims=[4, 0]), "dims=0 is not possible; expected a whole number of at least 1"),
    (lambda: grid(alphas=[]), r"alphas=\[\] is empty; expected at least one, or alphas=None"),
    (lambda: grid(alphas=[1.0, -2.0]), "alphas=-2.0 is not possible; expected a finite number above 0"),
    (lambda: grid(scaling=hw.lazy(2.0), alphas=[1.0]), r"alphas=\[1.0\] replaces the alpha of .*; expected alpha=1 and critical weights. Use mlu"),
    (lambda: grid(scaling=hw.fan_in(), alphas=[1.0]), r"alphas=\[1.0\] replaces the alpha of .*; expected alpha=1 and critical weights. Use mlu"),
    (lambda: grid(problem=hw.problems.sine(4, dim=math.inf)), "dim=inf has no ambient state space"),
    (lambda: grid(dims=[4], embedding="sparse"), "embedding='sparse' is unknown; expected one of 'gaussian', 'orthogonal'"),
    (lambda: grid(problem=hw.problems.gaussian(key=KEY), dims=[3, 16]), "dim=3 is too small for these data; expected at least 5"),
    (lambda: grid(dims=[4, 4096], memory=1e5), "one network with depth=2 width=1 dim=4096 needs .* GB and memory="),
    (lambda: grid(workers=2, client=object()), "workers=2 and client= were both given; expected one. The workers of a cluster are those of its client"),
    (lambda: grid(workers=0), "workers=0 is not possible"),
    (lambda: hw.open_sweep("/nowhere"), "path='/nowhere' holds no sweep that can be read; expected the folder that was given as store="),
    (lambda: hw.train(hw.ResNet.init(hw.TwoLayer(), hw.mlu(), depth=2, width=2, dim=5, key=KEY), sine(), steps=1), "network and problem do not fit: the problem has dim=4"),
    (lambda: hw.train(hw.ResNet.init(hw.TwoLayer(), hw.mlu(), depth=2, width=2, dim=4, key=KEY), sine(), steps=2, hidden_steps=(3,)), r"hidden_steps=\(3,\) is not possible; expected whole numbers between 0 and steps=2"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(), hw.mlu(), steps=0), "steps=0 is not possible"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(), hw.mlu(), steps=1, nodes=2), "nodes=2 is not possible; expected a whole number of at least 3"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(), hw.mlu(), steps=1, tolerance=-1.0), "tolerance=-1.0 is not possible"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(), hw.mlu(), steps=1, coordinates="polar"), "coordinates='polar' is unknown; expected one of 'auto', 'reduced', 'ambient'"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(law="skewed"), hw.mlu(), steps=1, coordinates="reduced"), "has no reduced coordinates"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(), hw.fan_in(), steps=1), "scaling 'fan_in' has a law that depends on the width M, so it has no Mean ODE"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer("linear"), hw.mlu(1e4), steps=9, quadrature=hw.Sobol(6, 1)), "the Mean ODE blew up by step [0-9]+ .* learning_rate= is too large for this problem"),
    (lambda: hw.mean_ode(sine(), hw.TwoLayer(), hw.mlu(), steps=1, quadrature=hw.Sobol(4, 1), budget=False).hidden(2), "step=2 is not in this solution; expected 0 to 1"),
    (lambda: hw.mean_ode(hw.problems.sine(4, dim=math.inf), hw.TwoLayer(), hw.mlu(), steps=1, quadrature=hw.Sobol(4, 1), budget=False).flow(None, np.zeros(1)), "dim=inf has no units"),
    (lambda: hw.infinite_width(sine(), hw.TwoLayer(), hw.mlu(), depth=2, steps=2, quadrature=hw.Sobol(4, 1)).hidden(1), "step=1 was not recorded; hidden states exist at steps"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "message"), CASES, ids=range(len(CASES)))
def test_refused(action, message):
    with pytest.raises(ValueError, match=message):
        action()


COMMANDS = [
    (["--problem", "cosine"], "cosine"),
    (["--activation", "tan"], "tan"),
    (["--depths", "8", "-2"], "--depths -2 is not possible; expected a whole number of at least 1"),
    (["--seeds", "4"], "--seeds 4 is too few for an interval; expected at least 8"),
    (["--steps", "0"], "--steps 0 is not possible"),
    (["--learning-rate", "-1"], "rates: --learning-rate -1.0 is not possible; expected a finite number above 0"),
    (["--learning-rate-v", "nan"], "rates: --learning-rate-v nan is not possible"),
    (["--seed", "-1"], "--seed -1 is not possible; expected a whole number from 0 to"),
    (["--seed", "99999999999999999999"], "--seed 99999999999999999999 is not possible"),
    (["--widths", "100000000000"], "needs 2.46e+06 GB and --memory"),
    (["--problem", "digits", "--classes", "1", "2", "3", "--loss", "logistic"], "tells two classes apart"),
    (["--problem", "digits", "--dim", "3"], "--dim 3 is too small for these data; expected at least 4"),
    (["--loss", "softmax"], "--loss 'softmax' needs class labels"),
    (["--classes", "1", "12", "--problem", "digits"], "--classes (1, 12) is not possible"),
]


def command(arguments, directory):
    return subprocess.run(
        [sys.executable, "-m", "hiddenwidth", "rates", "--out", str(directory / "run"), *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(("arguments", "message"), COMMANDS, ids=[" ".join(a) for a, _ in COMMANDS])
def test_command_line_refuses_in_one_clear_message(arguments, message, tmp_path, command_line):
    done = command_line("rates", "--out", str(tmp_path / "run"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_command_line_does_not_touch_an_existing_directory(tmp_path):
    """In an interpreter of its own: the exit status and the streams are those of the program."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rates.json").write_text("{}")
    done = command([], tmp_path)
    assert done.returncode == 2
    assert "exists and is not empty" in done.stderr
    assert "--overwrite" in done.stderr
    assert (tmp_path / "run" / "rates.json").read_text() == "{}"


def test_directory_that_cannot_be_made_is_refused(tmp_path, command_line):
    (tmp_path / "file").write_text("")
    done = command_line("rates", "--out", str(tmp_path / "file" / "run"))
    assert done.returncode == 2
    assert "cannot be made: Not a directory. Choose another directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_from_the_keyboard_keeps_what_is_finished(tmp_path):
    """A real SIGINT once the progress bar shows finished cells."""
    grid = ["--quick", "--dim", "4", "--steps", "2", "--seeds", "8", "--depths", *map(str, range(8, 40)), "--widths", "1", "2", "4"]
    # a test runner in the background may hand SIGINT down as ignored: take it up again
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from hiddenwidth.cli import main; main()"
    arguments = [sys.executable, "-c", script, "rates", "--out", str(tmp_path / "run"), *grid]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = ""
        while not re.search(r" [1-9][0-9]*/96 ", seen):
            letter = process.stderr.read(1)
            assert letter, f"ended before any cell was finished: {seen}"
            seen += letter
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.wait(timeout=120)
    assert process.returncode == 130, rest
    assert "of 96 cells were finished and kept in" in rest
    assert "Traceback" not in rest
    record = _record.read(tmp_path / "run", "rates")
    done = record.data.done.values
    assert 0 < done.sum() < 96
    assert np.isfinite(record.data.loss.values[done]).all()


def test_command_line_counts_divergence_and_fails(tmp_path):
    small = ["--quick", "--no-progress", "--dim", "4", "--steps", "12", "--seeds", "8", "--depths", "8", "--widths", "1", "2"]
    done = command([*small, "--activation", "linear", "--learning-rate", "60"], tmp_path)
    assert done.returncode == 1
    assert "Every member diverged in 2 of 2 cells" in done.stderr
    assert "Lower --learning-rate" in done.stderr
    assert "Traceback" not in done.stderr


def test_unit_of_another_shape_is_explained():
    net = hw.ResNet.init(hw.TwoLayer(), hw.mlu(), depth=1, width=1, dim=5, dtype=jnp.float32, key=KEY)
    with pytest.raises(ValueError, match="Build both with the same dim"):
        hw.train(net, sine(), steps=1)
