# Two commands for everyone:  make demo   and   make test.   The rest is for people who change gangline.
# Everything runs in .venv, made here from hash-pinned wheels; nothing else on the machine is touched.
PYTHON ?= python3
# Fetches packages faster than pip, if it is there. Without it: make UV= ...
UV     ?= uv
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# What the command needs, and what tests, linters and benchmarks need besides. Both take no time when it is there.
runtime dev:
	@$(PYTHON) -I hack/bootstrap.py $@ --uv "$(UV)"

install: runtime ## make .venv with the gangline command in it

demo: runtime ## train a model with one parameter server and three workers, on this machine
	@$(BIN)/gangline demo

test: dev ## unit, property and embedded-control-plane tests (minutes); prints the slowest
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not frameworks and not real and not first_minutes and not faults and not engines and not cluster and not browser" --durations 15 tests

test-faults: dev ## attacks and faults that take their time: frozen leaders, brown-outs, full disks, power losses, floods, survivors, hangs; containers, where hack/engines.sh was run
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "(faults or engines) and not real and not frameworks" --durations 5 tests

test-unit: dev ## unit and property tests alone (under a minute)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not frameworks and not real and not first_minutes and not faults and not engines and not cluster and not browser" --durations 10 tests/unit tests/property

# A TLS handshake that is cancelled leaves its socket to Python's collector, who tells whichever test comes next.
test-real: dev ## all that needs a real kube-apiserver (builds one the first time)
	hack/kubernetes.sh
	hack/fakekubelet.sh
	hack/agent.sh
	hack/clients.sh
	hack/peer.sh
	hack/helm.sh
	hack/promtool.sh
	hack/kube-state-metrics.sh
	hack/kwok.sh
	GANGLINE_REQUIRE_REAL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m real -W "ignore:unclosed:ResourceWarning" tests

test-upstream: dev ## the part of Kubernetes' own e2e tests that needs no image, on our server (takes an hour to build the first time)
	hack/kubernetes.sh
	hack/kubernetes.sh e2e.test
	GANGLINE_REQUIRE_REAL=1 GANGLINE_UPSTREAM_E2E=1 $(BIN)/python -m pytest -m real -k kubernetes_own_tests tests/e2e/test_control_plane_programs.py

test-cluster: dev ## install gangline and run jobs in a cluster with real nodes: kubelets, containers, cluster DNS (needs root; builds it the first time)
	hack/test-cluster.sh
	GANGLINE_REQUIRE_CLUSTER=1 $(BIN)/python -m pytest -m cluster tests/e2e/test_real_kubelet.py

test-first-minutes: dev ## play the README in fresh clones, and the tutorials: every command, every next: line, as root and as an ordinary user
	$(BIN)/python -m pytest -n $(WORKERS) -m first_minutes tests/e2e/test_first_minutes.py tests/docs

test-frameworks: dev ## train with TensorFlow, PyTorch, transformers, XGBoost, LightGBM, JAX, Paddle and MPI (fetches 1.4 GB the first time)
	hack/frameworks.sh
	GANGLINE_REQUIRE_FRAMEWORKS=1 $(BIN)/python -m pytest -m frameworks tests --timeout 600

check: dev ## formatter, linter, types, import contracts, limits of the source tree; the Go module too where Go is
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin
	$(BIN)/lint-imports --no-cache
	$(BIN)/python hack/house.py
	$(BIN)/python hack/prose.py
	hack/agent.sh --check

format: dev ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

dist: dev ## build the wheel into dist/
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

image: ## build the image for amd64 and arm64 into dist/image (Debian, Python and Go packages; no registry, no root)
	hack/image.sh --platforms amd64,arm64

test-image: dev ## build the image twice, compare, run it restricted, check its bill of materials (needs Debian; root to run it)
	GANGLINE_REQUIRE_IMAGE=1 $(BIN)/python -m pytest -m image tests

test-engines: dev ## run pods in containers of podman and docker, with a registry (fetches 330 MB of Debian packages the first time; needs root)
	hack/engines.sh
	GANGLINE_REQUIRE_ENGINES=1 $(BIN)/python -m pytest -m engines tests

test-browser: dev ## the pages of the dashboard and of the documentation in a real browser: three widths, keyboard only, accessibility rules (needs Debian and Node.js; fetches 300 MB the first time)
	PYTHON=$(abspath $(BIN)/python) hack/browser.sh
	hack/kubernetes.sh
	GANGLINE_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -m browser tests/browser

