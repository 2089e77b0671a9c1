"""Caffe's messages as protobuf classes: what a network is made of, without what only training
reads. protobuf skips other fields."""

from __future__ import annotations

import functools
from typing import Any

from ...engine.error import MissingPackage, MXNetError, compose

# message or enum -> fields: name, number, type; * repeated, *p packed; =default
ENUMS = {
    "Phase": "TRAIN 0, TEST 1",
    "PoolMethod": "MAX 0, AVE 1, STOCHASTIC 2",
    "EltwiseOp": "PROD 0, SUM 1, MAX 2",
    "NormRegion": "ACROSS_CHANNELS 0, WITHIN_CHANNEL 1",
    "ReductionOp": "SUM 1, ASUM 2, SUMSQ 3, MEAN 4",
    "CodeType": "CORNER 1, CENTER_SIZE 2, CORNER_SIZE 3",
    "V1Type": "NONE 0, ABSVAL 35, ACCURACY 1, ARGMAX 30, BNLL 2, CONCAT 3, CONTRASTIVE_LOSS 37,"
    " CONVOLUTION 4, DATA 5, DECONVOLUTION 39, DROPOUT 6, DUMMY_DATA 32, EUCLIDEAN_LOSS 7,"
    " ELTWISE 25, EXP 38, FLATTEN 8, HDF5_DATA 9, HDF5_OUTPUT 10, HINGE_LOSS 28, IM2COL 11,"
    " IMAGE_DATA 12, INFOGAIN_LOSS 13, INNER_PRODUCT 14, LRN 15, MEMORY_DATA 29,"
    " MULTINOMIAL_LOGISTIC_LOSS 16, MVN 34, POOLING 17, POWER 26, RELU 18, SIGMOID 19,"
    " SIGMOID_CROSS_ENTROPY_LOSS 27, SILENCE 36, SOFTMAX 20, SOFTMAX_LOSS 21, SPLIT 22, SLICE 33,"
    " TANH 23, WINDOW_DATA 24, THRESHOLD 31",
}
PARAMETERS = {  # of layers: their number in version 2, in version 1 (0: none there), and fields
    "argmax": (103, 23, "out_max_val 1 bool=false, top_k 2 uint32=1, axis 3 int32"),
    "batch_norm": (139, 0, "use_global_stats 1 bool, eps 3 float=1e-05"),
    "bias": (141, 0, "axis 1 int32=1, num_axes 2 int32=1"),
    "concat": (104, 9, "concat_dim 1 uint32=1, axis 2 int32=1"),
    "convolution": (
        106,
        10,
        "num_output 1 uint32, bias_term 2 bool=true, pad 3 uint32*, kernel_size 4 uint32*,"
        " group 5 uint32=1, stride 6 uint32*, pad_h 9 uint32=0, pad_w 10 uint32=0,"
        " kernel_h 11 uint32, kernel_w 12 uint32, stride_h 13 uint32, stride_w 14 uint32,"
        " axis 16 int32=1, dilation 18 uint32*",
    ),
    "crop": (144, 0, "axis 1 int32=2, offset 2 uint32*"),
    "detection_output": (
        204,
        0,
        "num_classes 1 uint32, share_location 2 bool=true, background_label_id 3 int32=0,"
        " nms_param 4 NonMaximumSuppression, code_type 6 CodeType=CORNER, keep_top_k 7 int32=-1,"
        " variance_encoded_in_target 8 bool=false, confidence_threshold 9 float",
    ),
    "dropout": (108, 12, "dropout_ratio 1 float=0.5"),
    "eltwise": (110, 24, "operation 1 EltwiseOp=SUM, coeff 2 float*"),
    "elu": (140, 0, "alpha 1 float=1"),
    "embed": (137, 0, "num_output 1 uint32, input_dim 2 uint32, bias_term 3 bool=true"),
    "exp": (111, 41, "base 1 float=-1, scale 2 float=1, shift 3 float=0"),
    "flatten": (135, 0, "axis 1 int32=1, end_axis 2 int32=-1"),
    "inner_product": (
        117,
        17,
        "num_output 1 uint32, bias_term 2 bool=true, axis 5 int32=1, transpose 6 bool=false",
    ),
    "input": (143, 0, "shape 1 BlobShape*"),
    "log": (134, 0, "base 1 float=-1, scale 2 float=1, shift 3 float=0"),
    "lrn": (
        118,
        18,
        "local_size 1 uint32=5, alpha 2 float=1, beta 3 float=0.75,"
        " norm_region 4 NormRegion=ACROSS_CHANNELS, k 5 float=1",
    ),
    "mvn": (
        120,
        34,
        "normalize_variance 1 bool=true, across_channels 2 bool=false, eps 3 float=1e-09",
    ),
    "norm": (206, 0, "across_spatial 1 bool=true, channel_shared 3 bool=true, eps 4 float=1e-10"),
    "permute": (202, 0, "order 1 uint32*"),
    "pooling": (
        121,
        19,
        "pool 1 PoolMethod=MAX, kernel_size 2 uint32, stride 3 uint32=1, pad 4 uint32=0,"
        " kernel_h 5 uint32, kernel_w 6 uint32, stride_h 7 uint32, stride_w 8 uint32,"
        " pad_h 9 uint32=0, pad_w 10 uint32=0, global_pooling 12 bool=false",
    ),
    "power": (122, 21, "power 1 float=1, scale 2 float=1, shift 3 float=0"),
    "prelu": (131, 0, "channel_shared 2 bool=false"),
    "prior_box": (
        203,
        0,
        "min_size 1 float*, max_size 2 float*, aspect_ratio 3 float*, flip 4 bool=true,"
        " clip 5 bool=false, variance 6 float*, img_size 7 uint32, img_h 8 uint32, img_w 9 uint32,"
        " step 10 float, step_h 11 float, step_w 12 float, offset 13 float=0.5",
    ),
    "reduction": (136, 0, "operation 1 ReductionOp=SUM, axis 2 int32=0, coeff 3 float=1"),
    "relu": (123, 30, "negative_slope 1 float=0"),
    "reshape": (133, 0, "shape 1 BlobShape, axis 2 int32=0, num_axes 3 int32=-1"),
    "scale": (142, 0, "axis 1 int32=1, num_axes 2 int32=1, bias_term 4 bool=false"),
    "slice": (126, 31, "slice_dim 1 uint32=1, slice_point 2 uint32*, axis 3 int32=1"),
    "softmax": (125, 39, "axis 2 int32=1"),
    "threshold": (128, 25, "threshold 1 float=0"),
    "tile": (138, 0, "axis 1 int32=1, tiles 2 int32"),
}
MESSAGES = {
    "BlobShape": "dim 1 int64*p",
    "BlobProto": "num 1 int32=0, channels 2 int32=0, height 3 int32=0, width 4 int32=0,"
    " data 5 float*p, shape 7 BlobShape, double_data 8 double*p",
    "NonMaximumSuppression": "nms_threshold 1 float=0.3, top_k 2 int32, eta 3 float=1",
    "NetStateRule": "phase 1 Phase, min_level 2 int32, max_level 3 int32, stage 4 string*,"
    " not_stage 5 string*",
    "NetParameter": "name 1 string, layers 2 V1Layer*, input 3 string*, input_dim 4 int32*,"
    " input_shape 8 BlobShape*, layer 100 Layer*",
    "Layer": "name 1 string, type 2 string, bottom 3 string*, top 4 string*, blobs 7 BlobProto*,"
    " include 8 NetStateRule*, exclude 9 NetStateRule*, phase 10 Phase",
    "V1Layer": "layer 1 V0Layer, bottom 2 string*, top 3 string*, name 4 string, type 5 V1Type,"
    " blobs 6 BlobProto*, include 32 NetStateRule*, exclude 33 NetStateRule*",
    "V0Layer": "name 1 string, type 2 string",  # of the first version: told apart, not read
}


