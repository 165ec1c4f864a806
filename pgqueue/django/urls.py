"""``path("pgqueue/", include("pgqueue.django.urls"))``: the health check at ``health/``."""

from django.urls import path

from pgqueue.django.views import health

app_name = "pgqueue"
urlpatterns = [path("health/", health, name="health")]
