"""Google Cloud Storage in memory, with the conditions on generations that TensorStore needs.

`python gcs_emulator.py BUCKET` prints the port that it serves on, and ends with its standard input.
"""

import sys
from http import HTTPStatus

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects


def generation(request, storage):
    """Return the generation of the object that a request is about, "0" if there is none."""
    name = request.params.get("object_id") or request.query.get("name", [""])[0]
    try:
        return storage.get_file_obj(request.params["bucket_name"], name)["generation"]
    except NotFound:
        return "0"


def conditional(handler):
    """Let a handler refuse what is on condition of another generation, and tell which one there is."""

    def handle(request, response, storage, *args, **kwargs):
        found = generation(request, storage)
        if found in request.query.get("ifGenerationNotMatch", ()):
            response.status = HTTPStatus.NOT_MODIFIED
        elif found not in request.query.get("ifGenerationMatch", (found,)):
            response.status = HTTPStatus.PRECONDITION_FAILED
        else:
            if request.method == "GET":
                response["x-goog-generation"] = found
            handler(request, response, storage, *args, **kwargs)

    return handle


for name in ("insert", "get", "download", "delete"):
    setattr(objects, name, conditional(getattr(objects, name)))

# The table of handlers is made when the server is imported.
from gcp_storage_emulator.server import create_server  # noqa: E402

server = create_server("localhost", 0, in_memory=True, default_bucket=sys.argv[1])
server.start()
print(server._api._httpd.server_port, flush=True)
sys.stdin.read()
server.stop()
