"""Saved states: which one counts, what is deleted, and what runs that were frozen can do."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from connect.errors import ConfigError, RetriableError
from connect.gateways.storage.state_folder import StateFolder
from connect.model.layout import TopicPartition
from worker.aggregate import state_checkpoint
from worker.aggregate.state_checkpoint import EMPTY, MANIFEST_BYTES_MAX, StateCheckpoint

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SEEDS = (*range(12), 139, 159, 168)  # the last ones need the check of the claim
STEPS = 80


class MemoryFolder(StateFolder):
    """A folder in memory, for many runs."""

    def __init__(self) -> None:
        self.location = "memory"
        self.files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(self.files)

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        """Return the content of a file."""
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name][:bytes_max]

    def write(self, name: str, content: bytes) -> None:
        """Write a file; its name is new."""
        assert name not in self.files
        self.files[name] = content

    def upload(self, source: Path, name: str) -> None:
        """Write a file with the content of a local one."""
        self.write(name, source.read_bytes())

    def download(self, name: str, target: Path) -> None:
        """Write a local file."""
        content = self.read(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files."""
        for name in list(names):
            self.files.pop(name, None)


@dataclass
class Store:
    """A folder of states, and new checkpoints over it."""

    root: Path
    definition: str = "d"
    memory: MemoryFolder | None = None
    _ids: int = 0

    @property
    def folder(self) -> StateFolder:
        """The folder."""
        if self.memory is not None:
            return self.memory
        location = str(self.root / "state")
        return StateFolder({"type": "aggregate", "aggregate.root": location}, location)

    def checkpoint(self) -> StateCheckpoint:
        """Return the checkpoint of a new run, without a claim."""
        self._ids += 1
        local = self.root / f"local-{self._ids}"
        local.mkdir()
        return StateCheckpoint(self.folder, local, self.definition, f"id{self._ids}")

    def claimed(self) -> StateCheckpoint:
        """Return the checkpoint of a new run with a confirmed claim."""
        made = self.checkpoint()
        made.claim()
        made.confirm()
        return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path)


def compute(
    checkpoint: StateCheckpoint, batch: int, ends: dict[TopicPartition, int], added: int = 0
) -> None:
    """Write what Spark writes for a batch: its logs, and a version of the state of two parts."""
    local = checkpoint.local
    text = {"t": {str(tp.partition): at for tp, at in ends.items()}}
    files = {f"offsets/{batch}": f"v1\n{{}}\n{json.dumps(text)}", f"commits/{batch}": "v1\n{}"}
    for part in (0, 1):
        before = local / f"state/0/{part}/{batch}.changelog"
        value = int(before.read_text()) if batch and before.exists() else 0
        files[f"state/0/{part}/{batch + 1}.changelog"] = str(value + sum(ends.values()) + added)
    files["metadata"] = "{}"
    for path, content in files.items():
        target = local / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path != "metadata" or not target.exists():
            target.write_text(content)


def value_of(checkpoint: StateCheckpoint, batch: int) -> int:
    """Return the value of the state after a batch."""
    return int((checkpoint.local / f"state/0/0/{batch + 1}.changelog").read_text())


def saved(
    checkpoint: StateCheckpoint, batch: int, ends: dict[TopicPartition, int], added: int = 0
) -> state_checkpoint.SavedState:
    """Compute and save a batch."""
    compute(checkpoint, batch, ends, added)
    return checkpoint.save(batch, ends)


def test_the_state_for_the_committed_offsets_is_restored(store: Store) -> None:
    """Not the newer one whose batch was never committed."""
    first = store.claimed()
    first.begin_empty({P0: 0})
    first.committed(saved(first, 0, {P0: 5}))
    saved(first, 1, {P0: 9})
    second = store.claimed()
    found = second.find({P0: 5})
    assert found is not None
    assert (found.batch, dict(found.ends)) == (0, {P0: 5})
    second.restore(found, {P0: 5})
    assert value_of(second, 0) == 5
    assert not (second.local / "offsets/1").exists()
    assert json.loads((second.local / "metadata").read_text()) == {"id": "id2"}
    assert not (second.local / "state/0/0/2.changelog").exists()
    found = store.claimed().find({P0: 9})
    assert found is not None
    assert found.batch == 1


