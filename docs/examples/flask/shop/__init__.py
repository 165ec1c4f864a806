"""A shop in Flask: an order and the job that sends its receipt are committed together, or neither is."""

import os

from flask import Flask

from shop.extensions import db, queue
from shop.orders import orders


def create_app() -> Flask:
    """Make the app; its database is the one that ``DATABASE_URL`` names."""
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["DATABASE_URL"]  # postgresql+psycopg://…
    app.config["PGQUEUE_QUEUES"] = ["default", "mail"]
    db.init_app(app)
    queue.init_app(app)
    app.register_blueprint(orders)
    app.cli.command("create-tables")(db.create_all)
    return app
