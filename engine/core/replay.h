/* Programs on a GPU, recorded as CUDA graphs. */
#ifndef PLAIT_REPLAY_H
#define PLAIT_REPLAY_H
#include "program.h"
#include "stream.h"

int pl_program_marks(pl_op *op);                          /* chooses where events are recorded; returns how many */
void pl_program_mark(pl_program_args *call, int first_reported, int n_done);
int pl_program_run_on_gpu(pl_op *op, pl_program_args *call, int *at);
void pl_replays_free(struct pl_replays *replays);

/* Of a thread that records a program: */
typedef struct pl_recorder {
    int instruction;                 /* the one that is recorded now */
    bool wanted, failed;             /* wanted: its arguments change from run to run */
    int n, max;
    void *changes;
} pl_recorder;
void pl_recorder_note(pl_recorder *recorder, int launch);
#endif
