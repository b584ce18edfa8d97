/* Threads that run one operator over and over, for --bench. */
#ifndef FLEXNN_CHECK_CREW_H
#define FLEXNN_CHECK_CREW_H

#include "check.h"

#define CHECK_THREADS_MAX 8 /* each has a workspace: case.c keeps count of all memory */

typedef struct check_crew check_crew;

/* `threads` of them, 1 to CHECK_THREADS_MAX, the caller among them; NULL: the system gave none. Their workspace, of
 * check_alloc, outlives them. */
check_crew *check_crew_start(int threads, int64_t workspace_bytes);
/* All `units` >= 1 of the call, whose workspace is not used; -1: one failed. */
int check_crew_run(check_crew *crew, const fx_call *call, uint32_t units);
void check_crew_stop(check_crew *crew);

#endif
