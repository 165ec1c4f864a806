# Two commands need only a Debian machine with Python and make:
#   make demo   runs the main job        make test   passes every check and test

VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
PROCESSES ?= 4
OLDEST_PROCESSES ?= 1
PARALLEL = $(if $(filter 1,$(1)),,-n $(1) --dist loadgroup --no-loadscope-reorder)
SUDO = $(if $(filter 0,$(shell id -u)),,sudo)

# The tests start some 300 Python processes; without compiled modules each needs 0.15 s of CPU more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-pipeline test beside check unit unit-oldest test-pythons test-oldest-libraries mutants model chaos bench-grow bench-soak bench-pipeline archive docs format pictures wheel sbom audit release clean

demo: $(VENV)/demo
	@$(BIN)/pgqueue demo

# Job history in a lake: runs real jobs, makes up a month of history, and brings both to a lake and a report.
demo-pipeline: $(VENV)/demo-pipeline
	@$(BIN)/pgqueue pipeline demo

# What is beside the suite runs in the time in which its tests wait, and is shown when it has ended.
test: $(VENV)/installed | pgbouncer java debian-postgresql chromium tmux promtool faketime systemd schemas
	@$(MAKE) --no-print-directory -j 2 unit beside

beside: $(VENV)/installed
	@$(MAKE) --no-print-directory --output-sync check
	@$(MAKE) --no-print-directory --output-sync unit-oldest

# All checks that read the code without running it.
check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The whole suite, on the embedded PostgreSQL 18 (or on PGQUEUE_TEST_DSN). A third of its time its tests wait, so four
# processes share two cores; each has a server of its own. tests/conftest.py says which tests stay together, and which start
# first.
unit: $(VENV)/installed | pgbouncer java chromium tmux promtool faketime systemd schemas
	@$(BIN)/pytest -qq --collect-only >$(VENV)/collected || { cat $(VENV)/collected; exit 1; }  # compiles the tests once
	$(BIN)/pytest -q --durations 25 --durations-min 10 $(call PARALLEL,$(PROCESSES))

OF_THE_SERVER = $(addprefix tests/,alerts batches bulk crashes insight limits notes pipeline promises queues schedules schema shards \
    signals store worker)
# The core suite again, on the PostgreSQL that Debian packages; tests/conftest.py and tests/store/drivers.py say what it leaves
# out. One process needs no pytest-xdist, which costs 2 ms of CPU for each test.
unit-oldest: $(VENV)/installed | debian-postgresql
	PGQUEUE_TEST_DSN= PGQUEUE_TEST_SERVER=debian nice -n 5 $(BIN)/pytest -q $(call PARALLEL,$(OLDEST_PROCESSES)) \
	    $(OF_THE_SERVER)

# The core suite on each Python of these that is installed, as python3.X on the PATH or under pyenv, each in a venv of its own.
PYTHONS ?= 3.11 3.12 3.13 3.14
CORE = $(OF_THE_SERVER) $(addprefix tests/,app flows payloads results takes values)
test-pythons:
	@$(MAKE) --no-print-directory --keep-going $(PYTHONS:%=test-python-%)

# A Python that pyenv has and does not choose is on the PATH, too, and does not start.
test-python-%:
	@for python in "$$(command -v python$*)" $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$*.*/bin/python 2>/dev/null); do \
	    if "$$python" -c '' 2>/dev/null; then found=$$python; break; fi; done; \
	test -n "$$found" || { echo "Python $*: not installed"; exit 0; }; \
	$(MAKE) -s --no-print-directory VENV=.venv-$* PYTHON="$$found" .venv-$*/installed || exit 1; \
	if .venv-$*/bin/pytest -q $(call PARALLEL,$(PROCESSES)) $(CORE) >.venv-$*/core.log 2>&1; \
	then echo "Python $*: $$(tail -1 .venv-$*/core.log)"; \
	else cat .venv-$*/core.log; echo "Python $*: failed"; exit 1; fi

