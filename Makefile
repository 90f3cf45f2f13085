PYTHON ?= python3
VENV ?= .venv
# Without the constraints pip would take versions that the tests were not run with.
PIP_INSTALL = $(VENV)/bin/python -m pip install -q -c constraints.txt

.PHONY: demo test clean

demo: $(VENV)/.installed
	$(VENV)/bin/dp-calc demo

test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV); this takes a few minutes the first time."
	$(PIP_INSTALL) -e .
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV); this takes a few minutes the first time."
	$(PIP_INSTALL) -e '.[test]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist *.egg-info
