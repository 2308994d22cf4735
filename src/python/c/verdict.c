/* SPDX-License-Identifier: MIT
 * Verdicts, and what a response says of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "python.h"

PyObject *verdict_made(struct policy *policy, stint_key key, const struct stint_verdict *verdict) {
    struct verdict *made = PyObject_New(struct verdict, verdict_type);

    if (made == NULL)
        return NULL;
    made->policy = (struct policy *)Py_NewRef((PyObject *)policy);
    made->key = key;
    made->verdict = *verdict;
    return (PyObject *)made;
}

/* Seconds; infinite if there is no end. */
PyObject *seconds_of(uint64_t ns) {
    return PyFloat_FromDouble(ns >= STINT_NEVER - 1 ? (double)INFINITY : (double)ns / 1e9);
}

/* ---- Response fields ----------------------------------------------------------------------- */

/* The lines "name: value\r\n" as a list of pairs. */
static PyObject *pairs_of(const char *text) {
    PyObject *pairs = PyList_New(0);

    while (pairs != NULL && *text != '\0') {
        const char *end = strstr(text, "\r\n"), *colon = strstr(text, ": ");
        if (end == NULL || colon == NULL || colon > end)
            break;
        PyObject *pair = Py_BuildValue("(s#s#)", text, (Py_ssize_t)(colon - text), colon + 2,
                                       (Py_ssize_t)(end - colon - 2));
        if (pair == NULL || PyList_Append(pairs, pair) != 0)
            Py_CLEAR(pairs);
        Py_XDECREF(pair);
        text = end + 2;
    }
    return pairs;
}

/* headers(style="draft") of these verdicts. */
PyObject *headers_of(struct table *table, PyObject *args, PyObject *kwargs,
                     const struct stint_verdict *verdicts, size_t n) {
    static char *names[] = {"style", NULL};
    const char *style = "draft";
    uint32_t flags;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s:headers", names, &style) ||
        !table_deciding(table))
        return NULL;
    if (strcmp(style, "draft") == 0)
        flags = STINT_HEADERS_DRAFT;
    else if (strcmp(style, "legacy") == 0)
        flags = STINT_HEADERS_LEGACY;
    else if (strcmp(style, "both") == 0)
        flags = STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY;
    else
        return PyErr_Format(PyExc_ValueError,
                            "style is 'draft' (RateLimit), 'legacy' (X-RateLimit) or 'both', not "
                            "'%s'",
                            style);
    const size_t size = STINT_HEADERS_SIZE(n);
    char *text = calloc(1, size);
    if (text == NULL)
        return PyErr_NoMemory();
    PyObject *pairs = NULL;
    const int error = stint_headers(table->limiter, flags, verdicts, n, text, size);
    if (error < 0)
        failed(error, NULL);
    else
        pairs = pairs_of(text);
    free(text);
    return pairs;
}

/* ---- The type ------------------------------------------------------------------------------ */

static PyObject *verdict_headers(struct verdict *verdict, PyObject *args, PyObject *kwargs) {
    return headers_of(verdict->policy->table, args, kwargs, &verdict->verdict, 1);
}

static int verdict_true(struct verdict *verdict) {
    return verdict->verdict.allowed;
}

static PyObject *get_allowed(struct verdict *verdict, void *unused) {
    (void)unused;
    return PyBool_FromLong(verdict->verdict.allowed);
}

static PyObject *get_policy(struct verdict *verdict, void *unused) {
    (void)unused;
    return Py_NewRef((PyObject *)verdict->policy);
}

#define NUMBER(field)                                                                              \
    static PyObject *get_##field(struct verdict *verdict, void *unused) {                          \
        (void)unused;                                                                              \
        return PyLong_FromUnsignedLong(verdict->verdict.field);                                    \
    }
NUMBER(capacity)
NUMBER(used)
NUMBER(remaining)
NUMBER(granted)

static PyObject *get_retry_after(struct verdict *verdict, void *unused) {
    (void)unused;
    return seconds_of(verdict->verdict.retry_after);
}

static PyObject *get_reset_after(struct verdict *verdict, void *unused) {
    (void)unused;
    return seconds_of(verdict->verdict.reset_after);
}

/* Unix time; None: nothing was counted. */
static PyObject *get_resets_at(struct verdict *verdict, void *unused) {
    (void)unused;
    if (verdict->verdict.window == 0)
        Py_RETURN_NONE;
    return seconds_of(verdict->verdict.window);
}

static const uint32_t first_refusal = STINT_FIRST_REFUSAL, shadowed = STINT_SHADOWED,
                      untracked = STINT_UNTRACKED, replaced = STINT_REPLACED,
                      near_limit = STINT_NEAR_LIMIT, banned = STINT_BANNED,
                      overridden = STINT_OVERRIDDEN, mistaken_now = STINT_MISTAKEN_NOW;

static PyObject *get_flag(struct verdict *verdict, void *flag) {
    return PyBool_FromLong((verdict->verdict.flags & *(const uint32_t *)flag) != 0);
}

static PyGetSetDef members[] = {
    {"allowed", (getter)get_allowed, NULL, NULL, NULL},
    {"policy", (getter)get_policy, NULL, NULL, NULL},
    {"capacity", (getter)get_capacity, NULL, NULL, NULL},
    {"used", (getter)get_used, NULL, NULL, NULL},
    {"remaining", (getter)get_remaining, NULL, NULL, NULL},
    {"granted", (getter)get_granted, NULL, NULL, NULL},
    {"retry_after", (getter)get_retry_after, NULL, NULL, NULL},
    {"reset_after", (getter)get_reset_after, NULL, NULL, NULL},
    {"resets_at", (getter)get_resets_at, NULL, NULL, NULL},
    {"first_refusal", (getter)get_flag, NULL, NULL, (void *)&first_refusal},
    {"shadowed", (getter)get_flag, NULL, NULL, (void *)&shadowed},
    {"untracked", (getter)get_flag, NULL, NULL, (void *)&untracked},
    {"replaced", (getter)get_flag, NULL, NULL, (void *)&replaced},
    {"near_limit", (getter)get_flag, NULL, NULL, (void *)&near_limit},
    {"banned", (getter)get_flag, NULL, NULL, (void *)&banned},
    {"overridden", (getter)get_flag, NULL, NULL, (void *)&overridden},
    {"mistaken_now", (getter)get_flag, NULL, NULL, (void *)&mistaken_now},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    METHOD("headers", verdict_headers, METH_VARARGS | METH_KEYWORDS, "($self, style='draft')",
           "The fields of a response, as pairs."),
    {NULL, NULL, 0, NULL},
};

static PyObject *verdict_repr(struct verdict *verdict) {
    return PyUnicode_FromFormat("<stint.Verdict %R: %s, %lu of %lu used>", verdict->policy->name,
                                verdict->verdict.allowed ? "allowed" : "refused",
                                (unsigned long)verdict->verdict.used,
                                (unsigned long)verdict->verdict.capacity);
}

static void verdict_free(PyObject *self) {
    Py_DECREF(((struct verdict *)self)->policy);
    object_free(self);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "The answer to a request. It is true if the request is allowed."},
    {Py_tp_dealloc, verdict_free},
    {Py_tp_repr, verdict_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_nb_bool, verdict_true},
    {0, NULL},
};

PyType_Spec verdict_spec = {
    .name = "stint.Verdict",
    .basicsize = sizeof(struct verdict),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
