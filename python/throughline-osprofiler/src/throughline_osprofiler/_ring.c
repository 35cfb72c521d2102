/* Notifications of OSProfiler as records: JSON of plain values, made here, and one record for each. What is not plain is left to a callable.
 *
 *     is the site on? -> is the trace sampled? -> JSON into one buffer -> a record: base_id, and the JSON in pieces
 *
 * No Python code runs between the beginning of a notification and its record, but that callable's, before anything else is done. The GIL is
 * held all the time: who holds it has the buffer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define TRACEPOINT_IMPLEMENTATION
#define TRACEPOINT_TARGET "throughline_osprofiler"
#include <throughline/tracepoint.h>

/* No record is longer. */
#define MAX_JSON_LEN ((size_t)TP_MAX_RECORD_WORDS * 8u)
/* Deeper values are left to the callable, which may raise where the stack would end. */
#define MAX_DEPTH 64

/* ---------------------------------------------------------------------------------------------------------------- JSON ---- */

typedef enum { DONE, NOT_PLAIN, TOO_LONG } Outcome;

static struct {
	char *bytes;
	size_t len;
	size_t room;
} json;

/* Has room for so many bytes; false when that is too much. */
__attribute__((noinline, cold)) static bool grow(size_t len)
{
	size_t room = json.room ? json.room : 4096;
	if (json.len + len > MAX_JSON_LEN)
		return false;
	while (room < json.len + len)
		room *= 2;
	char *const bytes = (char *)realloc(json.bytes, room);
	if (!bytes)
		return false;
	json.bytes = bytes;
	json.room = room;
	return true;
}

/* Where the next bytes go, of which there may be so many; null when that is too much. */
static inline char *room_for(size_t len)
{
	if (__builtin_expect(json.room - json.len < len, 0) && !grow(len))
		return NULL;
	return json.bytes + json.len;
}

static inline Outcome put(const char *bytes, size_t len)
{
	char *const at = room_for(len);
	if (!at)
		return TOO_LONG;
	memcpy(at, bytes, len);
	json.len += len;
	return DONE;
}

#define ONES (~(uint64_t)0 / 255)

/* Not zero in the highest bits of bytes when one of eight ASCII characters cannot stand in a JSON text as it is: control characters and DEL, `"`,
 * `\`. */