# The core suite, and the tests of the neighbours, with the oldest libraries that pyproject.toml allows, in a venv of its own. The
# tools of the tests are the newest; typing-extensions and click are as new as these need.
EXTRAS_OF_USERS = $(filter-out docs,$(shell sed -n 's/^    "pgqueue-jobs\[\(asyncpg.*\)\]",$$/\1/p' pyproject.toml | tr , ' '))
OLDEST = .venv-oldest
test-oldest-libraries:
	@$(MAKE) -s --no-print-directory VENV=$(OLDEST) $(OLDEST)/installed
	@$(OLDEST)/bin/uv pip compile -q --resolution lowest-direct --python $(OLDEST)/bin/python $(EXTRAS_OF_USERS:%=--extra %) \
	    -o $(OLDEST)/libraries.txt pyproject.toml >/dev/null
	@$(OLDEST)/bin/uv pip install -q --python $(OLDEST)/bin/python -r $(OLDEST)/libraries.txt
	@$(OLDEST)/bin/uv pip install -q --python $(OLDEST)/bin/python "typing-extensions>=4.14.1" "click>=8.4"
	$(OLDEST)/bin/pytest -q $(call PARALLEL,$(PROCESSES)) $(CORE) $(addprefix tests/,cli dashboard neighbours)

# Breaks the code in each of some 40 ways: the model or the history has to catch each.
mutants: $(VENV)/installed
	PGQUEUE_TEST_MUTANTS=all $(BIN)/pytest -q -k mutation --timeout 1800 tests/model

# The model of a job's life with 1,000 sequences of steps, and all states of the protocol of claims.
model: $(VENV)/installed
	PGQUEUE_TEST_MODEL=1000 $(BIN)/pytest -q -s -k "not mutation" --timeout 7200 tests/model

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The long form of the faults; the suite runs a short one. docs/reliability.md has its figures.
ROUNDS ?= 22
RATE ?= 1000
chaos: $(VENV)/installed | pgbouncer faketime
	$(BIN)/pgqueue chaos --rounds $(ROUNDS) --rate $(RATE) --workers 3

# Measurements of our own: how cost grows, a long run, and the pipeline beside plain SQL and DuckDB. OPTIONS are those of the program,
# such as OPTIONS="--small" or OPTIONS="--help".
OPTIONS ?=
MEASURE = PYTHONPATH=tests $(BIN)/python -m
bench-grow: $(VENV)/installed
	$(MEASURE) bench.grow $(OPTIONS)
bench-soak: $(VENV)/installed
	$(MEASURE) bench.soak $(OPTIONS)
bench-pipeline: $(VENV)/installed | java
	$(MEASURE) bench.scale.command $(OPTIONS)

# The site of the documentation, in the folder site: warnings are errors. `python -m http.server -d site` shows it.
docs: $(VENV)/installed
	@$(BIN)/python docs/site/build.py && du -sh site

# The pictures of the dashboard in the docs.
pictures: $(VENV)/installed | chromium
	PYTHONPATH=tests $(BIN)/python tests/dashboard/pictures.py

# A wheel of the files that are here, in the folder dist.
wheel: $(VENV)/installed
	@rm -rf build dist && $(BIN)/pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir dist . && rm -rf build && ls dist

# What users of the extras install, without the tools of development, Spark and the embedded server: as a list (CycloneDX), and
# compared with the vulnerabilities that PyPI knows. A package that cannot be looked up fails the audit.
TOOLS = $(VENV)/security
USERS = asyncpg,dashboard,django,encryption,flask,metrics,otel,sentry,top
$(TOOLS): pyproject.toml
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/pip install -qq --disable-pip-version-check build cyclonedx-bom pip-audit "readme-renderer[md]" trove-classifiers twine
	@touch $@
$(VENV)/users: pyproject.toml
	@test -x $(VENV)/users/bin/python || $(PYTHON) -m venv $(VENV)/users
	@$(VENV)/users/bin/pip install -qq --disable-pip-version-check --no-compile \
	    ".[$(USERS)]"
	@touch $@