def test_files_of_the_next_batch_are_not_saved(store: Store) -> None:
    """Spark plans it while a batch is saved."""
    run = store.claimed()
    compute(run, 0, {P0: 5})
    compute(run, 1, {P0: 9})
    files = run.save(0, {P0: 5}).files
    assert {"offsets/0", "commits/0", "state/0/0/1.changelog"} <= set(files)
    assert not {"offsets/1", "commits/1", "state/0/0/2.changelog"} & set(files)


def test_only_new_files_are_saved_and_old_ones_deleted(store: Store) -> None:
    """A file is saved once; it is deleted when no committed state needs it."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    first = saved(run, 0, {P0: 5})
    run.committed(first)
    second = saved(run, 1, {P0: 9})
    assert "metadata" not in first.files
    shared = first.files.keys() & second.files.keys()
    assert shared
    assert all(first.files[path] == second.files[path] for path in shared)
    for path in (run.local / "offsets/0", run.local / "state/0/0/1.changelog"):
        path.unlink()
    third = saved(run, 2, {P0: 12})
    run.committed(second)
    run.committed(third)
    names = set(store.folder.names())
    assert {*third.files.values(), third.name} <= names
    assert first.files["offsets/0"] not in names
    assert not {first.name, second.name} & names


def test_a_later_run_needs_files_of_earlier_ones(store: Store) -> None:
    """It refers to them, and deletes those that it does not need after its first batch."""
    first = store.claimed()
    first.begin_empty({P0: 0})
    kept = saved(first, 0, {P0: 5})
    first.committed(kept)
    abandoned = saved(first, 1, {P0: 9})
    second = store.claimed()
    found = second.find({P0: 5})
    assert found is not None
    second.restore(found, {P0: 5})
    own = saved(second, 1, {P0: 7})
    assert own.files["state/0/0/1.changelog"] == kept.files["state/0/0/1.changelog"]
    second.committed(own)
    names = set(store.folder.names())
    assert set(own.files.values()) <= names
    assert abandoned.name not in names
    third = store.claimed()
    again = third.find({P0: 7})
    assert again is not None
    third.restore(again, {P0: 7})
    assert value_of(third, 1) == 12


def test_files_of_others_below_the_location_stay(store: Store) -> None:
    """A table, or the state of another connector, may be in a folder below it."""
    others = {
        "part-0.parquet",
        "orders/data/part-0.parquet",
        "orders/g000000000001-x/file-000000000001",
        "g000000000001-x/part-0.parquet",
    }
    for name in others:
        store.folder.write(name, b"x")
    first = store.claimed()
    first.begin_empty({P0: 0})
    first.committed(saved(first, 0, {P0: 5}))
    second = store.claimed()
    state = second.find({P0: 5})
    assert state is not None
    second.restore(state, {P0: 5})
    second.committed(saved(second, 1, {P0: 9}))
    assert others <= set(store.folder.names())


def test_new_and_deleted_partitions(store: Store) -> None:
    """A state continues with the partitions that are read now."""
    run = store.claimed()
    run.begin_empty({P0: 0, P1: 0})
    run.committed(saved(run, 0, {P0: 5, P1: 3}))
    other = TopicPartition("u", 0)
    later = store.claimed()
    found = later.find({P0: 5, other: 77})
    assert found is not None
    later.restore(found, {P0: 5, other: 77})
    text = (later.local / "offsets/0").read_text().splitlines()[-1]
    assert json.loads(text) == {"t": {"0": 5}, "u": {"0": 77}}


def test_no_state_for_changed_offsets(store: Store) -> None:
    """An operator changed them, or the state was deleted."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    run.committed(saved(run, 0, {P0: 5}))
    assert store.claimed().find({P0: 4}) is None
    assert store.claimed().find({TopicPartition("u", 0): 5}) is None


def test_a_state_of_other_aggregates_is_refused(store: Store) -> None:
    """Values of other functions would be taken for those of the new ones."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    run.committed(saved(run, 0, {P0: 5}))
    other = Store(store.root, "other", _ids=7)
    with pytest.raises(ConfigError, match="is of other aggregates") as error:
        other.claimed().find({P0: 5})
    assert error.value.code == "aggregate_definition_changed"


def test_a_run_that_claims_too_late_ends(store: Store) -> None:
    """It claimed before its successor and was fenced, or both have one number."""
    early, late = store.checkpoint(), store.checkpoint()
    early.claim()
    late.claim()
    late.confirm()
    with pytest.raises(RetriableError) as error:
        early.confirm()
    assert error.value.code == "state_claimed"


def test_an_incomplete_manifest_is_no_state(store: Store) -> None:
    """The process was killed while it wrote; its batch was not committed."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    state = saved(run, 0, {P0: 5})
    (store.root / "state" / state.name).write_bytes(state.to_json()[:-9])
    assert store.claimed().find({P0: 5}) is None


