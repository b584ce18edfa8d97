/* The tables of the records that Python fills. */
#include "flexnn/draft.h"

FX_PLANNER_RECORDS(FX_RECORD_TABLE)

const fx_record fx_planner_records[] = {FX_PLANNER_RECORDS(FX_RECORD_ENTRY){NULL, 0, NULL}};
