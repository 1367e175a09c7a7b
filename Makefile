# One word per job; every job sets up first and is quick when nothing changed.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
DEMO_STAMP := $(VENV)/.demo-stamp
COMMA := ,
export OMP_NUM_THREADS ?= 2
export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE ?= 1

.PHONY: setup browser demo lint lock audit-dependencies sbom bench docs site gallery examples clean
.PHONY: test coverage test-python test-newest test-slow test-vllm test-ray test-stores test-harnesses test-tools test-wheel
.PHONY: fuzz fuzz-guided soak kills faults memory

# Every package by its hash, from a lock; then the package itself, built by what the lock installed. The locks hold torch's CPU
# build for Linux and Python 3.11. Where no index or PIP_FIND_LINKS has that one, and with LOCK= (nothing), versions come from
# constraints.txt, without hashes: torch exactly and in the same call as everything else, since a wider pin takes the CUDA build.
LOCK ?= requirements-lock.txt
DEMO_LOCK := $(and $(LOCK),requirements-demo-lock.txt)
# $(call install,lock,extras,options of pip)
define install
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
@install="$(BIN)/python -m pip install --quiet --disable-pip-version-check $(3)"; set -e; \
if [ -n "$(1)" ] && $$install --dry-run --no-deps "$$(grep -o '^torch==[^ ]*' $(1))" 2>/dev/null; then \
  $$install --no-deps --require-hashes --requirement $(1); \
  $$install --no-deps --no-build-isolation --editable .; \
else \
  echo "setup: $(if $(1),torch's CPU build of $(1) is not offered here,LOCK is empty): versions of constraints.txt, without hashes"; \
  $$install --constraint constraints.txt torch==2.13.0 --editable '.[$(2)]'; \
fi
endef

setup: $(STAMP)
	@$(BIN)/steadyscore data get smollm2-135m >/dev/null

$(STAMP): pyproject.toml constraints.txt $(LOCK)
	$(call install,$(LOCK),dev)
	@touch $(STAMP) $(DEMO_STAMP)

# What the demo imports, in the versions of the tests' lock: a third of its packages, each module compiled when it is first imported,
# which most never are. `make test` then adds the rest.
$(DEMO_STAMP): pyproject.toml constraints.txt $(DEMO_LOCK)
	$(call install,$(DEMO_LOCK),local$(COMMA)reports,--no-compile)
	@touch $(DEMO_STAMP)

demo: $(DEMO_STAMP)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/steadyscore data get smollm2-135m >/dev/null
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/steadyscore demo --out runs/demo

# Tools of the supply chain, in an environment of their own: `make lock` after a change of constraints.txt or pyproject.toml keeps
# every other version (make lock UPGRADE=--upgrade takes the newest); `make audit-dependencies` asks PyPI for known
# vulnerabilities of what the lock names, and fails where PyPI does not answer; `make sbom` lists what is installed, as CycloneDX.
SUPPLY := .venv-supply
$(SUPPLY)/bin/uv:
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.8 pip-audit==2.10.1 cyclonedx-bom==7.5.0

DEMO_NEEDS := torch transformers safetensors accelerate gguf jinja2 matplotlib hatchling editables
COMPILE = $(SUPPLY)/bin/uv pip compile pyproject.toml --python-version 3.11 --generate-hashes --quiet --system-certs \
  --default-index https://pypi.org/simple $(addprefix --find-links ,$(PIP_FIND_LINKS)) $(UPGRADE) --custom-compile-command "make lock"
lock: $(SUPPLY)/bin/uv
	$(COMPILE) --extra dev --constraint constraints.txt --output-file requirements-lock.txt
	printf '%s\n' $(DEMO_NEEDS) | $(COMPILE) - --constraint requirements-lock.txt --output-file requirements-demo-lock.txt

audit-dependencies: $(SUPPLY)/bin/uv
	sed -n 's/^\([^ ]*==[^+ ]*\).*/\1/p' requirements-lock.txt > $(SUPPLY)/versions.txt
	$(SUPPLY)/bin/pip-audit --strict --no-deps --disable-pip --requirement $(SUPPLY)/versions.txt

sbom: setup $(SUPPLY)/bin/uv
	$(SUPPLY)/bin/cyclonedx-py environment $(VENV) --pyproject pyproject.toml --output-reproducible --output-file sbom.json
	@echo "sbom.json: $$(grep -c '"bom-ref"' sbom.json) components"

# Debian's chromium for the page tests; where it cannot be installed they skip and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; } >/dev/null 2>&1 || true

# Two workers of one thread each: with two threads each they wait for each other, and the models' tests take twice as long. A test
# that hangs fails after twenty minutes with its stack; the slowest takes one.
# `make test ORDER=7` runs the files, and the tests of each file, in another order.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --timeout 1200
test: setup browser
	$(PYTEST) $(if $(ORDER),--order-seed $(ORDER) --no-loadscope-reorder)

# The same tests with the share of lines that they reach, a third slower, and a floor on it: raise it with the figure that is printed.
COVERAGE_FLOOR := 95
coverage: setup browser
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR)

