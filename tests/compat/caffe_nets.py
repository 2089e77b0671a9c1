"""Small Caffe networks that have every layer, with weights that anyone can compute."""

import zlib

import numpy as np
from plait.compat.caffe.schema import messages, read_text

SIZE = (2, 3, 11, 13)


def values(name, shape):
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    return rng.uniform(0.2, 1, shape) * rng.choice([-1, 1], shape)


def image():
    return values("image", SIZE).astype(np.float32)


def net(body, shape=SIZE):
    dims = " ".join(f"dim: {n}" for n in shape)
    return f'name: "test"  # a comment\ninput: "data" input_shape {{ {dims} }}\n{body}'


def layers(*parts):
    """Layers one after the other: (type, parameters, blob shapes), as text and as weights."""
    lines, blobs, bottom = [], {}, "data"
    for i, (kind, text, *shapes) in enumerate(parts):
        name = f"{kind.lower()}{i}"
        lines.append(
            f'layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{name}" {text} }}'
        )
        blobs[name], bottom = shapes, name
    return net("\n".join(lines)), blobs


CONV = (
    "Convolution",
    "convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1"
    " pad_w: 2 }",
    (4, 3, 3, 2),
    (4,),
)
BRANCHES = """
layer { name: "a" type: "Convolution" bottom: "data" top: "a"
        convolution_param { num_output: 4 kernel_size: 1 bias_term: false } }
layer { name: "b" type: "ReLU" bottom: "a" top: "b" relu_param { negative_slope: 0.1 } }
layer { name: "s" type: "Split" bottom: "b" top: "b1" top: "b2" }
layer { name: "t" type: "TanH" bottom: "b1" top: "t" }
layer { name: "train" type: "Dropout" bottom: "t" top: "t" include { phase: TRAIN } }
layer { name: "e" type: "Eltwise" bottom: "t" bottom: "b2" top: "e" eltwise_param { EXTRA } }
layer { name: "c" type: "Concat" bottom: "e" bottom: "data" top: "c" }
layer { name: "sl" type: "Slice" bottom: "c" top: "x" top: "y" slice_param { slice_point: 3 } }
layer { name: "o" type: "Concat" bottom: "y" bottom: "x" top: "o" concat_param { axis: 1 } }
"""
BRANCH_BLOBS = {"a": [(4, 3, 1, 1)]}
SSD = """
layer { name: "f" type: "Convolution" bottom: "data" top: "f"
        convolution_param { num_output: 6 kernel_size: 3 stride: 3 bias_term: false } }
layer { name: "n" type: "Normalize" bottom: "f" top: "n"
        norm_param { across_spatial: false channel_shared: false } }
layer { name: "loc" type: "Convolution" bottom: "n" top: "loc"
        convolution_param { num_output: 24 kernel_size: 1 } }
layer { name: "loc_p" type: "Permute" bottom: "loc" top: "loc_p"
        permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "loc_f" type: "Flatten" bottom: "loc_p" top: "loc_f" }
layer { name: "conf" type: "Convolution" bottom: "n" top: "conf"
        convolution_param { num_output: 18 kernel_size: 1 } }
layer { name: "conf_p" type: "Permute" bottom: "conf" top: "conf_p"
        permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "conf_r" type: "Reshape" bottom: "conf_p" top: "conf_r"
        reshape_param { shape { dim: 0 dim: -1 dim: 3 } } }
layer { name: "conf_s" type: "Softmax" bottom: "conf_r" top: "conf_s" softmax_param { axis: 2 } }
layer { name: "conf_f" type: "Flatten" bottom: "conf_s" top: "conf_f" }
layer { name: "prior" type: "PriorBox" bottom: "n" bottom: "data" top: "prior"
        prior_box_param { min_size: 4 max_size: 6 aspect_ratio: 2 aspect_ratio: 3
                          flip: true clip: false
                          variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
layer { name: "detected" type: "DetectionOutput" bottom: "loc_f" bottom: "conf_f" bottom: "prior"
        top: "detected" detection_output_param { num_classes: 3 share_location: true
        background_label_id: 0 code_type: CENTER_SIZE
        nms_param { nms_threshold: 0.4 top_k: 100 } keep_top_k: 30 confidence_threshold: 0.3 } }
"""
SSD_BLOBS = {
    "f": [(6, 3, 3, 3)],
    "n": [(6,)],
    "loc": [(24, 6, 1, 1), (24,)],
    "conf": [(18, 6, 1, 1), (18,)],
}
V1 = """
layers { name: "c1" type: CONVOLUTION bottom: "data" top: "c1"
         convolution_param { num_output: 4 kernel_size: 3 group: 1 pad: 1 } }
layers { name: "r1" type: RELU bottom: "c1" top: "c1" }
layers { name: "n1" type: LRN bottom: "c1" top: "n1" lrn_param { local_size: 3 alpha: 0.5 } }
layers { name: "p1" type: POOLING bottom: "n1" top: "p1"
         pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layers { name: "ip" type: INNER_PRODUCT bottom: "p1" top: "ip"
         inner_product_param { num_output: 5 } }
layers { name: "drop" type: DROPOUT bottom: "ip" top: "ip" dropout_param { dropout_ratio: 0.3 } }
layers { name: "prob" type: SOFTMAX bottom: "ip" top: "prob" }
"""
V1_BLOBS = {"c1": [(4, 3, 3, 3), (1, 1, 1, 4)], "ip": [(1, 1, 5, 4 * 5 * 6), (1, 1, 1, 5)]}
POOL = "pooling_param { pool: %s kernel_size: 3 stride: 2 pad: 1 }"
BN = [(4,), (4,), (1,)]
NETS = {
    "convolution": layers(CONV),
    "groups": layers(
        ("Convolution", "convolution_param { num_output: 6 kernel_size: 1 }", (6, 3, 1, 1), (6,)),
        (
            "Convolution",
            "convolution_param { num_output: 4 kernel_size: 3 dilation: 2 group: 2 pad: 2"
            " bias_term: false }",
            (4, 3, 3, 3),
        ),
    ),
    "deconvolution": layers(
        CONV,
        (
            "Deconvolution",
            "convolution_param { num_output: 3 kernel_size: 3 stride: 2 pad: 1 }",
            (4, 3, 3, 3),
            (3,),
        ),
    ),
    "max pooling": layers(("Pooling", POOL % "MAX")),
    "mean pooling": layers(("Pooling", POOL % "AVE")),
    "pooling of 2": layers(
        ("Pooling", "pooling_param { pool: AVE kernel_h: 2 kernel_w: 3 stride: 2 }")
    ),
    "padded windows that begin outside": layers(
        ("Pooling", "pooling_param { pool: MAX kernel_size: 2 stride: 2 pad: 1 }")
    ),
    "global pooling": layers(("Pooling", "pooling_param { pool: AVE global_pooling: true }")),
    "batch norm, scale": layers(
        CONV,
        ("BatchNorm", "batch_norm_param { eps: 0.01 }", *BN),
        ("Scale", "scale_param { bias_term: true }", (4,), (4,)),
    ),
    "batch norm": layers(CONV, ("BatchNorm", "", *BN), ("ReLU", "")),
    "scale": layers(CONV, ("Scale", "", (4,))),
    "prelu": layers(CONV, ("PReLU", "", (4,))),
    "elu": layers(CONV, ("ELU", "elu_param { alpha: 1 }")),
    "power": layers(("Power", "power_param { power: 2 scale: 0.5 shift: 0.3 }")),
    "exp": layers(("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.1 }")),
    "elementwise": layers(("AbsVal", ""), ("Sigmoid", ""), ("BNLL", ""), ("TanH", "")),
    "lrn": layers(("LRN", "lrn_param { local_size: 3 alpha: 2 beta: 0.5 }")),
    "lrn within": layers(
        ("LRN", "lrn_param { local_size: 3 alpha: 2 beta: 0.5 norm_region: WITHIN_CHANNEL }")
    ),
    "mvn": layers(("MVN", "")),
    "inner product, axis 2": layers(
        ("InnerProduct", "inner_product_param { num_output: 5 axis: 3 }", (5, 13), (5,))
    ),
    "flatten": layers(("Flatten", "flatten_param { axis: 2 }")),
    "reshape": layers(
        ("Reshape", "reshape_param { shape { dim: 33 dim: 1 } axis: 1 num_axes: 2 }")
    ),
    "argmax": layers(("ArgMax", "argmax_param { axis: 1 }")),
    **{
        f"eltwise {extra}": (net(BRANCHES.replace("EXTRA", extra)), BRANCH_BLOBS)
        for extra in ("operation: PROD", "operation: MAX", "coeff: 2 coeff: -0.5")
    },
    "detection": (net(SSD, (1, 3, 24, 24)), SSD_BLOBS),
    "version 1": (net(V1), V1_BLOBS),
}

# OpenCV lacks the layer, or shifts padded windows
NOT_IN_OPENCV = ("max pooling", "mean pooling", "padded windows that begin outside", "argmax")


def model(name):
    """The bytes of the caffemodel of a network."""
    text, blobs = NETS[name]
    found = messages()["NetParameter"]()
    source = read_text(text, name)
    for source_layer in source.layer or source.layers:
        kept = (found.layer if source.layer else found.layers).add()
        kept.name, kept.type = source_layer.name, source_layer.type
        for i, shape in enumerate(blobs.get(source_layer.name, [])):
            blob = kept.blobs.add()
            if source.layer:
                blob.shape.dim.extend(shape)
            else:
                blob.num, blob.channels, blob.height, blob.width = shape
            numbers = values(f"{name} {source_layer.name} {i}", shape)
            if source_layer.type == "BatchNorm" and i:
                numbers = np.abs(numbers) + (i == 2)
            blob.data.extend(numbers.astype(np.float32).reshape(-1).tolist())
    return found.SerializeToString()


def data(name):
    text, _ = NETS[name]
    shape = tuple(read_text(text, name).input_shape[0].dim)
    return values("image", shape).astype(np.float32)
