#include "online_softmax.h"
