# make demo    show the cards of this machine, or a simulated one
# make test    all tests, on the wheel that users get
# make lint    style, types, imports, and a build in which warnings are errors
# make bench   measure
# make soak    ten minutes of the exporter with faults
# make format  let the formatters have their way
# make generate  write what is derived from metrics.def and status.def, the exporter's table and dashboards
# make clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEELS := build/wheel
SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE $(shell find dtk cli exporter/dtk_exporter man -type f ! -name '*.pyc')
C_FILES = $(shell find dtk/_native tests examples bench -name '*.[ch]' ! -name cdef.h)
PIP := $(BIN)/pip -qq --disable-pip-version-check

.PHONY: demo test lint bench soak format generate derived clean system peers
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	@if $(BIN)/dtk-smi -L >/dev/null 2>&1; then \
	    $(BIN)/dtk-smi; \
	else \
	    echo "No card was found here. This is a SIMULATED node, three looks at it:"; \
	    $(BIN)/dtk-smi --demo --loop 1 --count 3; \
	fi

test: $(VENV)/installed peers
	@$(BIN)/python tools/generate.py --check
	@$(BIN)/python tools/families.py --check
	@DTK_TEST_WHEEL=$$(echo $(CURDIR)/$(WHEELS)/*.whl) PYTHONPATH=tests \
	    $(BIN)/pytest -q -p require_plugin -n 2 --dist loadfile $(PYTEST_ARGS)

lint: $(VENV)/installed
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "ruff: run \`make format\`"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@PYTHONPATH=.:cli:exporter $(BIN)/lint-imports --no-logo --no-cache > build/imports || { cat build/imports; exit 1; }
	@$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	@cmake -S . -B build/developer -G Ninja --log-level=WARNING -DDTK_DEVELOPER=ON -DDTK_TESTS=ON >/dev/null
	@cmake --build build/developer -- --quiet

bench: $(VENV)/installed
	@for file in $(filter-out bench/soak.py,$(wildcard bench/*.py)); do $(BIN)/python $$file || exit; done

soak: $(VENV)/installed
	@$(BIN)/python bench/soak.py

format: $(VENV)/tools
	@$(BIN)/ruff check --fix-only --quiet; $(BIN)/ruff format --quiet
	@$(BIN)/clang-format -i $(C_FILES)

generate:
	@$(PYTHON) tools/generate.py
	@$(MAKE) -s derived

# They come from the catalogue as the built library has it, so after what is generated above.
derived: $(VENV)/installed
	@$(BIN)/python tools/families.py
	@$(BIN)/python tools/dashboards.py

clean:
	@rm -rf build $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment: first the tools, then the project as a wheel, again whenever a file of it changes.
$(VENV)/tools: pyproject.toml | system
	@echo "Setting up in $(VENV): a minute or so, once ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade "pip>=25.1"
	@$(PIP) install --group dev
	@touch $@

$(VENV)/installed: $(VENV)/tools $(SOURCES)
	@rm -rf $(WHEELS)
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(WHEELS) .
	@$(PIP) install $(WHEELS)/*.whl
	@$(PIP) install --no-deps --force-reinstall $(WHEELS)/*.whl
	@touch $@

# What pip cannot bring. Installed by apt where that is allowed, else named.
system:
	@missing=""; \
	for need in python3:python3 gcc:gcc g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config readelf:binutils strace:strace; do \
	    command -v "$${need%%:*}" >/dev/null || missing="$$missing $${need#*:}"; \
	done; \
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
	    || missing="$$missing python3-dev"; \
	[ -z "$$missing" ] || tools/apt-install $$missing || { echo "make: please install first:$$missing"; exit 1; }

# What tests are skipped without. It is asked for once; services that come with a package are not started.
peers:
	@wanted=""; \
	for want in bwrap:bubblewrap fusermount3:fuse3 rocm-smi:rocm-smi man:man-db groff:groff clang:clang chromium:chromium \
	    systemd-analyze:systemd promtool:prometheus prometheus-alertmanager:prometheus-alertmanager \
	    prometheus-node-exporter:prometheus-node-exporter; do \
	    command -v "$${want%%:*}" >/dev/null || [ -e build/wanted ] || wanted="$$wanted $${want#*:}"; \
	done; \
	[ -z "$$wanted" ] || { tools/apt-install $$wanted; mkdir -p build && touch build/wanted; }
