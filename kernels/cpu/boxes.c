/* Boxes: overlaps, non-maximum suppression, SSD's targets and detections. Compiled once, without fused multiply-adds,
 * so that every machine takes the same decisions. Equal scores keep their order; NaN sorts last. */
#include "boxes.h"
#include "bytes.h"
#include "parts.h"

#include <math.h>
#include <stdlib.h>

typedef struct { float x1, y1, x2, y2; } corners;
typedef struct { float score; int32_t at; } candidate;

static inline float larger(float a, float b) { return a > b ? a : b; }
static inline float smaller(float a, float b) { return a < b ? a : b; }

static corners corners_of(const float *box, int center)
{
    if (!center)
        return (corners){box[0], box[1], box[2], box[3]};
    float w = box[2] / 2, h = box[3] / 2;
    return (corners){box[0] - w, box[1] - h, box[0] + w, box[1] + h};
}

static float area_of(corners b)
{
    float w = b.x2 - b.x1, h = b.y2 - b.y1;
    return w < 0 || h < 0 ? 0 : w * h;
}

static float common_of(corners a, corners b)
{
    float w = smaller(a.x2, b.x2) - larger(a.x1, b.x1), h = smaller(a.y2, b.y2) - larger(a.y1, b.y1);
    return w > 0 && h > 0 ? w * h : 0;
}

static float iou_of(corners a, corners b)
{
    float common = common_of(a, b), whole = area_of(a) + area_of(b) - common;
    return common > 0 && whole > 0 ? common / whole : 0;
}

