/* Boxes: overlaps, non-maximum suppression, SSD's targets and detections; float32. */
#ifndef PLK_BOXES_H
#define PLK_BOXES_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct { int64_t n_left, n_right; int32_t center; } plk_box_iou;   /* center: 1, boxes are centre, size */
typedef struct {
    int64_t n_batch, n_boxes, width, topk;                 /* topk: -1, all */
    int32_t coord, score, id, force, in_center, out_center; /* columns; id: -1, none */
    float overlap, valid, background;
} plk_box_nms;
typedef struct { int64_t n_batch, n_boxes, width; } plk_box_rows;
typedef struct {
    int64_t n_batch, n_anchors, n_objects, label_width, n_classes;
    float overlap, ignore, mining_ratio, mining_below, variances[4];
} plk_multibox_target;
typedef struct {
    int64_t n_batch, n_anchors, n_classes, topk;
    int32_t clip, force;
    float threshold, nms, variances[4];
} plk_multibox_detection;
enum { PLK_MAX_ANCHORS = 64 };
typedef struct {
    int64_t n_images, n_anchors, height, width, stride, pre, post;   /* pre: at most so many boxes, <= 0: all */
    int32_t iou_loss;
    float threshold, min_size, anchors[4 * PLK_MAX_ANCHORS];
} plk_proposal;
/* cffi stops reading here */
#endif
