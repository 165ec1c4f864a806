"""The extensions: made once, and initialised for whichever app is made."""

from flask_sqlalchemy import SQLAlchemy

from pgqueue.flask import PgQueueFlask

db = SQLAlchemy()
queue = PgQueueFlask()
