// Clusters points of the plane, and watches: each iteration reports its inertia, and each detected fault is a line of JSON.
// Prints the centroids. Exit status 0 if they are those that the points were drawn around, 1 otherwise.
#include <ballast/ballast.h>
#include <math.h>
#include <stdio.h>

enum { points = 3000, clusters = 3 };

static const float centers[clusters][2] = {{0, 0}, {10, 0}, {5, 8}};
static float values[points][2], centroids[clusters][2];
static int32_t labels[points];

static int32_t on_progress(void* user, const ballast_progress* progress) {
  (void)user;
  printf("iteration %d of at most %d: inertia %g\n", (int)progress->done, (int)progress->total, progress->value);
  return 0;  // any other value ends the call with BALLAST_CANCELLED
}

static void on_event(void* user, const ballast_event* event) {
  char* line = NULL;
  if (ballast_event_json(event, &line, NULL) == BALLAST_OK) fprintf(user, "%s\n", line);
  ballast_free(line);
}

int main(void) {
  int64_t of_points[] = {points, 2}, of_centroids[] = {clusters, 2}, of_labels[] = {points};
  const DLDevice host = {BALLAST_DLPACK_CPU, 0};
  const DLDataType real = {BALLAST_DLPACK_FLOAT, 32, 1}, integer = {BALLAST_DLPACK_INT, 32, 1};
  const DLTensor point = {values, host, 2, real, of_points, NULL, 0}, centroid = {centroids, host, 2, real, of_centroids, NULL, 0},
                 label = {labels, host, 1, integer, of_labels, NULL, 0};
  double inertia = 0;
  int32_t iterations = 0;
  // Members that are not named are null: no weights, and nothing is stored for them.
  const ballast_kmeans_data data = {.size = sizeof data, .points = &point};
  const ballast_kmeans_results results = {
      .size = sizeof results, .centroids = &centroid, .labels = &label, .inertia = &inertia, .iterations = &iterations};
  ballast_error* error = NULL;
  ballast_options* options = NULL;
  ballast_kmeans_plan* plan = NULL;
  ballast_call* call = NULL;

  for (int i = 0; i < points; ++i) {
    values[i][0] = centers[i % clusters][0] + 0.5f * (float)sin(i * i);
    values[i][1] = centers[i % clusters][1] + 0.5f * (float)cos(3.0 * i);
  }

  // Options have names. One that does not exist is refused, with the names that do.
  int failed = ballast_error_create(&error) || ballast_options_create("kmeans", &options, error) ||
               ballast_options_set_integer(options, "points", points, error) ||
               ballast_options_set_integer(options, "features", 2, error) ||
               ballast_options_set_integer(options, "clusters", clusters, error) ||
               ballast_options_set_integer(options, "seed", 1, error) || ballast_kmeans_plan_create(options, &plan, error) ||
               ballast_call_create(&call, error) || ballast_call_set_on_progress(call, on_progress, NULL, error) ||
               ballast_call_set_on_event(call, on_event, stderr, error) || ballast_kmeans_fit(plan, &data, &results, call, NULL, error);
  if (failed) fprintf(stderr, "%s: %s\n", ballast_status_name(ballast_error_status(error)), ballast_error_message(error));
  for (int i = 0; !failed && i < clusters; ++i) {
    const float* const found = centroids[labels[i]];  // point i was drawn around center i
    printf("centroid (%.2f, %.2f)\n", found[0], found[1]);
    failed = fabs(found[0] - centers[i][0]) > 0.1 || fabs(found[1] - centers[i][1]) > 0.1;
  }
  ballast_call_destroy(call);
  ballast_kmeans_plan_destroy(plan);
  ballast_options_destroy(options);
  ballast_error_destroy(error);
  return failed;
}
