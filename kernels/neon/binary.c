#include "../vec/binary.h"