# The core alone, without torch, on another Python: make test-python PYTHON=python3.13
# With the oldest versions that it declares: make test-python PYTHON=python3.11 CONSTRAINTS=constraints-lowest.txt
CONSTRAINTS ?= /dev/null
CORE_TESTS := $(addprefix tests/,test_errors.py test_floors.py test_packaging.py test_public_names.py audits/test_compare.py \
  $(addprefix collection/test_,$(addsuffix .py,collection claims multidoc_qa responses splits)) machine/test_disk.py machine/test_progress.py \
  $(addprefix measures/test_,$(addsuffix .py,answers decomposition instability measurement preference ranking registry retained_sets \
  settling stopping threshold views)) readers/test_outputs.py runs/test_score_file.py runs/test_table.py studies/test_plan.py \
  studies/test_simulate.py studies/test_validate.py training/test_select.py \
  window/test_presentation.py window/test_prompt.py window/test_readout.py)
test-python:
	set -e; folder=.venv-core/$$($(PYTHON) -c 'import platform; print(platform.python_version())')-$(notdir $(CONSTRAINTS)); \
	test -x $$folder/bin/python || $(PYTHON) -m venv $$folder; \
	$$folder/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable . \
	  pytest hypothesis scipy scikit-learn jsonschema 'ir-measures>=0.4'; \
	$$folder/bin/python -m pytest -p no:cacheprovider $(CORE_TESTS)

# The same with the newest Python that this machine has beside its own; without one, only whether the dependencies exist for it.
NEWEST := $(firstword $(foreach v,3.14 3.13 3.12,$(shell ls -d $(HOME)/.pyenv/versions/$(v).*/bin/python 2>/dev/null || command -v python$(v))))
test-newest: setup
ifneq ($(NEWEST),)
	$(MAKE) test-python PYTHON=$(NEWEST)
else
	@echo "no Python from 3.12 on is here: only the dependencies are resolved for 3.13"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --no-deps --python-version 3.13 \
	  --only-binary=:all: --target $(VENV)/newest $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"])' | tr -d "'")
endif

# The real vLLM against `hf`. It wants versions of its own, so it has a venv of its own: make test-vllm VLLM_PYTHON=...
# (docs/engines.md says how to make one on a CPU). Skips with a reason where vLLM is not installed.
VLLM_PYTHON ?= $(BIN)/python
test-vllm: setup
	$(VLLM_PYTHON) -m pytest -m slow -W ignore -s tests/engines/test_vllm.py tests/decision_models/test_vllm.py

# Ray on two nodes of this machine: the table of one process, how much faster, nodes and actors that die, the simulated scheduler.
# It has a venv of its own where the tests' own lacks it: make test-ray RAY_PYTHON=... Skips with a reason where Ray is absent.
RAY_PYTHON ?= $(BIN)/python
test-ray: setup
	RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 $(RAY_PYTHON) -m pytest -m slow -W ignore -s tests/scoring/test_ray.py tests/faults/test_faults.py -k ray

