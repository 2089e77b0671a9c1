"""contrib.cnn: convolutions whose sampling points move."""

from .conv_layers import DeformableConvolution, ModulatedDeformableConvolution
