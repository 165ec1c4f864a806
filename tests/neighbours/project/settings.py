"""The project's settings. Fixtures point the database at a fresh one for each test."""

import os

from psycopg.conninfo import conninfo_to_dict
from tenacity import wait_none

from pgqueue import Retry

SECRET_KEY = "for tests only"  # noqa: S105 - it guards nothing
DEBUG = "SHOP_DEBUG" in os.environ
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "neighbours.project.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_where = conninfo_to_dict(os.environ.get("SHOP_DSN", ""))
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _where.get("dbname", "shop"),
        "USER": _where.get("user", ""),
        "PASSWORD": _where.get("password", ""),
        "HOST": _where.get("host", ""),
        "PORT": str(_where.get("port", "")),
    },
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "pgqueue.django",
    "neighbours.project.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PGQUEUE: dict[str, object] = {"SCHEMA": os.environ.get("SHOP_SCHEMA", "pgqueue")}
TASKS = {
    "default": {"BACKEND": "pgqueue.django.TaskBackend", "QUEUES": ["default", "mail"]},
    "patient": {
        "BACKEND": "pgqueue.django.TaskBackend",
        "OPTIONS": {"max_attempts": 2, "retry": Retry(wait=wait_none())},
    },
}