test-soak: dev ## long faults and fuzzing: 200 kills of store and server, 500 power losses, backups under load, ten minutes of odd requests, thousands of patches and job histories, schedulers killed for minutes, hangs and quiet programs (needs test-real's binaries)
	GANGLINE_KILLS=200 $(BIN)/python -m pytest tests/e2e/test_store_crash.py tests/e2e/test_server_crash.py --timeout 2400
	GANGLINE_CUTS=500 $(BIN)/python -m pytest -s tests/property/test_power_loss.py --timeout 1200
	GANGLINE_BACKUP_SECONDS=30 $(BIN)/python -m pytest -s tests/e2e/test_backup.py --timeout 600
	GANGLINE_FUZZ_ROUNDS=250 $(BIN)/python -m pytest tests/contract/test_patches.py --timeout 1200
	GANGLINE_JOB_HISTORIES=20 $(BIN)/python -m pytest tests/property/test_jobs_wild.py tests/property/test_jobs_same_end.py tests/property/test_custom_frameworks.py --timeout 3600
	GANGLINE_GOODPUT_HISTORIES=1000 $(BIN)/python -m pytest tests/property/test_goodput.py --timeout 1800
	GANGLINE_STARTS=30 $(BIN)/python -m pytest tests/contract/test_brownout.py --timeout 600
	$(BIN)/python -m pytest tests/unit/health tests/property/test_hang_watch.py --timeout 600
	GANGLINE_QUIET_TURNS=7 $(BIN)/python -m pytest -n 6 -m "not frameworks" -k "quiet or suspended" tests/e2e/test_hangs.py
	GANGLINE_QUIET_TURNS=0 GANGLINE_LONG_TURNS=1 $(BIN)/python -m pytest -n 8 -m "not frameworks" -k "minutes or suspended" tests/e2e/test_hangs.py
	GANGLINE_FUZZ_SECONDS=600 $(BIN)/python -m pytest -s tests/attacks/test_fuzz.py
	GANGLINE_TEAMS=200 $(BIN)/python -m pytest tests/e2e/test_first_failing_rank.py --timeout 4000
	GANGLINE_RUNS=100 $(BIN)/python -m pytest tests/e2e/test_nothing_left.py --timeout 3000
	GANGLINE_CHAOS_SECONDS=300 $(BIN)/python -m pytest tests/contract/test_scheduler_chaos.py --timeout 900

test-dist: dist ## install the wheel into an empty virtual environment and run the demo there
	rm -rf dist/try && $(PYTHON) -m venv dist/try
	dist/try/bin/python -m pip install --quiet dist/*.whl
	cd dist/try && bin/gangline demo

bench-runtime: dev ## decode, cache, watch and request rates, side by side with their peers
	$(BIN)/python bench/runtime_bench.py

bench-local: dev ## creates, lists, watches, memory and start of our API server, side by side with a real one
	$(BIN)/python bench/local_bench.py

bench-scale: dev ## our API server with 100,000 pods in its store: start, memory for each pod, lists in pages
	$(BIN)/python bench/scale_bench.py

bench-stacks: dev ## the stacks of 64 local ranks: under 2 seconds
	$(BIN)/python bench/stacks_bench.py

bench-health: dev ## CPU and writes of the watch for hangs and of the goodput ledger, for 20 and 200 healthy jobs
	hack/kubernetes.sh
	$(BIN)/python bench/health_bench.py

bench-dashboard: dev ## first view, memory, CPU and delay of the dashboard with 2,000 jobs and 20 viewers
	$(BIN)/python bench/dashboard_bench.py

bench-operator: dev ## jobs to running, CPU, memory and API calls, side by side with the Kubeflow operator (builds both the first time)
	hack/kubernetes.sh
	hack/peer.sh
	$(BIN)/python bench/operator_bench.py

bench-load: dev ## 1,000 jobs for half an hour, restarts among them and 10,000 finished ones: memory and requests of the operator
	hack/kubernetes.sh
	$(BIN)/python bench/operator_load.py

bench-install: dev ## from nothing to a running job in a cluster with real nodes, ours and Kubeflow's operator by turns (needs root)
	$(BIN)/python bench/install_bench.py

bench-scheduler: dev ## pods bound a second, CPU and memory, side by side with kube-scheduler and the raw limit (builds it the first time)
	hack/kubernetes.sh
	hack/kubernetes.sh kube-scheduler
	$(BIN)/python bench/scheduler_bench.py

bench-sdk: dev ## creating jobs through our SDK and Kubeflow's, by turns, and the cost of an import
	hack/kubernetes.sh
	hack/clients.sh
	$(BIN)/python bench/sdk_bench.py

bench-first-minutes: dev ## set-up and a first run beside torchrun and Ray, the start of run and get (fetches both the first time)
	hack/frameworks.sh torch
	$(BIN)/python bench/first_minutes.py

bench-history: dev ## what the history costs: bytes of a week, CPU beside the operator's, the time to read
	$(BIN)/python bench/history_bench.py

crds: dev ## write manifests/crds anew
	$(BIN)/python hack/crds.py

manifests: dev ## write the Helm chart and the kustomize files anew
	$(BIN)/python hack/manifests.py

reference: dev ## write docs/reference, docs/why, the tables of metrics and the stubs of the public packages anew
	$(BIN)/python hack/stubs.py
	$(BIN)/python hack/reference.py
	$(BIN)/python hack/rule_pages.py
	$(BIN)/python hack/metrics.py

pictures: dev ## redraw docs/images from their text
	$(BIN)/python hack/pictures.py

web: ## build the dashboard's front end from web/ into the package (needs Node.js)
	hack/web.sh

docs: ## build the documentation site into site/, or with VERSION=1.2 into site/1.2; a warning is an error (fetches the generator the first time)
	$(PYTHON) hack/docs_site.py build $(if $(VERSION),--version $(VERSION))

docs-serve: ## show the documentation site on this machine while you write
	$(PYTHON) hack/docs_site.py serve

LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: ## re-resolve the pinned dependencies (needs uv)
	$(LOCK) pyproject.toml -o requirements/runtime.txt
	for extra in otel objectstore stacks; do $(LOCK) --extra $$extra -c requirements/runtime.txt pyproject.toml -o requirements/$$extra.txt; done
	$(LOCK) requirements/docs.in -o requirements/docs.txt
	$(LOCK) --group build -o requirements/build.txt
	$(LOCK) --group dev -c requirements/runtime.txt -c requirements/build.txt pyproject.toml -o requirements/dev.txt

clean: ## remove what make made
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .pdm-build
