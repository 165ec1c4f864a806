"""The project's addresses."""

from django.urls import path
from shop import views

from pgqueue.django.views import health

urlpatterns = [
    path("orders/", views.orders),
    path("orders/<int:order_id>/", views.order),
    path("pgqueue/health/", health),
]
