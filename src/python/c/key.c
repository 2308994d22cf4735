/* SPDX-License-Identifier: MIT
 * Keys: who is limited, from what Python has. README.md says how C computes the same. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "python.h"

static bool is_text(PyObject *from, const char **bytes, Py_ssize_t *length) {
    if (PyUnicode_Check(from)) {
        *bytes = PyUnicode_AsUTF8AndSize(from, length);
        return *bytes != NULL;
    }
    char *copy = NULL;
    if (PyBytes_Check(from) && PyBytes_AsStringAndSize(from, &copy, length) == 0) {
        *bytes = copy;
        return true;
    }
    return false;
}

/* What is no key, and what to write instead. */
static bool key_wrong(PyObject *from, bool part) {
    const char *what = part ? "a part of a key" : "a key";
    const char *kinds = part ? "str, bytes or int" : "str, bytes, int, or a tuple of these";

    if (PyErr_Occurred()) /* a str that is no UTF-8 */
        return false;
    if (from == Py_None) {
        PyErr_Format(PyExc_TypeError,
                     "%s is %s, not None: say who is limited (a client at a unix socket has no "
                     "address)",
                     what, kinds);
        return false;
    }
    PyObject *type = PyType_GetName(Py_TYPE(from));
    if (type != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s is %s, not %U: give what stays the same for whom you limit, such as an "
                     "id or a name",
                     what, kinds, type);
        Py_DECREF(type);
    }
    return false;
}

static bool id_read(PyObject *from, uint64_t *id) {
    *id = PyLong_AsUnsignedLongLong(from);
    if (*id != UINT64_MAX || !PyErr_Occurred())
        return true;
    PyErr_Clear();
    PyErr_SetString(PyExc_ValueError,
                    "a key that is a number is 0 to 2**64 - 1: write another as str(number)");
    return false;
}

/* A part that is a number is joined as the bytes of its key: it is no part that is text. */
static bool part_join(struct table *table, PyObject *from, stint_key *key) {
    const char *bytes = NULL;
    Py_ssize_t length = 0;
    stint_key id;

    if (PyLong_Check(from) && !PyBool_Check(from)) {
        uint64_t number;
        if (!id_read(from, &number))
            return false;
        id = stint_key_of_id(table->limiter, number);
        bytes = (const char *)&id.hash;
        length = sizeof(id.hash);
    } else if (!is_text(from, &bytes, &length)) {
        return key_wrong(from, true);
    }
    *key = stint_key_join(table->limiter, *key, bytes, (size_t)length);
    return true;
}

static bool tuple_read(struct table *table, PyObject *from, stint_key *key) {
    const Py_ssize_t n = PyTuple_Size(from);

    if (n == 0) {
        PyErr_SetString(PyExc_ValueError, "a key that is a tuple has one part at least");
        return false;
    }
    PyObject *first = PyTuple_GetItem(from, 0);
    if (PyTuple_Check(first))
        return key_wrong(first, true);
    if (!key_read(table, first, key))
        return false;
    for (Py_ssize_t i = 1; i < n; i++)
        if (!part_join(table, PyTuple_GetItem(from, i), key))
            return false;
    return true;
}

/* Reads a key. The table is open. Returns whether it is one; else an exception is set. */
bool key_read(struct table *table, PyObject *from, stint_key *key) {
    const char *bytes = NULL;
    Py_ssize_t length = 0;

    if (is_text(from, &bytes, &length)) {
        *key = stint_key_of(table->limiter, bytes, (size_t)length);
        return true;
    }
    if (PyLong_Check(from) && !PyBool_Check(from)) {
        uint64_t id;
        if (!id_read(from, &id))
            return false;
        *key = stint_key_of_id(table->limiter, id);
        return true;
    }
    if (Py_IS_TYPE(from, key_type)) {
        const struct key *made = (const struct key *)from;
        if (made->table != table) {
            PyErr_SetString(PyExc_ValueError, "this key was made by another table: a key is of "
                                              "use with the table that made it");
            return false;
        }
        *key = made->key;
        return true;
    }
    return PyTuple_Check(from) ? tuple_read(table, from, key) : key_wrong(from, false);
}

/* ---- Labels -------------------------------------------------------------------------------- */

