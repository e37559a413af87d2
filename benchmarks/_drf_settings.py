"""Django for `_drf_experiments`: nothing that its two views do not need, and connections that stay open."""

import os

ALLOWED_HOSTS = ["*"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["BENCHMARK_DATABASE"],
        "CONN_MAX_AGE": None,
        "OPTIONS": {"init_command": "PRAGMA query_only=ON; PRAGMA mmap_size=268435456"},
    }
}
INSTALLED_APPS: list[str] = []
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]  # for Content-Length
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
}
ROOT_URLCONF = "benchmarks._drf_experiments"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
