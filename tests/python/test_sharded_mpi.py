"""examples/cpp/sharded_mpi.cpp: any number of processes learns the same, and no error leaves one of them waiting."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

LIBRARY = Path(os.environ.get("CAME_LIBRARY", Path(__file__).resolve().parents[2] / "build/lib/libcame.so"))
PROGRAM = LIBRARY.resolve().parent.parent / "bin/example_sharded_mpi"
MPIEXEC = os.environ.get("CAME_MPIEXEC", "mpirun")
SECONDS = 60  # for a run of less than one, on a machine that other tests keep busy
FOREVER = "1000000000"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason=f"{PROGRAM} is not built: no MPI")


def launcher():
    """mpirun and what it needs as root, with fewer cores than processes; other launchers than Open MPI's ask for neither."""
    version = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, timeout=SECONDS).stdout
    return [MPIEXEC, *(["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else [])]


@pytest.fixture
def mpirun():
    """Starts a job, which does not outlive its test."""
    found, jobs = launcher(), []

    def start(*arguments):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*found, *map(str, arguments)]
        jobs.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return jobs[-1]

    yield start
    for job in jobs:
        job.terminate()  # mpirun ends its ranks
        job.communicate(timeout=SECONDS)


def finish(job):
    """Status, output and errors of a job."""
    output, errors = job.communicate(timeout=SECONDS)
    return job.returncode, output, errors


def learn(mpirun, word, processes):
    """Its first loss, its last one and the checksum of its parameters."""
    status, output, errors = finish(mpirun("-n", processes, PROGRAM, word))
    assert status == 0, errors
    assert len(re.findall(r"rank \d: \d+ bytes of state, \d+ bytes reduced per step\n", output)) == processes
    figures = [re.search(pattern, output + errors)[1] for pattern in ("step 0: loss (.*)", "\nloss: (.*)", "checksum: (.*)")]
    return [float(figure) for figure in figures]


# The optimizers differ in phases, in what they reduce, and in how: SM3 takes maxima.
@pytest.mark.parametrize("word", ["came", "adafactor", "adamw", "lamb", "sm3"])
def test_processes_agree(mpirun, word):
    first, loss, checksum = learn(mpirun, word, 1)
    assert loss < first / 2
    for processes in (2, 3, 4):  # of 4, the last has no row of V
        again = learn(mpirun, word, processes)
        # Sums in f64 differ by their order: some 1e-16 of each value and step, and a few hundred values and steps.
        assert again[1:] == pytest.approx([loss, checksum], rel=1e-10, abs=1e-10), processes


def stat(pid):
    """State and parent of a process; None once it has ended, whether or not somebody has asked how."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else (state, int(parent))


def ranks_of(job):
    """Their process numbers.  They are children of mpirun, not ours."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if (stat(pid) or (None, 0))[1] == job.pid and os.readlink(f"/proc/{pid}/exe") == str(PROGRAM)]


def wait_for(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_dead_rank_ends_the_job(mpirun):
    job = mpirun("-n", 3, PROGRAM, "came", FOREVER)
    assert "step 0" in job.stderr.readline()
    ranks = ranks_of(job)
    assert len(ranks) == 3
    os.kill(ranks[-1], signal.SIGKILL)
    status, _, _ = finish(job)
    assert status != 0
    wait_for(lambda: not any(map(stat, ranks)))


def test_an_error_on_one_rank_ends_the_job_and_is_told(mpirun):
    job = mpirun("-n", 2, PROGRAM, "came", FOREVER, ":", "-n", 1, PROGRAM, "cane", FOREVER)
    status, _, errors = finish(job)
    assert status != 0
    assert "sharded_mpi: rank 2: " in errors and "'cane'" in errors
