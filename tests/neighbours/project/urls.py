"""The project's addresses."""

from django.contrib import admin
from django.urls import include, path

from pgqueue.django.views import health

urlpatterns = [
    path("admin/", admin.site.urls),
    path("pgqueue/health/", health),
    path("jobs/", include("pgqueue.django.dashboard")),
]
