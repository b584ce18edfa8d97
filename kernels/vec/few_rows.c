#include "few_rows.h"
