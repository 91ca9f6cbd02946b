"""Damage to files, and disks that are full."""

from pathlib import Path

import pytest

from tfdist_jax.testing import Chaos, files_in, full_disk

CONTENT = bytes(range(256)) * 8


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b/c", "b/d"):
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
    (tmp_path / "files" / "empty").touch()
    return tmp_path / "files"


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_bit_is_flipped(chaos, folder):
    with chaos.damage(folder / "a", "flip") as damage:
        changed = int.from_bytes((folder / "a").read_bytes()) ^ int.from_bytes(CONTENT)
        assert changed.bit_count() == 1
        assert str(damage) == f"flip {folder / 'a'}" == chaos.happened[-1]
    assert (folder / "a").read_bytes() == CONTENT


def test_a_file_is_cut_short_emptied_or_removed(chaos, folder):
    with chaos.damage(folder / "a", "truncate"):
        cut = (folder / "a").read_bytes()
        assert CONTENT.startswith(cut) and cut != CONTENT
    with chaos.damage(folder / "a", "empty"):
        assert (folder / "a").read_bytes() == b""
    damage = chaos.damage(folder / "a", "remove")
    assert not (folder / "a").exists()
    damage.repair()
    assert (folder / "a").read_bytes() == CONTENT


def test_a_seed_chooses_file_and_kind(folder, tmp_path):
    def choose(seed):
        chaos, before = Chaos(seed, tmp_path), contents(folder)
        for _ in range(40):
            with chaos.damage(folder):
                assert sum(before.get(name) != now for name, now in contents(folder).items()) in (0, 1)
        assert contents(folder) == before
        return chaos.happened

    assert choose(1) == choose(1) != choose(2)
    kinds, files = zip(*(line.split(" ", 1) for line in choose(1)), strict=True)
    assert set(kinds) == {"flip", "truncate", "empty", "remove"}
    assert [Path(file) for file in sorted(set(files))] == files_in(folder) and len(set(files)) == 3


def test_what_cannot_be_damaged_is_an_error(chaos, folder):
    with pytest.raises(FileNotFoundError, match=r"No file below .*empty holds anything"):
        chaos.damage(folder / "empty")
    with pytest.raises(FileNotFoundError, match=r"No file below .*nowhere holds anything"):
        chaos.damage(folder / "nowhere")
    with pytest.raises(ValueError, match=r"'flip', 'truncate', 'empty', 'remove'\), not 'bend'"):
        chaos.damage(folder, "bend")
    assert files_in(folder / "a") == [folder / "a"]


def test_a_full_disk_takes_what_fits(tmp_path):
    with full_disk(1000), pytest.raises(OSError, match="File too large"), (tmp_path / "file").open("wb") as file:
        file.write(bytes(2000))
    assert (tmp_path / "file").stat().st_size == 1000
    (tmp_path / "file").write_bytes(bytes(2000))


def test_how_much_fits_is_chosen_from_all_orders_of_magnitude(chaos, tmp_path):
    sizes = []
    for number in range(200):
        file = tmp_path / str(number)
        with chaos.full_disk(up_to=1000), pytest.raises(OSError, match="File too large"), file.open("wb") as opened:
            opened.write(bytes(2000))
        sizes.append(file.stat().st_size)
    assert max(sizes) <= 1000
    assert all(any(low <= size < 10 * low for size in sizes) for low in (1, 10, 100))
