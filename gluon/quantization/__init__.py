"""mx.contrib.quantization: networks on 8-bit integers. docs/guide/quantization.md, and
docs/design/quantization.md for how."""

from .collect import (
    CalibrationCollector,
    _LayerHistogramCollector,
    _LayerOutputMinMaxCollector,
    combine_histogram,
    get_optimal_threshold,
    get_optimal_thresholds,
)
from .model import calib_graph, quantize_graph, quantize_model, quantize_model_mkldnn
from .net import quantize_net, quantize_net_v2

quantize_model_onednn = quantize_model_mkldnn
# names that MXNet's own scripts import
_get_optimal_threshold, _get_optimal_thresholds = get_optimal_threshold, get_optimal_thresholds

__all__ = [
    "CalibrationCollector",
    "calib_graph",
    "combine_histogram",
    "quantize_graph",
    "quantize_model",
    "quantize_model_mkldnn",
    "quantize_model_onednn",
    "quantize_net",
    "quantize_net_v2",
]
