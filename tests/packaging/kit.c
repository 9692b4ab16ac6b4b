/* kit.c - a user's test, built outside this tree against the installed test kit: starts a broker, looks at it, stops it. */
#include <kclient/kclient_test.h>
#include <stdio.h>

int main(void) {
    kc_test_cluster *cluster = NULL;
    kc_test_info *info = NULL;
    kc_error *error = NULL;
    if (kc_test_cluster_start(NULL, 0, &cluster, &error) || kc_test_describe(cluster, &info, &error)) {
        fprintf(stderr, "%s\n", kc_error_message(error));
        return 1;
    }
    printf("a cluster of %d node, kbroker %s\n", (int)kc_test_info_node_count(info), kc_test_info_version(info));
    kc_test_info_free(info);
    if (kc_test_cluster_stop(cluster, &error)) return 1;
    kc_test_cluster_free(cluster);
    return 0;
}