def with_changes(store: Store, **changes: object) -> None:
    """Save a state for offset 5, and write its manifest again as another writer of the store."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    state = saved(run, 0, {P0: 5})
    manifest = store.root / "state" / state.name
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))


OUTSIDE = (
    "../outside",
    "state/../../outside",
    "{root}/outside",
    "..",
    "state/.",
    "a//b",
    "",
    "a\0b",
)


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_file_is_written_outside_of_the_local_folder(store: Store, path: str) -> None:
    """A tenant who can write to the store of the state names the paths."""
    file = "g000000000001-id1/file-000000000001"
    with_changes(store, files={path.format(root=store.root): file})
    assert store.claimed().find({P0: 5}) is None
    assert not (store.root / "outside").exists()


@pytest.mark.parametrize("name", ["../secret", "{root}/secret", "part-0.parquet", 7])
def test_only_files_of_runs_are_read_and_deleted(store: Store, name: str | int) -> None:
    """Not those next to the state's folder, or of other states."""
    (store.root / "secret").write_text("x")
    named = name.format(root=store.root) if isinstance(name, str) else name
    with_changes(store, files={"offsets/0": named})
    assert store.claimed().find({P0: 5}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": "../../outside"},
        {"batch": True},
        {"ends": {"t": 5}},
        {"ends": [["t", 0]]},
        {"ends": [["t", "0", 5]]},
        {"files": []},
        {"definition": None},
    ],
)
def test_an_invalid_manifest_is_no_state(store: Store, changes: dict[str, object]) -> None:
    """No part of it becomes a path or an offset."""
    with_changes(store, **changes)
    assert store.claimed().find({P0: 5}) is None


@pytest.mark.parametrize("content", ["[]", "[" * 100_000, " " * (MANIFEST_BYTES_MAX + 1)])
def test_other_contents_of_a_manifest_are_no_state(store: Store, content: str) -> None:
    """Neither deep nor large ones; more than the limit is not read."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    state = saved(run, 0, {P0: 5})
    (store.root / "state" / state.name).write_text(content)
    assert store.claimed().find({P0: 5}) is None


def test_a_restored_snapshot_is_checked_and_saved_again(store: Store) -> None:
    """Without the checksum of the former file; see ``test_restored_files``."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    part = run.local / "state/0/0"
    part.mkdir(parents=True)
    with zipfile.ZipFile(part / "1.zip", "w") as target:
        target.writestr("metadata", "v1\n{}")
    (part / "1.zip.crc").write_text("checksum")
    state = saved(run, 0, {P0: 5})
    run.committed(state)
    later = store.claimed()
    later.restore(later.find({P0: 5}) or state, {P0: 5})
    assert not (later.local / "state/0/0/1.zip.crc").exists()
    again = saved(later, 1, {P0: 9})
    assert again.files["state/0/0/1.zip"] != state.files["state/0/0/1.zip"]
    assert "state/0/0/1.zip.crc" not in again.files
    with zipfile.ZipFile(store.root / "state" / again.files["state/0/0/1.zip"], "a") as target:
        target.writestr("../outside", "x")
    later.committed(again)
    last = store.claimed()
    with pytest.raises(ConfigError) as error:
        last.restore(last.find({P0: 9}) or again, {P0: 9})
    assert error.value.code == "aggregate_state_invalid"


def test_a_missing_file_is_an_error(store: Store) -> None:
    """A part of a state is never used."""
    run = store.claimed()
    run.begin_empty({P0: 0})
    state = saved(run, 0, {P0: 5})
    store.folder.delete([state.files["state/0/1/1.changelog"]])
    later = store.claimed()
    found = later.find({P0: 5})
    assert found is not None
    with pytest.raises(RetriableError, match="is missing"):
        later.restore(found, {P0: 5})


class BusyCheckpoint(StateCheckpoint):
    """Spark makes a snapshot between the first two listings, and deletes what it replaces."""

    listings = 0

    def _scan(self, batch: int) -> state_checkpoint.Scan:
        self.listings += 1
        stamps = super()._scan(batch)
        if self.listings == 1:
            part = self.local / "state/0/0"
            (part / "SSTs").mkdir()
            (part / "SSTs/1.sst").write_text("x")
            (part / "2.zip").write_text("x")
            (part / "1.changelog").unlink()
        return stamps


