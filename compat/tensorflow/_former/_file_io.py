"""`tensorflow.python.lib.io.file_io`: files, by the names that functions had."""

from typing import Any

from tfdist_jax.compat.tensorflow.io import gfile

file_exists = file_exists_v2 = gfile.exists
is_directory = is_directory_v2 = gfile.isdir
get_matching_files = get_matching_files_v2 = gfile.glob
list_directory = list_directory_v2 = gfile.listdir
recursive_create_dir = recursive_create_dir_v2 = gfile.makedirs
create_dir = create_dir_v2 = gfile.mkdir
delete_file = delete_file_v2 = gfile.remove
delete_recursively = delete_recursively_v2 = gfile.rmtree
rename = rename_v2 = gfile.rename
copy = copy_v2 = gfile.copy
stat = stat_v2 = gfile.stat
walk = walk_v2 = gfile.walk
FileIO = gfile.GFile


def read_file_to_string(filename: Any, binary_mode: bool = False) -> Any:
    """Return what is in a file, as text or as bytes."""
    with gfile.GFile(filename, "rb" if binary_mode else "r") as file:
        return file.read()


def write_string_to_file(filename: Any, file_content: Any) -> None:
    """Write a text into a file."""
    with gfile.GFile(filename, "w") as file:
        file.write(file_content)