# Object stores against a local S3 server. moto brings much that nothing else here needs, so it has a venv of its own, which sees
# the packages of .venv.
STORES := .venv-stores
test-stores: setup
	test -x $(STORES)/bin/python || $(PYTHON) -m venv $(STORES)
	$(BIN)/python -c 'import site; print(*site.getsitepackages(), "$(CURDIR)/src", sep="\n")' > $$(ls -d $(STORES)/lib/python*/site-packages)/main.pth
	$(STORES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 's3fs>=2025.2' 'moto[server]>=5.1'
	$(STORES)/bin/python -m pytest -m 'slow or not slow' tests/machine/test_places.py tests/machine/test_s3.py tests/scoring/test_stores.py

# inspect_ai and MTEB from the registry, by their own command lines. Both bring much, so they have a venv of their own, which sees
# the packages of .venv; the package is installed there because inspect_ai finds extensions by their entry points.
HARNESSES := .venv-harnesses
test-harnesses: setup
	test -x $(HARNESSES)/bin/python || $(PYTHON) -m venv $(HARNESSES)
	$(BIN)/python -c 'import site; print(*site.getsitepackages(), sep="\n")' > $$(ls -d $(HARNESSES)/lib/python*/site-packages)/main.pth
	$(HARNESSES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt inspect-ai==0.3.285 mteb==2.26.24
	$(HARNESSES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(HARNESSES)/bin/python -m pytest tests/integrations

# Trackers, lm-eval, ir_datasets, PyTerrier and Haystack from the registry, in a venv as above; promptfoo, which takes Node 22, where it
# is on the PATH.
TOOLS := .venv-tools
test-tools: setup
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(BIN)/python -c 'import site; print(*site.getsitepackages(), "$(CURDIR)/src", sep="\n")' > $$(ls -d $(TOOLS)/lib/python*/site-packages)/main.pth
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt mlflow-skinny==3.17.2 alembic \
	  sqlalchemy wandb==0.31.0 ir-datasets==0.6.3 python-terrier==1.0 haystack-ai==3.4.0 lm-eval==0.4.13
	$(TOOLS)/bin/python -m pytest -m 'slow or not slow' tests/integrations/test_trackers.py tests/integrations/test_harness_pages.py \
	  tests/integrations/test_integrations.py

# The wheel with the core alone and with each extra alone: every verb works or names its extra. One environment per extra under
# WHEELS, several GB, kept for the next time: make test-wheel WHEELS=/somewhere ENVIRONMENTS="core reports"
WHEELS ?= .wheels
test-wheel: setup
	WHEELS=$(WHEELS) $(BIN)/python -m tests.helpers.check_wheel $(ENVIRONMENTS)

test-slow: setup
	$(BIN)/python -m pytest -m slow

# Audits killed at random moments and resumed, with a Python function, a program and an endpoint: make kills N=1000
N ?= 1000
kills: setup
	$(BIN)/python -m tests.helpers.kills $(N)

# Every fault that the package must survive, injected and counted: one table, also put into lab/findings/reliability.md.
# One of them: make faults ONLY="disk full"; its row alone is then written anew.
# Those of a Ray cluster with a Python that has Ray: make faults FAULTS_PYTHON=...
FAULTS_PYTHON ?= $(BIN)/python
faults: setup
	$(FAULTS_PYTHON) -m tests.faults.run $(if $(ONLY),--only "$(ONLY)")

# Peak memory of audit, report and compare at two numbers of queries, and what a query adds: make memory SIZES="5000 100000"
memory: setup
	$(BIN)/python -m tests.helpers.memory $(SIZES)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Ours beside other ways of scoring the same pools, and how its time grows (docs/benchmarks.md); the figures also as
# runs/bench-scoring.json and runs/bench-growth.json. Other questions have scripts of their own in bench/:
# make bench BENCH="threads precision". llama.cpp, vLLM and rank-llm with a Python that has them: make bench PYTHONS="vLLM=/path/python".
BENCH ?= scoring growth
BENCH_PYTHON ?= $(BIN)/python
PYTHONS ?=
BENCH_OPTIONS_scoring = --json runs/bench-scoring.json --draw runs/bench-scoring.svg $(if $(PYTHONS),--python $(PYTHONS))
BENCH_OPTIONS_growth = --json runs/bench-growth.json --draw runs/bench-growth.svg
bench: setup
	@mkdir -p runs
	@set -e; $(foreach b,$(BENCH),echo "== bench/bench_$(b).py"; $(BENCH_PYTHON) bench/bench_$(b).py $(BENCH_OPTIONS_$(b));)

# The notebooks with their outputs, the cells of the embedded language model among them.
examples: setup
	WITH_MODEL=1 $(BIN)/python examples/execute.py

# Every table and figure of the paper at the tiny scale as one static site; what is scored already is not scored again.
GALLERY_STORE ?= runs/paper
gallery: setup
	$(BIN)/steadyscore reproduce run all --scale tiny --store $(GALLERY_STORE)
	$(BIN)/steadyscore reproduce gallery --scale tiny --store $(GALLERY_STORE) --out site/gallery

docs: setup
	$(BIN)/python docs/build.py

# The pages of docs/ as a site with search, an API reference, the gallery and the demo's report: open site/docs/index.html through
# `python -m http.server --directory site/docs`. What builds it is no part of the tests' environment, so it has a venv that sees it.
SITE := .venv-site
site: demo gallery
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(BIN)/python -c 'import site; print(*site.getsitepackages(), "$(CURDIR)/src", sep="\n")' > $$(ls -d $(SITE)/lib/python*/site-packages)/main.pth
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt zensical==0.0.73 griffelib==2.4.1
	$(SITE)/bin/python docs/site.py --live gallery=site/gallery --live demo=runs/demo/report
	$(SITE)/bin/python -m pytest tests/test_site.py

# N cases of every format, nearly right files: each must be read or refused with a sentence. FORMATS="csv qrels" chooses. Then the
# property tests, with examples that `make test`, where nothing is drawn by chance, does not see.
N ?= 1000
fuzz: setup
	$(BIN)/python -m tests.fuzz.run -n $(N) $(FORMATS)
	$(if $(FORMATS),,$(PYTEST) -m 'hypothesis and not slow' --hypothesis-profile search)

# The same formats steered by coverage, until each has had N cases; stopped at any moment it goes on from .fuzz the next time.
# make fuzz-guided N=100000 SECONDS=300
SECONDS ?= 3600
ATHERIS := .fuzz/atheris
$(ATHERIS):
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(ATHERIS) atheris==3.0.0
fuzz-guided: setup $(ATHERIS)
	PYTHONPATH=$(ATHERIS) $(BIN)/python -m tests.fuzz.guided -n $(N) --seconds $(SECONDS) $(FORMATS)

# A server under mixed traffic, its memory sampled all the while: make soak MINUTES=30 RATE=6
MINUTES ?= 30
RATE ?= 6
soak: setup
	$(BIN)/python -m tests.helpers.soak $(MINUTES) --rate $(RATE)

clean:
	rm -rf $(VENV) .venv-core $(STORES) $(HARNESSES) $(TOOLS) $(SITE) $(SUPPLY) .fuzz sbom.json build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis runs site