def test_a_snapshot_is_saved_with_its_parts(store: Store, tmp_path: Path) -> None:
    """Spark writes parts, then the snapshot, and deletes older versions, at any moment."""
    local = tmp_path / "busy"
    local.mkdir()
    run = BusyCheckpoint(store.folder, local, "d", "busy")
    run.claim()
    run.confirm()
    compute(run, 0, {P0: 5})
    compute(run, 1, {P0: 9})
    files = run.save(1, {P0: 9}).files
    assert run.listings == 4
    assert "state/0/0/1.changelog" not in files
    assert {"state/0/0/2.zip", "state/0/0/SSTs/1.sst", "state/0/0/2.changelog"} <= set(files)


@dataclass
class Broker:
    """Committed offsets, and the run that may change them."""

    committed: dict[TopicPartition, int] | None = None
    total: int = 0
    owner: int = 0


@dataclass
class Run:
    """One run that is executed step by step, and may stop between any two steps."""

    number: int
    store: Store
    broker: Broker
    step: Callable[[], None] = lambda: None
    is_over: bool = False
    checkpoint: StateCheckpoint = field(init=False)
    batch: int = EMPTY
    position: int = 0
    total: int = 0
    state: state_checkpoint.SavedState | None = None

    def __post_init__(self) -> None:
        self.checkpoint = self.store.checkpoint()
        self.step = self.claim

    def claim(self) -> None:
        """Claim the state."""
        self.checkpoint.claim()
        self.step = self.fence

    def fence(self) -> None:
        """Fence earlier runs."""
        self.broker.owner = self.number
        self.step = self.confirm

    def confirm(self) -> None:
        """Check the claim."""
        try:
            self.checkpoint.confirm()
        except RetriableError:
            self.is_over = True
        self.step = self.begin

    def begin(self) -> None:
        """Read the committed offsets and restore the state for them."""
        if self.broker.committed is None:
            self.checkpoint.begin_empty({P0: 0})
            self.step = self.store_start
            return
        is_owner = self.broker.owner == self.number
        try:
            state = self.checkpoint.find(self.broker.committed)
            if state is not None:
                self.checkpoint.restore(state, self.broker.committed)
        except RetriableError:
            state = None  # a later run has deleted files meanwhile
        if state is None:
            assert not is_owner, "the state for the committed offsets is lost"
            self.is_over = True
            return
        self.batch, self.position = state.batch, self.broker.committed[P0]
        self.total = 0 if state.batch == EMPTY else value_of(self.checkpoint, state.batch)
        expected = self.broker.total
        assert not is_owner or self.total == expected, "an older or newer state was restored"
        self.step = self.save

    def store_start(self) -> None:
        """Store the first offsets."""
        if self.broker.owner != self.number:
            self.is_over = True
            return
        self.broker.committed = {P0: 0}
        self.step = self.save

    def save(self) -> None:
        """Compute a batch of one record, and save its state."""
        self.batch += 1
        self.position += 1
        # states of two runs for equal offsets differ: late records depend on the batches
        added = 1000 * self.number
        self.state = saved(self.checkpoint, self.batch, {P0: self.position}, added)
        self.total = value_of(self.checkpoint, self.batch)
        self.step = self.commit

    def commit(self) -> None:
        """Commit the batch, unless a later run exists."""
        if self.broker.owner != self.number:
            self.is_over = True
            return
        self.broker.committed = {P0: self.position}
        self.broker.total = self.total
        self.step = self.clean

    def clean(self) -> None:
        """Delete what is not needed any more."""
        assert self.state is not None
        self.checkpoint.committed(self.state)
        self.step = self.save


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_that_stop_anywhere_and_continue_later_change_no_state(
    store: Store, seed: int
) -> None:
    """Each new run restores exactly the state of the last committed batch."""
    store.memory = MemoryFolder()
    dice = random.Random(seed)
    broker = Broker()
    runs = [Run(1, store, broker)]
    for _ in range(STEPS):
        alive = [run for run in runs if not run.is_over]
        if not alive or dice.random() < 0.15:  # the newest one is frozen, or was killed
            runs.append(Run(len(runs) + 1, store, broker))
            continue
        newest = alive[-1]
        running = newest if dice.random() < 0.6 else dice.choice(alive)
        running.step()
    assert broker.committed is not None
    final = Run(len(runs) + 1, store, broker)
    while final.step != final.save:
        final.step()
    assert final.total == broker.total
