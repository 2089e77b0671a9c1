"""MXNet's module path mxnet.io.io; the names are defined in the files imported here."""

from .array import NDArrayIter, _init_data  # noqa: F401
from .csv import CSVIter
from .desc import DataBatch, DataDesc, DataIter
from .detection_record import ImageDetRecordIter
from .image_record import (
    ImageRecordInt8Iter,
    ImageRecordIter,
    ImageRecordIter_v1,
    ImageRecordUInt8Iter,
    ImageRecordUInt8Iter_v1,
)
from .libsvm import LibSVMIter
from .mnist import MNISTIter
from .source import MXDataIter
from .wrap import PrefetchingIter, ResizeIter

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "ImageDetRecordIter",
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
    "LibSVMIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
]
