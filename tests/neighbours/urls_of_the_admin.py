"""Addresses of a project that has the admin, and not the dashboard."""

from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
