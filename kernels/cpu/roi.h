/* Regions of interest of images: ROIAlign, PSROIPooling, RROIAlign and ROIPooling; float32. */
#ifndef PLK_ROI_H
#define PLK_ROI_H
#include "kernel.h"
/* cffi reads from here on: */
/* channels: of data. sampling: points along an axis of a bin, or 0: one a pixel, at most most_samples. groups: each bin
 * reads the channels of the group that it lies in, or 0: all read all. whole: bins are means of whole pixels. */
typedef struct {
    int64_t n, channels, height, width, n_rois, bins[2], groups[2], sampling, most_samples;
    int32_t aligned, whole;
    float scale;
} plk_roi;
/* cffi stops reading here */
#endif
