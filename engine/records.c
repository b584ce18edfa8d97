/* The tables of the records that Python fills. */
#include "flexnn/engine.h"
#include "flexnn/recording.h"

FX_ENGINE_RECORDS(FX_RECORD_TABLE)
FX_RECORDING_RECORDS(FX_RECORD_TABLE)

const fx_record fx_engine_records[] = {FX_ENGINE_RECORDS(FX_RECORD_ENTRY)
                                           FX_RECORDING_RECORDS(FX_RECORD_ENTRY){NULL, 0, NULL}};
