PYTHON ?= python3
VENV ?= .venv
PIP_INSTALL = $(VENV)/bin/python -m pip install -q -c constraints.txt

.PHONY: demo test clean

demo: $(VENV)/.installed
	$(VENV)/bin/dp-calc demo

test: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) -e .
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