@functools.cache
def messages() -> dict[str, Any]:
    """The classes by name. Raises MissingPackage where protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        rule = "Caffe files need the package protobuf"
        raise MissingPackage(compose(rule, fix="pip install 'plait[caffe]'")) from None
    file = descriptor_pb2.FileDescriptorProto(
        name="plait_caffe.proto", package="plait_caffe", syntax="proto2"
    )
    tables = dict(MESSAGES)
    for name, (version_2, version_1, fields) in PARAMETERS.items():
        tables[name] = fields
        tables["Layer"] += f", {name}_param {version_2} {name}"
        if version_1:
            tables["V1Layer"] += f", {name}_param {version_1} {name}"
    for name, values in ENUMS.items():
        # inside a message: the names of values, such as MAX, are those of the scope around the enum
        enum = file.message_type.add(name=f"{name}s").enum_type.add(name=name)
        for value in values.split(", "):
            word, number = value.split()
            enum.value.add(name=word, number=int(number))
    for name, text in tables.items():
        message = file.message_type.add(name=name)
        for field in text.split(", "):
            name, number, kind = field.split()
            _add_field(message, name, int(number), kind, tables)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix("plait_caffe."): kind for name, kind in found.items()}


def _add_field(message: Any, name: str, number: int, kind: str, tables: dict[str, str]) -> None:
    kind, _, default = kind.partition("=")
    kind, repeated, packed = kind.partition("*")
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if packed:
        field.options.packed = True
    if kind in tables or kind in ENUMS:
        field.type = field.TYPE_MESSAGE if kind in tables else field.TYPE_ENUM
        field.type_name = ".plait_caffe." + (f"{kind}s.{kind}" if kind in ENUMS else kind)
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if default:
        field.default_value = default


class CaffeError(MXNetError, ValueError):
    """A Caffe file that is damaged, or has what plait cannot convert."""


def read_text(text: str, what: str) -> Any:
    """The NetParameter of a prototxt. Raises CaffeError."""
    net = messages()["NetParameter"]()
    from google.protobuf import text_format

    try:
        text_format.Parse(text, net, allow_unknown_field=True)
    except (text_format.ParseError, ValueError) as error:
        raise CaffeError(f"caffe: {what} is no network in protobuf's text form: {error}") from None
    return net


def read_binary(content: bytes, what: str) -> Any:
    """The NetParameter of a caffemodel. Raises CaffeError."""
    from google.protobuf.message import DecodeError

    net = messages()["NetParameter"]()
    try:
        net.ParseFromString(content)
    except DecodeError as error:
        raise CaffeError(f"caffe: {what} is no caffemodel: {error}") from None
    return net
