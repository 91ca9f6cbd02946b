"""Protocol buffers of examples, tensors, checkpoints and saved datasets: TensorFlow's messages, declared without TensorFlow.

They live in a pool of their own, where they do not meet those of a TensorFlow that is loaded too.

Ref: https://www.tensorflow.org/api_docs/python/tf/train/Example
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bytes": _FIELD.TYPE_BYTES,
    "string": _FIELD.TYPE_STRING,
    "float": _FIELD.TYPE_FLOAT,
    "double": _FIELD.TYPE_DOUBLE,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "sint64": _FIELD.TYPE_SINT64,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "fixed32": _FIELD.TYPE_FIXED32,
    "bool": _FIELD.TYPE_BOOL,
}
# Fields in the form `name = number, type`; `*` stands for many, `map` for a dictionary by strings, `|` for one of a kind.
_EXAMPLE = {
    "BytesList": ["*bytes value 1"],
    "FloatList": ["*float value 1"],
    "Int64List": ["*int64 value 1"],
    "Feature": ["|BytesList bytes_list 1", "|FloatList float_list 2", "|Int64List int64_list 3"],
    "Features": ["map Feature feature 1"],
    "FeatureList": ["*Feature feature 1"],
    "FeatureLists": ["map FeatureList feature_list 1"],
    "Example": ["Features features 1"],
    "SequenceExample": ["Features context 1", "FeatureLists feature_lists 2"],
    "TensorShapeDimension": ["int64 size 1", "string name 2"],
    "TensorShapeProto": ["*TensorShapeDimension dim 2", "bool unknown_rank 3"],
    "TensorProto": [
        "int32 dtype 1",
        "TensorShapeProto tensor_shape 2",
        "int32 version_number 3",
        "bytes tensor_content 4",
        "*float float_val 5",
        "*double double_val 6",
        "*int32 int_val 7",
        "*bytes string_val 8",
        "*float scomplex_val 9",
        "*int64 int64_val 10",
        "*bool bool_val 11",
        "*double dcomplex_val 12",
        "*int32 half_val 13",
        "*uint32 uint32_val 16",
        "*uint64 uint64_val 17",
    ],
    "VariantTensorDataProto": ["string type_name 1", "bytes metadata 2", "*TensorProto tensors 3"],
    # What a folder of saved elements is; of its fields the last one is ours.
    "SnapshotMetadataRecord": [
        "string graph_hash 1",
        "string run_id 2",
        "int64 creation_timestamp 3",
        "int64 version 4",
        "*int32 dtype 5",
        "int64 num_elements 6",
        "bool finalized 1000",
        "bytes tfdist_jax 7001",
    ],
    # Structures of specs.
    "TensorSpecProto": ["string name 1", "TensorShapeProto shape 2", "int32 dtype 3"],
    "TypeSpecProto": [
        "int32 type_spec_class 1",
        "StructuredValue type_state 2",
        "string type_spec_class_name 3",
        "int32 num_flat_components 4",
    ],
    "NoneValue": [],
    "TupleValue": ["*StructuredValue values 1"],
    "DictValue": ["map StructuredValue fields 1"],
    "PairValue": ["string key 1", "StructuredValue value 2"],
    "NamedTupleValue": ["string name 1", "*PairValue values 2"],
    "StructuredValue": [
        "|NoneValue none_value 1",
        "|sint64 int64_value 12",
        "|TensorShapeProto tensor_shape_value 31",
        "|int32 tensor_dtype_value 32",
        "|TensorSpecProto tensor_spec_value 33",
        "|TypeSpecProto type_spec_value 34",
        "|TupleValue list_value 51",
        "|TupleValue tuple_value 52",
        "|DictValue dict_value 53",
        "|NamedTupleValue named_tuple_value 54",
    ],
    # The index of a checkpoint, and the objects that it holds.
    "VersionDef": ["int32 producer 1", "int32 min_consumer 2", "*int32 bad_consumers 3"],
    "BundleHeaderProto": ["int32 num_shards 1", "int32 endianness 2", "VersionDef version 3"],
    "TensorSliceExtent": ["int64 start 1", "|int64 length 2"],
    "TensorSliceProto": ["*TensorSliceExtent extent 1"],
    "BundleEntryProto": [
        "int32 dtype 1",
        "TensorShapeProto shape 2",
        "int32 shard_id 3",
        "int64 offset 4",
        "int64 size 5",
        "fixed32 crc32c 6",
        "*TensorSliceProto slices 7",
    ],
    "BoolValue": ["bool value 1"],
    "RegisteredSaver": ["string name 1", "string object_name 2"],
    "ObjectReference": ["int32 node_id 1", "string local_name 2"],
    "SerializedTensor": ["string name 1", "string full_name 2", "string checkpoint_key 3"],
    "SlotVariableReference": [
        "int32 original_variable_node_id 1",
        "string slot_name 2",
        "int32 slot_variable_node_id 3",
    ],
    "TrackableObject": [
        "*ObjectReference children 1",
        "*SerializedTensor attributes 2",
        "*SlotVariableReference slot_variables 3",
        "RegisteredSaver registered_saver 4",
        "BoolValue has_checkpoint_values 5",
    ],
    "TrackableObjectGraph": ["*TrackableObject nodes 1"],
}


def _declare() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    for name, fields in _EXAMPLE.items():
        _add_fields(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}")) for name in _EXAMPLE
    }
    for message in found.values():
        message.__module__ = __name__  # So that they pickle.
    return found


def _add_fields(message: Any, fields: Iterable[str]) -> None:
    for declaration in fields:
        *kind, name, number = declaration.split()
        field = message.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
        type_name = kind[-1].lstrip("*|")
        if kind[0] == "map":
            # A map is a list of entries, messages of two fields.
            entry = message.nested_type.add(name=f"{''.join(part.title() for part in name.split('_'))}Entry")
            entry.options.map_entry = True
            _add_fields(entry, ["string key 1", f"{type_name} value 2"])
            field.label, type_name = _FIELD.LABEL_REPEATED, f"{message.name}.{entry.name}"
        elif kind[0].startswith("*"):
            field.label = _FIELD.LABEL_REPEATED
        elif kind[0].startswith("|"):
            if not message.oneof_decl:
                message.oneof_decl.add(name="kind")
            field.oneof_index = 0
        if type_name in _TYPES:
            field.type = _TYPES[type_name]
        else:
            field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".tensorflow.{type_name}"


_FOUND = _declare()
BytesList = _FOUND["BytesList"]
FloatList = _FOUND["FloatList"]
Int64List = _FOUND["Int64List"]
Feature = _FOUND["Feature"]
Features = _FOUND["Features"]
FeatureList = _FOUND["FeatureList"]
FeatureLists = _FOUND["FeatureLists"]
Example = _FOUND["Example"]
SequenceExample = _FOUND["SequenceExample"]
TensorShapeProto = _FOUND["TensorShapeProto"]
TensorProto = _FOUND["TensorProto"]
VariantTensorDataProto = _FOUND["VariantTensorDataProto"]
SnapshotMetadataRecord = _FOUND["SnapshotMetadataRecord"]
StructuredValue = _FOUND["StructuredValue"]
BundleHeaderProto = _FOUND["BundleHeaderProto"]
BundleEntryProto = _FOUND["BundleEntryProto"]
TrackableObjectGraph = _FOUND["TrackableObjectGraph"]