static inline uint64_t odd_in(uint64_t word)
{
	const uint64_t quote = word ^ ONES * '"', backslash = word ^ ONES * '\\', del = word ^ ONES * 0x7f;
	return ((word - ONES * ' ') & ~word) | ((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash) | ((del - ONES) & ~del);
}

/* Copies ASCII characters; gives whether all of them can stand in a JSON text. Most are few, for which a call would take longer. */
static inline bool copy_plain(char *to, const char *from, size_t len)
{
	uint64_t word, odd = 0;
	uint32_t half[2];
	if (len >= 8) {
		for (size_t at = 0; at + 8 < len; at += 8) {
			memcpy(&word, from + at, 8);
			memcpy(to + at, &word, 8);
			odd |= odd_in(word);
		}
		memcpy(&word, from + len - 8, 8);
		memcpy(to + len - 8, &word, 8);
	} else if (len >= 4) {
		memcpy(&half[0], from, 4);
		memcpy(&half[1], from + len - 4, 4);
		memcpy(to, &half[0], 4);
		memcpy(to + len - 4, &half[1], 4);
		memcpy(&word, half, 8);
	} else {
		word = ONES * 'a';
		for (size_t at = 0; at < len; at++) {
			to[at] = from[at];
			word = word << 8 | (unsigned char)from[at];
		}
	}
	return ((odd | odd_in(word)) & ONES * 0x80) == 0;
}

static size_t escaped_len(Py_UCS4 c)
{
	if (c >= 0x10000)
		return 12;
	if (c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f')
		return 2;
	return c >= ' ' && c <= '~' ? 1 : 6;
}

static char *put_unit(char *at, Py_UCS4 unit)
{
	static const char digits[] = "0123456789abcdef";
	*at++ = '\\';
	*at++ = 'u';
	for (int shift = 12; shift >= 0; shift -= 4)
		*at++ = digits[unit >> shift & 15];
	return at;
}

static char *put_escaped(char *at, Py_UCS4 c)
{
	static const char named[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
	switch (escaped_len(c)) {
	case 1:
		*at++ = (char)c;
		return at;
	case 2:
		*at++ = '\\';
		*at++ = names[strchr(named, (int)c) - named];
		return at;
	case 6:
		return put_unit(at, c);
	default:
		at = put_unit(at, 0xd800 | ((c - 0x10000) >> 10 & 0x3ff));
		return put_unit(at, 0xdc00 | ((c - 0x10000) & 0x3ff));
	}
}

__attribute__((noinline)) static Outcome put_escaped_text(PyObject *text, size_t len)
{
	const int kind = (int)PyUnicode_KIND(text);
	const void *const data = PyUnicode_DATA(text);
	size_t escaped = 2;
	for (size_t i = 0; i < len && escaped <= MAX_JSON_LEN; i++)
		escaped += escaped_len(PyUnicode_READ(kind, data, (Py_ssize_t)i));
	char *at = room_for(escaped);
	if (!at)
		return TOO_LONG;
	json.len += escaped;
	*at++ = '"';
	for (size_t i = 0; i < len; i++)
		at = put_escaped(at, PyUnicode_READ(kind, data, (Py_ssize_t)i));
	*at = '"';
	return DONE;
}

static inline Outcome put_text(PyObject *text)
{
#if PY_VERSION_HEX < 0x030C0000
	if (PyUnicode_READY(text) < 0)
		return NOT_PLAIN;
#endif
	const size_t len = (size_t)PyUnicode_GET_LENGTH(text);
	if (PyUnicode_IS_COMPACT_ASCII(text)) {
		char *const at = room_for(len + 2);
		if (!at)
			return TOO_LONG;
		if (copy_plain(at + 1, (const char *)PyUnicode_1BYTE_DATA(text), len)) {
			at[0] = '"';
			at[len + 1] = '"';
			json.len += len + 2;
			return DONE;
		}
	}
	return put_escaped_text(text, len);
}

static Outcome put_integer(PyObject *value)
{
	char digits[24], *at = digits + sizeof digits;
	int overflow = 0;
	const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
	if (overflow)
		return NOT_PLAIN;
	unsigned long long rest = number < 0 ? 0ull - (unsigned long long)number : (unsigned long long)number;
	do
		*--at = (char)('0' + rest % 10);
	while (rest /= 10);
	if (number < 0)
		*--at = '-';
	return put(at, (size_t)(digits + sizeof digits - at));
}

static Outcome put_real(double value)
{
	if (value != value)
		return put("NaN", 3);
	if (value - value != 0)
		return value > 0 ? put("Infinity", 8) : put("-Infinity", 9);
	char *const text = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
	if (!text)
		return NOT_PLAIN;
	const Outcome outcome = put(text, strlen(text));
	PyMem_Free(text);
	return outcome;
}

static Outcome put_value(PyObject *value, int depth);

static Outcome put_items(PyObject *list, int depth)
{
	const bool is_list = PyList_Check(list);
	const Py_ssize_t count = is_list ? PyList_GET_SIZE(list) : PyTuple_GET_SIZE(list);
	Outcome outcome = put("[", 1);
	for (Py_ssize_t i = 0; i < count && outcome == DONE; i++) {
		if (i > 0)
			outcome = put(", ", 2);
		if (outcome == DONE)
			outcome = put_value(is_list ? PyList_GET_ITEM(list, i) : PyTuple_GET_ITEM(list, i), depth);
	}
	return outcome == DONE ? put("]", 1) : outcome;
}

static inline Outcome put_member(PyObject *key, PyObject *value, bool is_first, int depth)
{
	if (!PyUnicode_Check(key))
		return NOT_PLAIN;
	Outcome outcome = is_first ? DONE : put(", ", 2);
	if (outcome == DONE)
		outcome = put_text(key);
	if (outcome == DONE)
		outcome = put(": ", 2);
	return outcome == DONE ? put_value(value, depth) : outcome;
}

static Outcome put_members(PyObject *dict, int depth)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;
	Outcome outcome = put("{", 1);
	for (bool is_first = true; outcome == DONE && PyDict_Next(dict, &at, &key, &value); is_first = false)
		outcome = put_member(key, value, is_first, depth);
	return outcome == DONE ? put("}", 1) : outcome;
}

/* A value of a type whose JSON no code of an application has a part in. */
static Outcome put_value(PyObject *value, int depth)
{
	if (depth == 0)
		return NOT_PLAIN;
	if (PyUnicode_Check(value))
		return put_text(value);
	if (value == Py_None)
		return put("null", 4);
	if (value == Py_True)
		return put("true", 4);
	if (value == Py_False)
		return put("false", 5);
	if (PyLong_Check(value))
		return put_integer(value);
	if (PyFloat_Check(value))
		return put_real(PyFloat_AS_DOUBLE(value));
	if (PyDict_CheckExact(value))
		return put_members(value, depth - 1);
	if (PyList_CheckExact(value) || PyTuple_CheckExact(value))
		return put_items(value, depth - 1);
	return NOT_PLAIN;
}

static inline bool is_behind(PyObject *key)
{
	return PyUnicode_Check(key) && PyUnicode_GET_LENGTH(key) == 7 &&
		(PyUnicode_CompareWithASCIIString(key, "project") == 0 || PyUnicode_CompareWithASCIIString(key, "service") == 0);
}

/* Puts a notification into the buffer, with `members` behind its own. */
static Outcome encode(PyObject *info, const char *members, size_t members_len)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;
	bool is_first = true;
	json.len = 0;
	if (!PyDict_CheckExact(info))
		return NOT_PLAIN;
	Outcome outcome = put("{", 1);
	for (; outcome == DONE && PyDict_Next(info, &at, &key, &value); is_first = false)
		outcome = is_behind(key) ? NOT_PLAIN : put_member(key, value, is_first, MAX_DEPTH);
	if (outcome == DONE && !is_first)
		outcome = put(", ", 2);
	return outcome == DONE ? put(members, members_len) : outcome;
}

/* ------------------------------------------------------------------------------------------------------------ sampling ---- */

/* Of a UUID these are random; the two above them are its variant. */
#define HASH_BITS 62
#define ALL ((uint64_t)1 << HASH_BITS)

static bool is_uuid(const char *text, size_t len)
{
	if (len != 36)
		return false;
	for (size_t i = 0; i < len; i++) {
		const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
		if (is_dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
			return false;
	}
	return true;
}

/* The same for a trace in all processes of all services: the low bits of a UUID, or else an FNV-1a hash whose bits were mixed. */
static uint64_t hash_of(const char *text, size_t len)
{
	uint64_t hash = 0;
	if (is_uuid(text, len)) {
		for (size_t i = 19; i < len; i++) {
			const char digit = text[i];
			if (digit != '-')
				hash = hash << 4 | (uint64_t)((digit & 15) + (digit > '9' ? 9 : 0));
		}
		return hash & (ALL - 1);
	}
	hash = 0xcbf29ce484222325u;
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
	hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
	hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
	return (hash ^ hash >> 31) & (ALL - 1);
}

/* ------------------------------------------------------------------------------------------------------------- records ---- */

static const tp_field fields[] = {{TP_TAGGED, "base_id"}, {TP_TAGGED, "json"}};
static tp_site site = TP_SITE(TP_KIND_EVENT, TP_SEVERITY_UNSPECIFIED, "osprofiler", fields, 2);

/* One record; that it is dropped is counted in the ring. */
static void write_record(tp_value base_id, const char *text, size_t len)
{
	tp_record record;
	size_t words = 1 + tp_words(base_id);
	for (size_t at = 0; at < len; at += TP_MAX_VALUE_LEN)
		words += 1 + tp_words(tp_string_of(text + at, len - at));
	if (!tp_begin(&record, &site, words))
		return;
	tp_put_tagged(&record, 0, base_id);
	for (size_t at = 0; at < len; at += TP_MAX_VALUE_LEN) {
		const size_t piece = len - at < TP_MAX_VALUE_LEN ? len - at : TP_MAX_VALUE_LEN;
		tp_put_tagged(&record, 1, tp_string_of(text + at, piece));
	}
	tp_end(&record);
}

static void count_too_long(void)
{
	tp_record record;
	/* With the words before the values no ring takes it. */
	if (tp_begin(&record, &site, TP_MAX_RECORD_WORDS))
		tp_end(&record);
}

/* ------------------------------------------------------------------------------------------------------------ notifier ---- */

typedef struct {
	PyObject_HEAD
	vectorcallfunc vectorcall;
	/* Called with a notification that is not plain; gives its JSON. */
	PyObject *others;
	PyObject *members;
	/* Traces with lower hashes are written. */
	uint64_t bound;
} Notifier;

static PyObject *base_id_name;

static tp_value base_id_of(PyObject *info)
{
	PyObject *const base_id = PyDict_Check(info) ? PyDict_GetItemWithError(info, base_id_name) : NULL;
	Py_ssize_t len = 0;
	const char *const text = base_id && PyUnicode_Check(base_id) ? PyUnicode_AsUTF8AndSize(base_id, &len) : NULL;
	if (!text)
		PyErr_Clear();
	return tp_string_of(text, text ? (size_t)len : 0);
}

/* Has Python make the JSON; false with an exception that is none of the notification's: somebody ends the program, for example. */
static bool notify_others(Notifier *self, PyObject *info)
{
	PyObject *const text = PyObject_CallOneArg(self->others, info);
	Py_ssize_t len = 0;
	const char *const bytes = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;
	if (bytes && (size_t)len <= MAX_JSON_LEN)
		/* After Python code has run, which may have done anything to the notification. */
		write_record(base_id_of(info), bytes, (size_t)len);
	else
		count_too_long();
	Py_XDECREF(text);
	if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
		return false;
	PyErr_Clear();
	return true;
}

static PyObject *notify(PyObject *of_self, PyObject *const *arguments, size_t count, PyObject *names)
{
	(void)names;
	Notifier *const self = (Notifier *)of_self;
	if (PyVectorcall_NARGS(count) < 1 || !tp_on(&site))
		Py_RETURN_NONE;
	PyObject *const info = arguments[0];
	const tp_value base_id = base_id_of(info);
	if (self->bound < ALL && hash_of((const char *)base_id.bytes, (size_t)base_id.word) >= self->bound)
		Py_RETURN_NONE;
	switch (encode(info, PyBytes_AS_STRING(self->members), (size_t)PyBytes_GET_SIZE(self->members))) {
	case DONE:
		write_record(base_id, json.bytes, json.len);
		break;
	case TOO_LONG:
		count_too_long();
		break;
	case NOT_PLAIN:
		PyErr_Clear();
		if (!notify_others(self, info))
			return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *notifier_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
	PyObject *others, *members;
	double sample;
	if (names && PyDict_GET_SIZE(names) > 0) {
		PyErr_SetString(PyExc_TypeError, "arguments have no names");
		return NULL;
	}
	if (!PyArg_ParseTuple(arguments, "OSd", &others, &members, &sample))
		return NULL;
	Notifier *const self = (Notifier *)type->tp_alloc(type, 0);
	if (!self)
		return NULL;
	self->vectorcall = notify;
	Py_INCREF(others);
	self->others = others;
	Py_INCREF(members);
	self->members = members;
	self->bound = sample >= 1.0 ? ALL : sample > 0.0 ? (uint64_t)(sample * (double)ALL) : 0;
	return (PyObject *)self;
}

static void notifier_dealloc(PyObject *of_self)
{
	Notifier *const self = (Notifier *)of_self;
	Py_XDECREF(self->others);
	Py_XDECREF(self->members);
	Py_TYPE(of_self)->tp_free(of_self);
}

static PyTypeObject notifier_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "throughline_osprofiler._ring.Notifier",
	.tp_doc = "Notifier(others, members, sample): writes each notification that it is called with.",
	.tp_basicsize = sizeof(Notifier),
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
	.tp_new = notifier_new,
	.tp_dealloc = notifier_dealloc,
	.tp_call = PyVectorcall_Call,
	.tp_vectorcall_offset = offsetof(Notifier, vectorcall),
};

/* -------------------------------------------------------------------------------------------------------------- module ---- */

static PyObject *configure(PyObject *module, PyObject *arguments)
{
	(void)module;
	const char *socket, *mode, *service;
	PyObject *ring_bytes;
	if (!PyArg_ParseTuple(arguments, "zOzz", &socket, &ring_bytes, &mode, &service))
		return NULL;
	tp_options options = tp_options_default();
	if (socket) {
		if (strlen(socket) >= sizeof options.socket)
			return PyErr_Format(PyExc_ValueError, "socket has more than %zu bytes", sizeof options.socket - 1);
		tp_copy_text_(options.socket, sizeof options.socket, socket);
	}
	if (ring_bytes != Py_None) {
		options.ring_len = PyLong_AsUnsignedLongLong(ring_bytes);
		if (PyErr_Occurred())
			return NULL;
	}
	if (mode)
		options.mode = strcmp(mode, "overwrite") == 0 ? TP_MODE_OVERWRITE : TP_MODE_DROP;
	if (service && !tp_variable_("TRACEPOINTS_SERVICE") && !tp_variable_("OTEL_SERVICE_NAME"))
		tp_copy_text_(options.service, sizeof options.service, service);
	tp_configure(&options);
	Py_RETURN_NONE;
}

static PyObject *dumps(PyObject *module, PyObject *arguments)
{
	(void)module;
	PyObject *info, *members;
	if (!PyArg_ParseTuple(arguments, "OS", &info, &members))
		return NULL;
	if (encode(info, PyBytes_AS_STRING(members), (size_t)PyBytes_GET_SIZE(members)) == DONE)
		return PyBytes_FromStringAndSize(json.bytes, (Py_ssize_t)json.len);
	PyErr_Clear();
	Py_RETURN_NONE;
}

static PyObject *hash(PyObject *module, PyObject *arguments)
{
	(void)module;
	const char *text;
	Py_ssize_t len;
	if (!PyArg_ParseTuple(arguments, "s#", &text, &len))
		return NULL;
	return PyLong_FromUnsignedLongLong(hash_of(text, (size_t)len));
}

static PyMethodDef functions[] = {
	{"configure", configure, METH_VARARGS,
	 "configure(socket, ring_bytes, mode, service): how rings are, once the first notification makes them; None: as the environment says."},
	{"dumps", dumps, METH_VARARGS, "dumps(info, members): a notification's JSON; None when it is not plain, or too long."},
	{"hash", hash, METH_VARARGS, "hash(base_id): what traces are sampled by, below 2**62."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, .m_name = "_ring", .m_doc = "Rings of notifications.", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC PyInit__ring(void)
{
	base_id_name = PyUnicode_InternFromString("base_id");
	PyObject *const module = PyModule_Create(&definition);
	if (!base_id_name || !module || PyType_Ready(&notifier_type) < 0)
		return NULL;
	Py_INCREF(&notifier_type);
	if (PyModule_AddObject(module, "Notifier", (PyObject *)&notifier_type) < 0)
		return NULL;
	return module;
}
