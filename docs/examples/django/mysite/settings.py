"""The project's settings. Where PostgreSQL is, libpq finds in its own variables: PGHOST, PGUSER, PGPASSWORD, …."""

import os
from datetime import timedelta

SECRET_KEY = os.environ.get("SECRET_KEY", "only for development")
DEBUG = os.environ.get("DEBUG") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "mysite.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "shop"),
    }
}

INSTALLED_APPS = [
    "pgqueue.django",
    "shop",
]

PGQUEUE = {
    "QUEUES": ["default", "mail"],
    "HISTORY": timedelta(days=14),
}
