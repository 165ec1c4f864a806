"""The project's addresses."""

from django.contrib import admin
from django.urls import path

from pgqueue.django.views import health

urlpatterns = [
    path("admin/", admin.site.urls),
    path("pgqueue/health/", health),
]
