# SPDX-License-Identifier: Apache-2.0
# profiles/: data only, installed under the same names.
nobase_dist_pkgdata_DATA += \
  profiles/record.schema.json \
  profiles/zoo.schema.json \
  profiles/baselines/zoo-cpu.jsonl \
  profiles/baselines/zoo-h200.jsonl \
  profiles/baselines/h200.jsonl \
  profiles/baselines/h200-backward.jsonl \
  profiles/baselines/h200-deterministic.jsonl \
  profiles/baselines/h200-peers.jsonl \
  profiles/baselines/h200-peers-backward.jsonl \
  profiles/baselines/h200-rope.jsonl \
  profiles/baselines/h200-serve.jsonl \
  profiles/baselines/h200-sustained.jsonl \
  profiles/baselines/h200-sustained-backward.jsonl \
  profiles/baselines/h200-training.jsonl \
  profiles/baselines/h200-training-128k.jsonl \
  profiles/baselines/h200-verify.jsonl \
  profiles/machines/a100-80gb.machine \
  profiles/machines/h100-sxm.machine \
  profiles/machines/h200.machine \
  profiles/machines/h200.tune \
  profiles/models/falcon-7b.model \
  profiles/models/llama2-70b.model \
  profiles/models/llama2-7b.model \
  profiles/models/llama3-70b.model \
  profiles/models/llama3-8b.model \
  profiles/models/llama3-8b-mha.model \
  profiles/models/llama3-8b-mqa.model \
  profiles/models/mistral-7b.model \
  profiles/models/tiny-gqa.model \
  profiles/models/tiny-mha.model \
  profiles/models/tiny-mqa.model \
  profiles/suites/aa.suite \
  profiles/suites/adversarial.suite \
  profiles/suites/adversarial-large.suite \
  profiles/suites/backward.suite \
  profiles/suites/decode.suite \
  profiles/suites/forward.suite \
  profiles/suites/methods.suite \
  profiles/suites/paged.suite \
  profiles/suites/power.suite \
  profiles/suites/prefill.suite \
  profiles/suites/quick.suite \
  profiles/suites/quick-cpu.suite \
  profiles/suites/rope.suite \
  profiles/suites/traffic.suite \
  profiles/suites/training.suite \
  profiles/suites/tune.suite \
  profiles/suites/tune-quick.suite \
  profiles/suites/sanitize.suite profiles/suites/verify-fast.suite \
  profiles/suites/verify.suite \
  profiles/suites/zoo.suite \
  profiles/suites/zoo-cuda.suite \
  profiles/suites/zoo-cuda-cascade.suite \
  profiles/suites/zoo-cuda-decode.suite \
  profiles/suites/zoo-cuda-large.suite \
  profiles/suites/zoo-cuda-rope.suite \
  profiles/suites/zoo-cuda-lost.suite \
  profiles/suites/zoo-cuda-laws.suite \
  profiles/suites/zoo-laws.suite
# The gate itself, measured: build-aux/prove.
EXTRA_DIST += profiles/gate