static int by_score(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static void iou_rows(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_box_iou *p = call->params;
    const float *lhs = call->bufs[0], *rhs = call->bufs[1];
    float *y = call->bufs[2];
    for (int64_t i = begin; i < end; i++) {
        corners a = corners_of(lhs + i * 4, p->center);
        for (int64_t j = 0; j < p->n_right; j++)
            y[i * p->n_right + j] = iou_of(a, corners_of(rhs + j * 4, p->center));
    }
}

/* bufs: lhs (n_left, 4), rhs (n_right, 4), y (n_left, n_right) */
PLK_KERNEL(plk_box_iou_run)
{
    const plk_box_iou *p = params;
    plk_run_parts(p->n_left * p->n_right * 4, p->n_left, 1, iou_rows, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

/* ---- suppression ---------------------------------------------------------------------------------------------- */

/* Boxes in descending order of score, one array for each field, so that the loop over other boxes vectorises. */
typedef struct { float *x1, *y1, *x2, *y2, *area, *class; int32_t *keep; } rivals;

enum { RIVAL_FIELDS = 7 };

/* Returns 0 if out of memory; the caller frees x1. */
static int rivals_new(rivals *r, int64_t n)
{
    float *all = malloc(sizeof *all * RIVAL_FIELDS * (size_t)(n + 1));
    *r = (rivals){all, all + n, all + 2 * n, all + 3 * n, all + 4 * n, all + 5 * n, (int32_t *)(all + 6 * n)};
    return all != NULL;
}

static void rivals_set(rivals *r, int64_t i, corners b, float area, float class)
{
    r->x1[i] = b.x1, r->y1[i] = b.y1, r->x2[i] = b.x2, r->y2[i] = b.y2;
    r->area[i] = area, r->class[i] = class, r->keep[i] = 1;
}

/* Drops every box that a better one of its class (force: of any) overlaps by more than `threshold`, or by `threshold`
 * where `reach` is 1. extra: 1 where sides count pixels. */
static void suppress(const rivals *r, int64_t n, float threshold, int force, int reach, float extra)
{
    for (int64_t i = 0; i < n; i++) {
        if (!r->keep[i])
            continue;
        float x1 = r->x1[i], y1 = r->y1[i], x2 = r->x2[i], y2 = r->y2[i], area = r->area[i], class = r->class[i];
        for (int64_t j = i + 1; j < n; j++) {
            float w = smaller(x2, r->x2[j]) - larger(x1, r->x1[j]), h = smaller(y2, r->y2[j]) - larger(y1, r->y1[j]);
            w = larger(w + extra, 0), h = larger(h + extra, 0);
            float common = w * h, share = common / (area + r->area[j] - common);
            int loses = (share > threshold) | (reach & (share == threshold));
            r->keep[j] &= ~(loses & (force | (r->class[j] == class)));
        }
    }
}

static void write_box(float *to, const float *from, int in_center, int out_center)
{
    if (in_center == out_center)
        return;
    if (in_center) {
        corners b = corners_of(from, 1);
        to[0] = b.x1, to[1] = b.y1, to[2] = b.x2, to[3] = b.y2;
    } else {
        float w = from[2] - from[0], h = from[3] - from[1];
        to[0] = from[0] + w / 2, to[1] = from[1] + h / 2, to[2] = w, to[3] = h;
    }
}

/* Shared by all sets of boxes: inputs, outputs, and whether memory ran out. */
typedef struct {
    const void *params;
    const float *x, *offsets, *anchors;
    float *y;
    int32_t *index;
    int failed;
} box_sets;

/* One set of boxes; y and index are filled with -1. Returns 0 if out of memory. */
static int nms(const plk_box_nms *p, const float *x, float *y, int32_t *index)
{
    candidate *all = malloc(sizeof *all * (size_t)(p->n_boxes + 1));
    rivals r;
    int64_t n = 0, out = 0;
    if (!rivals_new(&r, p->n_boxes) || !all) {
        free(all);
        free(r.x1);
        return 0;
    }
    for (int64_t i = 0; i < p->n_boxes; i++) {
        const float *row = x + i * p->width;
        if (row[p->score] > p->valid && (p->id < 0 || row[p->id] != p->background))
            all[n++] = (candidate){row[p->score], (int32_t)i};
    }
    qsort(all, (size_t)n, sizeof *all, by_score);
    if (p->topk > 0 && n > p->topk)
        n = p->topk;
    for (int64_t i = 0; i < n; i++) {
        const float *row = x + all[i].at * p->width, *box = row + p->coord;
        corners b = corners_of(box, p->in_center);
        float area = p->in_center ? (box[2] < 0 || box[3] < 0 ? 0 : box[2] * box[3]) : area_of(b);
        rivals_set(&r, i, b, area, p->id < 0 ? 0 : row[p->id]);
    }
    suppress(&r, n, p->overlap, p->force || p->id < 0, 0, 0);
    for (int64_t i = 0; i < n; i++)
        if (r.keep[i]) {
            const float *row = x + all[i].at * p->width;
            memcpy(y + out * p->width, row, sizeof *y * (size_t)p->width);
            write_box(y + out * p->width + p->coord, row + p->coord, p->in_center, p->out_center);
            index[out++] = all[i].at;
        }
    free(all);
    free(r.x1);
    return 1;
}

static void nms_piece(void *arg, int64_t b)
{
    box_sets *s = arg;
    const plk_box_nms *p = s->params;
    int64_t at = b * p->n_boxes;
    if (!nms(p, s->x + at * p->width, s->y + at * p->width, s->index + at))
        __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
}

/* bufs: x (n_batch, n_boxes, width), y like x, index int32 (n_batch, n_boxes) */
PLK_KERNEL(plk_box_nms_run)
{
    const plk_box_nms *p = params;
    int64_t rows = p->n_batch * p->n_boxes;
    float *copy = NULL;
    const float *x = bufs[0];
    float *y = bufs[1];
    int32_t *index = bufs[2];
    (void)scalars;
    if (bufs[0] == bufs[1]) {
        copy = malloc(sizeof *copy * (size_t)(rows * p->width + 1));
        if (!copy)
            return pl_fail(PL_ENOMEM, "out of memory for non-maximum suppression");
        plk_copy_bytes(copy, x, sizeof *copy * (size_t)(rows * p->width));
        x = copy;
    }
    for (int64_t i = 0; i < rows * p->width; i++)
        y[i] = -1;
    for (int64_t i = 0; i < rows; i++)
        index[i] = -1;
    box_sets sets = {.params = p, .x = x, .y = y, .index = index};
    pl_thread_pool_run(pl_threads(rows * 100), p->n_batch, nms_piece, &sets);
    free(copy);
    return sets.failed ? pl_fail(PL_ENOMEM, "out of memory for non-maximum suppression") : PL_OK;
}

/* bufs: dy (n_batch, n_boxes, width), index, dx */
PLK_KERNEL(plk_box_nms_backward)
{
    const plk_box_rows *p = params;
    const float *dy = bufs[0];
    const int32_t *index = bufs[1];
    float *dx = bufs[2];
    size_t row_bytes = sizeof *dx * (size_t)p->width;
    (void)scalars;
    memset(dx, 0, row_bytes * (size_t)(p->n_batch * p->n_boxes));
    for (int64_t b = 0; b < p->n_batch; b++)
        for (int64_t i = b * p->n_boxes; i < (b + 1) * p->n_boxes; i++)
            if (index[i] >= 0 && index[i] < p->n_boxes)
                memcpy(dx + (b * p->n_boxes + index[i]) * p->width, dy + i * p->width, row_bytes);
    return PL_OK;
}

/* ---- SSD's targets --------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t *object, *best_anchor;
    float *overlap, *best, *share;
    int8_t *state;
    candidate *mined;
} matching;

enum { OPEN = 0, POSITIVE, NEGATIVE };

/* The best anchor of an object that is still free; the first of equals. */
static void best_of(const plk_multibox_target *p, const matching *m, int64_t n_objects, int64_t j)
{
    m->best[j] = -1;
    for (int64_t i = 0; i < p->n_anchors; i++)
        if (m->state[i] == OPEN && m->share[i * n_objects + j] > m->best[j]) {
            m->best[j] = m->share[i * n_objects + j];
            m->best_anchor[j] = i;
        }
}

/* Gives every object its best anchor, the best pair first; of equal pairs the one with the first anchor. */
static void match_objects(const plk_multibox_target *p, matching *m, int64_t n_objects)
{
    for (int64_t j = 0; j < n_objects; j++)
        best_of(p, m, n_objects, j);
    for (;;) {
        int64_t top = -1;
        for (int64_t j = 0; j < n_objects; j++)
            if (m->best[j] > 1e-6f && (top < 0 || m->best[j] > m->best[top] ||
                                       (m->best[j] == m->best[top] && m->best_anchor[j] < m->best_anchor[top])))
                top = j;
        if (top < 0)
            return;
        int64_t anchor = m->best_anchor[top];
        m->state[anchor] = POSITIVE;
        m->object[anchor] = top;
        m->overlap[anchor] = m->best[top];
        m->best[top] = -1;
        for (int64_t j = 0; j < n_objects; j++)
            if (m->best[j] >= 0 && m->best_anchor[j] == anchor)
                best_of(p, m, n_objects, j);
    }
}

static float background_of(const plk_multibox_target *p, const float *logits, int64_t i)
{
    float top = logits[i], sum = 0;
    for (int64_t c = 1; c < p->n_classes; c++)
        top = larger(logits[c * p->n_anchors + i], top);
    for (int64_t c = 0; c < p->n_classes; c++)
        sum += expf(logits[c * p->n_anchors + i] - top);
    return expf(logits[i] - top) / sum;
}

/* Makes the anchors with the lowest background score negative, except those whose overlap is too large. */
static void mine(const plk_multibox_target *p, matching *m, const float *logits)
{
    int64_t n_positive = 0, n = 0;
    for (int64_t i = 0; i < p->n_anchors; i++)
        n_positive += m->state[i] == POSITIVE;
    float asked = (float)n_positive * p->mining_ratio, most = (float)(p->n_anchors - n_positive);
    int64_t count = (int64_t)(asked < most ? asked : most);
    for (int64_t i = 0; i < p->n_anchors; i++)
        if (m->state[i] != POSITIVE && m->overlap[i] < p->mining_below)
            m->mined[n++] = (candidate){-background_of(p, logits, i), (int32_t)i};
    qsort(m->mined, (size_t)n, sizeof *m->mined, by_score);
    for (int64_t i = 0; i < n && i < count; i++)
        m->state[m->mined[i].at] = NEGATIVE;
}

static void encode(const float *anchor, const float *box, const float *variances, float *to)
{
    float aw = anchor[2] - anchor[0], ah = anchor[3] - anchor[1], ax = anchor[0] + aw / 2, ay = anchor[1] + ah / 2;
    float w = box[2] - box[0], h = box[3] - box[1], x = box[0] + w / 2, y = box[1] + h / 2;
    to[0] = (x - ax) / aw / variances[0];
    to[1] = (y - ay) / ah / variances[1];
    to[2] = logf(w / aw) / variances[2];
    to[3] = logf(h / ah) / variances[3];
}

/* One image with objects. */
static void target(const plk_multibox_target *p, matching *m, const float *anchors, const float *label,
                   int64_t n_objects, const float *logits, float *offsets, float *mask, float *classes)
{
    memset(m->state, OPEN, (size_t)p->n_anchors);
    for (int64_t i = 0; i < p->n_anchors; i++) {
        corners a = corners_of(anchors + i * 4, 0);
        for (int64_t j = 0; j < n_objects; j++)
            m->share[i * n_objects + j] = iou_of(a, corners_of(label + j * p->label_width + 1, 0));
    }
    match_objects(p, m, n_objects);
    for (int64_t i = 0; i < p->n_anchors; i++) {
        if (m->state[i] == POSITIVE)
            continue;
        const float *row = m->share + i * n_objects;
        int64_t best = 0;
        for (int64_t j = 1; j < n_objects; j++)
            if (row[j] > row[best])
                best = j;
        m->object[i] = best;
        m->overlap[i] = row[best];
        if (p->overlap > 0 && row[best] > p->overlap)
            m->state[i] = POSITIVE;
    }
    if (p->mining_ratio > 0)
        mine(p, m, logits);
    for (int64_t i = 0; i < p->n_anchors; i++)
        if (m->state[i] == POSITIVE) {
            const float *object = label + m->object[i] * p->label_width;
            classes[i] = object[0] + 1;
            for (int k = 0; k < 4; k++)
                mask[i * 4 + k] = 1;
            encode(anchors + i * 4, object + 1, p->variances, offsets + i * 4);
        } else if (m->state[i] == NEGATIVE || !(p->mining_ratio > 0)) {
            classes[i] = 0;
        }
}

/* bufs: anchors (n_anchors, 4), label (n_batch, n_objects, label_width), cls_pred (n_batch, n_classes, n_anchors),
 * offsets and mask (n_batch, n_anchors, 4), classes (n_batch, n_anchors) */
PLK_KERNEL(plk_multibox_target_run)
{
    const plk_multibox_target *p = params;
    int64_t n = p->n_anchors, most = p->n_objects;
    size_t int64s = (size_t)(n + most), floats = (size_t)(n + most + n * most);
    char *memory = malloc(int64s * 8 + (size_t)n * sizeof(candidate) + floats * 4 + (size_t)n + 1);
    matching m;
    (void)scalars;
    if (!memory)
        return pl_fail(PL_ENOMEM, "out of memory for MultiBoxTarget");
    m.object = (int64_t *)memory;
    m.best_anchor = m.object + n;
    m.mined = (candidate *)(m.best_anchor + most);
    m.overlap = (float *)(m.mined + n);
    m.best = m.overlap + n;
    m.share = m.best + most;
    m.state = (int8_t *)(m.share + n * most);
    for (int64_t b = 0; b < p->n_batch; b++) {
        const float *label = (const float *)bufs[1] + b * most * p->label_width;
        float *offsets = (float *)bufs[3] + b * n * 4, *mask = (float *)bufs[4] + b * n * 4;
        float *classes = (float *)bufs[5] + b * n;
        int64_t n_objects = 0;
        while (n_objects < most && label[n_objects * p->label_width] != -1)
            n_objects++;
        memset(offsets, 0, sizeof *offsets * (size_t)n * 4);
        memset(mask, 0, sizeof *mask * (size_t)n * 4);
        for (int64_t i = 0; i < n; i++)
            classes[i] = p->ignore;
        if (n_objects)
            target(p, &m, bufs[0], label, n_objects, (const float *)bufs[2] + b * p->n_classes * n, offsets, mask,
                   classes);
    }
    free(memory);
    return PL_OK;
}

/* ---- SSD's detections ------------------------------------------------------------------------------------------ */

static float clipped(float v, int clip) { return clip ? v < 0 ? 0 : v > 1 ? 1 : v : v; }

static void decode(const plk_multibox_detection *p, const float *anchor, const float *offsets, float *to)
{
    float aw = anchor[2] - anchor[0], ah = anchor[3] - anchor[1], ax = anchor[0] + aw / 2, ay = anchor[1] + ah / 2;
    float x = offsets[0] * p->variances[0] * aw + ax, y = offsets[1] * p->variances[1] * ah + ay;
    float w = expf(offsets[2] * p->variances[2]) * aw / 2, h = expf(offsets[3] * p->variances[3]) * ah / 2;
    to[0] = clipped(x - w, p->clip), to[1] = clipped(y - h, p->clip);
    to[2] = clipped(x + w, p->clip), to[3] = clipped(y + h, p->clip);
}

/* One image; y (n_anchors, 6) is filled with -1. Returns 0 if out of memory. */
static int detect(const plk_multibox_detection *p, const float *prob, const float *offsets, const float *anchors,
                  float *y)
{
    candidate *all = malloc(sizeof *all * (size_t)(p->n_anchors + 1));
    float *found = malloc(sizeof *found * 6 * (size_t)(p->n_anchors + 1));
    rivals r;
    int64_t n = 0, kept;
    if (!rivals_new(&r, p->n_anchors) || !all || !found) {
        free(all);
        free(found);
        free(r.x1);
        return 0;
    }
    float *top = r.area;                          /* of each anchor, and its class; later reused for the sorted boxes */
    int32_t *class = r.keep;
    for (int64_t i = 0; i < p->n_anchors; i++)
        top[i] = -1, class[i] = -1;
    for (int64_t c = 1; c < p->n_classes; c++)
        for (int64_t i = 0; i < p->n_anchors; i++) {
            float v = prob[c * p->n_anchors + i];
            int better = v > top[i];
            top[i] = better ? v : top[i];
            class[i] = better ? (int32_t)c - 1 : class[i];
        }
    for (int64_t i = 0; i < p->n_anchors; i++) {
        float score = top[i];
        int32_t best = class[i];
        if (best < 0 || !(score >= p->threshold))
            continue;
        float *row = found + n * 6;
        row[0] = (float)best, row[1] = score;
        decode(p, anchors + i * 4, offsets + i * 4, row + 2);
        all[n] = (candidate){score, (int32_t)n};
        n++;
    }
    memcpy(y, found, sizeof *y * 6 * (size_t)n);
    if (n && p->nms > 0 && p->nms <= 1) {
        qsort(all, (size_t)n, sizeof *all, by_score);
        kept = p->topk > 0 && p->topk < n ? p->topk : n;
        for (int64_t i = 0; i < kept; i++) {
            const float *row = found + (int64_t)all[i].at * 6;
            corners b = corners_of(row + 2, 0);
            rivals_set(&r, i, b, area_of(b), row[0]);
            memcpy(y + i * 6, row, sizeof *y * 6);
        }
        suppress(&r, kept, p->nms, p->force, 1, 0);
        for (int64_t i = 0; i < n; i++)
            if (i >= kept || !r.keep[i])
                y[i * 6] = -1;
    }
    free(all);
    free(found);
    free(r.x1);
    return 1;
}

static void detect_piece(void *arg, int64_t b)
{
    box_sets *s = arg;
    const plk_multibox_detection *p = s->params;
    int64_t n = p->n_anchors;
    if (!detect(p, s->x + b * p->n_classes * n, s->offsets + b * n * 4, s->anchors, s->y + b * n * 6))
        __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
}

/* bufs: cls_prob (n_batch, n_classes, n_anchors), loc_pred (n_batch, n_anchors, 4), anchors (n_anchors, 4),
 * y (n_batch, n_anchors, 6) */
PLK_KERNEL(plk_multibox_detection_run)
{
    const plk_multibox_detection *p = params;
    box_sets sets = {.params = p, .x = bufs[0], .offsets = bufs[1], .anchors = bufs[2], .y = bufs[3]};
    (void)scalars;
    for (int64_t i = 0; i < p->n_batch * p->n_anchors * 6; i++)
        sets.y[i] = -1;
    pl_thread_pool_run(pl_threads(p->n_batch * p->n_anchors * 100), p->n_batch, detect_piece, &sets);
    return sets.failed ? pl_fail(PL_ENOMEM, "out of memory for MultiBoxDetection") : PL_OK;
}

/* ---- proposals of Faster R-CNN --------------------------------------------------------------------------------- */

static float in_image(float v, float last) { return larger(smaller(v, last), 0); }

/* Anchor k of a pixel moved by its prediction, within the image; `by` is the distance between its four numbers. */
static corners moved(const plk_proposal *p, corners a, const float *by, int64_t step, float width, float height)
{
    corners b;
    if (p->iou_loss) {
        b = (corners){a.x1 + by[0], a.y1 + by[step], a.x2 + by[2 * step], a.y2 + by[3 * step]};
    } else {
        float w = a.x2 - a.x1 + 1, h = a.y2 - a.y1 + 1;
        float x = a.x1 + 0.5f * (w - 1) + by[0] * w, y = a.y1 + 0.5f * (h - 1) + by[step] * h;
        float half_w = 0.5f * (expf(by[2 * step]) * w - 1), half_h = 0.5f * (expf(by[3 * step]) * h - 1);
        b = (corners){x - half_w, y - half_h, x + half_w, y + half_h};
    }
    return (corners){in_image(b.x1, width - 1), in_image(b.y1, height - 1), in_image(b.x2, width - 1),
                     in_image(b.y2, height - 1)};
}

/* One image: scores (anchors, h, w), deltas (anchors, 4, h, w); rows (post, 5) and their scores (post). */
static int propose(const plk_proposal *p, int64_t image, const float *scores, const float *deltas, const float *info,
                   float *rows, float *out_scores)
{
    int64_t area = p->height * p->width, total = p->n_anchors * area, n = 0, kept = 0;
    float height = info[0], width = info[1], least = p->min_size * info[2];
    candidate *all = malloc((sizeof *all + sizeof(corners)) * (size_t)(total + 1));
    corners *boxes = (corners *)(all + total);
    rivals r;
    if (!rivals_new(&r, total) || !all) {
        free(all);
        free(r.x1);
        return pl_fail(PL_ENOMEM, "out of memory for Proposal");
    }
    for (int64_t i = 0; i < area; i++)
        for (int64_t k = 0; k < p->n_anchors; k++, n++) {
            const float *a = p->anchors + k * 4;
            float x = (float)(i % p->width * p->stride), y = (float)(i / p->width * p->stride);
            corners b = moved(p, (corners){a[0] + x, a[1] + y, a[2] + x, a[3] + y}, deltas + k * 4 * area + i, area,
                              width, height);
            float score = scores[k * area + i];
            if ((float)(i / p->width) >= truncf(height / p->stride) ||
                (float)(i % p->width) >= truncf(width / p->stride))
                score = -1;
            if (b.x2 - b.x1 + 1 < least || b.y2 - b.y1 + 1 < least) {
                b = (corners){b.x1 - least / 2, b.y1 - least / 2, b.x2 + least / 2, b.y2 + least / 2};
                score = -1;
            }
            boxes[n] = b;
            all[n] = (candidate){score == score ? score : -INFINITY, (int32_t)n};
        }
    qsort(all, (size_t)n, sizeof *all, by_score);
    if (p->pre > 0 && n > p->pre)
        n = p->pre;
    for (int64_t i = 0; i < n; i++) {
        corners b = boxes[all[i].at];
        float w = b.x2 - b.x1 + 1, h = b.y2 - b.y1 + 1;
        rivals_set(&r, i, b, w < 0 || h < 0 ? 0 : w * h, 0);
    }
    suppress(&r, n, p->threshold, 1, 0, 1);
    for (int64_t i = 0; i < n && kept < p->post; i++)
        if (r.keep[i]) {
            float *row = rows + kept * 5;
            row[0] = (float)image, row[1] = r.x1[i], row[2] = r.y1[i], row[3] = r.x2[i], row[4] = r.y2[i];
            out_scores[kept++] = all[i].score;
        }
    for (int64_t i = kept; i < p->post; i++) {                 /* too few are repeated */
        memcpy(rows + i * 5, rows + i % kept * 5, sizeof *rows * 5);
        out_scores[i] = out_scores[i % kept];
    }
    free(all);
    free(r.x1);
    return PL_OK;
}

/* bufs: cls_prob (n, 2 anchors, h, w), bbox_pred (n, 4 anchors, h, w), im_info (n, 3), rows (n, post, 5), scores (n,
 * post) */
PLK_KERNEL(plk_proposal_run)
{
    const plk_proposal *p = params;
    int64_t size = p->n_anchors * p->height * p->width;
    int status = PL_OK;
    (void)scalars;
    for (int64_t i = 0; i < p->n_images && !status; i++)
        status = propose(p, i, (const float *)bufs[0] + (2 * i + 1) * size, (const float *)bufs[1] + i * 4 * size,
                         (const float *)bufs[2] + i * 3, (float *)bufs[3] + i * p->post * 5,
                         (float *)bufs[4] + i * p->post);
    return status;
}