/* How operators read a key: a str. Of a tuple its parts, as they stand after `stint key FILE`. */
static PyObject *label_of(PyObject *from) {
    if (Py_IS_TYPE(from, key_type)) { /* of a tuple, which may begin with another of them */
        if (Py_EnterRecursiveCall(" in the label of a key") != 0)
            return NULL;
        PyObject *label = label_of(((struct key *)from)->from);
        Py_LeaveRecursiveCall();
        return label;
    }
    if (PyBytes_Check(from))
        return PyUnicode_FromEncodedObject(from, "utf-8", "backslashreplace");
    if (!PyTuple_Check(from))
        return PyObject_Str(from);
    PyObject *blank = PyUnicode_FromString(" "), *parts = PyList_New(0), *label = NULL;
    bool good = blank != NULL && parts != NULL;
    for (Py_ssize_t i = 0; good && i < PyTuple_Size(from); i++) {
        PyObject *part = label_of(PyTuple_GetItem(from, i));
        good = part != NULL && PyList_Append(parts, part) == 0;
        Py_XDECREF(part);
    }
    if (good)
        label = PyUnicode_Join(blank, parts);
    Py_XDECREF(parts);
    Py_XDECREF(blank);
    return label;
}

/* Leaves the name of a key that was refused for the first time in its window, if the table has room
 * for names. The decision stands, whatever comes of this. */
void key_label(struct table *table, PyObject *from, stint_key key) {
    PyObject *label = label_of(from);
    Py_ssize_t length = 0;
    const char *bytes = label != NULL ? PyUnicode_AsUTF8AndSize(label, &length) : NULL;

    if (bytes != NULL && !table->closed) /* by its own __str__ */
        (void)stint_label(table->limiter, key, bytes, (size_t)length);
    Py_XDECREF(label);
    PyErr_Clear();
}

/* ---- Keys that are made before their use --------------------------------------------------- */

static PyObject *key_made(struct table *table, PyObject *from, stint_key key) {
    struct key *made = PyObject_New(struct key, key_type);

    if (made == NULL)
        return NULL;
    made->table = (struct table *)Py_NewRef((PyObject *)table);
    made->from = Py_NewRef(from);
    made->key = key;
    return (PyObject *)made;
}

/* table.key(key) */
PyObject *key_before(struct table *table, PyObject *from) {
    stint_key key;

    if (!table_deciding(table) || !key_read(table, from, &key))
        return NULL;
    return Py_IS_TYPE(from, key_type) ? Py_NewRef(from) : key_made(table, from, key);
}

/* table.address(text, prefix4=32, prefix6=64) */
PyObject *key_address(struct table *table, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"address", "prefix4", "prefix6", NULL};
    PyObject *given;
    Py_ssize_t prefix4 = 32, prefix6 = 64;
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    const struct sockaddr *address = (struct sockaddr *)&four;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|nn:address", names, &given, &prefix4,
                                     &prefix6) ||
        !table_deciding(table))
        return NULL;
    if (prefix4 < 1 || prefix4 > 32 || prefix6 < 1 || prefix6 > 128)
        return PyErr_Format(PyExc_ValueError,
                            "prefix4 is 1 to 32 bits, not %zd, and prefix6 1 to 128, not %zd",
                            prefix4, prefix6);
    const char *text = text_read(given, "an address");
    if (text == NULL)
        return NULL;
    /* A link-local address names its interface: fe80::1%eth0. */
    char bare[INET6_ADDRSTRLEN] = "";
    const size_t length = strcspn(text, "%");
    if (length < sizeof(bare))
        memcpy(bare, text, length);
    if (inet_pton(AF_INET6, bare, &six.sin6_addr) == 1)
        address = (struct sockaddr *)&six;
    else if (inet_pton(AF_INET, bare, &four.sin_addr) != 1)
        return PyErr_Format(PyExc_ValueError, "'%s' is no address of IPv4 or IPv6%s", text,
                            *text == '\0' ? " (a client at a unix socket has none)" : "");
    return key_made(table, given, stint_key_address(table->limiter, address, prefix4, prefix6));
}

static void free_key(PyObject *self) {
    Py_DECREF(((struct key *)self)->table);
    Py_DECREF(((struct key *)self)->from);
    object_free(self);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "A key that was made before its use, of use with the table that made it."},
    {Py_tp_dealloc, free_key},
    {0, NULL},
};

PyType_Spec key_spec = {
    .name = "stint.Key",
    .basicsize = sizeof(struct key),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
