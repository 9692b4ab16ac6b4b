/* module.c - the module kclient._fast: its types, and what its files share. Called by Python (_fast.py loads it out of cffi's shared object). */
#include "aio.h"

static unsigned long main_thread;

PyObject *helper(PyObject **cache, const char *module, const char *name) {
    if (*cache) return *cache;
    PyObject *m = PyImport_ImportModule(module);
    if (!m) return NULL;
    *cache = PyObject_GetAttrString(m, name);
    Py_DECREF(m);
    return *cache;
}

PyObject *raise_code(kc_err code, const char *what) {
    static PyObject *of_code;
    if (!helper(&of_code, "kclient.errors", "of_code")) return NULL;
    PyObject *e = PyObject_CallFunction(of_code, "is", (int)code, what);
    if (!e) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return NULL;
}

PyObject *topic_name(kc_client *client, PyObject *names, int32_t topic) {
    PyObject *number = PyLong_FromLong(topic);
    if (!number) return NULL;
    PyObject *name = PyDict_GetItemWithError(names, number);
    if (!name && !PyErr_Occurred()) {
        const char *text = kc_client_topic_name(client, topic);
        PyObject *made = PyUnicode_FromString(text ? text : "");
        if (made && PyDict_SetItem(names, number, made) == 0) name = made; /* the dict keeps it */
        Py_XDECREF(made);
    }
    Py_DECREF(number);
    return name;
}

int is_main_thread(void) { return PyThread_get_thread_ident() == main_thread; }

int64_t wait_piece(int64_t *left_us) {
    int64_t piece = *left_us;
    if (is_main_thread() && (piece < 0 || piece > SLICE_US)) piece = SLICE_US;
    if (*left_us > 0) *left_us -= piece;
    return piece;
}

int64_t micros_of(PyObject *seconds) {
    if (!seconds || seconds == Py_None) return KC_FOREVER;
    double s = PyFloat_AsDouble(seconds);
    if (s == -1.0 && PyErr_Occurred()) return -2;
    if (!(s >= 0)) {
        PyErr_Format(PyExc_ValueError, "a timeout is 0 or more seconds, or None: %R", seconds);
        return -2;
    }
    return s > 4e12 ? (int64_t)4e18 : (int64_t)(s * 1e6 + 0.5);
}

PyObject *set_main_thread(PyObject *module, PyObject *ident) {
    (void)module;
    unsigned long id = PyLong_AsUnsignedLong(ident);
    if (id == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    main_thread = id;
    Py_RETURN_NONE;
}

/* ---- Keeper ---- */

/* Holds one object where the garbage collector does not see it. In a cycle of garbage the collector calls all finalizers, in any order: those of cffi's
 * cdata, which free the library's handles, before a producer's __del__, which still needs its own. What a Keeper (or a Sender, a Source) holds is freed
 * when that is, so after all of them. */
typedef struct {
    PyObject_HEAD
    PyObject *kept;
} Keeper;
static void keeper_dealloc(PyObject *o) {
    Py_XDECREF(((Keeper *)o)->kept);
    Py_TYPE(o)->tp_free(o);
}
static PyObject *keeper_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    PyObject *kept;
    (void)kw;
    if (!PyArg_ParseTuple(args, "O:Keeper", &kept)) return NULL;
    Keeper *k = (Keeper *)type->tp_alloc(type, 0);
    if (!k) return NULL;
    Py_INCREF(kept);
    k->kept = kept;
    return (PyObject *)k;
}
static PyTypeObject Keeper_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kclient._fast.Keeper", .tp_basicsize = sizeof(Keeper),
                                   .tp_dealloc = keeper_dealloc, .tp_flags = Py_TPFLAGS_DEFAULT, .tp_new = keeper_new,
                                   .tp_doc = "Holds an object where the garbage collector does not see it."};

static PyMethodDef functions[] = {
    {"set_main_thread", set_main_thread, METH_O, "Tells which thread (threading.get_ident) runs signal handlers: its waits are sliced."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "kclient._fast", .m_doc = "The hot calls.", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__fast(void);
PyMODINIT_FUNC PyInit__fast(void) {
    static const struct {
        const char *name;
        PyTypeObject *type;
    } types[] = {{"Event", &Event_type},   {"RecordBatch", &Batch_type}, {"Record", &Record_type}, {"Column", &Column_type},
                 {"Report", &Report_type}, {"Sender", &Sender_type},     {"Source", &Source_type}, {"Keeper", &Keeper_type},
                 {"Group", &Group_type},   {"Ready", &Ready_type},       {"AsyncSource", &AsyncSource_type}};
    PyObject *m = PyModule_Create(&definition);
    if (!m) return NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (PyType_Ready(types[i].type) < 0) goto fail;
        Py_INCREF(types[i].type);
        if (PyModule_AddObject(m, types[i].name, (PyObject *)types[i].type) < 0) {
            Py_DECREF(types[i].type);
            goto fail;
        }
    }
    return m;
fail:
    Py_DECREF(m);
    return NULL;
}
