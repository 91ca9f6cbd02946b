"""`tf.io.gfile` and whole files."""

import pytest

import tfdist_jax.compat.tensorflow as tf

gfile = tf.io.gfile


def test_file_is_written_and_read(tmp_path):
    path = str(tmp_path / "a.txt")
    with gfile.GFile(path, "w") as file:
        file.write("one\ntwo\n")
        file.flush()
        assert (file.name, file.mode) == (path, "w")
    with gfile.GFile(path) as file:
        assert file.readline() == "one\n" and file.tell() == 4 and file.seekable()
        file.seek(0)
        assert file.readlines() == ["one\n", "two\n"] and file.size() == 8
        file.seek(position=0)
        assert next(file) == "one\n" and list(file) == ["two\n"]
    with gfile.GFile(path, "rb") as file:
        assert file.read(3) == b"one"


def test_missing_file_is_not_found(tmp_path):
    missing = str(tmp_path / "missing")
    for use in (
        lambda: gfile.GFile(missing).read(),
        lambda: gfile.listdir(missing),
        lambda: gfile.remove(missing),
        lambda: gfile.rmtree(missing),
        lambda: gfile.stat(missing),
        lambda: gfile.copy(missing, "b"),
        lambda: gfile.mkdir(f"{missing}/b"),
    ):
        with pytest.raises(tf.errors.NotFoundError, match="No such file or directory"):
            use()
    assert not gfile.exists(missing) and gfile.glob(missing) == [] and list(gfile.walk(missing)) == []


def test_folders_are_made_listed_and_removed(tmp_path):
    root = tmp_path / "root"
    gfile.makedirs(root / "a" / "b")
    gfile.makedirs(root / "a" / "b")
    gfile.mkdir(str(root / "c"))
    (root / "a" / "x.txt").write_text("x")
    assert sorted(gfile.listdir(root)) == ["a", "c"] and gfile.isdir(root) and not gfile.isdir(root / "a" / "x.txt")
    assert gfile.glob(str(root / "*")) == [str(root / "a"), str(root / "c")]
    assert gfile.glob([str(root / "*" / "*.txt"), str(root / "c")]) == [str(root / "a" / "x.txt"), str(root / "c")]
    assert list(gfile.walk(root)) == [
        (str(root), ["a", "c"], []),
        (str(root / "a"), ["b"], ["x.txt"]),
        (str(root / "a" / "b"), [], []),
        (str(root / "c"), [], []),
    ]
    assert next(gfile.walk(root, topdown=False))[0] == str(root / "a" / "b")
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.mkdir(root / "c")
    with pytest.raises(tf.errors.FailedPreconditionError, match="rmtree"):
        gfile.remove(root / "a")
    with pytest.raises(tf.errors.FailedPreconditionError, match="is not a directory"):
        gfile.makedirs(root / "a" / "x.txt")
    gfile.rmtree(root)
    assert not gfile.exists(root)


def test_files_are_copied_and_renamed(tmp_path):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    one.write_text("1")
    gfile.copy(one, two)
    gfile.rename(str(two).encode(), three)
    assert three.read_text() == "1" and not two.exists() and gfile.stat(three).length == 1
    three.write_text("3")
    with pytest.raises(tf.errors.AlreadyExistsError, match="overwrite=True"):
        gfile.copy(one, three)
    gfile.copy(one, three, overwrite=True)
    assert three.read_text() == "1"
    gfile.rename(one, three, overwrite=True)
    gfile.remove(three)
    assert gfile.listdir(tmp_path) == []


def test_patterns_may_be_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("")
    assert gfile.glob("*.txt") == ["a.txt"] and gfile.join("a", "b", "c") == "a/b/c"
    assert "" in gfile.get_registered_schemes()


def test_walk_reports_a_missing_folder(tmp_path):
    errors = []
    assert list(gfile.walk(tmp_path / "missing", onerror=errors.append)) == []
    assert isinstance(errors[0], tf.errors.NotFoundError)


def test_whole_files_are_text_tensors(tmp_path):
    path = str(tmp_path / "new" / "a.bin")
    tf.io.write_file(path, "content")
    assert tf.io.read_file(path).numpy() == b"content"
    assert tf.io.matching_files(str(tmp_path / "new" / "*")).numpy().tolist() == [path.encode()]
    assert tf.io.matching_files(str(tmp_path / "nothing*")).shape == (0,)
