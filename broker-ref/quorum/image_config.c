/* image_config.c - the image's dynamic configurations: one ordered list of values per resource (topic, broker, the brokers' default, …).
 *
 * Called by image.c (apply), effective.c and the controller (look-ups), image_emit.c (the walk). KIP-226.
 */
#include "image_priv.h"

#define KEY_SIZE_MAX (1 + 1024)

/* The map's key: the type, then the name. 0 when the name is too long to be a resource's. */
static size_t key_of(uint8_t key[KEY_SIZE_MAX], int8_t type, struct kw_str resource) {
    size_t n = resource.len < 0 ? 0 : (size_t)resource.len;
    if (n > KEY_SIZE_MAX - 1) return 0;
    key[0] = (uint8_t)type;
    if (n) memcpy(key + 1, resource.p, n);
    return n + 1;
}

static struct kb_image_config *find(const struct kb_image *im, int8_t type, struct kw_str resource) {
    uint8_t key[KEY_SIZE_MAX];
    size_t n = key_of(key, type, resource);
    return n ? kw_map_get(&im->configs, key, n) : NULL;
}

static void value_free(struct kb_image_value *v) {
    kw_free(v->key);
    kw_free(v->value);
    kw_free(v);
}

static void config_free(struct kb_image_config *c) {
    struct kb_image_value *v;
    for (size_t it = 0; (v = kw_map_next(&c->values, &it));) value_free(v);
    kw_map_deinit(&c->values);
    kw_free(c->name);
    kw_free(c);
}

void kb_image_config_deinit(struct kb_image *im) {
    struct kb_image_config *c;
    for (size_t it = 0; (c = kw_map_next(&im->configs, &it));) config_free(c);
    kw_map_deinit(&im->configs);
}

void kb_image_config_drop(struct kb_image *im, int8_t type, struct kw_str resource) {
    uint8_t key[KEY_SIZE_MAX];
    size_t n = key_of(key, type, resource);
    struct kb_image_config *c = n ? kw_map_remove(&im->configs, key, n) : NULL;
    if (c) config_free(c);
}

static kw_err create(struct kb_image *im, int8_t type, struct kw_str resource, struct kb_image_config **out) {
    uint8_t key[KEY_SIZE_MAX];
    size_t n = key_of(key, type, resource);
    if (!n) return KW_EDECODE;
    struct kb_image_config *c = kw_calloc(1, sizeof(*c));
    if (!c) return KW_ENOMEM;
    kw_map_init(&c->values);
    c->type = type;
    c->name = kb_image_strdup(resource.len < 0 ? kw_str_of("") : resource);
    kw_err err = c->name ? kw_map_put(&im->configs, key, n, c) : KW_ENOMEM;
    if (err) {
        config_free(c);
        return err;
    }
    *out = c;
    return KW_OK;
}

static kw_err set(struct kb_image_config *c, struct kw_str name, struct kw_str value) {
    struct kb_image_value *v = kw_map_get_str(&c->values, name);
    char *text = kb_image_strdup(value);
    if (!text) return KW_ENOMEM;
    if (v) {
        kw_free(v->value);
        v->value = text;
        return KW_OK;
    }
    v = kw_calloc(1, sizeof(*v));
    if (!v) {
        kw_free(text);
        return KW_ENOMEM;
    }
    v->value = text;
    v->key = kb_image_strdup(name);
    kw_err err = v->key ? kw_map_put(&c->values, name.p, (size_t)name.len, v) : KW_ENOMEM;
    if (err) value_free(v);
    return err;
}

kw_err kb_image_config_apply(struct kb_image *im, const struct kw_config_record *r) {
    if (r->name.len <= 0 || !kb_image_is_text(r->resource_name) || !kb_image_is_text(r->name) || !kb_image_is_text(r->value))
        return KW_EDECODE;
    struct kb_image_config *c = find(im, r->resource_type, r->resource_name);
    if (r->value.len >= 0) {
        kw_err err = c ? KW_OK : create(im, r->resource_type, r->resource_name, &c);
        if (!err) err = set(c, r->name, r->value);
        if (err) return err;
    } else if (c) {
        struct kb_image_value *v = kw_map_remove(&c->values, r->name.p, (size_t)r->name.len);
        if (v) value_free(v);
        if (c->values.count == 0) kb_image_config_drop(im, r->resource_type, r->resource_name);
    }
    return im->observer.config ? im->observer.config(im->observer.ctx, r->resource_type, r->resource_name) : KW_OK;
}

const char *kb_image_config_get(const struct kb_image *im, int8_t type, struct kw_str resource, const char *key) {
    struct kb_image_config *c = find(im, type, resource);
    struct kb_image_value *v = c ? kw_map_get(&c->values, key, strlen(key)) : NULL;
    return v ? v->value : NULL;
}

bool kb_image_config_next(const struct kb_image *im, int8_t type, struct kw_str resource, size_t *it, const char **key,
                          const char **value) {
    struct kb_image_config *c = find(im, type, resource);
    struct kb_image_value *v = c ? kw_map_next(&c->values, it) : NULL;
    if (!v) return false;
    *key = v->key;
    *value = v->value;
    return true;
}
