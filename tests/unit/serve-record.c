/* SPDX-License-Identifier: Apache-2.0
 *
 * Law: what attnbench serve writes, in every scenario, is a record of the schema.
 */
#include "config.h"

#include "harness/record/store.h"
#include "tests/schema.h"
#include "tests/tap.h"

#include <unistd.h>

static json_t *schema;
static int valid, invalid;

static int check(json_t *record, int line, void *ctx)
{
  char err[512];
  bool fine = schema_valid(schema, record, "", err, sizeof err) &&
              json_is_object(json_object_get(record, "serve"));
  if (!fine)
    diag("%s", err);
  *(fine ? &valid : &invalid) += 1;
  return 0;
}

static void scenario(const char *words, int records)
{
  char path[] = "/tmp/serve-record-XXXXXX", command[1024], err[512];
  const char *attnbench = getenv("ATTNBENCH");
  int fd = mkstemp(path), bad = 0;
  close(fd);
  snprintf(command, sizeof command, "%s serve --quiet --out %s %s > /dev/null",
           attnbench ? attnbench : "./attnbench", path, words);
  valid = invalid = 0;
  int code = system(command);
  int status = store_read(path, check, NULL, &bad, err, sizeof err);
  ok(!code && !status && !bad && !invalid && valid == records, "serve %s: %d records of the schema",
     words, valid);
  unlink(path);
}

int main(void)
{
  char path[4096];
  const char *srcdir = getenv("srcdir");
  snprintf(path, sizeof path, "%s/profiles/record.schema.json", srcdir ? srcdir : ".");
  schema = json_load_file(path, 0, NULL);
  if (!ok(schema != NULL, "the schema is there"))
    return done_testing();
  scenario("replay --requests 6 --layers 1", 2);
  scenario("prefill --lengths 64,200 --repeat 2 --layers 1", 10);
  scenario("heads --lengths 64 --repeat 2 --batch 4 --layers 1", 3);
  scenario("memory", 1);
  scenario("fork --lengths 100 --layers 1", 1);
  scenario("rope --context 256 --layers 1", 18);
  json_decref(schema);
  return done_testing();
}