sbom: $(TOOLS) $(VENV)/users
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o sbom.json $(VENV)/users/bin/python

audit: $(TOOLS) $(VENV)/users
	@$(VENV)/users/bin/pip freeze --exclude pgqueue-jobs >$(VENV)/users.txt
	$(TOOLS)/bin/pip-audit --strict --no-deps --disable-pip --requirement $(VENV)/users.txt

# A release of the commit that is checked out, built, checked and tried; CONTRIBUTING.md says how one is made. URL is the page where
# the repository is published, which no file of it says.
URL ?=
release: $(VENV)/installed $(TOOLS)
	@PYTHONPATH=tests $(BIN)/python -m release --url "$(URL)" --extras $(USERS) --tools $(TOOLS)

# Each command installs only what it needs: the demo 165 MB, its pipeline also Spark, the tests all extras (1.4 GB). For the
# tests uv installs, on all cores, and compiles each module once: their processes would otherwise compile the same modules at
# the same time. Where uv cannot install, because pip has settings of its own, pip does.
PIP = $(BIN)/pip install -qq --disable-pip-version-check
$(VENV)/demo $(VENV)/demo-pipeline: INSTALL = $(PIP) --no-compile
$(VENV)/demo: EXTRAS = embedded,dashboard
$(VENV)/demo-pipeline: EXTRAS = embedded,report
$(VENV)/installed: EXTRAS = dev
$(VENV)/installed: INSTALL = $(PIP) uv && $(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode -e ".[dev]" || $(PIP)
$(VENV)/demo $(VENV)/demo-pipeline $(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "installing python3-venv (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq python3-venv >/dev/null; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test $(VENV)/installed -nt pyproject.toml || { echo "installing pgqueue-jobs[$(EXTRAS)] into $(VENV)"; \
	    $(INSTALL) -e ".[$(EXTRAS)]"; }
	@touch $@

# Optional, for who runs the suite more than once: Spark's classes as Java maps them into its memory. Writing them takes as much
# CPU as one run then saves (tests/java.py).
archive: $(VENV)/spark.jsa
$(VENV)/spark.jsa: $(VENV)/installed | java
	@$(BIN)/python tests/java.py $@

.PHONY: schemas pgbouncer debian-postgresql java chromium tmux promtool faketime systemd
pgbouncer:
	@command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer || { echo "installing pgbouncer (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq pgbouncer >/dev/null; }

# Reads the units of the docs; none is started.
systemd:
	@command -v systemd-analyze >/dev/null || { echo "installing systemd (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >/dev/null; }

# Misleads a worker about the time; a run without it leaves that fault out.
faketime:
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || { echo "installing libfaketime (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libfaketime >/dev/null; }

# Reads the metrics and the alert rules as Prometheus would; its server is not started.
promtool:
	@command -v promtool >/dev/null || { echo "installing prometheus (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; }

debian-postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo "installing postgresql (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null; }

# The schemas of Kubernetes and KEDA, by which the manifests of the docs are checked; 110 MB.
schemas: $(VENV)/schemas
$(VENV)/schemas: | $(VENV)/installed
	@$(PYTHON) -m venv $@ && $@/bin/pip install -qq --disable-pip-version-check "cloudcoil-models-keda>=2.16" "kubernetes-validate>=1.31" \
	    || { rm -rf $@; exit 1; }

# The browser in which the dashboard is tested.
chromium:
	@command -v chromium >/dev/null || { echo "installing chromium (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; }

tmux:
	@command -v tmux >/dev/null || { echo "installing tmux (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq tmux >/dev/null; }

# Spark runs on Java 17 or later.
java:
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || { echo "installing openjdk-17-jre-headless (Debian package)"; \
	    $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null; }

clean:
	rm -rf $(VENV) .venv-* build dist site *.egg-info .mypy_cache .ruff_cache
