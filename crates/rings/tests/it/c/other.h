/* Another source file of the applications, with call sites of its own. */
#ifndef OTHER_H
#define OTHER_H

#ifdef __cplusplus
extern "C"
#endif
void other_unit(int number);

#endif
