/* Device times, while the profiler is on. */
#ifndef PLAIT_TIMING_H
#define PLAIT_TIMING_H
#include "profiler.h"
#include "stream.h"

pl_timing *pl_timing_begin(pl_stream *stream);                   /* NULL: this one is not timed */
void pl_timing_end(pl_stream *stream, pl_timing *timing, pl_event event);     /* its times are filled in later */
void pl_timing_collect(bool all);             /* device times become events of the profiler; all: waits for them */
#endif
