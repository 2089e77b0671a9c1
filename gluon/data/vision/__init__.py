"""Data sets of images, and transforms."""
from . import transforms  # noqa: F401
from .datasets import (CIFAR10, CIFAR100, MNIST, Digits, FashionMNIST, ImageFolderDataset,  # noqa: F401
                       ImageRecordDataset)
