# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.io._gfile import (
    GFile as _FastGFile,
    GFile as GFile,
    GFile as _Open,
    copy as _Copy,
    exists as _Exists,
    glob as _Glob,
    isdir as _IsDirectory,
    listdir as _ListDirectory,
    makedirs as _MakeDirs,
    mkdir as _MkDir,
    remove as _Remove,
    rename as _Rename,
    rmtree as _DeleteRecursively,
    stat as _Stat,
    walk as _Walk,
)
FastGFile = _FastGFile
Open = _Open
Copy = _Copy
Exists = _Exists
Glob = _Glob
IsDirectory = _IsDirectory
ListDirectory = _ListDirectory
MakeDirs = _MakeDirs
MkDir = _MkDir
Remove = _Remove
Rename = _Rename
DeleteRecursively = _DeleteRecursively
Stat = _Stat
Walk = _Walk
