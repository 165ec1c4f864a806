"""A Django project for the tests of :mod:`pgqueue.django`: set up in this process by ``tests/neighbours/conftest.py``."""
