/* hello.c - a user's program, built outside this tree against the installed library. */
#include <kclient/kclient.h>
#include <stdio.h>

int main(void) {
    kc_config *config = kc_config_new();
    kc_client *client = NULL;
    if (kc_config_set(config, "bootstrap.servers", "127.0.0.1:9092", NULL) || kc_client_new(config, &client, NULL)) return 1;
    kc_config_free(config);
    printf("kclient %s, topic %d\n", kc_version(), kc_client_topic(client, "hello"));
    kc_client_free(client);
    return 0;
}
