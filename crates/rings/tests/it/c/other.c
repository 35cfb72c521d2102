#include "other.h"

#define TRACEPOINT_TARGET "app::other"
#include <throughline/tracepoint.h>

void other_unit(int number)
{
	TRACEPOINT("other", tp_i64("number", number));
}
