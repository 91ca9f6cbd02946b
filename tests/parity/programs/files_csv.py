"""CSV files: rows, columns that are chosen, values that are missing, lines that are no rows, batches of named columns."""

import gzip
import os
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
Csv, make = tf.data.experimental.CsvDataset, tf.data.experimental.make_csv_dataset


def plain(element):
    if isinstance(element, dict):
        return {name: plain(value) for name, value in element.items()}
    return [plain(part) for part in element] if isinstance(element, tuple) else np.asarray(element).tolist()


def drain(dataset):
    iterator, found = iter(dataset), []
    while True:
        try:
            found.append(str(plain(next(iterator))))
        except StopIteration:
            return found
        except Exception as raised:
            found.append(type(raised).__name__)


def write(name, data):
    pathlib.Path(name).write_bytes(data)
    return name


write("a", b'x,y,z\n1,2.5,a\n2,,b\r\n3,4.5,"c,\nd""e"\n')
needed = tf.constant([], tf.float32)
show("rows", drain(Csv("a", [0, 1.5, ""], header=True)))
show("a value is needed", drain(Csv("a", [0, needed, ""], header=True)))
show("types", str(Csv("a", [tf.int32, tf.float32, tf.string], header=True).element_spec))
show("the header is no row", drain(Csv("a", [0, 1.5, ""])))
show("chosen", drain(Csv("a", [0, ""], header=True, select_cols=[0, 2])))
show("excluded", drain(Csv("a", [0, ""], header=True, exclude_cols=[1])))
error("columns must rise", lambda: drain(Csv("a", ["", 0], header=True, select_cols=[2, 0])))
error("chosen and excluded", lambda: drain(Csv("a", [0, ""], select_cols=[0], exclude_cols=[1])))
write("b", b"1,2\n\n3,4\n5\n6,7,8\nx,9\n10,11")
show("lines that are no rows", drain(Csv("b", [0, 0])))
show("left out", drain(Csv("b", [0, 0]).ignore_errors()))
show("batches drop what is before an error", drain(Csv("b", [0, 0]).batch(2)))
show("two files", drain(Csv(["b", "a"], ["", ""], select_cols=[0, 1])))
show("gzip", drain(Csv(write("g", gzip.compress(b"1;2\n3;4")), [0, 0], compression_type="GZIP", field_delim=";")))
write("q", b'\'a\',"b c"\n"x",y\n')
show("quotes", drain(Csv("q", ["", ""])))
show("no quotes", drain(Csv("q", ["", ""], use_quote_delim=False)))
show("an open quote", drain(Csv(write("o", b'a,"b\nc,d\n'), ["", ""])))
show("missing by name", drain(Csv(write("n", b"1.5,NA\nNA,2\n"), [0.5, 0.25], na_value="NA")))
show("carriage returns", drain(Csv(write("r", b"1,2\r3,4\r"), [0, 0])))
show("empty", drain(Csv(write("e", b""), [0])))
show("empty with a header", drain(Csv("e", [0], header=True)))
show("batches", drain(Csv("n", ["", ""]).batch(2)))
show("large and small numbers", drain(Csv(write("l", b"5000000000,inf\n-1,-1e-3\n"), [tf.int64, tf.float64])))
show("too large a number", drain(Csv("l", [0, 0.0])))
show("numbers with blanks", drain(Csv(write("s", b" 1, 2 \n"), [0, 0.0])))

write("t1", b"a,b,c,d,e\n1,5000000000,1.5,x,\n2,3,1e300,y,\n")
write("t2", b"a,b,c,d,e\n3,4,5,z,\n")
once = {"num_epochs": 1, "shuffle": False}
show("named columns", drain(make("t1", 2, **once)))
show("labels", drain(make("t*", 2, label_name="d", **once)))
show("names are chosen", drain(make("t1", 2, select_columns=["d", "a"], **once)))
show("numbers are chosen", drain(make("t1", 2, select_columns=[3, 0], **once)))
show("a label is chosen", drain(make("t1", 2, select_columns=["a", "d"], label_name="d", **once)))
show("own names", drain(make("n", 2, column_names=["p", "q"], header=False, na_value="NA", **once)))
show("own defaults", drain(make("n", 2, column_names=["p", "q"], header=False, column_defaults=["", ""], **once)))
show(
    "errors left out",
    drain(make("b", 2, header=False, column_names=["p", "q"], column_defaults=[0.5, 0.5], ignore_errors=True, **once)),
)
show("two epochs", drain(make("t2", 1, num_epochs=2, shuffle=False)))
show("shuffled", sorted(drain(make("t1", 1, num_epochs=1, shuffle_seed=1))))
show("endless batches are whole", [str(spec.shape) for spec in make("t1", 2).element_spec.values()])
show("others may be smaller", [str(spec.shape) for spec in make("t1", 2, **once).element_spec.values()])
error("no such label", lambda: make("t1", 2, label_name="q"))
error("no such file", lambda: make("nothing*", 2))
error("no names", lambda: make("n", 2, header=False))
error("a name twice", lambda: make("t1", 2, column_names=list("vvxyz")))
error("no such column", lambda: make("t1", 2, select_columns=["nope"]))
error("other names", lambda: make(["t1", "a"], 2))
error("too many defaults", lambda: make("t1", 2, select_columns=["a", "d"], column_defaults=[0, "", 0]))
